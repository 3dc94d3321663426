"""The life of a job as one table: which event is legal in which state."""

from collections.abc import Mapping
from typing import Final

from msgspec import structs

from vastd.core import events as ev
from vastd.core.job import Attempt, Job, JobState
from vastd.errors import IllegalTransition

_S = JobState
_Row = Mapping[type[ev.JobEvent], JobState | None]

# None means: the event carries the state itself, or keeps it.
_WAITING: Final[_Row] = {
    ev.JobPlaced: _S.PLACING,
    ev.AttemptFailed: _S.QUEUED,
    ev.SyncBegan: _S.STARTING,
    ev.CancelAsked: None,
    ev.JobFinished: None,
}
_ACTIVE: Final[_Row] = {
    ev.SyncBegan: _S.STARTING,
    ev.Synced: _S.STARTING,
    ev.JobStarted: _S.RUNNING,
    ev.JobUnreachable: _S.UNKNOWN,
    ev.JobReachable: _S.RUNNING,
    ev.AttemptFailed: _S.QUEUED,
    ev.JobInterrupted: _S.QUEUED,
    ev.CancelAsked: None,
    ev.TermSent: None,
    ev.JobFinished: None,
    ev.NotCollected: None,
}
_DONE: Final[_Row] = {ev.Collected: None, ev.NotCollected: None, ev.CancelAsked: None}

TRANSITIONS: Final[Mapping[JobState, _Row]] = {
    _S.QUEUED: {**_WAITING, ev.MachineAwaited: None},
    _S.PLACING: _WAITING,
    _S.STARTING: _ACTIVE,
    _S.RUNNING: _ACTIVE,
    _S.UNKNOWN: _ACTIVE,
    _S.SUCCEEDED: _DONE,
    _S.FAILED: _DONE,
    _S.CANCELLED: _DONE,
    _S.TIMED_OUT: _DONE,
}


def evolve_job(job: Job | None, event: ev.JobEvent) -> Job:
    """Return the job as it is after `event`; `job` is None only for `JobSubmitted`.

    Raises:
        IllegalTransition: the event has no row for this state.
    """
    if isinstance(event, ev.JobSubmitted):
        if job is not None:
            raise IllegalTransition(f"job {event.job_id!r} exists already")
        return event.job
    if job is None:
        raise IllegalTransition(f"{ev.kind(event)} for job {event.job_id!r}, not on record")
    row = TRANSITIONS[job.state]
    if type(event) not in row:
        raise IllegalTransition(f"{ev.kind(event)} in state {job.state} of job {job.job_id!r}")
    return _with_fields(structs.replace(job, state=row[type(event)] or job.state), event)


def _with_fields(job: Job, event: ev.JobEvent) -> Job:
    match event:
        case ev.MachineAwaited(why=why):
            return structs.replace(job, reason=why)
        case ev.JobPlaced(at=at, rental_id=rental_id, offer=offer):
            job = structs.replace(job, reason=None)
            if offer is None:
                return structs.replace(job, rental_id=rental_id)
            tried = Attempt(
                rental_id=rental_id,
                offer_id=offer.offer_id,
                machine_id=offer.machine_id,
                began_at=at,
            )
            return structs.replace(job, rental_id=rental_id, attempts=(*job.attempts, tried))
        case ev.AttemptFailed():
            return structs.replace(
                job,
                rental_id=None,
                attempts=_closed(job, event),
                sync_at=None,
                synced_files=None,
                synced_bytes=None,
            )
        case ev.SyncBegan(at=at):
            began = job.sync_at or at
            return structs.replace(job, sync_at=began, synced_files=None, synced_bytes=None)
        case ev.Synced(files=files, bytes=size, log_base=base):
            return structs.replace(job, synced_files=files, synced_bytes=size, log_base=base)
        case ev.JobInterrupted():
            return _interrupted(job, event)
        case ev.JobStarted(at=at):
            return structs.replace(job, started_at=job.started_at or at)
        case ev.CancelAsked(at=at):
            return structs.replace(job, cancel_at=job.cancel_at or at)
        case ev.TermSent(at=at):
            return structs.replace(job, term_at=job.term_at or at)
        case ev.JobFinished():
            return structs.replace(
                job,
                state=JobState(event.state),
                ended_at=event.at,
                exit_code=event.exit_code,
                reason=event.why,
                failure=event.failure,
            )
        case ev.Collected():
            return structs.replace(
                job,
                collected=True,
                collected_at=event.at,
                collected_files=event.files,
                collected_bytes=event.bytes,
                collected_earlier=event.earlier,
                missing=event.missing,
            )
        case ev.NotCollected(final=False):
            return structs.replace(job, collected=False)
        case ev.NotCollected():
            failure = job.failure or "collection"
            return structs.replace(job, collected=False, collect_final=True, failure=failure)
        case _:
            return job


def _interrupted(job: Job, event: ev.JobInterrupted) -> Job:
    """Return the job before its next start. `started_at` stays: there may be results somewhere."""
    job = structs.replace(job, run=job.run + 1, term_at=None, sync_at=None, reason=event.why)
    if not event.moves:
        return job  # its code is on that machine's disk
    attempts = tuple(
        structs.replace(a, phase="busy", reason=event.why, ended_at=event.at, counts=False)
        if a.rental_id == event.rental_id and a.ended_at is None
        else a
        for a in job.attempts
    )
    return structs.replace(
        job,
        rental_id=None,
        reason=None,  # the attempt tells it; what it waits for now is another matter
        attempts=attempts,
        started_at=None,
        synced_files=None,
        synced_bytes=None,
    )


def _closed(job: Job, event: ev.AttemptFailed) -> tuple[Attempt, ...]:
    return tuple(
        structs.replace(
            a,
            phase=event.phase,
            reason=event.why,
            ended_at=event.at,
            seconds=event.seconds,
            wasted=event.wasted,
            blame=event.blame,
            counts=event.counts,
        )
        if a.rental_id == event.rental_id and a.ended_at is None
        else a
        for a in job.attempts
    )
