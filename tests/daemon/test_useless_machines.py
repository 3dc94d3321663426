"""How machines end that nobody can use: out of reach, met by a bug, dearer than agreed, stuck at Vast."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import Daemon, Lab
from support.lab_stories import HOUR, befall, calls, first, in_phase, running, the_job
from vastd.core import billing
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.money import Micros, for_seconds, show_rate
from vastd.core.rental import Phase, Policy, Trigger
from vastd.simulator.faults import FaultKind, MachineFaultKind

pytestmark = pytest.mark.sim

LONG = ("--seconds", "9000", "--output", "results/a.bin:1000")


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


def warnings(daemon: Daemon, name: str) -> list[str]:
    found = [s.event for s in daemon.store.events_of(rental_id=first(daemon).rental_id)]
    return [e.why for e in found if isinstance(e, ev.Warned) and e.watchdog.startswith(name)]


def silence(lab: Lab, seconds: float) -> None:
    """Let no machine answer for so long."""
    until = lab.true_time() + seconds
    lab.faults.inject("box.*", FaultKind.LOSE_REQUEST, times=None, until_at=until)


async def test_out_of_reach_for_longer_than_allowed_it_is_stopped_and_the_disk_kept(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, unreachable_end_s=HOUR)
        silence(lab, 50 * HOUR)
        still = await in_phase(daemon, Phase.STOPPED, within_s=2 * HOUR)
        await daemon.until(lambda: the_job(daemon).finished, within_s=60)

        assert still.end_reason is Trigger.UNREACHABLE
        assert still.ending is not None
        assert still.phase_since - still.ending.at < 120
        assert "did not answer for 3600 s" in (the_job(daemon).reason or "")
        await trio.sleep(24 * HOUR)
        assert first(daemon).phase is Phase.STOPPED  # I12: the results may be there
    assert calls(lab, "destroy") == []
    assert lab.market.world.contracts[rental.instance_id or 0].is_up is False


async def test_out_of_reach_it_is_bounded_by_its_deadline_alone_unless_told_otherwise(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG, max_runtime_s=2 * HOUR)
        await trio.sleep(60)  # its lease reaches to the deadline now
        silence(lab, 9 * HOUR)
        still = await in_phase(daemon, Phase.STOPPED, within_s=3 * HOUR)

        assert still.end_reason is Trigger.MAX_RUNTIME
        assert still.deadline_at is not None
        assert still.phase_since - still.deadline_at < 600


async def test_out_of_reach_with_nothing_to_lose_it_is_destroyed(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, "--seconds", "60", keep=True, unreachable_end_s=HOUR)
        await daemon.until(lambda: the_job(daemon).collected is True, within_s=HOUR)
        silence(lab, 9 * HOUR)
        daemon.submit("--seconds", "60", project=lab.project, rental_id=rental.rental_id)
        await daemon.settled(within_s=4 * HOUR)

        assert first(daemon).end_reason is Trigger.UNREACHABLE
    assert lab.market.live_contracts() == []


async def test_a_bug_before_anything_ran_ends_the_machine_at_once(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        daemon.submit(*LONG, project=lab.project)
        rental = await in_phase(daemon, Phase.BOOTING)
        broken = ev.Quarantined(
            rental_id=rental.rental_id, at=daemon.shell.wall_clock(), why="a bug in vastd met it"
        )
        daemon.ledger.commit(broken)
        await daemon.settled(within_s=600)

        assert first(daemon).end_reason is Trigger.BUG
        assert the_job(daemon).state is JobState.FAILED
        assert "a bug in vastd met it" in (the_job(daemon).reason or "")
    assert lab.market.live_contracts() == []


async def test_a_bug_under_a_running_job_leaves_it_to_its_deadline_which_brings_it_home(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=HOUR)
        broken = ev.Quarantined(
            rental_id=rental.rental_id, at=daemon.shell.wall_clock(), why="a bug in vastd met it"
        )
        daemon.ledger.commit(broken)
        await daemon.settled(within_s=2 * HOUR)

        assert first(daemon).end_reason is Trigger.MAX_RUNTIME
        assert (the_job(daemon).state, the_job(daemon).collected) == (JobState.TIMED_OUT, True)


@pytest.mark.req("BUD-11")
async def test_a_price_that_rises_over_the_cap_is_told_and_ends_the_job_with_its_results(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG)
        agreed = billing.order_rate(rental.order)
        capped = Policy(max_dph=Micros(agreed * 3 // 2))
        daemon.ledger.commit(
            ev.PolicyChanged(
                rental_id=rental.rental_id, at=daemon.shell.wall_clock(), policy=capped,
                deadline_at=rental.deadline_at, changes={},
            )
        )  # fmt: skip
        befall(lab, rental, MachineFaultKind.PRICE_DRIFT, factor=1.2)
        await trio.sleep(300)
        assert first(daemon).ending is None  # dearer, and within its cap
        assert len(warnings(daemon, "price_warn")) == 1
        assert f"it was rented for {show_rate(agreed)}" in warnings(daemon, "price_warn")[0]
        befall(lab, rental, MachineFaultKind.PRICE_DRIFT, factor=2.0)
        began = trio.current_time()
        await daemon.settled(within_s=HOUR)

        assert first(daemon).end_reason is Trigger.BUDGET
        assert "over its cap of" in (first(daemon).end_detail or "")
        assert the_job(daemon).collected is True
        assert trio.current_time() - began < 400
        # The record is never below the bill, and above it by one poll at most.
        billed = lab.market.billed(rental.instance_id or 0)
        now = daemon.shell.wall_clock()
        cost = billing.cost(first(daemon), now)
        assert billed <= cost <= billed + for_seconds(billing.expected_rate(first(daemon)), 120)


async def test_a_start_that_vast_does_not_carry_out_is_kept_and_told_of_and_nothing_is_rented(
    autojump_clock: MockClock, lab: Lab
) -> None:
    """CASES A17: the record stays, the disk stays, no other machine takes its place."""
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, "--seconds", "60", keep=True)
        await daemon.until(lambda: the_job(daemon).collected is True, within_s=HOUR)
        now = daemon.shell.wall_clock()
        daemon.ledger.commit(ev.StopAsked(rental_id=rental.rental_id, at=now, why="lunch"))
        await in_phase(daemon, Phase.STOPPED)
        lab.market.occupy(rental.order.offer.machine_id)
        now = daemon.shell.wall_clock()
        daemon.ledger.commit(ev.StartAsked(rental_id=rental.rental_id, at=now))
        await trio.sleep(6 * HOUR)

        held = first(daemon)
        assert (held.phase, held.start_asked_at) == (Phase.STOPPED, now)
        assert len(warnings(daemon, "start_waits")) == 1
        assert "its GPU is probably rented to somebody else" in warnings(daemon, "start_waits")[0]
        lab.market.vacate(rental.order.offer.machine_id)
        await daemon.until(lambda: first(daemon).phase is Phase.READY, within_s=HOUR)
    assert calls(lab, "create", "destroy") == ["create"]
