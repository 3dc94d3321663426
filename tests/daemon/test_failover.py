"""Failover while provisioning, one story for each kind of failure (CASES 46 to 57, FAI-01 to FAI-07).

Each asks the same questions: one create per rental, no machine left, the next offer taken or the
run stopped, the host blocked or not, and every dollar of the failed attempt on record.
"""

from collections.abc import AsyncIterator

import pytest
import trio
from msgspec import structs
from trio.testing import MockClock

from support.daemon_in_memory import EPOCH, Daemon, Lab
from support.lab_stories import (
    HOUR,
    WORK,
    at_of,
    befall,
    bid_for,
    calls,
    first,
    in_phase,
    last,
    the_job,
    trail,
)
from vastd.core import billing, story
from vastd.core import events as ev
from vastd.core.hosts import BLOCK_S
from vastd.core.job import Attempt, JobState, Needs
from vastd.core.rental import Blame, Phase, Rental, Trigger
from vastd.jobs.port import Route
from vastd.simulator.faults import BOOT_SAYS, FaultKind, MachineFault, MachineFaultKind

pytestmark = pytest.mark.sim
RUN = {"no_image", "no_access", "unauthorized"}
HOST = set(BOOT_SAYS) - RUN
KINDS = MachineFaultKind


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


def attempts(daemon: Daemon) -> tuple[Attempt, ...]:
    return the_job(daemon).attempts


def waste_is_exact(lab: Lab, daemon: Daemon, attempt: Attempt) -> None:
    """The record has what the machine cost us, and that is what Vast billed, plus one listing."""
    rental = daemon.ledger.rental(attempt.rental_id)
    assert rental.ended_at is not None
    assert attempt.wasted == billing.cost(rental, rental.ended_at)
    assert attempt.seconds == rental.ended_at - attempt.began_at
    billed = 0 if rental.instance_id is None else lab.market.billed(rental.instance_id)
    poll = billing.expected_rate(rental) * 60 // 3600
    assert billed <= attempt.wasted <= billed + poll


def one_create_each(lab: Lab, daemon: Daemon) -> None:
    made = [r for r in daemon.ledger.rentals.values() if r.instance_id is not None]
    labels = [entry.label for entry in lab.market.journal if entry.kind == "create"]
    assert sorted(labels) == sorted(r.label for r in made)
    assert lab.market.live_contracts() == []


def is_blocked(daemon: Daemon, rental: Rental) -> bool:
    host = daemon.ledger.hosts.get(rental.order.offer.machine_id)
    return host is not None and host.block is not None


async def the_next_serves(
    lab: Lab, daemon: Daemon, cause: Trigger, blame: Blame, *, block: bool
) -> Rental:
    """Run the job; return the rental that failed, everything about it being as it must."""
    if not daemon.ledger.jobs:
        daemon.submit(*WORK, project=lab.project, outputs=["results/"])
    await daemon.settled()
    failed, served, job = first(daemon), last(daemon), the_job(daemon)
    assert (failed.end_reason, job.state, len(job.attempts)) == (cause, JobState.SUCCEEDED, 2)
    attempt = job.attempts[0]
    assert attempt.blame is blame
    assert attempt.machine_id != job.attempts[1].machine_id
    assert is_blocked(daemon, failed) is block
    assert not is_blocked(daemon, served)
    waste_is_exact(lab, daemon, attempt)
    one_create_each(lab, daemon)
    # Recorded before the next one is even chosen (FAI-01).
    events = [stored.event for stored in daemon.store.events_before_end(500)]
    kinds = [(ev.kind(e), getattr(e, "rental_id", None)) for e in events]
    recorded = kinds.index(("attempt_failed", failed.rental_id))
    assert recorded < kinds.index(("rental_planned", served.rental_id))
    return failed


async def the_run_stops(lab: Lab, daemon: Daemon, words: str) -> Rental:
    """Run the job; return the only rental, the run having stopped with `words`."""
    daemon.submit(*WORK, project=lab.project)
    await daemon.settled()
    job, failed = the_job(daemon), first(daemon)
    assert (job.state, job.failure, len(job.attempts)) == (JobState.FAILED, "provisioning", 1)
    assert words in (job.reason or "")
    assert job.attempts[0].blame is Blame.RUN
    assert not is_blocked(daemon, failed)
    waste_is_exact(lab, daemon, job.attempts[0])
    one_create_each(lab, daemon)
    return failed


