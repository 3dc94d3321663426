"""What becomes of a job when its machine ends: a next one, a verdict, or a wait."""

import pytest
from msgspec import structs

from support.builders import LIMITS, RENTAL_ID, T0, a_job, a_rental, an_ending
from support.offer_builders import an_offer
from vastd.core import events as ev
from vastd.core.job import Attempt, Job, JobState
from vastd.core.placement import Need, Verdict, failed_machines, settle
from vastd.core.rental import BOOT_FAILURES, Order, Phase, Rental, Trigger

NOW = T0 + 100


def verdict(job: Job, rental: Rental | None = None) -> Verdict:
    return settle(job, {RENTAL_ID: rental} if rental else {}, LIMITS, NOW)


def kinds(found: Verdict) -> list[str]:
    return [ev.kind(event) for event in found.events]


def finish(found: Verdict) -> ev.JobFinished:
    done = [event for event in found.events if isinstance(event, ev.JobFinished)]
    assert len(done) == 1
    return done[0]


def gone(trigger: Trigger, **changes: object) -> Rental:
    return a_rental(Phase.GONE, ending=an_ending(trigger), end_detail="so it was", **changes)


def an_attempt(number: int, reason: str | None = "stuck") -> Attempt:
    return Attempt(
        rental_id=f"r{number}", offer_id=number, machine_id=1000 + number, began_at=T0,
        reason=reason,
    )  # fmt: skip


def test_a_job_without_a_machine_needs_one_unless_it_was_put_on_a_rental() -> None:
    job = a_job(JobState.QUEUED, rental_id=None)

    assert verdict(job) == Verdict(need=Need.MACHINE)
    assert verdict(structs.replace(job, rents=False)) == Verdict()


@pytest.mark.parametrize("phase", [p for p in Phase if p not in (Phase.GONE, Phase.STOPPED)])
def test_a_job_whose_machine_is_on_its_way_waits(phase: Phase) -> None:
    assert verdict(a_job(JobState.PLACING), a_rental(phase)) == Verdict()
    assert verdict(a_job(JobState.RUNNING), a_rental(phase)) == Verdict()


@pytest.mark.parametrize("trigger", [*sorted(BOOT_FAILURES), Trigger.VANISHED])
def test_a_machine_that_never_served_is_recorded_and_another_one_may_follow(
    trigger: Trigger,
) -> None:
    found = verdict(a_job(JobState.PLACING, attempts=(an_attempt(1, None),)), gone(trigger))

    assert kinds(found) == ["attempt_failed"]


def test_the_third_failed_machine_is_the_last() -> None:
    before = (an_attempt(1), an_attempt(2), an_attempt(3, None))

    second = verdict(a_job(JobState.PLACING, attempts=before[1:]), gone(Trigger.BOOT_OVERDUE))
    third = verdict(a_job(JobState.PLACING, attempts=before), gone(Trigger.BOOT_OVERDUE))

    assert kinds(second) == ["attempt_failed"]
    assert kinds(third) == ["attempt_failed", "job_finished"]
    assert (finish(third).state, finish(third).failure) == ("failed", "provisioning")
    assert finish(third).why == "so it was"


def test_a_refusal_that_every_offer_would_share_stops_at_once() -> None:
    found = verdict(a_job(JobState.PLACING), gone(Trigger.CREATE_REFUSED, refused_for_all=True))

    assert (finish(found).state, finish(found).failure) == ("failed", "provisioning")


@pytest.mark.parametrize(
    ("trigger", "state"),
    [
        (Trigger.USER, "cancelled"),
        (Trigger.MAX_RUNTIME, "timed_out"),
        (Trigger.BUDGET, "timed_out"),
        (Trigger.IDLE, "failed"),
    ],
)
def test_an_end_that_was_wanted_is_not_followed_by_another_machine(
    trigger: Trigger, state: str
) -> None:
    found = verdict(a_job(JobState.STARTING), gone(trigger))

    assert kinds(found) == ["attempt_failed", "job_finished"]
    assert finish(found).state == state


