"""Machines that fail: what the daemon does with each, on virtual time, and what it costs."""

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import EPOCH, OWNER8, Daemon, Lab
from support.lab_stories import HOUR, WORK, at_of, calls, first, last, running, the_job, trail
from vastd.core import billing
from vastd.core import events as ev
from vastd.core.job import JobState, Needs
from vastd.core.labels import make_label
from vastd.core.market import Offer
from vastd.core.money import Micros, from_usd, to_usd
from vastd.core.rental import Phase, Rental, Trigger
from vastd.effects import verify as verifying
from vastd.jobs.port import BoxFacts
from vastd.shell import Shell
from vastd.simulator.contracts import RentOrder
from vastd.simulator.faults import FaultKind, MachineFault, MachineFaultKind

pytestmark = pytest.mark.sim


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


def assert_succeeded_on_the_second_machine(lab: Lab, daemon: Daemon, cause: Trigger) -> None:
    job, failed, served = the_job(daemon), first(daemon), last(daemon)
    assert (failed.end_reason, served.end_reason) == (cause, Trigger.JOB_DONE)
    assert (job.state, job.collected, len(job.attempts)) == (JobState.SUCCEEDED, True, 2)
    assert job.attempts[0].machine_id != job.attempts[1].machine_id
    assert lab.market.live_contracts() == []


# -- creating


async def test_an_offer_that_is_gone_is_followed_by_the_next_at_once(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.faults.inject("create", FaultKind.OFFER_GONE)
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        assert_succeeded_on_the_second_machine(lab, daemon, Trigger.CREATE_REFUSED)
        gap_s = last(daemon).created_at - first(daemon).ended_at  # type: ignore[operator]
        assert gap_s < 2
        assert (first(daemon).instance_id, first(daemon).rates) == (None, ())


@pytest.mark.parametrize("kind", [FaultKind.NO_CREDIT, FaultKind.SPEND_RATE])
async def test_a_refusal_every_offer_would_share_is_not_tried_on_another(
    autojump_clock: MockClock, lab: Lab, kind: FaultKind
) -> None:
    lab.faults.inject("create", kind, times=None)
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled(within_s=60)

        assert (the_job(daemon).state, the_job(daemon).failure) == (
            JobState.FAILED, "provisioning",
        )  # fmt: skip
        assert len(daemon.ledger.rentals) == 1
        assert calls(lab) == []


async def test_an_instance_made_by_a_refused_create_is_destroyed_before_the_next_offer(
    autojump_clock: MockClock, lab: Lab
) -> None:
    """The floor rose above the bid since the search: Vast says no, and the disk bills all the same
    (CASES 6)."""
    choose, tries = lab.choose, [1]

    async def choose_with_bid(provider, needs: Needs, avoid, budget):  # type: ignore[no-untyped-def]
        from msgspec import structs

        choice = await choose(provider, needs, avoid, budget)
        if not tries:
            return choice
        offer, _ = choice.offer, tries.pop()
        assert offer.min_bid is not None
        lab.market.set_min_bid(offer.machine_id, to_usd(offer.min_bid) * 2 / offer.num_gpus)
        return structs.replace(choice, bid=offer.min_bid)

    lab.choose = choose_with_bid  # type: ignore[method-assign]
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        assert_succeeded_on_the_second_machine(lab, daemon, Trigger.BOOT_FAILED)
    assert calls(lab, "create", "destroy") == ["create", "destroy", "create", "destroy"]
    made = lab.market.journal[0]
    assert made.refused is not None
    assert lab.market.journal[1].instance_id == made.instance_id


@pytest.mark.parametrize("kind", [FaultKind.LOSE_ANSWER, FaultKind.HTTP_500_AFTER,
                                  FaultKind.EMPTY_BODY])  # fmt: skip
async def test_a_create_whose_answer_is_lost_is_found_by_its_label_and_not_sent_again(
    autojump_clock: MockClock, lab: Lab, kind: FaultKind
) -> None:
    lab.faults.inject("create", kind)
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        assert trail(daemon)[:4] == [
            "rental_planned", "create_sent", "create_unresolved", "instance_found",
        ]  # fmt: skip
        assert the_job(daemon).state is JobState.SUCCEEDED
    assert calls(lab, "create") == ["create"]


async def test_a_create_that_never_arrived_is_looked_for_two_minutes_and_then_replaced(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.faults.inject("create", FaultKind.LOSE_REQUEST)
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        assert_succeeded_on_the_second_machine(lab, daemon, Trigger.CREATE_LOST)
        sent = first(daemon).create_sent_at
        ended = first(daemon).ended_at
        assert sent is not None
        assert ended is not None
        assert 120 <= ended - sent < 145
    assert calls(lab, "create") == ["create"]


# -- booting and verifying


async def test_a_stuck_boot_is_ended_after_its_limit_and_its_machine_avoided(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=MachineFaultKind.BOOT_STUCK))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        assert_succeeded_on_the_second_machine(lab, daemon, Trigger.BOOT_OVERDUE)
        failed = first(daemon)
        booted = dict(failed.phases)[Phase.BOOTING] - EPOCH
        # at the limit, and confirmed by the first listing after it
        assert 600 <= at_of(daemon, ev.EndDecided, failed) - booted <= 621
        assert "boot_warn" in failed.warned


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (MachineFaultKind.BOOT_ERROR, Trigger.BOOT_FAILED),
        (MachineFaultKind.WRONG_GPU, Trigger.HARDWARE_MISMATCH),
        (MachineFaultKind.BROKEN_GPU, Trigger.HARDWARE_MISMATCH),
        (MachineFaultKind.SSH_REFUSED, Trigger.SSH_FAILED),
        (MachineFaultKind.SSH_AUTH, Trigger.SSH_FAILED),
    ],
)
async def test_a_machine_that_cannot_serve_is_ended_and_another_one_rented(
    autojump_clock: MockClock, lab: Lab, kind: MachineFaultKind, cause: Trigger
) -> None:
    lab.market.afflict(MachineFault(kind=kind, gpu="Quadro P400"))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        assert_succeeded_on_the_second_machine(lab, daemon, cause)
        failed = first(daemon)
        assert Phase.READY not in dict(failed.phases)
        if kind is MachineFaultKind.SSH_REFUSED:
            verifying = dict(failed.phases)[Phase.VERIFYING] - EPOCH
            assert 300 <= at_of(daemon, ev.EndDecided, failed) - verifying < 335