# -- stuck and slow boots (CASES 46, 54)


@pytest.mark.req("WAI-04")
async def test_46_a_boot_that_stands_still_ends_after_its_limit(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.BOOT_STUCK))
    async with lab.boot() as daemon:
        failed = await the_next_serves(lab, daemon, Trigger.BOOT_OVERDUE, Blame.HOST, block=True)
        booted = dict(failed.phases)[Phase.BOOTING] - EPOCH
        assert 600 <= at_of(daemon, ev.EndDecided, failed) - booted <= 621
        assert "boot_warn" in failed.warned


async def test_46_a_large_image_on_a_slow_network_gets_the_time_its_pull_takes(
    autojump_clock: MockClock, lab: Lab
) -> None:
    choose = lab.choose

    async def large(*args):  # type: ignore[no-untyped-def]
        choice = await choose(*args)
        offer = structs.replace(choice.offer, inet_down_mbps=100.0)
        return structs.replace(choice, image="pytorch/pytorch:2.6.0-cuda12.6-cudnn9-devel",
                               offer=offer, others=())  # fmt: skip

    lab.choose = large  # type: ignore[method-assign]
    lab.market.afflict(MachineFault(kind=KINDS.BOOT_STUCK))
    async with lab.boot() as daemon:
        failed = await the_next_serves(lab, daemon, Trigger.BOOT_OVERDUE, Blame.HOST, block=True)
        booted = dict(failed.phases)[Phase.BOOTING] - EPOCH
        assert 1280 <= at_of(daemon, ev.EndDecided, failed) - booted <= 1301
        assert "twice that, within 600 and 1800 s" in (failed.end_detail or "")


async def test_46_a_pull_that_moves_is_waited_for(autojump_clock: MockClock, lab: Lab) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.SLOW_BOOT, factor=20.0))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled(within_s=3 * HOUR)

        (rental,) = daemon.ledger.rentals.values()
        phases = dict(rental.phases)
        assert phases[Phase.VERIFYING] - phases[Phase.BOOTING] > 600
        assert the_job(daemon).state is JobState.SUCCEEDED
        host = daemon.ledger.hosts[rental.order.offer.machine_id]
        assert host.boot_s == pytest.approx(phases[Phase.VERIFYING] - phases[Phase.CREATING])


@pytest.mark.req("VER-09")
async def test_54_what_a_boot_measured_of_the_network_is_kept_with_its_source(
    autojump_clock: MockClock, lab: Lab
) -> None:
    """Slower than half of its word: the machine serves, and is dearer in the next ranking."""
    choose = lab.choose

    async def large(*args):  # type: ignore[no-untyped-def]
        choice = await choose(*args)
        return structs.replace(choice, image="pytorch/pytorch:2.6.0-cuda12.6-cudnn9-devel",
                               offer=structs.replace(choice.offer, inet_down_mbps=700.0))  # fmt: skip

    lab.choose = large  # type: ignore[method-assign]
    lab.market.afflict(MachineFault(kind=KINDS.SLOW_BOOT, factor=5.0))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        (host,) = daemon.ledger.hosts.values()
        assert host.down is not None
        assert host.boot_s is not None
        assert host.down.mbps == pytest.approx(64_000 / host.boot_s)
        assert (host.is_slow, host.served, host.failed) == (True, 1, 0)


# -- fatal messages, by whose fault they are (CASES 47, 50, 52)


@pytest.mark.parametrize("name", sorted(HOST))
async def test_50_and_52_the_hosts_fault_takes_the_next_offer_and_blocks_the_host(
    autojump_clock: MockClock, lab: Lab, name: str
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.BOOT_ERROR, message=BOOT_SAYS[name]))
    async with lab.boot() as daemon:
        failed = await the_next_serves(lab, daemon, Trigger.BOOT_FAILED, Blame.HOST, block=True)
        assert BOOT_SAYS[name] in (attempts(daemon)[0].reason or "")  # CASES 47
        assert failed.running_at is None
        booted = dict(failed.phases)[Phase.BOOTING] - EPOCH
        assert at_of(daemon, ev.EndDecided, failed) - booted < 120  # not the ten minutes


