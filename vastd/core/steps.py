"""The next thing to do for one rental, from its record alone: safe to ask again and again.

The supervisor runs at most one step per rental at a time. A step that is not the next one any
more is cancelled, except a create, whose outcome must be learnt.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from vastd.core import endings
from vastd.core.endings import Outcome, Situation
from vastd.core.job import Job, JobState
from vastd.core.limits import (
    COLLECT_TRIES,
    DESTROY_BACKOFF_CAP_S,
    STOP_REPEAT_S,
    Limits,
)
from vastd.core.observed import Sighting
from vastd.core.rental import Pause, Phase, Rental


class Do(StrEnum):
    """What an effect can carry out."""

    CREATE = "create"
    VERIFY = "verify"
    LAUNCH = "launch"  # send the code and start the job
    ATTEND = "attend"  # follow the running job; end it when told
    COLLECT = "collect"
    STOP = "stop"
    START = "start"
    GREET = "greet"  # wait until a machine that was started again can be used
    DESTROY = "destroy"
    DECIDE_END = "decide_end"  # no effect: record that its jobs are done
    DECIDE_DESTROY = "decide_destroy"  # no effect: record that nothing holds it any more
    HOLD = "hold"  # nothing to do, and the reason is worth telling
    NOTHING = "nothing"


EFFECTS: Final = frozenset(
    {
        Do.CREATE,
        Do.VERIFY,
        Do.LAUNCH,
        Do.ATTEND,
        Do.COLLECT,
        Do.STOP,
        Do.START,
        Do.GREET,
        Do.DESTROY,
    }
)


class Step(Struct, frozen=True, kw_only=True):
    """What is next. `not_before` (epoch s) delays it; `job_id` names the job it is about."""

    do: Do
    why: str = ""
    job_id: str | None = None
    not_before: float | None = None


_NOTHING: Final = Step(do=Do.NOTHING)


def next_step(
    rental: Rental, jobs: Sequence[Job], seen: Sighting, limits: Limits, now: float
) -> Step:
    """Return the next step of `rental`. `jobs` are those placed on it, by submission."""
    match rental.phase:
        case Phase.PLANNED:
            return Step(do=Do.CREATE) if rental.quarantined is None else _NOTHING
        case Phase.CREATING | Phase.GONE:
            return _NOTHING  # the answer, or the listing, moves it
        case Phase.DESTROYING:
            return _destroy(rental, seen, limits, now)
    if rental.ending is not None:
        return _end(rental, jobs, seen, limits, now)
    if rental.quarantined is not None:
        return Step(do=Do.HOLD, why=rental.quarantined)
    if rental.pause is not None and rental.phase in _RUNNING:
        return _pause(rental, rental.pause, jobs, seen, limits, now)
    match rental.phase:
        case Phase.VERIFYING:
            return Step(do=Do.VERIFY)
        case Phase.READY:
            return _ready(rental, jobs, limits)
        case Phase.BUSY:
            active = _active(jobs)
            return _NOTHING if active is None else Step(do=Do.ATTEND, job_id=active.job_id)
        case Phase.COLLECTING:
            return _collect(rental, jobs, limits)
        case Phase.STOPPED:
            return _stopped(rental, jobs, limits)
        case _:
            return _NOTHING


_RUNNING: Final = frozenset({Phase.READY, Phase.BUSY, Phase.COLLECTING})


def _pause(
    rental: Rental, pause: Pause, jobs: Sequence[Job], seen: Sighting, limits: Limits, now: float
) -> Step:
    """Return what is next on a machine that shall be stopped: its job ends, its results come home,
    then the GPU goes. Neither a copy that fails nor silence keeps it: the disk has the results."""
    if _may_run(rental, _active(jobs)) and _unreachable(seen, limits, now):
        return _ask_to_stop(rental, limits, pause.why)
    if rental.phase is Phase.COLLECTING and pause.collect:
        return _collect(rental, jobs, limits)
    active = _active(jobs)
    if rental.phase is Phase.BUSY and active is not None:
        return Step(do=Do.ATTEND, job_id=active.job_id)
    if active is not None and active.may_have_started:
        return Step(do=Do.LAUNCH, job_id=active.job_id)  # it was cancelled: that is settled there
    waiting = any(job.finished and job.uncollected for job in jobs)
    if waiting and pause.collect and rental.collect_failures < COLLECT_TRIES:
        return _collect(rental, jobs, limits)
    return _ask_to_stop(rental, limits, pause.why)


def _stopped(rental: Rental, jobs: Sequence[Job], limits: Limits) -> Step:
    if rental.start_asked_at is not None:
        return _ask_to_start(rental, limits)
    if rental.pause is not None:
        # A start that was sent before may still be waiting at Vast: this takes it back.
        return _NOTHING if rental.stop_accepted else _ask_to_stop(rental, limits, rental.pause.why)
    if _done(rental, jobs) and not any(job.uncollected for job in jobs):
        # Its disk bills and nobody will come back for it.
        return Step(do=Do.DECIDE_END, why="it was stopped, and holds nothing to bring home")
    return _NOTHING


def _ask_to_stop(rental: Rental, limits: Limits, why: str) -> Step:
    again_s = STOP_REPEAT_S if rental.stop_accepted else limits.destroy_retry_s
    tried = rental.stop_tried_at
    return Step(do=Do.STOP, why=why, not_before=None if tried is None else tried + again_s)


def _ask_to_start(rental: Rental, limits: Limits) -> Step:
    # An accepted start waits at Vast until the GPU is free; asking again does not move it ahead.
    again_s = STOP_REPEAT_S if rental.start_accepted else limits.destroy_retry_s
    tried = rental.start_tried_at
    return Step(do=Do.START, not_before=None if tried is None else tried + again_s)


def situation(
    rental: Rental, jobs: Sequence[Job], seen: Sighting, limits: Limits, now: float
) -> Situation:
    """Return how things stand on a machine that shall end."""
    if rental.phase is Phase.STOPPED:
        lost = rental.taken_over or rental.left_jobs or any(job.uncollected for job in jobs)
        return Situation.UNREACHABLE if lost else Situation.SETTLED
    if _may_run(rental, _active(jobs)):
        deaf = _unreachable(seen, limits, now) or _beyond_us(rental, limits, now)
        return Situation.UNREACHABLE if deaf else Situation.JOB_ACTIVE
    if not any(job.uncollected for job in jobs):
        # What is on a machine that was taken over is not known: its disk is kept.
        kept = rental.taken_over or rental.left_jobs
        return Situation.COPY_FAILED if kept else Situation.SETTLED
    if rental.collect_failures >= COLLECT_TRIES:
        return Situation.UNREACHABLE if _unreachable(seen, limits, now) else Situation.COPY_FAILED
    return Situation.UNCOLLECTED


def _unreachable(seen: Sighting, limits: Limits, now: float) -> bool:
    """A connection that broke is made again; only long silence is a fact to act on."""
    since = seen.unreachable_since
    return since is not None and now - since >= limits.ssh_budget_s


def _beyond_us(rental: Rental, limits: Limits, now: float) -> bool:
    """A job that a bug of ours keeps from ending gets the same patience as a silent machine."""
    ending = rental.ending
    if rental.quarantined is None or ending is None:
        return False
    return now - ending.at >= rental.policy.grace_s + limits.ssh_budget_s


def _done(rental: Rental, jobs: Sequence[Job]) -> bool:
    """Return whether the machine was rented for jobs that are all over."""
    for_jobs = rental.purpose == "job" and not rental.policy.keep
    return for_jobs and bool(jobs) and all(job.finished for job in jobs)


def _active(jobs: Sequence[Job]) -> Job | None:
    return next((job for job in jobs if job.active), None)


def _may_run(rental: Rental, active: Job | None) -> bool:
    """Return whether a process of ours may run there; a start whose answer was lost counts."""
    if active is None:
        return False
    return rental.phase is Phase.BUSY or (rental.phase is Phase.READY and active.may_have_started)


def _end(rental: Rental, jobs: Sequence[Job], seen: Sighting, limits: Limits, now: float) -> Step:
    ending = rental.ending
    assert ending is not None
    now_is = situation(rental, jobs, seen, limits, now)
    outcome = endings.decide(ending.trigger, now_is, force=ending.force, collect=ending.collect)
    active = _active(jobs)
    match outcome:
        case Outcome.TERM:
            return Step(do=Do.ATTEND, job_id=active.job_id if active else None)
        case Outcome.COLLECT:
            return _collect(rental, jobs, limits)
        case Outcome.DESTROY:
            return Step(do=Do.DECIDE_DESTROY, why=f"{ending.trigger}: {now_is}")
        case Outcome.STOP if rental.left_jobs and not rental.stop_accepted:
            # Outbid, it would run again by itself, for nobody.
            return _ask_to_stop(rental, limits, f"{ending.trigger}: {now_is}")
        case Outcome.STOP if rental.phase is not Phase.STOPPED:
            return _ask_to_stop(rental, limits, f"{ending.trigger}: {now_is}")
        case _ if rental.phase is Phase.STOPPED and rental.start_asked_at is not None:
            return _ask_to_start(rental, limits)  # the user fetches what its disk holds
        case _ if rental.phase is Phase.STOPPED and rental.pause and not rental.stop_accepted:
            return _ask_to_stop(rental, limits, rental.pause.why)  # takes a waiting start back
        case _ if active is not None and _may_run(rental, active):
            # Held because it cannot be asked: asking again is the only way on.
            return Step(do=Do.ATTEND, job_id=active.job_id, why=now_is)
        case _:
            return Step(do=Do.HOLD, why=f"{ending.trigger}: {now_is}")


def _ready(rental: Rental, jobs: Sequence[Job], limits: Limits) -> Step:
    if rental.start_asked_at is not None:
        return Step(do=Do.GREET)
    waiting = next((job for job in jobs if job.state in _TO_LAUNCH), None)
    if any(job.finished and job.uncollected for job in jobs):
        if rental.collect_failures >= COLLECT_TRIES:
            return Step(do=Do.HOLD, why="results could not be copied; see explain")
        return _collect(rental, jobs, limits)
    if waiting is not None:
        return Step(do=Do.LAUNCH, job_id=waiting.job_id)
    if _done(rental, jobs):
        return Step(do=Do.DECIDE_END, why="its jobs are done and the results are home")
    return _NOTHING


_TO_LAUNCH: Final = frozenset({JobState.QUEUED, JobState.PLACING, JobState.STARTING})


def _collect(rental: Rental, jobs: Sequence[Job], limits: Limits) -> Step:
    job = next((job for job in jobs if job.finished and job.uncollected), None)
    failures, at = rental.collect_failures, rental.collect_failed_at
    wait_until = None if at is None else at + limits.ssh_spacing_s * 2 ** max(0, failures - 1)
    return Step(do=Do.COLLECT, job_id=job.job_id if job else None, not_before=wait_until)


def _destroy(rental: Rental, seen: Sighting, limits: Limits, now: float) -> Step:
    """Destroy is retried for ever (I4), but an accepted one is repeated only after a listing
    has shown the machine again: each attempt moves the proof of absence away (I3)."""
    if rental.instance_id is None:
        return _NOTHING  # its label is looked for; `reconcile` finds it or proves its absence
    tried = rental.destroy_tried_at
    if tried is None or tried > now:  # the clock was set back: its old time must not delay us
        return Step(do=Do.DESTROY)
    if not rental.destroy_accepted:
        backoff = limits.destroy_retry_s * 2 ** min(max(rental.destroy_tries - 1, 0), 8)
        return Step(do=Do.DESTROY, not_before=tried + min(backoff, DESTROY_BACKOFF_CAP_S))
    shown = seen.seen_begun_at
    if shown is not None and shown >= tried + limits.settle_s:
        return Step(do=Do.DESTROY, not_before=tried + limits.destroy_retry_s)
    return _NOTHING
