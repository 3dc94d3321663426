"""What becomes of a job when its machine comes to an end, and when it needs another one."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from vastd.core import billing
from vastd.core import events as ev
from vastd.core.hosts import Host, Known, blocked
from vastd.core.job import Attempt, Job, JobState
from vastd.core.limits import Limits
from vastd.core.money import Micros
from vastd.core.rental import BOOT_FAILURES, OnOutbid, Phase, Rental, StopCause, Trigger

_NOT_STARTED = frozenset({JobState.QUEUED, JobState.PLACING, JobState.STARTING})


class Need(StrEnum):
    """What a job needs now."""

    NOTHING = "nothing"
    MACHINE = "machine"  # search, choose and plan a rental


class Verdict(Struct, frozen=True, kw_only=True):
    """Events to commit now, then what the job needs."""

    events: tuple[ev.Event, ...] = ()
    need: Need = Need.NOTHING


def settle(job: Job, rentals: Mapping[str, Rental], limits: Limits, now: float) -> Verdict:
    """Return what to record about `job` and whether it needs a machine. `rentals`: by id."""
    rental = rentals.get(job.rental_id) if job.rental_id else None
    if job.finished:
        return _after(job, rental, rentals, now)
    if job.cancel_at is not None and job.state in (JobState.QUEUED, JobState.PLACING):
        return Verdict(events=_cancelled(job, rental, now))
    if rental is None:
        return Verdict(need=Need.MACHINE) if job.rents else Verdict()
    if rental.phase is Phase.STOPPED and job.active:
        return Verdict(events=_stopped(job, rental, now))
    if rental.phase is Phase.STOPPED and rental.ending is not None and job.run > 1:
        return Verdict(events=_waited(job, rental, now))
    if rental.phase is not Phase.GONE:
        return Verdict()
    if job.state not in _NOT_STARTED or job.started_at is not None:
        return Verdict(events=_lost(job, rental, now))
    return _again(job, rental, limits, now)


def is_over(job: Job, rentals: Mapping[str, Rental]) -> bool:
    """Return whether `settle` will never again have anything to say about `job`."""
    if not job.finished:
        return False
    rental = rentals.get(job.rental_id) if job.rental_id else None
    if rental is None:
        return True
    return rental.phase is Phase.GONE and (not job.uncollected or job.collect_final)


def _after(job: Job, rental: Rental | None, rentals: Mapping[str, Rental], now: float) -> Verdict:
    """Let go what is not needed any more. A machine that is gone takes uncollected results with it:
    say so once."""
    if (left := left_behind(job, rentals)) and job.state is JobState.SUCCEEDED and job.collected:
        return Verdict(
            events=tuple(
                ev.LeftOver(rental_id=one.rental_id, job_id=job.job_id, at=now) for one in left
            )
        )
    if rental is None or rental.phase is not Phase.GONE:
        return Verdict()
    if not job.uncollected or job.collect_final:
        return Verdict()
    why = f"the machine is gone ({rental.end_reason})"
    lost = ev.NotCollected(
        job_id=job.job_id, rental_id=rental.rental_id, at=now, why=why, final=True
    )
    return Verdict(events=(lost,))


def _cancelled(job: Job, rental: Rental | None, now: float) -> tuple[ev.Event, ...]:
    done = ev.JobFinished(
        job_id=job.job_id, at=now, state=JobState.CANCELLED, why="cancelled before it started"
    )
    if rental is None or not job.rents or rental.ending is not None or rental.phase is Phase.GONE:
        return (done,)
    end = ev.EndDecided(
        rental_id=rental.rental_id, at=now, trigger=Trigger.USER, why="its job was cancelled"
    )
    return (done, end)


def left_behind(job: Job, rentals: Mapping[str, Rental]) -> list[Rental]:
    """Return the machines whose disk is kept for what `job` left there when it went on elsewhere."""
    tried = (rentals.get(attempt.rental_id) for attempt in job.attempts)
    return [
        one
        for one in tried
        if one is not None and one.phase is not Phase.GONE and job.job_id in one.left_jobs
    ]


MAX_RUNS: Final = 10  # guess: whoever is outbid that often had better bid more


def may_go_on(job: Job, rental: Rental, cause: StopCause | None) -> bool:
    """Return whether a job that was interrupted may start again: only from a checkpoint it declared,
    and only when it was outbid; anything else would repeat its work unasked."""
    return (
        cause is StopCause.OUTBID
        and rental.policy.on_outbid is not OnOutbid.END
        and job.policy.checkpoint_path is not None
        and job.cancel_at is None
        and job.setup is None
        and job.run < MAX_RUNS
    )


def _goes_on(job: Job, rental: Rental) -> bool:
    """Return whether a job whose machine stands still waits for it, or moves to another."""
    ours = rental.ending is None or rental.end_reason is Trigger.OUTBID
    waits = rental.policy.on_outbid is OnOutbid.RESUME and rental.ending is None
    moves = rental.policy.on_outbid is OnOutbid.RERENT and job.rents
    return ours and (waits or moves) and may_go_on(job, rental, rental.stopped_by)


def _interrupted(job: Job, rental: Rental, now: float) -> tuple[ev.Event, ...]:
    moves = rental.policy.on_outbid is OnOutbid.RERENT
    goes_on = "on another machine" if moves else "when this machine runs again"
    why = f"{rental.stop_detail}; it goes on from its checkpoint {goes_on}"
    rid, jid = rental.rental_id, job.job_id
    found: list[ev.Event] = []
    if rental.phase is Phase.STOPPED and job.may_have_started:
        found.append(ev.JobStarted(job_id=jid, rental_id=rid, at=now))
    found.append(ev.JobInterrupted(job_id=jid, rental_id=rid, at=now, why=why, moves=moves))
    if moves:
        found.append(ev.JobWentOn(rental_id=rid, job_id=jid, at=now))
        if rental.ending is None:
            told = rental.stop_detail or "outbid"
            end = ev.EndDecided(rental_id=rid, at=now, trigger=Trigger.OUTBID, why=told)
            found.append(end)
    return tuple(found)


def _waited(job: Job, rental: Rental, now: float) -> tuple[ev.Event, ...]:
    """The machine it waits for is given up; what it wrote before is on the disk."""
    why = f"it waited for its machine to run again: {rental.end_detail or rental.end_reason}"
    state = _STATE_OF_END.get(rental.end_reason or Trigger.BUG, JobState.TIMED_OUT)
    failure = "machine" if state is JobState.FAILED else None
    return (ev.JobFinished(job_id=job.job_id, at=now, state=state, why=why, failure=failure),)


_STATE_OF_END: Final = {
    Trigger.USER: JobState.CANCELLED,
    Trigger.OUTBID: JobState.FAILED,
    Trigger.UNREACHABLE: JobState.FAILED,
    Trigger.BUG: JobState.FAILED,
}


def _stopped(job: Job, rental: Rental, now: float) -> tuple[ev.Event, ...]:
    """A container that stopped took the job's process with it; its files wait on the disk."""
    if _goes_on(job, rental):
        return _interrupted(job, rental, now)
    limit = rental.ending is not None and rental.end_reason is not Trigger.OUTBID
    told = rental.stop_detail if rental.stopped_by is not StopCause.ASKED else None
    why = f"its machine was stopped: {rental.end_detail or told or 'by Vast'}"
    finished = ev.JobFinished(
        job_id=job.job_id,
        at=now,
        state=JobState.TIMED_OUT if limit else JobState.FAILED,
        why=why,
        failure=None if limit else "machine",
    )
    left = ev.JobLeft(rental_id=rental.rental_id, job_id=job.job_id, at=now)
    if not job.may_have_started:
        return finished, left
    # If it ran, there are results: only a job that started is collected from.
    began = ev.JobStarted(job_id=job.job_id, rental_id=rental.rental_id, at=now)
    return began, finished, left