@pytest.mark.parametrize("name", sorted(RUN))
async def test_52_the_images_fault_stops_the_run_at_once(
    autojump_clock: MockClock, lab: Lab, name: str
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.BOOT_ERROR, message=BOOT_SAYS[name]))
    async with lab.boot() as daemon:
        failed = await the_run_stops(lab, daemon, BOOT_SAYS[name])
        booted = dict(failed.phases)[Phase.BOOTING] - EPOCH
        assert at_of(daemon, ev.EndDecided, failed) - booted < 120
        assert "every other machine would fail" in (the_job(daemon).reason or "")


async def test_a_blocked_host_is_avoided_by_other_jobs_for_a_day_and_then_not(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.BOOT_ERROR))
    async with lab.boot() as daemon:
        bad = (
            await the_next_serves(lab, daemon, Trigger.BOOT_FAILED, Blame.HOST, block=True)
        ).order.offer.machine_id
        daemon.submit(*WORK, project=lab.project, name="same-day")
        await daemon.settled()
        assert last(daemon).order.offer.machine_id != bad
        block = daemon.ledger.hosts[bad].block
        assert block is not None
        assert block.until == block.since + BLOCK_S
        await trio.sleep(BLOCK_S)
        daemon.submit(*WORK, project=lab.project, name="next-day")
        await daemon.settled()

        assert last(daemon).order.offer.machine_id == bad


# -- statuses (CASES 48)


async def test_48_a_status_nobody_has_seen_is_pending_with_a_warning(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.ODD_STATUS))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        (rental,) = daemon.ledger.rentals.values()
        assert the_job(daemon).state is JobState.SUCCEEDED
        assert "unknown_status" in rental.warned
        assert trail(daemon).count("warned") == 1


@pytest.mark.req("WAI-06")
async def test_48_a_host_that_is_lost_while_it_boots_is_not_waited_for(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.SLOW_BOOT, factor=5.0))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project, outputs=["results/"])
        befall(lab, await in_phase(daemon, Phase.BOOTING), KINDS.HOST_LOSS)
        failed = await the_next_serves(lab, daemon, Trigger.BOOT_FAILED, Blame.HOST, block=True)
        booted = dict(failed.phases)[Phase.BOOTING] - EPOCH
        assert at_of(daemon, ev.EndDecided, failed) - booted < 120


# -- outbid and vanished while booting


@pytest.mark.req("FAI-09")
@pytest.mark.parametrize("keeps_intent", [True, False])
async def test_a_machine_outbid_while_it_boots_gives_way_to_the_next_and_blames_nobody(
    autojump_clock: MockClock, lab: Lab, keeps_intent: bool
) -> None:
    bid_for(lab)
    lab.market.afflict(MachineFault(kind=KINDS.SLOW_BOOT, factor=5.0))
    lab.market.afflict(MachineFault(kind=KINDS.OUTBID_BOOT, keeps_intent=keeps_intent))
    async with lab.boot() as daemon:
        failed = await the_next_serves(lab, daemon, Trigger.OUTBID, Blame.NOBODY, block=False)
        assert failed.ready_at is None
        assert "our bid is" in (failed.end_detail or "")


async def test_a_machine_that_vanishes_while_it_boots_is_proven_gone_and_replaced(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.SLOW_BOOT, factor=5.0))
    lab.market.afflict(MachineFault(kind=KINDS.VANISH_BOOT))
    async with lab.boot() as daemon:
        await the_next_serves(lab, daemon, Trigger.VANISHED, Blame.NOBODY, block=False)
    assert calls(lab, "create", "destroy") == ["create", "create", "destroy"]


# -- what the machine is not (CASES 51, VER-02, VER-05)