def test_a_job_put_on_a_rental_does_not_move_to_another_one() -> None:
    found = verdict(a_job(JobState.QUEUED, rents=False), gone(Trigger.VANISHED))

    assert finish(found).state == "failed"


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.PLACING])
def test_cancelling_before_the_start_ends_job_and_machine(state: JobState) -> None:
    found = verdict(a_job(state, cancel_at=NOW), a_rental(Phase.BOOTING))

    assert kinds(found) == ["job_finished", "end_decided"]
    assert finish(found).state == "cancelled"


def test_cancelling_a_job_on_a_rental_of_the_user_leaves_the_rental() -> None:
    found = verdict(a_job(JobState.QUEUED, cancel_at=NOW, rents=False), a_rental())

    assert kinds(found) == ["job_finished"]


def test_cancelling_without_a_machine_or_with_one_that_ends_ends_only_the_job() -> None:
    ending = a_rental(Phase.BOOTING, ending=an_ending())

    assert kinds(verdict(a_job(JobState.PLACING, cancel_at=NOW, rental_id=None))) == [
        "job_finished"
    ]
    assert kinds(verdict(a_job(JobState.PLACING, cancel_at=NOW), ending)) == ["job_finished"]


@pytest.mark.parametrize(
    ("trigger", "state", "failure"),
    [
        (None, "failed", "machine"),
        (Trigger.OUTBID, "failed", "machine"),
        (Trigger.BUDGET, "timed_out", None),
    ],
)
def test_a_stopped_container_took_the_process_with_it(
    trigger: Trigger | None, state: str, failure: str | None
) -> None:
    ending = an_ending(trigger) if trigger else None

    found = verdict(a_job(JobState.RUNNING), a_rental(Phase.STOPPED, ending=ending))

    assert kinds(found) == ["job_finished", "job_left"]
    assert (finish(found).state, finish(found).failure) == (state, failure)


@pytest.mark.parametrize(
    ("trigger", "state", "failure"),
    [(Trigger.VANISHED, "failed", "machine"), (Trigger.USER, "cancelled", None)],
)
def test_a_running_job_ends_with_its_machine_and_is_not_run_twice(
    trigger: Trigger, state: str, failure: str | None
) -> None:
    found = verdict(a_job(JobState.UNKNOWN), gone(trigger))

    assert kinds(found) == ["job_finished"]
    assert (finish(found).state, finish(found).failure) == (state, failure)


def test_results_lost_with_their_machine_are_told_once() -> None:
    job = a_job(JobState.SUCCEEDED)

    found = verdict(job, gone(Trigger.VANISHED))

    assert kinds(found) == ["not_collected"]
    told = structs.replace(job, collected=False, collect_final=True)
    assert verdict(told, gone(Trigger.VANISHED)) == Verdict()
    assert verdict(job, a_rental()) == Verdict()
    assert verdict(structs.replace(job, collected=True), gone(Trigger.USER)) == Verdict()


def test_machines_that_failed_within_a_day_are_avoided() -> None:
    def failed(number: int, trigger: Trigger, ended_at: float) -> Rental:
        order = Order(offer=an_offer(number), image="i", disk_gb=50.0)
        return gone(trigger, rental_id=f"r{number}", order=order, ended_at=ended_at)

    held = [
        failed(1, Trigger.BOOT_OVERDUE, T0),
        failed(2, Trigger.BOOT_OVERDUE, T0 - 86_400.0),
        failed(3, Trigger.CREATE_REFUSED, T0),  # the offer was refused, the machine may be fine
        failed(4, Trigger.USER, T0),
        failed(5, Trigger.HARDWARE_MISMATCH, T0),
    ]
    jobs = [
        a_job(JobState.PLACING, attempts=(an_attempt(8), an_attempt(9, None))),
        a_job(JobState.FAILED, attempts=(an_attempt(10),)),
    ]

    avoided = failed_machines(jobs, {r.rental_id: r for r in held}, T0)

    assert avoided == {1001, 1005, 1008}