async def test_a_silent_machine_is_tried_quickly_at_first_and_at_the_set_spacing_later(
    autojump_clock: MockClock, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []
    look = verifying.look

    async def noted(shell: Shell, rental: Rental, *, armed: bool, new: bool = False) -> BoxFacts:
        tried.append(trio.current_time())
        return await look(shell, rental, armed=armed, new=new)

    monkeypatch.setattr(verifying, "look", noted)
    lab.market.afflict(MachineFault(kind=MachineFaultKind.SSH_REFUSED))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.until(lambda: len(tried) >= 10, within_s=HOUR)

    gaps = [later - earlier for earlier, later in pairwise(tried[:10])]
    pauses = [0.25, 0.5, 1, 2, 4, 8, 15, 15, 15]
    # A refusal itself takes a fraction of a second there.
    assert all(p <= gap < p + 0.25 for p, gap in zip(pauses, gaps, strict=True)), gaps


async def test_a_refused_login_is_healed_by_attaching_our_key_once(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=MachineFaultKind.SSH_AUTH, healed_by_attach=True))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        assert the_job(daemon).state is JobState.SUCCEEDED
        assert len(daemon.ledger.rentals) == 1
    assert calls(lab, "attach_key") == ["attach_key"]


async def test_three_machines_that_fail_are_enough(autojump_clock: MockClock, lab: Lab) -> None:
    for _ in range(5):
        lab.market.afflict(MachineFault(kind=MachineFaultKind.WRONG_GPU, gpu="Quadro P400"))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        job = the_job(daemon)
        assert (job.state, job.failure) == (JobState.FAILED, "provisioning")
        assert len({attempt.machine_id for attempt in job.attempts}) == 3
    assert calls(lab, "create", "destroy") == ["create", "destroy"] * 3


# -- under a running job


async def test_a_host_that_is_lost_makes_the_job_unknown_and_its_disk_is_kept_at_the_end(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *WORK, max_runtime_s=HOUR)
        lab.market.afflict(
            MachineFault(kind=MachineFaultKind.HOST_LOSS), instance_id=rental.instance_id
        )
        await daemon.until(lambda: the_job(daemon).state is JobState.UNKNOWN, within_s=60)
        assert calls(lab, "stop", "destroy") == []
        await daemon.until(lambda: the_job(daemon).finished, within_s=2 * HOUR)
        await trio.sleep(HOUR)

        assert the_job(daemon).state is JobState.TIMED_OUT
        assert first(daemon).phase is Phase.STOPPED
        assert the_job(daemon).uncollected
    assert calls(lab, "stop", "destroy") == ["stop"]