@pytest.mark.req("VER-02")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (KINDS.WRONG_GPU, "nvidia-smi shows 'Quadro P400'"),
        (KINDS.BROKEN_GPU, "could not talk to the driver"),
        (KINDS.LOW_VRAM, "MB per GPU, nvidia-smi shows"),
    ],
)
async def test_a_machine_with_other_gpus_than_ordered_is_given_up(
    autojump_clock: MockClock, lab: Lab, kind: MachineFaultKind, words: str
) -> None:
    lab.market.afflict(MachineFault(kind=kind, gpu="Quadro P400"))
    async with lab.boot() as daemon:
        failed = await the_next_serves(
            lab, daemon, Trigger.HARDWARE_MISMATCH, Blame.HOST, block=True
        )
        assert words in (failed.end_detail or "")
        assert attempts(daemon)[0].phase == "verifying"


async def test_51_a_driver_older_than_the_image_needs_is_found_after_the_boot(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.OLD_DRIVER))
    async with lab.boot() as daemon:
        needs = Needs(image="nvidia/cuda:11.8.0-base-ubuntu22.04")
        daemon.submit(*WORK, project=lab.project, outputs=["results/"], needs=needs)
        failed = await the_next_serves(
            lab, daemon, Trigger.HARDWARE_MISMATCH, Blame.HOST, block=True
        )
        assert "needs CUDA" in (failed.end_detail or "")
        assert "nvidia-smi shows 10.2" in (failed.end_detail or "")


@pytest.mark.req("VER-05")
async def test_a_disk_smaller_than_ordered_ends_the_boot(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.SMALL_DISK))
    async with lab.boot() as daemon:
        failed = await the_next_serves(
            lab, daemon, Trigger.HARDWARE_MISMATCH, Blame.HOST, block=True
        )
        assert failed.end_detail == "ordered 50 GB of disk, got 25 GB"


@pytest.mark.req("VER-05")
async def test_a_disk_that_is_full_before_anything_was_sent_is_found(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.DISK_FULL))
    async with lab.boot() as daemon:
        failed = await the_next_serves(
            lab, daemon, Trigger.HARDWARE_MISMATCH, Blame.HOST, block=True
        )
        assert "0.0 GB are free before anything was sent" in (failed.end_detail or "")


# -- SSH (CASES 57, SSH-01, SSH-07)


@pytest.mark.req("SSH-01")
async def test_a_refused_direct_way_falls_back_to_the_proxy_which_is_first_next_time(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.DIRECT_REFUSED))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()
        once = list(dict.fromkeys(lab.boxes.tried))
        machine_id = first(daemon).order.offer.machine_id
        assert daemon.ledger.hosts[machine_id].route == "proxy"
        daemon.submit(*WORK, project=lab.project, name="again")
        await daemon.settled()

        assert the_job(daemon).state is JobState.SUCCEEDED
        assert last(daemon).order.offer.machine_id == machine_id
        again = [route for i, route in lab.boxes.tried if i == last(daemon).instance_id]
    assert [route for _, route in once] == [Route.DIRECT, Route.PROXY]
    assert set(again) == {Route.PROXY}


async def test_57_a_machine_that_refuses_on_every_way_is_the_hosts_fault_at_first(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.SSH_REFUSED))
    async with lab.boot() as daemon:
        failed = await the_next_serves(lab, daemon, Trigger.SSH_FAILED, Blame.HOST, block=True)
        assert "sim/image never served here: it may have no sshd" in (failed.end_detail or "")


async def test_57_an_image_that_two_machines_cannot_be_entered_with_stops_the_run(
    autojump_clock: MockClock, lab: Lab
) -> None:
    for _ in range(3):
        lab.market.afflict(MachineFault(kind=KINDS.SSH_REFUSED))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        job = the_job(daemon)
        assert (job.state, job.failure) == (JobState.FAILED, "provisioning")
        assert [a.blame for a in job.attempts] == [Blame.HOST, Blame.RUN]
        assert "it has no sshd, or its own start replaces Vast's" in (job.reason or "")
        assert not is_blocked(daemon, last(daemon))
        one_create_each(lab, daemon)


