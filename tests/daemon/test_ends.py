"""Every end: in which order, at what price, and never at the price of results."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import EPOCH, Daemon, Lab
from support.lab_stories import HOUR, WORK, calls, first, running, the_job, trail
from vastd.core import billing
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.money import for_seconds, from_usd
from vastd.core.rental import Phase, Trigger
from vastd.simulator.faults import FaultKind, MachineFault, MachineFaultKind

pytestmark = pytest.mark.sim

LONG = ("--seconds", "40000", "--output", "results/a.bin:1000")
CHECKPOINT = "results/checkpoint.bin"
AN_END = [
    "end_decided", "job_left", "collect_verified", "destroy_decided", "destroy_tried",
    "found_absent",
]  # fmt: skip


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


def story_of(daemon: Daemon, *kinds: str) -> list[str]:
    found = daemon.store.events_after(0, 10_000)
    return [ev.kind(s.event) for s in found if not kinds or ev.kind(s.event) in kinds]


def decide(daemon: Daemon, **changes: object) -> None:
    fields: dict[str, object] = {"trigger": Trigger.USER, "why": "told to"}
    now = daemon.shell.wall_clock()
    daemon.ledger.commit(
        ev.EndDecided(rental_id=first(daemon).rental_id, at=now, **{**fields, **changes})  # type: ignore[arg-type]
    )


async def test_max_runtime_asks_to_save_collects_and_only_then_destroys(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=HOUR)
        deadline = rental.deadline_at
        await daemon.settled()

        job = the_job(daemon)
        assert (job.state, job.collected, job.exit_code) == (JobState.TIMED_OUT, True, 143)
        assert trail(daemon)[-6:] == AN_END
        order = ("term_sent", "job_finished", "collected", "destroy_tried")
        assert story_of(daemon, *order) == list(order)
        assert first(daemon).ending is not None
        assert deadline is not None
        assert 0 <= first(daemon).ending.at - deadline < 0.001  # type: ignore[union-attr]
        assert 0 <= job.term_at - deadline < 8  # type: ignore[operator]
    assert (lab.project / CHECKPOINT).stat().st_size == 2000
    assert calls(lab, "create", "stop", "destroy") == ["create", "destroy"]


async def test_a_job_that_ignores_term_is_killed_after_its_grace_and_not_before(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG, "--ignore-term", max_runtime_s=HOUR, grace_s=120.0)
        await daemon.settled()

        job = the_job(daemon)
        assert job.state is JobState.TIMED_OUT
        assert 120 <= job.ended_at - job.term_at < 140  # type: ignore[operator]


async def test_a_budget_ends_the_machine_before_it_is_overspent(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        cap = from_usd(0.10)
        rental = await running(lab, daemon, *LONG, budget=cap)
        await daemon.settled(within_s=12 * HOUR)

        ended = first(daemon)
        assert (ended.end_reason, the_job(daemon).collected) == (Trigger.BUDGET, True)
        assert "budget_warn" in ended.warned
        spent = lab.market.billed(rental.instance_id or 0)
        wind_down = for_seconds(billing.expected_rate(ended), 110.0)
        assert cap - 2 * wind_down < spent <= billing.cost(ended, EPOCH + 1e6) <= cap


async def test_a_job_that_falls_silent_is_ended_and_one_that_beats_is_not(
    autojump_clock: MockClock, lab: Lab
) -> None:
    beating = {"heartbeat_path": "hb.json", "heartbeat_interval_s": 60.0, "max_runtime_s": HOUR}
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG, "--heartbeats-stop", "600", **beating)
        await daemon.settled()

        job = the_job(daemon)
        assert first(daemon).end_reason is Trigger.HEARTBEAT_STALE
        assert (job.state, job.collected) == (JobState.TIMED_OUT, True)
        # silent from 600 s on, stale 120 s later, seen within a look and a supervisor's look
        assert 720 <= job.term_at - job.started_at < 750  # type: ignore[operator]


async def test_cancelling_asks_to_save_and_brings_it_home(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        daemon.ledger.commit(ev.CancelAsked(job_id="j000001", at=daemon.shell.wall_clock()))
        await daemon.settled(within_s=300)

        assert (the_job(daemon).state, the_job(daemon).collected) == (JobState.CANCELLED, True)
    assert (lab.project / CHECKPOINT).exists()


async def test_cancelling_while_placing_ends_the_machine_and_rents_no_other(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.until(lambda: bool(daemon.ledger.live()) and first(daemon).phase
                           is Phase.BOOTING, within_s=60)  # fmt: skip
        daemon.ledger.commit(ev.CancelAsked(job_id="j000001", at=daemon.shell.wall_clock()))
        await daemon.settled(within_s=300)

        assert the_job(daemon).state is JobState.CANCELLED
    assert calls(lab, "create", "destroy") == ["create", "destroy"]
    assert lab.market.live_contracts() == []


@pytest.mark.parametrize("force", [False, True])
async def test_destroying_under_a_job_lets_it_save_even_when_forced(
    autojump_clock: MockClock, lab: Lab, force: bool
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        decide(daemon, force=force)
        await daemon.settled(within_s=300)

        assert (the_job(daemon).state, the_job(daemon).collected) == (JobState.CANCELLED, True)
        assert trail(daemon)[-6:] == AN_END


async def test_force_without_collecting_destroys_at_once(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        decide(daemon, force=True, collect=False)
        await daemon.until(lambda: first(daemon).phase is Phase.DESTROYING, within_s=1)
        await daemon.settled(within_s=300)

        await trio.sleep(1)
        assert "term_sent" not in story_of(daemon)
        assert (the_job(daemon).state, the_job(daemon).collected) == (JobState.CANCELLED, False)


async def test_a_copy_that_fails_five_times_holds_the_machine_and_force_lets_it_go(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.faults.inject("box.collect", FaultKind.DISK_FULL, times=None)
    async with lab.boot() as daemon:
        await running(lab, daemon, *WORK)
        await daemon.until(lambda: the_job(daemon).collect_final, within_s=HOUR)
        await trio.sleep(HOUR)

        assert first(daemon).phase is Phase.READY
        assert story_of(daemon, "not_collected") == ["not_collected"] * 5
        assert calls(lab, "stop", "destroy") == []
        decide(daemon)
        await trio.sleep(HOUR)
        assert calls(lab, "stop", "destroy") == []
        decide(daemon, force=True)
        await daemon.settled(within_s=300)
    assert calls(lab, "stop", "destroy") == ["destroy"]


async def test_a_limit_on_a_held_machine_stops_it_and_the_disk_keeps_the_results(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.faults.inject("box.collect", FaultKind.DISK_FULL, times=None)
    async with lab.boot() as daemon:
        await running(lab, daemon, *WORK, max_runtime_s=HOUR)
        await daemon.until(lambda: first(daemon).phase is Phase.STOPPED, within_s=2 * HOUR)
        await trio.sleep(HOUR)

        assert first(daemon).phase is Phase.STOPPED
    assert calls(lab, "stop", "destroy") == ["stop"]
    assert len(lab.market.live_contracts()) == 1


async def test_a_local_disk_that_is_full_for_a_while_delays_the_results(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.faults.inject("box.collect", FaultKind.DISK_FULL, times=3)
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        assert the_job(daemon).collected is True
        assert story_of(daemon, "not_collected") == ["not_collected"] * 3


async def test_a_destroy_is_repeated_until_it_is_accepted_and_shouted_about(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.faults.inject("destroy", FaultKind.HTTP_500, times=8)
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        rental = first(daemon)
        assert (rental.destroy_tries, rental.destroy_accepted) == (9, True)
        assert "destroy_unconfirmed" in rental.warned
    assert lab.market.live_contracts() == []


async def test_the_proof_of_the_end_is_two_listings_after_the_settle_time(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        rental = first(daemon)
        assert rental.destroy_tried_at is not None
        assert rental.ended_at is not None
        assert 32 <= rental.ended_at - rental.destroy_tried_at < 60


async def test_a_boot_fault_at_every_try_costs_no_more_than_its_disks(
    autojump_clock: MockClock, lab: Lab
) -> None:
    for _ in range(3):
        lab.market.afflict(MachineFault(kind=MachineFaultKind.BOOT_STUCK))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        assert the_job(daemon).failure == "provisioning"
    assert lab.market.total_billed() < from_usd(0.02)
