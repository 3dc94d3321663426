"""Stop and start where two wishes, or a wish and a fact, meet."""

from collections.abc import AsyncIterator

import pytest
import trio
from msgspec import structs
from trio.testing import MockClock

from support.builders import (
    LIMITS,
    RENTAL_ID,
    T0,
    a_done_job,
    a_job,
    a_rental,
    a_watch,
)  # fmt: skip
from support.daemon_in_memory import Daemon, Lab
from support.lab_stories import HOUR, calls, first, in_phase, running
from vastd.core import events as ev
from vastd.core import lifecycle, steps, watchdogs
from vastd.core.job import JobState
from vastd.core.observed import Sighting
from vastd.core.rental import Pause, Phase, Policy
from vastd.core.steps import Do
from vastd.simulator.faults import FaultKind

pytestmark = pytest.mark.sim

LONG = ("--seconds", "40000", "--output", "results/a.bin:1000")
LUNCH = Pause(at=T0, why="lunch")
DEAF = Sighting(unreachable_since=T0)


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


def stop(daemon: Daemon, *, collect: bool = True) -> None:
    rental, now = first(daemon), daemon.shell.wall_clock()
    jobs = [job for job in daemon.ledger.jobs_of(rental.rental_id) if job.active]
    asked = ev.StopAsked(rental_id=rental.rental_id, at=now, why="lunch", collect=collect)
    daemon.ledger.commit(*(ev.CancelAsked(job_id=job.job_id, at=now) for job in jobs), asked)


def start(daemon: Daemon) -> None:
    now = daemon.shell.wall_clock()
    daemon.ledger.commit(ev.StartAsked(rental_id=first(daemon).rental_id, at=now))


async def stopped(lab: Lab, daemon: Daemon, *, collect: bool = True, **policy: object) -> None:
    await running(lab, daemon, *LONG, **policy)
    await trio.sleep(60)
    stop(daemon, collect=collect)
    await in_phase(daemon, Phase.STOPPED)


def test_a_machine_whose_job_cannot_be_told_is_stopped_all_the_same() -> None:
    busy = a_rental(Phase.BUSY, pause=LUNCH)
    job = a_job(JobState.UNKNOWN, cancel_at=T0)
    patience = LIMITS.ssh_budget_s

    soon = steps.next_step(busy, [job], DEAF, LIMITS, T0 + patience - 1)
    then = steps.next_step(busy, [job], DEAF, LIMITS, T0 + patience)

    assert (soon.do, then.do) == (Do.ATTEND, Do.STOP)


def test_a_job_that_keeps_a_machine_from_being_stopped_is_shouted_about() -> None:
    busy = a_rental(Phase.BUSY, pause=LUNCH, policy=Policy(grace_s=60.0))

    alarm = watchdogs.stop_unconfirmed(a_watch(busy, a_job()))

    assert alarm is not None
    assert alarm.at == T0 + 60 + LIMITS.destroy_shout_s


def test_the_time_it_stood_still_counts_whole_when_a_start_is_taken_back() -> None:
    rental = a_rental(
        Phase.STOPPED, pause=LUNCH, paused_at=T0, stop_tried_at=T0, stop_accepted=True
    )
    asked = lifecycle.evolve(rental, ev.StartAsked(rental_id=RENTAL_ID, at=T0 + 9 * HOUR))
    back = lifecycle.evolve(asked, ev.StopAsked(rental_id=RENTAL_ID, at=T0 + 10 * HOUR, why="no"))
    again = lifecycle.evolve(back, ev.InstanceResumed(rental_id=RENTAL_ID, at=T0 + 11 * HOUR))

    assert again.deadline_at == T0 + 43_200.0 + 11 * HOUR


def test_nobody_loses_a_machine_by_having_it_back() -> None:
    rental = a_rental(Phase.STOPPED, pause=LUNCH, paused_at=T0, stop_accepted=True)
    asked = lifecycle.evolve(rental, ev.StartAsked(rental_id=RENTAL_ID, at=T0 + 60))
    back = lifecycle.evolve(asked, ev.InstanceResumed(rental_id=RENTAL_ID, at=T0 + 120))
    usable = structs.replace(back, start_asked_at=None)

    step = steps.next_step(usable, [a_done_job()], Sighting(), LIMITS, T0 + 180)

    assert step.do is Do.NOTHING


@pytest.mark.sim
async def test_a_stop_that_fails_is_repeated_although_the_start_before_it_succeeded(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await stopped(lab, daemon, keep=True)
        start(daemon)
        await daemon.until(lambda: first(daemon).start_accepted, within_s=HOUR)
        lab.faults.inject("stop", FaultKind.HTTP_500, times=3)

        stop(daemon)
        await trio.sleep(2 * HOUR)

        assert first(daemon).phase is Phase.STOPPED
        assert calls(lab, "stop") == ["stop", "stop"]


@pytest.mark.sim
async def test_a_start_is_taken_back_also_when_the_end_of_the_machine_is_decided(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await stopped(lab, daemon, keep=True, collect=False)
        now = daemon.shell.wall_clock()
        decided = ev.EndDecided(
            rental_id=first(daemon).rental_id, at=now, trigger="budget", why="used up"  # type: ignore[arg-type]
        )  # fmt: skip
        daemon.ledger.commit(decided)
        lab.faults.inject("start", FaultKind.HTTP_500_AFTER, times=1000)
        start(daemon)
        await trio.sleep(1)
        before = calls(lab, "stop")

        stop(daemon, collect=False)
        await trio.sleep(60)

        assert len(calls(lab, "stop")) == len(before) + 1


@pytest.mark.sim
async def test_a_machine_rented_for_one_job_is_still_there_after_stop_and_start(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await stopped(lab, daemon)
        start(daemon)
        await in_phase(daemon, Phase.READY)
        await trio.sleep(HOUR)

        assert first(daemon).phase is Phase.READY
        assert first(daemon).policy.keep
