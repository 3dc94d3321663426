"""Jobs as the wire shows them."""

from collections.abc import Mapping

from vastd.core import billing
from vastd.core.costs import went_with_it
from vastd.core.instants import maybe
from vastd.core.job import Attempt, Job
from vastd.core.money import Micros, to_usd
from vastd.core.observed import Sighting
from vastd.core.rental import Phase, Rental, Trigger
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
        results_lost=_lost(job, rentals),
        collected_files=job.collected_files,
        collected_bytes=job.collected_bytes,
        collected_earlier=job.collected_earlier,
        log_path=str(logs.path(job.job_id)),
        log_bytes=logs.size(job.job_id),
        reason=job.reason,
        failure=job.failure,
        cost_usd=_cost(job, rentals, now),
        attempts=[_attempt(attempt, job, rentals, now) for attempt in job.attempts],
        setup=job.setup is not None,
    )


def _lost(job: Job, rentals: Mapping[str, Rental]) -> bool:
    if job.collected is not False or not job.collect_final:
        return False
    rental = rentals.get(job.rental_id or "")
    return rental is None or rental.phase is Phase.GONE


def _cost(job: Job, rentals: Mapping[str, Rental], now: float) -> float | None:
    used = {a.rental_id for a in job.attempts}
    return (
        to_usd(sum(billing.cost(rentals[i], now) for i in used if i in rentals)) if used else None
    )


def _attempt(attempt: Attempt, job: Job, rentals: Mapping[str, Rental], now: float) -> AttemptView:
    rental = rentals.get(attempt.rental_id)
    spent = attempt.wasted
    if spent is None:  # it goes on, or its record is older than that
        spent = Micros(0) if rental is None else billing.cost(rental, now)
    reason, phase = attempt.reason, attempt.phase
    # No attempt of a job that ran is closed: it is not run twice. Here it failed all the same.
    if reason is None and rental is not None and _took_results(job, rental):
        how = (
            "vanished" if rental.end_reason is Trigger.VANISHED else f"ended ({rental.end_reason})"
        )
        reason = f"the machine {how}, and nothing came home from it"
        phase = _last_phase(rental)
    # One that served is not ended by itself, but with its job.
    until = attempt.ended_at or job.ended_at or now
    return AttemptView(
        rental_id=attempt.rental_id,
        offer_id=attempt.offer_id,
        machine_id=attempt.machine_id,
        phase=phase,
        reason=reason,
        seconds=round(until - attempt.began_at if attempt.seconds is None else attempt.seconds, 3),
        wasted_usd=to_usd(spent) if reason is not None else 0.0,
        blame=None if attempt.blame is None else str(attempt.blame),
        counts=attempt.counts,
    )


def _took_results(job: Job, rental: Rental) -> bool:
    here = job.rental_id == rental.rental_id
    return here and rental.phase is Phase.GONE and went_with_it(job)


def _last_phase(rental: Rental) -> str:
    last = [phase for phase, _ in rental.phases if phase is not Phase.GONE]
    return str(last[-1] if last else Phase.PLANNED)
