"""Which records are old enough to go, and what of their money stays."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from vastd.core import billing
from vastd.core.job import Job
from vastd.core.money import Micros
from vastd.core.rental import Phase, Rental

DAY_S: Final = 86_400.0


class Outdated(Struct, frozen=True, kw_only=True):
    """Records to drop together."""

    rentals: list[Rental]
    jobs: list[Job]


def outdated(rentals: Mapping[str, Rental], jobs: Mapping[str, Job], before: float) -> Outdated:
    """Return the rentals and jobs that ended before an instant and that nothing kept refers to.

    Never a rental that is not gone, nor a job whose results may still be fetched.
    """
    old_jobs = [job for job in jobs.values() if _is_over(job, rentals, before)]
    going = {job.job_id for job in old_jobs}
    needed = {
        rental_id
        for job in jobs.values()
        if job.job_id not in going
        for rental_id in (job.rental_id, *(attempt.rental_id for attempt in job.attempts))
    }
    old_rentals = [
        rental
        for rental in rentals.values()
        if rental.phase is Phase.GONE
        and (rental.ended_at or rental.phase_since) < before
        and rental.rental_id not in needed
    ]
    return Outdated(rentals=old_rentals, jobs=old_jobs)


def _is_over(job: Job, rentals: Mapping[str, Rental], before: float) -> bool:
    if not job.finished or (job.ended_at or job.submitted_at) >= before:
        return False
    machines = (job.rental_id, *(attempt.rental_id for attempt in job.attempts))
    held = [rentals[name] for name in machines if name is not None and name in rentals]
    return all(
        rental.phase is Phase.GONE and (rental.ended_at or rental.phase_since) < before
        for rental in held
    )


def per_day(rentals: Iterable[Rental]) -> dict[tuple[str, str], Micros]:
    """Return what ended rentals cost by UTC day (`2026-12-01`) and project (empty: none).

    The days of a rental add up to its whole cost exactly.
    """
    found: dict[tuple[str, str], Micros] = {}
    for rental in rentals:
        if not rental.rates:
            continue
        ended = rental.ended_at or rental.phase_since
        before = Micros(0)
        for day, until in _days(rental.rates[0].since, ended):
            after = billing.cost(rental, until)
            key = (day, rental.project or "")
            found[key] = Micros(found.get(key, 0) + after - before)
            before = after
    return {key: micros for key, micros in found.items() if micros}


def _days(since: float, until: float) -> Iterator[tuple[str, float]]:
    """Yield each UTC day that [since, until] touches, with where it ends or `until`."""
    day = since // DAY_S
    while True:
        end = min((day + 1) * DAY_S, until)
        yield datetime.fromtimestamp(day * DAY_S, UTC).strftime("%Y-%m-%d"), end
        if end >= until:
            return
        day += 1