async def test_57_an_image_that_served_before_is_never_blamed(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()
        for _ in range(3):
            lab.market.afflict(MachineFault(kind=KINDS.SSH_REFUSED))
        daemon.submit(*WORK, project=lab.project, name="again")
        await daemon.settled()

        again = list(daemon.ledger.jobs.values())[-1]
        assert [a.blame for a in again.attempts] == [Blame.HOST] * 3


@pytest.mark.req("SSH-07")
async def test_a_key_that_is_not_accepted_after_attaching_it_recreates_without_blame(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.SSH_AUTH))
    async with lab.boot() as daemon:
        failed = await the_next_serves(lab, daemon, Trigger.SSH_FAILED, Blame.NOBODY, block=False)
        tried = at_of(daemon, ev.EndDecided, failed) - at_of(daemon, ev.KeyAttached, failed)
        assert 60 <= tried < 70  # not the five minutes of a machine that may still come up
    attached = [e.instance_id for e in lab.market.journal if e.kind == "attach_key"]
    assert attached.count(failed.instance_id) == 1


# -- the market itself (CASES 56, FAI-06)


@pytest.mark.req("FAI-06")
async def test_56_a_limit_on_young_accounts_stops_the_run_and_tries_no_other_offer(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.faults.inject("create", FaultKind.SPEND_RATE, times=None)
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled(within_s=60)

        job = the_job(daemon)
        assert (job.state, len(job.attempts)) == (JobState.FAILED, 1)
        assert "every other machine would fail in the same way" in (job.reason or "")
        assert (job.attempts[0].wasted, daemon.ledger.hosts) == (0, {})


@pytest.mark.req("FAI-06")
async def test_offers_that_are_gone_use_up_no_attempt_and_are_not_chased_for_ever(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.faults.inject("create", FaultKind.OFFER_GONE, times=5)
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()
        assert the_job(daemon).state is JobState.SUCCEEDED
        assert [a.counts for a in attempts(daemon)] == [False] * 5 + [True]
        assert {a.wasted for a in attempts(daemon)[:5]} == {0}

        lab.faults.inject("create", FaultKind.OFFER_GONE, times=None)
        daemon.submit(*WORK, project=lab.project, name="unlucky")
        await daemon.settled()

        unlucky = list(daemon.ledger.jobs.values())[-1]
        assert (unlucky.state, len(unlucky.attempts)) == (JobState.FAILED, 13)


@pytest.mark.req("FAI-03")
async def test_three_failed_machines_in_a_row_stop_the_run_with_all_reasons(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.WRONG_GPU, gpu="Quadro P400"))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await in_phase(daemon, Phase.DESTROYING)
        lab.market.afflict(MachineFault(kind=KINDS.BOOT_ERROR))
        await daemon.until(lambda: len(attempts(daemon)) == 2, within_s=HOUR)
        await daemon.until(lambda: last(daemon).ending is not None, within_s=HOUR)
        lab.market.afflict(MachineFault(kind=KINDS.SSH_AUTH))
        await daemon.settled()

        job = the_job(daemon)
        assert (job.state, job.failure) == (JobState.FAILED, "provisioning")
        told = job.reason or ""
        assert told.startswith("3 attempts failed: machine ")
        assert all(w in told for w in ("Quadro P400", "GPU error", "key was not accepted"))
        for attempt in job.attempts:
            waste_is_exact(lab, daemon, attempt)
        one_create_each(lab, daemon)
        lines = [story.tell(s.event) for s in daemon.store.events_of(job_id=job.job_id)]
        failed = [line for line in lines if "wasted_usd" in line.data]
        assert [line.data["machine_id"] for line in failed] == [a.machine_id for a in job.attempts]


async def test_two_runs_at_once_never_choose_the_same_offer(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        for number in range(4):
            daemon.submit(*WORK, project=lab.project, name=f"job-{number}")
        await daemon.settled()

        offers = [r.order.offer.offer_id for r in daemon.ledger.rentals.values()]
        assert len(set(offers)) == len(offers) == 4
        assert all(len(job.attempts) == 1 for job in daemon.ledger.jobs.values())


async def test_a_kill_between_a_failed_attempt_and_the_next_loses_neither_block_nor_record(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=KINDS.BOOT_ERROR))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project, outputs=["results/"])
        await daemon.until(lambda: bool(attempts(daemon) and attempts(daemon)[0].reason),
                           within_s=HOUR)  # fmt: skip
        daemon.kill()
        recorded = attempts(daemon)[0]
    async with lab.boot() as daemon:
        await the_next_serves(lab, daemon, Trigger.BOOT_FAILED, Blame.HOST, block=True)
        assert attempts(daemon)[0] == recorded
