"""Stop and start: the GPU is given back and had again, whatever comes in between."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import EPOCH, Daemon, Lab
from support.lab_stories import HOUR, WORK, calls, first, in_phase, running, the_job, trail
from vastd.core import billing
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.rental import Phase, Policy, Rental
from vastd.simulator.faults import FaultKind, MachineFault, MachineFaultKind

pytestmark = pytest.mark.sim

DAY = 86_400.0
LONG = ("--seconds", "40000", "--output", "results/a.bin:1000")


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


def ask_stop(daemon: Daemon, *, collect: bool = True) -> None:
    """As `rental.stop --force` does."""
    rental, now = first(daemon), daemon.shell.wall_clock()
    cancelled = [
        ev.CancelAsked(job_id=job.job_id, at=now)
        for job in daemon.ledger.jobs_of(rental.rental_id)
        if job.active
    ]
    asked = ev.StopAsked(rental_id=rental.rental_id, at=now, why="lunch", collect=collect)
    daemon.ledger.commit(*cancelled, asked)


def ask_start(daemon: Daemon) -> None:
    daemon.ledger.commit(
        ev.StartAsked(rental_id=first(daemon).rental_id, at=daemon.shell.wall_clock())
    )


async def paused(lab: Lab, daemon: Daemon, **policy: object) -> Rental:
    """A machine whose job was ended by the stop, with its results home."""
    await running(lab, daemon, *LONG, keep=True, **policy)
    await trio.sleep(60)
    ask_stop(daemon)
    return await in_phase(daemon, Phase.STOPPED)


async def test_a_forced_stop_ends_the_job_brings_results_home_and_gives_the_gpu_back(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await paused(lab, daemon)

        job = the_job(daemon)
        assert (job.state, job.collected) == (JobState.CANCELLED, True)
        assert trail(daemon)[-5:] == [
            "stop_asked", "job_left", "collect_verified", "stop_tried", "instance_stopped",
        ]  # fmt: skip
        await trio.sleep(2 * HOUR)
        assert first(daemon).phase is Phase.STOPPED
        assert billing.rate(first(daemon)) == billing.storage_rate(rental, _row(daemon))
        assert calls(lab, "stop") == ["stop"]  # one was enough
        assert calls(lab, "destroy") == []


def told(daemon: Daemon) -> list[str]:
    """The trail without the attempts to reach a machine whose sshd is not up yet."""
    return [kind for kind in trail(daemon) if kind != "collect_failed"]


def _row(daemon: Daemon):  # type: ignore[no-untyped-def]
    return daemon.shell.observed.world.of(first(daemon).rental_id).instance


async def test_a_stop_without_collection_leaves_results_on_the_disk_until_it_is_back(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG, keep=True)
        await trio.sleep(60)
        ask_stop(daemon, collect=False)
        await in_phase(daemon, Phase.STOPPED)
        assert the_job(daemon).collected is None

        ask_start(daemon)
        await daemon.until(lambda: the_job(daemon).collected is True, within_s=HOUR)

        assert told(daemon)[-5:] == [
            "start_asked", "start_tried", "instance_resumed", "became_ready", "collect_verified",
        ]  # fmt: skip


async def test_a_started_machine_runs_the_next_job(autojump_clock: MockClock, lab: Lab) -> None:
    async with lab.boot() as daemon:
        rental = await paused(lab, daemon)
        second = daemon.submit(
            *WORK, project=lab.project, outputs=["results/"], rental_id=rental.rental_id
        )
        await trio.sleep(HOUR)
        assert daemon.ledger.job(second).state is JobState.QUEUED  # it waits for the machine

        ask_start(daemon)
        await daemon.until(lambda: daemon.ledger.job(second).collected is True, within_s=HOUR)

        assert daemon.ledger.job(second).state is JobState.SUCCEEDED


async def test_time_that_a_machine_stands_still_as_asked_is_no_run_time(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await paused(lab, daemon, max_runtime_s=2 * HOUR)
        deadline = rental.deadline_at
        stopped_at = first(daemon).phase_since

        await trio.sleep(5 * HOUR)  # far beyond it
        assert first(daemon).phase is Phase.STOPPED
        ask_start(daemon)
        await in_phase(daemon, Phase.READY)

        back = first(daemon)
        assert deadline is not None
        assert back.deadline_at == deadline + (back.phase_since - stopped_at)
        await daemon.settled(within_s=4 * HOUR)
        assert (first(daemon).end_reason, first(daemon).ending.at) == (  # type: ignore[union-attr]
            "max_runtime", back.deadline_at,
        )  # fmt: skip


async def test_time_that_a_machine_stands_still_is_no_idle_time(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await paused(lab, daemon, idle_s=1200.0)
        await trio.sleep(5 * HOUR)
        ask_start(daemon)
        back = await in_phase(daemon, Phase.READY)

        await daemon.settled(within_s=HOUR)

        ending = first(daemon).ending
        assert ending is not None
        assert ending.trigger == "idle"
        # At the first listing that shows it idle when the limit is over.
        assert 1200 <= ending.at - back.phase_since <= 1200 + 21


async def test_storage_counts_against_the_budget_of_a_stopped_machine(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await paused(lab, daemon, budget=None)
        spent = billing.cost(first(daemon), daemon.shell.wall_clock())
        policy = Policy(keep=True, budget=spent + billing.rate(first(daemon)) * 10)
        daemon.ledger.commit(
            ev.PolicyChanged(
                rental_id=rental.rental_id, at=daemon.shell.wall_clock(), policy=policy,
                deadline_at=rental.deadline_at, changes={},
            )
        )  # fmt: skip

        await daemon.settled(within_s=11 * HOUR)

        assert first(daemon).end_reason == "budget"
        billed = lab.market.billed(rental.instance_id)  # type: ignore[arg-type]
        assert policy.budget is not None
        assert billed <= policy.budget


async def test_a_stopped_machine_is_told_of_every_day_beginning_a_day_later(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await paused(lab, daemon, budget=None)
        stopped_at = first(daemon).phase_since

        await trio.sleep(3.5 * DAY)

        told = [
            s.event.at - stopped_at
            for s in daemon.store.events_of(rental_id=first(daemon).rental_id)
            if isinstance(s.event, ev.Warned) and s.event.watchdog.startswith("held")
        ]
        assert [round(at / DAY, 3) for at in told] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "fault", [FaultKind.LOSE_REQUEST, FaultKind.LOSE_ANSWER, FaultKind.HTTP_500]
)
async def test_a_stop_is_repeated_until_it_is_seen(
    autojump_clock: MockClock, lab: Lab, fault: FaultKind
) -> None:
    lab.faults.inject("stop", fault, times=3)
    async with lab.boot() as daemon:
        await paused(lab, daemon)

        assert billing.rate(first(daemon)) < billing.expected_rate(first(daemon))


async def test_a_stop_that_vast_refuses_for_ever_is_shouted_about(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.faults.inject("stop", FaultKind.HTTP_500, times=1000)
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG, keep=True)
        ask_stop(daemon)
        await trio.sleep(HOUR)

        assert first(daemon).phase is Phase.READY
        assert "stop_unconfirmed" in first(daemon).warned


@pytest.mark.parametrize(
    "fault", [FaultKind.LOSE_REQUEST, FaultKind.LOSE_ANSWER, FaultKind.HTTP_500]
)
async def test_a_start_is_repeated_until_it_runs(
    autojump_clock: MockClock, lab: Lab, fault: FaultKind
) -> None:
    async with lab.boot() as daemon:
        await paused(lab, daemon)
        lab.faults.inject("start", fault, times=2)

        ask_start(daemon)
        await daemon.until(
            lambda: first(daemon).phase is Phase.READY and first(daemon).start_asked_at is None,
            within_s=HOUR,
        )

        assert trail(daemon)[-2:] == ["instance_resumed", "became_ready"]


async def test_a_stop_takes_a_start_back_that_waits_at_vast(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await paused(lab, daemon)
        lab.faults.inject("start", FaultKind.HTTP_500_AFTER, times=1)
        ask_start(daemon)
        await trio.sleep(0.5)
        ask_stop(daemon)
        await daemon.until(lambda: first(daemon).stop_accepted, within_s=HOUR)

        await trio.sleep(2 * HOUR)
        assert first(daemon).phase is Phase.STOPPED
        assert billing.rate(first(daemon)) < billing.expected_rate(first(daemon))


async def test_a_machine_somebody_starts_elsewhere_is_no_longer_held_stopped(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await paused(lab, daemon)
        lab.market.start(rental.instance_id)  # type: ignore[arg-type]
        await in_phase(daemon, Phase.READY)

        await trio.sleep(600)

        assert first(daemon).pause is None
        assert first(daemon).phase is Phase.READY
        assert calls(lab, "stop") == ["stop"]


async def test_a_limit_that_came_while_it_stood_still_is_carried_out_after_the_rescue(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG, keep=True)
        await trio.sleep(60)
        ask_stop(daemon, collect=False)
        rental = await in_phase(daemon, Phase.STOPPED)
        daemon.ledger.commit(
            ev.EndDecided(
                rental_id=rental.rental_id, at=daemon.shell.wall_clock(),
                trigger="budget", why="used up",  # type: ignore[arg-type]
            )
        )  # fmt: skip
        await trio.sleep(HOUR)
        assert first(daemon).phase is Phase.STOPPED  # its disk has the only copy

        ask_start(daemon)
        await daemon.settled(within_s=HOUR)

        assert the_job(daemon).collected is True
        assert told(daemon)[-6:] == [
            "start_tried", "instance_resumed", "collect_verified", "destroy_decided",
            "destroy_tried", "found_absent",
        ]  # fmt: skip


@pytest.mark.parametrize("kill_after_s", [0.0, 1.0, 30.0, 70.0])
async def test_a_killed_daemon_carries_the_stop_out_when_it_is_back(
    autojump_clock: MockClock, lab: Lab, kill_after_s: float
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG, keep=True)
        ask_stop(daemon)
        await trio.sleep(kill_after_s)
        daemon.kill()
    await trio.sleep(300)
    async with lab.boot() as daemon:
        await in_phase(daemon, Phase.STOPPED)

        assert the_job(daemon).collected is True
        assert lab.clock() > EPOCH


async def test_a_host_lost_while_stopped_is_proven_gone(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=MachineFaultKind.VANISH, after_s=2 * HOUR))
    async with lab.boot() as daemon:
        await paused(lab, daemon)

        await daemon.settled(within_s=5 * HOUR)

        assert first(daemon).end_reason == "vanished"
