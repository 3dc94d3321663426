"""Clocks that were set, computers that slept, and a network that is gone (DESIGN I7, CASES 72, 73)."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import EPOCH, Daemon, Lab
from support.lab_stories import HOUR, at_of, calls, first, running, the_job, trail
from vastd.core import billing, story
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.money import for_seconds
from vastd.core.rental import Phase, Trigger
from vastd.effects.attend import _note
from vastd.jobs.port import BoxJobState, JobSnapshot
from vastd.pulse import status_text
from vastd.simulator.faults import FaultKind

pytestmark = pytest.mark.sim

YEAR = 365 * 86_400.0
LONG = ("--seconds", "40000", "--output", "results/a.bin:1000")


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


def told(daemon: Daemon, kind: type[ev.DaemonEvent]) -> list[ev.DaemonEvent]:
    found = [stored.event for stored in daemon.store.events_before_end(500)]
    return [event for event in found if isinstance(event, kind)]


def jumps(daemon: Daemon) -> list[str]:
    return [
        event.jump for event in told(daemon, ev.ClockJumped) if isinstance(event, ev.ClockJumped)
    ]


@pytest.mark.parametrize("step_s", [400 * 86_400.0, 2 * HOUR, -2 * HOUR, -EPOCH])
async def test_a_clock_that_is_set_ends_no_machine_and_keeps_none_longer(
    autojump_clock: MockClock, lab: Lab, step_s: float
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=HOUR)
        await trio.sleep(600)
        lab.step_s = step_s
        await trio.sleep(600)

        assert first(daemon).ending is None
        assert jumps(daemon) == ["stepped"]
        assert billing.cost(first(daemon), daemon.shell.wall_clock()) < 10_000_000
        await daemon.settled()
        assert first(daemon).end_reason is Trigger.MAX_RUNTIME
        assert at_of(daemon, ev.EndDecided, first(daemon)) == rental.deadline_at - EPOCH
        times = [stored.event.at for stored in daemon.store.events_before_end(500)]
        assert times == sorted(times)


async def test_a_clock_that_is_set_makes_vast_be_asked_at_once(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        await trio.sleep(300)
        asked_at = daemon.poller.over_begun_at
        lab.step_s = HOUR
        daemon.ledger.wake()
        await trio.sleep(2)

        assert daemon.poller.over_begun_at - asked_at < 20 + 2


async def test_a_step_outlives_a_restart_and_is_over_with_the_machine(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=HOUR)
        lab.step_s = YEAR
        await trio.sleep(30)
        daemon.kill()
    await trio.sleep(60)
    async with lab.boot() as daemon:
        assert daemon.shell.clock.ahead == YEAR
        await daemon.settled()
        assert at_of(daemon, ev.EndDecided, first(daemon)) == rental.deadline_at - EPOCH

        await trio.sleep(60)
        assert daemon.shell.clock.ahead == 0.0
        assert daemon.shell.wall_clock() == lab.wall_clock()
        assert jumps(daemon) == ["stepped", "stepped", "believed"]


@pytest.mark.parametrize("rtc_s", [-EPOCH, -YEAR, YEAR])
@pytest.mark.parametrize("vast_answers_at_once", [True, False])
@pytest.mark.parametrize("killed", [True, False])
async def test_a_reboot_with_a_wrong_battery_clock_ends_nothing(
    autojump_clock: MockClock, lab: Lab, rtc_s: float, vast_answers_at_once: bool, killed: bool
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=HOUR)
        daemon.kill()
    lab.boots, lab.step_s = 2, rtc_s
    await trio.sleep(100)
    if not vast_answers_at_once:
        lab.faults.cut_network(lab.true_time(), lab.true_time() + 300)
    if killed:
        async with lab.boot() as daemon:
            await trio.sleep(50)
            assert first(daemon).ending is None
    async with lab.boot() as daemon:
        await trio.sleep(200)
        assert first(daemon).ending is None
        await trio.sleep(200)
        assert abs(daemon.shell.wall_clock() - lab.true_time()) < 2

        lab.step_s = 0.0  # the time service mends it
        await daemon.settled()
        decided = at_of(daemon, ev.EndDecided, first(daemon))
        assert 0 <= decided - (rental.deadline_at - EPOCH) < 2
        assert first(daemon).end_reason is Trigger.MAX_RUNTIME
        # What the corrected clock dated is in order, and so is the bill.
        since = [segment.since for segment in first(daemon).rates]
        assert since == sorted(since)
        assert first(daemon).instance_id is not None
        true = lab.market.billed(first(daemon).instance_id or 0)
        ours = billing.cost(first(daemon), daemon.shell.wall_clock())
        assert true <= ours <= true + for_seconds(billing.expected_rate(first(daemon)), 150.0)


async def test_the_listing_that_corrects_a_clock_is_not_dated_by_the_wrong_one(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG)
        daemon.kill()
    lab.reboot(wrong_s=YEAR)
    async with lab.boot() as daemon:
        shell = daemon.shell
        await daemon.until(lambda: shell.observed.world.inventory.as_of is not None, within_s=60)
        world = shell.observed.world

        assert world.inventory.as_of is not None
        assert world.inventory.as_of <= lab.true_time()
        assert daemon.poller.over_begun_at <= lab.true_time()
        seen = world.of(rental.rental_id).seen_begun_at
        assert seen is not None
        assert seen <= lab.true_time()


async def test_a_deadline_that_passed_in_a_suspend_is_kept_after_vast_was_asked(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=HOUR)
        await trio.sleep(20)
        assert rental.deadline_at is not None
        # Past the deadline, and before the guard on the machine ends it.
        lab.suspend(rental.deadline_at + 10 - lab.true_time())
        woke = lab.true_time()
        await daemon.until(lambda: first(daemon).ending is not None, within_s=60)

        assert daemon.poller.over_begun_at >= woke
        assert first(daemon).end_reason is Trigger.MAX_RUNTIME
        await daemon.settled(within_s=HOUR)
        assert the_job(daemon).collected is True
        assert jumps(daemon)[0] == "slept"


async def test_time_that_a_paused_computer_did_not_count_counts_for_a_deadline(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=HOUR)
        await trio.sleep(20)
        assert rental.deadline_at is not None
        lab.suspend(rental.deadline_at - 120 - lab.true_time(), counted=False)
        await daemon.until(lambda: first(daemon).ending is not None, within_s=300)

        assert jumps(daemon)[0] == "missed"
        assert abs(lab.true_time() - rental.deadline_at) < 2
        assert first(daemon).end_reason is Trigger.MAX_RUNTIME


async def test_a_stopped_process_that_goes_on_decides_nothing_before_it_has_listed(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG, max_runtime_s=HOUR)
        lab.faults.inject("list", FaultKind.TIMEOUT, times=1)
        deadline_at = first(daemon).deadline_at
        assert deadline_at is not None
        lab.suspend(deadline_at + 5 - lab.true_time())
        await trio.sleep(20)  # the first listing after it hangs

        assert first(daemon).ending is None
        await daemon.until(lambda: first(daemon).ending is not None, within_s=300)


async def test_our_own_network_down_freezes_silence_and_is_said_once(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        words = ("--seconds", "4500", "--output", "results/a.bin:1000")
        await running(lab, daemon, *words, heartbeat_path="hb.json", heartbeat_interval_s=60.0)
        cut_at = lab.true_time()
        lab.faults.cut_network(cut_at, cut_at + 1800)
        await trio.sleep(1700)

        [lost] = told(daemon, ev.NetworkLost)
        assert isinstance(lost, ev.NetworkLost)
        assert cut_at <= lost.since <= lost.at <= cut_at + 180
        assert "your own network seems down since" in story.tell(lost).text
        assert "your own network seems down since" in status_text(daemon.shell)
        assert daemon.shell.observed.world.network_down_since == lost.since
        assert first(daemon).warned == frozenset()
        await trio.sleep(200)
        assert len(told(daemon, ev.NetworkBack)) == 1
        assert daemon.shell.observed.world.network_down_since is None
        assert the_job(daemon).state is JobState.RUNNING
        await daemon.settled()
        assert the_job(daemon).state is JobState.SUCCEEDED
        assert len(told(daemon, ev.NetworkLost)) == 1


async def test_a_deadline_in_an_outage_holds_and_the_job_still_saves_and_comes_home(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=HOUR)
        await trio.sleep(1800)
        assert rental.deadline_at is not None
        # Until after the deadline, and before the guard on the machine ends it.
        lab.faults.cut_network(lab.true_time(), rental.deadline_at + 20)
        await daemon.settled()

        assert at_of(daemon, ev.EndDecided, first(daemon)) == rental.deadline_at - EPOCH
        # Its silence was ours: no stop without TERM, and no result left behind.
        assert calls(lab, "create", "stop", "destroy") == ["create", "destroy"]
        assert the_job(daemon).collected is True
        assert the_job(daemon).state is JobState.TIMED_OUT
        assert "collect_failed" not in trail(daemon)


async def test_a_collection_in_an_outage_wears_out_no_patience(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, "--seconds", "300", "--output", "results/a.bin:1000")
        await daemon.until(lambda: first(daemon).phase is Phase.COLLECTING, within_s=HOUR)
        lab.faults.cut_network(lab.true_time(), lab.true_time() + 2 * HOUR)
        await daemon.settled(within_s=3 * HOUR)

        assert the_job(daemon).collected is True
        assert calls(lab, "create", "stop", "destroy") == ["create", "destroy"]


async def test_vast_alone_not_answering_is_not_our_network(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        lab.faults.inject(
            "list", FaultKind.LOSE_REQUEST, times=None, until_at=lab.true_time() + HOUR
        )
        await trio.sleep(1800)

        assert told(daemon, ev.NetworkLost) == []
        assert "listing_stale" in first(daemon).warned


@pytest.mark.parametrize("off_s", [-3600.0, -150.0, 0.0, 150.0, 3600.0, -EPOCH])
async def test_a_machine_whose_clock_is_wrong_has_heartbeats_of_the_right_age(
    autojump_clock: MockClock, lab: Lab, off_s: float
) -> None:
    """Its age on the machine's own clock counts (WAT-05), not the instants it tells."""
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG)
        theirs = lab.true_time() + off_s
        beat = JobSnapshot(
            state=BoxJobState.RUNNING, box_clock=theirs, box_heartbeat_at=theirs - 40.0, log_bytes=0
        )

        _note(daemon.shell, rental.rental_id, beat)

        seen = daemon.shell.observed.world.of(rental.rental_id).beat
        assert seen is not None
        assert seen.at == pytest.approx(daemon.shell.wall_clock() - 40.0, abs=1e-6)


@pytest.mark.parametrize("counted", [True, False])
async def test_a_log_goes_on_after_a_suspend_without_a_hole_or_a_repeat(
    autojump_clock: MockClock, lab: Lab, counted: bool
) -> None:
    """CASES 71: the follower resumes by offset."""
    async with lab.boot() as daemon:
        await running(lab, daemon, "--seconds", "1800", "--log-lines", "500")
        for _ in range(2):
            await trio.sleep(200)
            lab.suspend(600, counted=counted)
        await daemon.settled()

        lines = daemon.shell.logs.path(the_job(daemon).job_id).read_bytes().splitlines()
    assert len(lines) == len(set(lines)) == 500
    assert the_job(daemon).state is JobState.SUCCEEDED