async def test_a_host_that_comes_back_lets_the_results_come_home(
    autojump_clock: MockClock, lab: Lab
) -> None:
    """The disk survives; the process of a host that fell out of contact does not."""
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, "--seconds", "30", "--output", "results/a.bin:9",
                               max_runtime_s=2 * HOUR)  # fmt: skip
        await daemon.until(lambda: the_job(daemon).finished, within_s=60)
        fault = MachineFault(kind=MachineFaultKind.HOST_LOSS, for_s=100.0)
        lab.market.afflict(fault, instance_id=rental.instance_id)
        await daemon.settled()

        assert (the_job(daemon).state, the_job(daemon).collected) == (JobState.SUCCEEDED, True)
        assert (lab.project / "results/a.bin").stat().st_size == 9


async def test_an_instance_that_vanishes_fails_its_job_and_is_not_run_twice(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon)
        lab.market.afflict(
            MachineFault(kind=MachineFaultKind.VANISH), instance_id=rental.instance_id
        )
        await daemon.settled()

        assert (the_job(daemon).state, the_job(daemon).failure) == (JobState.FAILED, "machine")
        assert first(daemon).end_reason is Trigger.VANISHED
        assert "its machine vanished, nobody here ended it" in (the_job(daemon).reason or "")
    assert calls(lab, "create", "destroy") == ["create"]


async def test_an_outbid_machine_is_held_and_its_results_come_home_when_it_runs_again(
    autojump_clock: MockClock, lab: Lab
) -> None:
    choose = lab.choose

    async def bid(provider, needs, avoid, budget):  # type: ignore[no-untyped-def]
        from msgspec import structs

        choice = await choose(provider, needs, avoid, budget)
        return structs.replace(choice, bid=Micros(choice.offer.dph * 2))

    lab.choose = bid  # type: ignore[method-assign]
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, "--seconds", "3000", "--output", "results/a.bin:9")
        fault = MachineFault(kind=MachineFaultKind.OUTBID, for_s=1200.0)
        lab.market.afflict(fault, instance_id=rental.instance_id)
        await daemon.until(lambda: the_job(daemon).finished, within_s=HOUR)
        assert first(daemon).phase is Phase.STOPPED
        assert (the_job(daemon).state, the_job(daemon).failure) == (JobState.FAILED, "machine")
        await daemon.settled()

        assert the_job(daemon).collected is True  # what there was: nothing was written yet
        assert "instance_resumed" in trail(daemon)
        assert first(daemon).end_reason is Trigger.JOB_DONE


# -- strangers


async def test_what_is_not_ours_is_never_touched_and_a_late_arrival_is_ended(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.faults.inject("create", FaultKind.LOSE_REQUEST)
    stranger = lab.market.add_foreign(label="vastd-oth00002-r000001").instance_id
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.until(lambda: first_gone(daemon), within_s=HOUR)
        # the first create arrives after all, an hour late
        offer: Offer = first(daemon).order.offer
        label = make_label(OWNER8, first(daemon).rental_id)
        late = lab.market.create(offer.offer_id, RentOrder(image="sim/image", label=label))
        await daemon.until(lambda: first(daemon).phase is Phase.DESTROYING, within_s=120)
        await daemon.settled()

        assert first(daemon).instance_id == late.instance_id
    assert [c.instance_id for c in lab.market.live_contracts()] == [stranger]
    assert stranger not in [entry.instance_id for entry in lab.market.journal]


def first_gone(daemon: Daemon) -> bool:
    return bool(daemon.ledger.rentals) and first(daemon).phase is Phase.GONE


async def test_the_bill_is_never_below_the_market_s_and_close_to_it(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        rental = first(daemon)
        assert rental.instance_id is not None
        truth = lab.market.billed(rental.instance_id)
        ours = billing.cost(rental, EPOCH + trio.current_time())
        poll = from_usd(60 / 3600 * billing.expected_rate(rental) / 1e6)
        assert truth <= ours <= truth + 3 * poll
