"""The next step of a rental: one table, from the record alone."""

import pytest

from support.builders import LIMITS, T0, a_done_job, a_job, a_rental, an_ending
from vastd.core import steps
from vastd.core.endings import Situation
from vastd.core.job import Job, JobState
from vastd.core.limits import COLLECT_TRIES, DESTROY_BACKOFF_CAP_S, STOP_REPEAT_S
from vastd.core.observed import Sighting
from vastd.core.rental import Phase, Policy, Rental, Trigger
from vastd.core.steps import Do, Step, next_step, situation

NOW = T0 + 1000
LOST = a_job(JobState.SUCCEEDED)  # finished, its results are not home
WAITS = a_job(JobState.PLACING)


def step(rental: Rental, *jobs: Job, seen: Sighting | None = None, now: float = NOW) -> Step:
    return next_step(rental, jobs, seen or Sighting(), LIMITS, now)


@pytest.mark.parametrize(
    ("rental", "jobs", "expected"),
    [
        (a_rental(Phase.PLANNED), (), Do.CREATE),
        (a_rental(Phase.PLANNED, quarantined="bug"), (), Do.NOTHING),
        (a_rental(Phase.CREATING), (), Do.NOTHING),
        (a_rental(Phase.BOOTING), (WAITS,), Do.NOTHING),
        (a_rental(Phase.VERIFYING), (WAITS,), Do.VERIFY),
        (a_rental(Phase.READY), (WAITS,), Do.LAUNCH),
        (a_rental(Phase.READY), (a_job(JobState.STARTING),), Do.LAUNCH),
        (a_rental(Phase.READY), (LOST, WAITS), Do.COLLECT),  # results first
        (a_rental(Phase.READY), (a_done_job(), WAITS), Do.LAUNCH),
        (a_rental(Phase.READY), (a_done_job(),), Do.DECIDE_END),
        (a_rental(Phase.READY, policy=Policy(keep=True)), (a_done_job(),), Do.NOTHING),
        (a_rental(Phase.READY, purpose="interactive"), (a_done_job(),), Do.NOTHING),
        (a_rental(Phase.READY), (), Do.NOTHING),
        (a_rental(Phase.READY, quarantined="bug"), (WAITS,), Do.HOLD),
        (a_rental(Phase.READY, collect_failures=COLLECT_TRIES), (LOST,), Do.HOLD),
        (a_rental(Phase.BUSY), (a_job(),), Do.ATTEND),
        (a_rental(Phase.BUSY), (a_job(JobState.UNKNOWN),), Do.ATTEND),
        (a_rental(Phase.COLLECTING), (LOST,), Do.COLLECT),
        (a_rental(Phase.STOPPED), (LOST,), Do.NOTHING),
        (a_rental(Phase.STOPPED), (a_done_job(),), Do.DECIDE_END),  # or its disk bills on
        (a_rental(Phase.STOPPED, purpose="interactive"), (a_done_job(),), Do.NOTHING),
        (a_rental(Phase.DESTROYING), (), Do.DESTROY),
        (a_rental(Phase.DESTROYING, instance_id=None), (), Do.NOTHING),
        (a_rental(Phase.GONE), (), Do.NOTHING),
    ],
)
def test_the_next_step_of_every_phase(rental: Rental, jobs: tuple[Job, ...], expected: Do) -> None:
    assert step(rental, *jobs).do is expected


def ending(phase: Phase, trigger: Trigger = Trigger.MAX_RUNTIME, **changes: object) -> Rental:
    return a_rental(phase, ending=an_ending(trigger), **changes)


SILENT = Sighting(unreachable_since=NOW - LIMITS.ssh_budget_s)
WORN = COLLECT_TRIES