def _lost(job: Job, rental: Rental, now: float) -> tuple[ev.Event, ...]:
    forced = rental.end_reason is Trigger.USER
    finished = ev.JobFinished(
        job_id=job.job_id,
        at=now,
        state=JobState.CANCELLED if forced else JobState.FAILED,
        why=_how_it_went(rental),
        failure=None if forced else "machine",
    )
    return (finished,)


def _how_it_went(rental: Rental) -> str:
    if rental.end_reason is Trigger.VANISHED:
        proof = f" ({rental.end_detail})" if rental.end_detail else ""
        return f"its machine vanished, nobody here ended it{proof}"
    return f"its machine is gone: {rental.end_detail or rental.end_reason}"


def _again(job: Job, rental: Rental, limits: Limits, now: float) -> Verdict:
    """Record the failed attempt before the next one, or give up with the reasons."""
    failed = _failure(job, rental, now)
    may_retry = (
        job.rents
        and job.cancel_at is None
        and rental.end_reason in _NEXT
        and not rental.refused_for_all
        and not (failed.counts and _counted(job) + 1 >= limits.attempts)
        and len(_failed(job)) + 1 < limits.attempts + GONE_OFFERS
    )
    if may_retry:
        return Verdict(events=(failed,))
    state = JobState.CANCELLED if rental.end_reason is Trigger.USER else JobState.FAILED
    if rental.end_reason in (Trigger.MAX_RUNTIME, Trigger.BUDGET):
        state = JobState.TIMED_OUT
    finished = ev.JobFinished(
        job_id=job.job_id,
        at=now,
        state=state,
        why=_every_reason(job, rental, failed) if state is JobState.FAILED else failed.why,
        failure="provisioning" if state is JobState.FAILED else None,
    )
    return Verdict(events=(failed, finished))


