"""The life of a job: exact rows, fields that keep their first value, attempts that are closed."""

import pytest

from support.builders import JOB_ID, RENTAL_ID, T0, a_job, sample
from vastd.core import events as ev
from vastd.core.job import FINISHED, ON_MACHINE, Attempt, Job, JobState
from vastd.core.job_lifecycle import evolve_job
from vastd.errors import IllegalTransition

S = JobState
WAITING = {
    ev.JobPlaced: S.PLACING, ev.AttemptFailed: S.QUEUED, ev.SyncBegan: S.STARTING,
    ev.CancelAsked: None, ev.JobFinished: S.FAILED,
}  # fmt: skip
ACTIVE = {
    ev.SyncBegan: S.STARTING, ev.Synced: S.STARTING, ev.JobStarted: S.RUNNING,
    ev.JobUnreachable: S.UNKNOWN, ev.JobReachable: S.RUNNING, ev.AttemptFailed: S.QUEUED,
    ev.JobInterrupted: S.QUEUED,
    ev.CancelAsked: None, ev.TermSent: None, ev.JobFinished: S.FAILED, ev.NotCollected: None,
}  # fmt: skip
DONE = {ev.Collected: None, ev.NotCollected: None, ev.CancelAsked: None}


def rows(state: JobState) -> dict[type[ev.JobEvent], JobState | None]:
    """What may happen in `state`, and where it leads; None stays."""
    if state is JobState.QUEUED:
        return {**WAITING, ev.MachineAwaited: None}
    return DONE if state in FINISHED else ACTIVE if state in ON_MACHINE else WAITING


@pytest.mark.parametrize("state", JobState)
def test_every_event_leads_where_it_should_or_is_illegal_and_changes_nothing(
    state: JobState,
) -> None:
    for kind in ev.JOB_EVENTS:
        if kind is ev.JobSubmitted:
            continue
        job, event = a_job(state), sample(kind)
        assert isinstance(event, ev.JobEvent)
        if kind in rows(state):
            assert evolve_job(job, event).state is (rows(state)[kind] or state), kind
        else:
            with pytest.raises(IllegalTransition, match=JOB_ID):
                evolve_job(job, event)
        assert job == a_job(state)


def test_only_a_submission_makes_a_job_and_only_once() -> None:
    submitted = sample(ev.JobSubmitted)
    assert isinstance(submitted, ev.JobSubmitted)

    made = evolve_job(None, submitted)

    assert made is submitted.job
    with pytest.raises(IllegalTransition, match="exists already"):
        evolve_job(made, submitted)
    with pytest.raises(IllegalTransition, match="not on record"):
        evolve_job(None, ev.CancelAsked(job_id=JOB_ID, at=T0))


def test_a_finished_job_never_finishes_again() -> None:
    for state in FINISHED:
        with pytest.raises(IllegalTransition):
            evolve_job(a_job(state), sample(ev.JobFinished))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "field"),
    [(ev.JobStarted, "started_at"), (ev.TermSent, "term_at"), (ev.CancelAsked, "cancel_at")],
)
def test_a_repeat_after_a_crash_keeps_the_first_instant(
    kind: type[ev.JobEvent], field: str
) -> None:
    job = a_job(S.RUNNING, started_at=None)
    for at in (T0 + 1, T0 + 2):
        job = evolve_job(job, sample(kind, at=at))  # type: ignore[arg-type]

    assert getattr(job, field) == T0 + 1


def test_a_failed_attempt_is_closed_and_frees_the_job_for_the_next_machine() -> None:
    placed = evolve_job(a_job(S.QUEUED, rental_id=None), sample(ev.JobPlaced))  # type: ignore[arg-type]

    failed = evolve_job(placed, sample(ev.AttemptFailed, at=T0 + 9))  # type: ignore[arg-type]
    again = evolve_job(failed, sample(ev.JobPlaced, rental_id="r2", at=T0 + 10))  # type: ignore[arg-type]

    first = Attempt(
        rental_id=RENTAL_ID, offer_id=7, machine_id=1007, began_at=T0, phase="booting",
        reason="stuck", ended_at=T0 + 9,
    )  # fmt: skip
    assert (failed.state, failed.rental_id, failed.attempts) == (S.QUEUED, None, (first,))
    assert again.attempts[0] == first
    assert (again.attempts[1].rental_id, again.attempts[1].reason) == ("r2", None)


def test_a_job_placed_on_an_existing_rental_has_no_attempt() -> None:
    job = evolve_job(a_job(S.QUEUED), sample(ev.JobPlaced, offer=None))  # type: ignore[arg-type]

    assert (job.rental_id, job.attempts) == (RENTAL_ID, ())


def test_results_that_come_home_after_a_failed_copy_count() -> None:
    job = a_job(S.SUCCEEDED)
    assert job.uncollected

    failed = evolve_job(job, sample(ev.NotCollected, final=True))  # type: ignore[arg-type]
    home = evolve_job(failed, sample(ev.Collected))  # type: ignore[arg-type]

    assert (failed.uncollected, failed.collect_final, failed.failure) == (True, True, "collection")
    assert (home.uncollected, home.missing) == (False, ["x.log"])


def test_a_lost_copy_does_not_hide_why_the_job_failed() -> None:
    job = a_job(S.FAILED, failure="machine")

    assert evolve_job(job, sample(ev.NotCollected)).failure == "machine"  # type: ignore[arg-type]


def test_a_job_that_never_started_has_nothing_to_collect() -> None:
    assert not a_job(S.FAILED, started_at=None).uncollected
    assert not a_job(S.STARTING).uncollected


def test_a_job_that_is_interrupted_keeps_what_it_needs_for_its_next_start() -> None:
    job = a_job(S.RUNNING, term_at=T0, synced_files=3, attempts=(
        Attempt(rental_id="r1", offer_id=1, machine_id=2, began_at=T0),
    ))  # fmt: skip

    def interrupted(moves: bool) -> Job:
        why = ev.JobInterrupted(job_id=JOB_ID, rental_id="r1", at=T0 + 9, why="outbid", moves=moves)
        return evolve_job(job, why)

    here, elsewhere = interrupted(moves=False), interrupted(moves=True)

    assert (here.run, here.run_id, here.run_ids) == (2, f"{JOB_ID}-2", (JOB_ID, f"{JOB_ID}-2"))
    # Its code and what it wrote are on that machine still.
    assert (here.rental_id, here.synced_files, here.uncollected) == ("r1", 3, True)
    assert (here.reason, here.term_at, here.attempts[0].ended_at) == ("outbid", None, None)
    assert (elsewhere.rental_id, elsewhere.synced_files, elsewhere.uncollected) == (
        None,
        None,
        False,
    )
    assert elsewhere.reason is None  # the place of why it waits for its next machine
    (tried,) = elsewhere.attempts
    assert (tried.reason, tried.ended_at, tried.counts) == ("outbid", T0 + 9, False)