@pytest.mark.parametrize(
    ("rental", "job", "seen", "expected"),
    [
        (ending(Phase.BOOTING), WAITS, None, Do.DECIDE_DESTROY),
        (ending(Phase.BUSY), a_job(), None, Do.ATTEND),
        (ending(Phase.BUSY), a_job(JobState.UNKNOWN), SILENT, Do.STOP),
        (ending(Phase.BUSY, Trigger.USER), a_job(JobState.UNKNOWN), SILENT, Do.ATTEND),
        (ending(Phase.COLLECTING), LOST, None, Do.COLLECT),
        (ending(Phase.READY), LOST, None, Do.COLLECT),
        (ending(Phase.READY, collect_failures=WORN), LOST, None, Do.STOP),
        (ending(Phase.READY, Trigger.USER, collect_failures=WORN), LOST, None, Do.HOLD),
        (ending(Phase.READY), a_done_job(), None, Do.DECIDE_DESTROY),
        (ending(Phase.STOPPED), LOST, None, Do.HOLD),
        (ending(Phase.STOPPED), a_done_job(), None, Do.DECIDE_DESTROY),
    ],
)
def test_an_end_goes_by_the_ending_table(
    rental: Rental, job: Job, seen: Sighting | None, expected: Do
) -> None:
    assert step(rental, job, seen=seen).do is expected


def test_a_short_silence_is_no_fact_to_act_on() -> None:
    just = Sighting(unreachable_since=NOW - LIMITS.ssh_budget_s + 1)

    assert situation(a_rental(Phase.BUSY), [a_job()], just, LIMITS, NOW) is Situation.JOB_ACTIVE
    assert situation(a_rental(Phase.BUSY), [a_job()], SILENT, LIMITS, NOW) is Situation.UNREACHABLE


def test_a_job_that_a_bug_of_ours_keeps_from_ending_is_stopped_after_the_same_patience() -> None:
    rental = ending(Phase.BUSY, quarantined="KeyError")
    patience_s = rental.policy.grace_s + LIMITS.ssh_budget_s

    assert step(rental, a_job(), now=T0 + patience_s - 1).do is Do.ATTEND
    assert step(rental, a_job(), now=T0 + patience_s).do is Do.STOP
    assert step(a_rental(Phase.BUSY, ending=an_ending()), a_job(), now=NOW).do is Do.ATTEND


@pytest.mark.parametrize(("failures", "wait_s"), [(1, 15.0), (2, 30.0), (3, 60.0), (4, 120.0)])
def test_a_failed_copy_is_tried_again_with_backoff(failures: int, wait_s: float) -> None:
    rental = a_rental(Phase.READY, collect_failures=failures, collect_failed_at=T0 + 5)

    found = step(rental, LOST)

    assert found == Step(do=Do.COLLECT, job_id=LOST.job_id, not_before=T0 + 5 + wait_s)


@pytest.mark.parametrize(
    ("tries", "wait_s"),
    [(1, 30.0), (2, 60.0), (3, 120.0), (4, 240.0), (5, 300.0), (1000, 300.0)],
)
def test_a_destroy_that_was_not_accepted_is_repeated_for_ever_with_a_capped_backoff(
    tries: int, wait_s: float
) -> None:
    rental = a_rental(Phase.DESTROYING, destroy_tried_at=T0, destroy_tries=tries)

    assert step(rental) == Step(do=Do.DESTROY, not_before=T0 + wait_s)
    assert wait_s <= DESTROY_BACKOFF_CAP_S


def test_an_accepted_destroy_is_repeated_only_after_a_listing_shows_the_machine_again() -> None:
    rental = a_rental(Phase.DESTROYING, destroy_tried_at=T0, destroy_tries=1, destroy_accepted=True)
    settle = LIMITS.settle_s

    assert step(rental).do is Do.NOTHING
    assert step(rental, seen=Sighting(seen_begun_at=T0 + settle - 1)).do is Do.NOTHING
    shown = step(rental, seen=Sighting(seen_begun_at=T0 + settle))
    assert shown == Step(do=Do.DESTROY, not_before=T0 + LIMITS.destroy_retry_s)


@pytest.mark.parametrize(
    ("accepted", "wait_s"), [(True, STOP_REPEAT_S), (False, LIMITS.destroy_retry_s)]
)
def test_a_stop_is_repeated_until_it_is_seen(accepted: bool, wait_s: float) -> None:
    rental = ending(
        Phase.READY, collect_failures=WORN, stop_tried_at=T0 + 3, stop_accepted=accepted
    )

    assert step(rental, LOST).not_before == T0 + 3 + wait_s


def test_the_same_question_has_the_same_answer() -> None:
    rental = ending(Phase.COLLECTING)

    assert step(rental, LOST) == step(rental, LOST)
    assert steps.EFFECTS.isdisjoint({Do.DECIDE_END, Do.DECIDE_DESTROY, Do.HOLD, Do.NOTHING})