# What the next offer may do better. Nothing ran there yet: being outbid is no loss of a job.
_NEXT = BOOT_FAILURES | {Trigger.VANISHED, Trigger.OUTBID}
# Guess: offers that were gone are nobody's failure, but chasing them must end, too.
GONE_OFFERS: Final = 10


def _failure(job: Job, rental: Rental, now: float) -> ev.AttemptFailed:
    """Return the record of one attempt: where it failed, why, how long it took, what it cost."""
    last = [phase for phase, _ in rental.phases if phase not in (Phase.DESTROYING, Phase.GONE)]
    ended = rental.ended_at if rental.ended_at is not None else now
    began = next((a.began_at for a in job.attempts if a.rental_id == rental.rental_id), None)
    return ev.AttemptFailed(
        job_id=job.job_id,
        rental_id=rental.rental_id,
        at=now,
        phase=str(last[-1] if last else Phase.PLANNED),
        why=rental.end_detail or str(rental.end_reason),
        machine_id=rental.order.offer.machine_id,
        seconds=max(0.0, ended - (began if began is not None else rental.created_at)),
        wasted=billing.cost(rental, ended),
        blame=rental.ending.fault if rental.ending else None,
        counts=not rental.offer_gone,
    )


def _failed(job: Job | None) -> list[Attempt]:
    return [] if job is None else [a for a in job.attempts if a.reason is not None]


def _counted(job: Job) -> int:
    """Return how many machines failed before. An offer that was gone is no machine."""
    return sum(1 for attempt in _failed(job) if attempt.counts)


def _every_reason(job: Job, rental: Rental, last: ev.AttemptFailed) -> str:
    """Return why no machine could serve: one reason, or all of them with their machines."""
    told = [(a.machine_id, a.phase, a.reason) for a in _failed(job)]
    told.append((last.machine_id or 0, last.phase, last.why))
    alone = rental.refused_for_all or len(told) == 1
    if alone:
        hopeless = "; every other machine would fail in the same way"
        return last.why + (hopeless if rental.refused_for_all else "")
    each = "; ".join(f"machine {m} ({phase}): {why}" for m, phase, why in told)
    return f"{len(told)} attempts failed: {each}"


def known(
    job: Job | None, rentals: Mapping[str, Rental], hosts: Mapping[int, Host], now: float
) -> Known:
    """Return what a choice for `job` (None: for nobody in particular) has to know: the machines
    that are blocked or failed for it before (FAI-07), the offers that are being rented."""
    avoided = {a.machine_id: f"it failed for this job: {a.reason}" for a in _failed(job)}
    avoided.update(blocked(hosts, now))
    return Known(blocked=avoided, taken=being_rented(rentals), hosts=hosts)


def being_rented(rentals: Mapping[str, Rental]) -> dict[int, str]:
    """Return by offer id who is about to rent it, or has asked for it."""
    return {r.order.offer.offer_id: r.name for r in rentals.values() if r.phase in _ASKING}


_ASKING = frozenset({Phase.PLANNED, Phase.CREATING})


def awaited(
    jobs: Sequence[Job], rentals: Mapping[str, Rental], now: float, *, by: Job | None = None
) -> list[Rental]:
    """Return the machines that jobs between two machines wait for, as if they were planned.

    With `by`, only those of jobs that wait longer than it does: two that wait for each other's
    money would wait for ever.
    """
    found = []
    for job in jobs:
        waits = job.rents and not job.finished and job.rental_id is None and job.cancel_at is None
        ahead = by is None or (job.submitted_at, job.job_id) < (by.submitted_at, by.job_id)
        last = rentals.get(job.attempts[-1].rental_id) if job.attempts else None
        if waits and ahead and last is not None:
            found.append(_as_planned(job, last, money_left(job, rentals, now)))
    return found


def money_left(job: Job, rentals: Mapping[str, Rental], now: float) -> Micros | None:
    """Return what the machines of `job` so far left of its budget, below zero when they cost more;
    None when it has no budget."""
    if job.policy.budget is None:
        return None
    tried = [rentals[a.rental_id] for a in job.attempts if a.rental_id in rentals]
    return Micros(job.policy.budget - sum(billing.cost(rental, now) for rental in tried))


def _as_planned(job: Job, last: Rental, left: Micros | None) -> Rental:
    budget = None if left is None else Micros(max(0, left))
    return structs.replace(
        last,
        rental_id=job.job_id,
        name=job.name,
        policy=structs.replace(job.policy, budget=budget),
        phase=Phase.PLANNED,
        rates=(),
        deadline_at=None,
        ready_at=None,
        ending=None,
    )
