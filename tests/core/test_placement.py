"""What becomes of a job when its machine ends: a next one, a verdict, or a wait."""

import pytest
from msgspec import structs

from support.builders import LIMITS, RATE, RENTAL_ID, T0, a_job, a_rental, an_ending
from support.offer_builders import an_offer
from vastd.core import events as ev
from vastd.core.hosts import Block, Host
from vastd.core.job import Attempt, Job, JobState
from vastd.core.job_lifecycle import evolve_job
from vastd.core.money import Micros
from vastd.core.placement import Need, Verdict, known, settle
from vastd.core.rental import BOOT_FAILURES, Blame, Order, Phase, RateSegment, Rental, Trigger

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
    fields = {"ending": an_ending(trigger), "end_detail": "so it was", **changes}
    return a_rental(Phase.GONE, **fields)


def an_attempt(number: int, reason: str | None = "stuck") -> Attempt:
    return Attempt(
        rental_id=f"r{number}", offer_id=number, machine_id=1000 + number, began_at=T0,
        reason=reason, phase="booting" if reason else None,
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
    assert finish(third).why.endswith("; machine 1007 (planned): so it was")


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


@pytest.mark.req("FAI-07")
def test_a_choice_knows_blocked_machines_those_that_failed_the_job_and_offers_being_rented() -> (
    None
):
    def asking(number: int, phase: Phase) -> Rental:
        order = Order(offer=an_offer(number), image="i", disk_gb=50.0)
        return a_rental(phase, rental_id=f"r{number}", name=f"lab-{number}", order=order)

    rentals = {r.rental_id: r for r in (
        asking(1, Phase.PLANNED), asking(2, Phase.CREATING), asking(3, Phase.BOOTING),
        asking(4, Phase.GONE),
    )}  # fmt: skip
    block = Block(since=T0, until=T0 + 60, why="stuck", by="vastd")
    old = structs.replace(block, until=T0)
    hosts = {5: Host(machine_id=5, block=block), 6: Host(machine_id=6, block=old)}
    job = a_job(JobState.PLACING, attempts=(an_attempt(8), an_attempt(9, None)))

    found = known(job, rentals, hosts, T0)

    assert set(found.blocked) == {5, 1008}
    assert found.blocked[5].startswith("stuck (blocked by vastd until 2027-")
    assert found.blocked[1008].startswith("it failed for this job: ")
    assert found.taken == {1: "lab-1", 2: "lab-2"}
    assert set(known(None, rentals, hosts, T0).blocked) == {5}


def test_an_attempt_is_recorded_with_phase_seconds_dollars_and_blame() -> None:
    rental = gone(Trigger.BOOT_OVERDUE, ended_at=T0 + 900, phases=(
        (Phase.PLANNED, T0), (Phase.BOOTING, T0 + 5), (Phase.DESTROYING, T0 + 605),
        (Phase.GONE, T0 + 900),
    ), rates=(RateSegment(T0 + 5, RATE), RateSegment(T0 + 900, Micros(0))))  # fmt: skip
    job = a_job(JobState.PLACING, attempts=(an_attempt(1, None),))

    (failed,) = verdict(job, rental).events

    assert isinstance(failed, ev.AttemptFailed)
    assert (failed.phase, failed.machine_id) == ("booting", 1007)
    assert (failed.seconds, failed.wasted) == (900.0, 89_500)  # 895 s at 100 micro-dollars
    assert (failed.blame, failed.counts) == (Blame.HOST, True)
    after = evolve_job(job, failed).attempts[-1]
    assert (after.seconds, after.wasted, after.blame) == (900.0, 89_500, Blame.HOST)


@pytest.mark.req("FAI-06")
def test_an_offer_that_was_gone_is_no_failed_machine_but_chasing_offers_ends() -> None:
    missed = structs.replace(an_attempt(1), counts=False)
    lost = gone(Trigger.CREATE_REFUSED, offer_gone=True)

    many = verdict(a_job(JobState.PLACING, attempts=(missed,) * 11), lost)
    enough = verdict(a_job(JobState.PLACING, attempts=(missed,) * 12), lost)

    assert kinds(many) == ["attempt_failed"]
    assert kinds(enough) == ["attempt_failed", "job_finished"]
    failed = many.events[0]
    assert isinstance(failed, ev.AttemptFailed)
    assert failed.counts is False
    two = a_job(JobState.PLACING, attempts=(missed, an_attempt(1), an_attempt(2)))
    assert kinds(verdict(two, lost)) == ["attempt_failed"]  # the third try is not used up
    assert kinds(verdict(two, gone(Trigger.BOOT_OVERDUE)))[-1] == "job_finished"


@pytest.mark.req("FAI-03")
def test_the_run_that_is_given_up_tells_every_reason() -> None:
    before = (an_attempt(1), an_attempt(2))

    found = finish(verdict(a_job(JobState.PLACING, attempts=before), gone(Trigger.BOOT_OVERDUE)))

    assert found.why.startswith("3 attempts failed: machine 1001 (booting): ")
    assert all(f"machine {m}" in found.why for m in (1001, 1002, 1007))


def test_the_image_s_fault_ends_the_run_with_its_reason_alone() -> None:
    ending = an_ending(Trigger.BOOT_FAILED, why="manifest unknown", blame=Blame.RUN)
    hopeless = gone(Trigger.BOOT_FAILED, ending=ending, end_detail="manifest unknown",
                    refused_for_all=True)  # fmt: skip
    found = finish(verdict(a_job(JobState.PLACING, attempts=(an_attempt(1, None),)), hopeless))

    assert found.why == "manifest unknown; every other machine would fail in the same way"


def test_a_machine_that_was_outbid_before_it_ran_is_followed_by_the_next() -> None:
    job = a_job(JobState.PLACING, attempts=(an_attempt(1, None),))

    assert kinds(verdict(job, gone(Trigger.OUTBID))) == ["attempt_failed"]
