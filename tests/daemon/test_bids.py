"""Interruptible machines on the simulated market: outbid is recognised, told, and dealt with by policy."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import Daemon, Lab
from support.lab_stories import (
    HOUR,
    befall,
    bid_for,
    calls,
    first,
    in_phase,
    last,
    running,
    the_job,
)
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.money import show_rate
from vastd.core.rental import OnOutbid, Phase, Rental, StopCause, Trigger
from vastd.simulator.faults import MachineFaultKind
from vastd.simulator.programs import LOG_LINE_BYTES

pytestmark = pytest.mark.sim

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


CKPT = "results/checkpoint.bin"
RERENT = {"on_outbid": OnOutbid.RERENT, "checkpoint_path": CKPT}


async def test_a_job_with_a_checkpoint_goes_on_when_its_machine_runs_again(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, checkpoint_path=CKPT)
        befall(lab, rental, MachineFaultKind.OUTBID, for_s=1200.0, after_s=600.0)
        await in_phase(daemon, Phase.STOPPED)
        await daemon.until(lambda: the_job(daemon).state is JobState.QUEUED, within_s=60)
        assert the_job(daemon).rental_id == rental.rental_id
        assert "it goes on from its checkpoint when this machine runs again" in (
            the_job(daemon).reason or ""
        )
        await daemon.settled(within_s=12 * HOUR)

        job = the_job(daemon)
        assert (job.state, job.run, job.collected) == (JobState.SUCCEEDED, 2, True)
        assert first(daemon).end_reason is Trigger.JOB_DONE
        first_run, second_run = lab.boxes.ledger()
        assert (first_run.job_id, second_run.job_id) == (job.job_id, f"{job.job_id}-2")
        assert first_run.exit_code is None
        # Its log at home is what both runs wrote, one after the other.
        assert daemon.shell.logs.size(job.job_id) == job.log_base + 20 * LOG_LINE_BYTES
        assert job.log_base > 0
    assert calls(lab, "create", "start", "stop") == ["create"]
    assert lab.market.live_contracts() == []


async def outbid_under(
    lab: Lab, daemon: Daemon, *, for_s: float | None = None, **policy: object
) -> Rental:
    """A machine that was outbid ten minutes into its job."""
    rental = await running(lab, daemon, *LONG, **policy)
    befall(lab, rental, MachineFaultKind.OUTBID, for_s=for_s, after_s=600.0)
    return await in_phase(daemon, Phase.STOPPED)


async def test_by_policy_it_goes_on_elsewhere_and_the_disk_is_kept_until_it_succeeded(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        old = await outbid_under(lab, daemon, **RERENT)
        await daemon.until(lambda: the_job(daemon).state is JobState.RUNNING, within_s=HOUR)

        job, new = the_job(daemon), last(daemon)
        assert job.rental_id == new.rental_id != old.rental_id
        assert new.order.bid is not None  # never silently on demand
        assert new.order.offer.machine_id != old.order.offer.machine_id
        kept = daemon.ledger.rental(old.rental_id)
        assert (kept.phase, kept.end_reason) == (Phase.STOPPED, Trigger.OUTBID)
        assert kept.left_jobs == (job.job_id,)
        assert "outbid: our bid is" in (job.attempts[0].reason or "")
        await daemon.settled(within_s=12 * HOUR)

        job = the_job(daemon)
        assert (job.state, job.run, job.collected) == (JobState.SUCCEEDED, 2, True)
        assert daemon.ledger.rental(old.rental_id).left_jobs == ()
    assert calls(lab, "create", "stop", "start") == ["create", "stop", "create"]
    assert lab.market.live_contracts() == []


async def test_a_disk_that_was_left_never_bills_its_gpu_again(
    autojump_clock: MockClock, lab: Lab
) -> None:
    """Its bid may win again: it was told to stay stopped."""
    async with lab.boot() as daemon:
        old = await outbid_under(lab, daemon, for_s=900.0, **RERENT)
        await daemon.settled(within_s=12 * HOUR)

        contract = lab.market.world.contracts[old.instance_id or 0]
        assert len(contract.runs) == 1
        assert the_job(daemon).state is JobState.SUCCEEDED


async def test_what_was_left_is_kept_when_the_job_fails_elsewhere(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        old = await outbid_under(lab, daemon, **RERENT)
        await daemon.until(lambda: the_job(daemon).state is JobState.RUNNING, within_s=HOUR)
        befall(lab, last(daemon), MachineFaultKind.VANISH)
        await daemon.until(lambda: the_job(daemon).finished, within_s=HOUR)
        await trio.sleep(2 * 86_400)

        assert the_job(daemon).state is JobState.FAILED
        kept = daemon.ledger.rental(old.rental_id)
        assert (kept.phase, kept.left_jobs) == (Phase.STOPPED, (the_job(daemon).job_id,))
        assert {"held-1", "held-2"} <= kept.warned  # told every day
    assert len(lab.market.live_contracts()) == 1


@pytest.mark.parametrize("policy", [{"on_outbid": OnOutbid.RERENT}, {"on_outbid": OnOutbid.END}])
async def test_without_a_checkpoint_or_by_policy_the_job_is_over_and_nothing_is_rented(
    autojump_clock: MockClock, lab: Lab, policy: dict[str, object]
) -> None:
    async with lab.boot() as daemon:
        await outbid_under(lab, daemon, for_s=3000.0, **policy)
        await daemon.until(lambda: the_job(daemon).finished, within_s=60)
        assert (the_job(daemon).state, the_job(daemon).run) == (JobState.FAILED, 1)
        assert first(daemon).end_reason is Trigger.OUTBID
        await daemon.settled(within_s=3 * HOUR)

        assert the_job(daemon).collected is True  # its bid won again: what there was came home
    assert calls(lab, "create") == ["create"]
    assert lab.market.live_contracts() == []


async def test_it_waits_for_its_bid_to_win_again_only_so_long(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        still = await outbid_under(lab, daemon, checkpoint_path=CKPT, outbid_wait_s=2 * HOUR)
        await daemon.until(lambda: the_job(daemon).finished, within_s=3 * HOUR)

        ending = first(daemon).ending
        assert ending is not None
        assert (ending.trigger, ending.at) == (Trigger.OUTBID, still.phase_since + 2 * HOUR)
        job = the_job(daemon)
        assert job.state is JobState.FAILED
        assert "it waited 7200 s to run again" in (job.reason or "")
        await trio.sleep(HOUR)
        assert first(daemon).phase is Phase.STOPPED  # its results are on its disk (I12)
        assert "held-1" in first(daemon).warned
    assert calls(lab, "destroy") == []


@pytest.mark.parametrize("policy", [{}, RERENT])
async def test_a_job_that_is_cancelled_while_it_waits_never_starts_again(
    autojump_clock: MockClock, lab: Lab, policy: dict[str, object]
) -> None:
    """CASES A14: cancelled during a re-rent at every moment of it, no machine is left."""
    async with lab.boot() as daemon:
        await outbid_under(lab, daemon, **{"checkpoint_path": CKPT, **policy})
        await daemon.until(lambda: the_job(daemon).run == 2, within_s=60)
        await trio.sleep(0.2)
        job = the_job(daemon)
        asked = ev.CancelAsked(job_id=job.job_id, at=daemon.shell.wall_clock())
        daemon.ledger.commit(asked)
        await daemon.until(lambda: the_job(daemon).finished, within_s=HOUR)
        await trio.sleep(2 * HOUR)

        assert the_job(daemon).state is JobState.CANCELLED
        alive = list(daemon.ledger.live())
        assert [r.rental_id for r in alive] == [first(daemon).rental_id]
    assert [c.instance_id for c in lab.market.live_contracts()] == [alive[0].instance_id]
    assert [c.is_up for c in lab.market.live_contracts()] == [False]


async def test_a_machine_somebody_works_on_is_kept_and_told_of_every_day(
    autojump_clock: MockClock, lab: Lab
) -> None:
    """CASES A16: nothing destroys what may be the only copy, whatever the policy for jobs is."""
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, "--seconds", "60", keep=True, on_outbid=OnOutbid.END)
        await daemon.until(lambda: the_job(daemon).collected is True, within_s=HOUR)
        befall(lab, rental, MachineFaultKind.OUTBID)
        await in_phase(daemon, Phase.STOPPED)
        await trio.sleep(3 * HOUR)

        assert first(daemon).phase is Phase.STOPPED
        assert "held-1" in first(daemon).warned
    assert calls(lab, "destroy") == []


@pytest.mark.parametrize("policy", [{}, RERENT])
async def test_outbid_for_a_moment_only_the_job_goes_on_from_its_checkpoint(
    autojump_clock: MockClock, lab: Lab, policy: dict[str, object]
) -> None:
    """The container is back before its stop was believed; what ran in it is gone all the same."""
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, **{"checkpoint_path": CKPT, **policy})
        befall(lab, rental, MachineFaultKind.OUTBID, for_s=45.0, after_s=600.0)
        await daemon.settled(within_s=4 * HOUR)

        job = the_job(daemon)
        assert (job.state, job.run, job.collected) == (JobState.SUCCEEDED, 2, True)
        assert [r.job_id for r in lab.boxes.ledger()] == [job.job_id, f"{job.job_id}-2"]
    assert calls(lab, "create") == ["create"]


async def test_outbid_for_a_moment_without_a_checkpoint_says_what_ended_the_job(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG)
        befall(lab, rental, MachineFaultKind.OUTBID, for_s=45.0, after_s=600.0)
        await daemon.settled(within_s=4 * HOUR)

        assert (the_job(daemon).state, the_job(daemon).failure) == (JobState.FAILED, "machine")
        assert "its machine was taken away and came back: outbid" in (the_job(daemon).reason or "")
