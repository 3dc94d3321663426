"""Jobs as the wire shows them."""

from collections.abc import Mapping

from vastd.core import billing
from vastd.core.instants import maybe
from vastd.core.job import Attempt, Job
from vastd.core.money import to_usd
from vastd.core.observed import Sighting
from vastd.core.rental import Rental
from vastd.effects.collect import outputs_of
from vastd.local_logs import LocalLogs
from vastd_protocol.methods.job import AttemptView, HeartbeatView, JobView


def job_view(
    job: Job, rentals: Mapping[str, Rental], seen: Sighting, logs: LocalLogs, now: float
) -> JobView:
    """Return what a client may see of a job. `rentals`: by rental_id; `seen`: of its machine."""
    beat = seen.beat if job.active else None
    return JobView(
        job_id=job.job_id,
        name=job.name,
        command=job.command,
        state=job.state,
        rental_id=job.rental_id,
        project=job.project,
        profile=job.needs.profile,
        exit_code=job.exit_code,
        submitted_at=maybe(job.submitted_at),
        started_at=maybe(job.started_at),
        ended_at=maybe(job.ended_at),
        last_heartbeat_at=maybe(beat.at if beat else None),
        heartbeat=(
            HeartbeatView(
                epoch=beat.epoch, step=beat.step, loss=beat.loss, timestamp=beat.timestamp
            )
            if beat
            else None
        ),
        checkpoint_path=job.policy.checkpoint_path,
        outputs=outputs_of(job),
        missing=job.missing,
        results_dir=job.project if job.collected and job.setup is None else None,
        collected=job.collected,
        collected_files=job.collected_files,
        collected_bytes=job.collected_bytes,
        log_path=str(logs.path(job.job_id)),
        log_bytes=logs.size(job.job_id),
        reason=job.reason,
        failure=job.failure,
        cost_usd=_cost(job, rentals, now),
        attempts=[_attempt(attempt, job, rentals, now) for attempt in job.attempts],
        setup=job.setup is not None,
    )


def _cost(job: Job, rentals: Mapping[str, Rental], now: float) -> float | None:
    used = {a.rental_id for a in job.attempts}
    return (
        to_usd(sum(billing.cost(rentals[i], now) for i in used if i in rentals)) if used else None
    )


def _attempt(attempt: Attempt, job: Job, rentals: Mapping[str, Rental], now: float) -> AttemptView:
    rental = rentals.get(attempt.rental_id)
    spent = billing.cost(rental, now) if rental is not None else 0
    failed = attempt.reason is not None
    # One that served is not ended by itself, but with its job.
    until = attempt.ended_at or job.ended_at or now
    return AttemptView(
        rental_id=attempt.rental_id,
        offer_id=attempt.offer_id,
        machine_id=attempt.machine_id,
        phase=attempt.phase,
        reason=attempt.reason,
        seconds=round(until - attempt.began_at, 3),
        wasted_usd=to_usd(spent) if failed else 0.0,
    )
