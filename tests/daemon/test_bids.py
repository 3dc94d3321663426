"""Interruptible machines on the simulated market: outbid is recognised, told, and dealt with by policy."""

from collections.abc import AsyncIterator

import pytest
from trio.testing import MockClock

from support.daemon_in_memory import Lab
from support.lab_stories import HOUR, befall, bid_for, calls, first, in_phase, running, the_job
from vastd.core.job import JobState
from vastd.core.money import show_rate
from vastd.core.rental import Phase, StopCause, Trigger
from vastd.simulator.faults import MachineFaultKind

LONG = ("--seconds", "3000", "--output", "results/a.bin:1000")


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    bid_for(made)
    yield made
    made.close()


@pytest.mark.req("FAI-09")
@pytest.mark.parametrize("keeps_intent", [False, True])
async def test_outbid_is_recognised_in_both_patterns_and_the_job_says_so(
    autojump_clock: MockClock, lab: Lab, keeps_intent: bool
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG)
        befall(lab, rental, MachineFaultKind.OUTBID, for_s=1200.0, keeps_intent=keeps_intent)
        still = await in_phase(daemon, Phase.STOPPED)
        row = daemon.shell.observed.world.of(still.rental_id).instance
        assert row is not None
        assert row.min_bid is not None
        assert still.order.bid is not None
        await daemon.until(lambda: the_job(daemon).finished, within_s=60)

        assert row.intended_status == ("running" if keeps_intent else "stopped")
        assert still.stopped_by is StopCause.OUTBID
        told = (
            f"outbid: our bid is {show_rate(still.order.bid)}, "
            f"the lowest that wins is {show_rate(row.min_bid)}"
        )
        assert told in (still.stop_detail or "")
        assert told in (the_job(daemon).reason or "")
        await daemon.settled()

        assert the_job(daemon).collected is True
        assert (first(daemon).stopped_by, first(daemon).stop_detail) == (None, None)
    assert calls(lab, "create") == ["create"]  # nothing was rented instead, not even on demand


@pytest.mark.req("BUD-13")
async def test_all_machines_stopped_without_credit_are_out_of_credit_and_not_outbid(
    autojump_clock: MockClock, lab: Lab
) -> None:
    """CASES A28: the two are the same in the listing, only the account tells them apart."""
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG)
        befall(lab, rental, MachineFaultKind.CREDIT_ZERO)
        still = await in_phase(daemon, Phase.STOPPED)
        await daemon.until(lambda: the_job(daemon).finished, within_s=60)

        assert still.stopped_by is StopCause.CREDIT
        assert "the account is out of credit" in (the_job(daemon).reason or "")
        assert the_job(daemon).state is JobState.FAILED
        assert "outbid" not in (still.stop_detail or "")


async def test_out_of_credit_during_boot_stops_the_run_because_every_host_would_stop(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        daemon.submit(*LONG, project=lab.project)
        rental = await in_phase(daemon, Phase.BOOTING)
        befall(lab, rental, MachineFaultKind.CREDIT_ZERO)
        await daemon.settled(within_s=HOUR)

        assert first(daemon).end_reason is Trigger.BOOT_FAILED
        assert "the account is out of credit" in (the_job(daemon).reason or "")
    assert calls(lab, "create") == ["create"]
