"""What the money of one machine was spent on: its life cut into spans, each with its exact cost.

Rules
1. The spans follow one another without gap or overlap, from the first billed moment on. What each
   cost is the difference of the bill at its ends, so the parts add up to the bill exactly.
2. Waste is money that bought nothing: all of a machine that could not serve, and of any other the
   time it stood idle, was held for results that could not be copied, or was being ended.
3. Time without a job on a machine somebody rented to work on is idle and no waste: whether he used
   it is not known.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise

from msgspec import Struct

from vastd.core import billing
from vastd.core.job import Job
from vastd.core.money import Micros
from vastd.core.rental import BOOT_FAILURES, Phase, Rental
from vastd.core.spending import EVER, Window


class Kind(StrEnum):
    """What a span of a machine's life was for. The words are on the wire."""

    LOADING = "loading"  # until its container runs
    SETUP = "setup"  # proofs, installing, getting ready for a job
    SYNC = "sync"
    RUN = "run"
    COLLECT = "collect"
    IDLE = "idle"
    HELD = "held"  # for results that are not home
    STORAGE = "storage"  # stopped: the disk alone
    ENDING = "ending"  # until it was proven that nothing bills


WASTED = frozenset({Kind.IDLE, Kind.HELD, Kind.ENDING})

_PLAIN = {
    Phase.PLANNED: Kind.LOADING,
    Phase.CREATING: Kind.LOADING,
    Phase.BOOTING: Kind.LOADING,
    Phase.VERIFYING: Kind.SETUP,
    Phase.COLLECTING: Kind.COLLECT,
    Phase.STOPPED: Kind.STORAGE,
    Phase.DESTROYING: Kind.ENDING,
    Phase.GONE: Kind.ENDING,
}


class Span(Struct, frozen=True):
    """From `since` to `until` (epoch s) it was for `kind`, and cost `cost`."""

    kind: Kind
    since: float
    until: float
    cost: Micros


class Piece(Struct, frozen=True):
    """The spans of one kind together."""

    kind: Kind
    seconds: float
    cost: Micros
    waste: Micros


def spans(rental: Rental, jobs: Sequence[Job], now: float, window: Window = EVER) -> list[Span]:
    """Return the life of `rental` until `now`, cut to `window`; neighbours differ in kind. `jobs`:
    those on it."""
    found: list[Span] = []
    low, high = window.start, min(now, window.until)
    for kind, since, until in _cut(rental, jobs, now):
        began, ended = max(since, low), min(until, high)
        if ended <= began:
            continue
        cost = billing.cost(rental, ended) - billing.cost(rental, began)
        if cost == 0 and rental.ended_at is not None and began >= rental.ended_at:
            continue  # it is gone
        last = found[-1] if found else None
        if last is not None and last.kind is kind and last.until == began:
            found[-1] = Span(kind, last.since, ended, Micros(last.cost + cost))
        else:
            found.append(Span(kind, began, ended, Micros(cost)))
    return found


def pieces(found: Iterable[Span], *, all_wasted: bool, idle_is_use: bool) -> list[Piece]:
    """Return what each kind took and cost, in the order in which they first came."""
    sums: dict[Kind, tuple[float, int]] = {}
    for span in found:
        seconds, cost = sums.get(span.kind, (0.0, 0))
        sums[span.kind] = (seconds + span.until - span.since, cost + span.cost)
    return [
        Piece(
            kind,
            seconds,
            Micros(cost),
            Micros(cost if all_wasted or _wasted(kind, idle_is_use=idle_is_use) else 0),
        )
        for kind, (seconds, cost) in sums.items()
    ]


def _wasted(kind: Kind, *, idle_is_use: bool) -> bool:
    return kind in WASTED and not (kind is Kind.IDLE and idle_is_use)


def why_wasted(rental: Rental, failed: Collection[str]) -> str | None:
    """Return why all of it bought nothing; None when something came of it or still may. `failed`:
    ids of the rentals that could not serve a job."""
    if rental.end_reason in BOOT_FAILURES:
        return f"it could not be used: {rental.end_reason}"
    if rental.rental_id in failed:
        return "it could not serve its job"
    over = rental.phase in (Phase.DESTROYING, Phase.GONE)
    started = any(phase is Phase.BUSY for phase, _ in rental.phases)
    if over and rental.purpose == "job" and not started and not rental.taken_over:
        return "no job ever started on it"
    return None


def idle_is_use(rental: Rental) -> bool:
    """Return whether time without a job may have been used by a person (rule 3)."""
    return rental.purpose == "interactive" or rental.policy.keep or rental.taken_over


def _cut(rental: Rental, jobs: Sequence[Job], now: float) -> Iterator[tuple[Kind, float, float]]:
    stops = [*rental.phases, (Phase.GONE, max(now, rental.ended_at or now))]
    if rental.rates and stops[0][1] > rental.rates[0].since:
        stops[0] = (stops[0][0], rental.rates[0].since)  # it billed before vastd took it over
    reached = -1.0  # what was stamped out of order, by an older vastd, makes no overlap
    for (phase, began), (_, ended) in pairwise(stops):
        since, until = max(began, reached), max(ended, began, reached)
        reached = until
        if until <= since:
            continue
        if phase in _PLAIN:
            yield _PLAIN[phase], since, until
            continue
        marks = sorted({at for at in _marks(rental, jobs) if since < at < until})
        for low, high in pairwise([since, *marks, until]):
            yield _kind_at(rental, phase, jobs, low), low, high


def _marks(rental: Rental, jobs: Iterable[Job]) -> Iterator[float]:
    """Yield the instants at which the kind may change within a phase."""
    if rental.ending is not None:
        yield rental.ending.at
    for job in jobs:
        known = (job.submitted_at, job.sync_at, job.started_at, job.ended_at, job.collected_at)
        yield from (at for at in known if at is not None)


def _kind_at(rental: Rental, phase: Phase, jobs: Iterable[Job], at: float) -> Kind:
    """Return what a ready or busy machine was for at `at`."""
    if phase is Phase.BUSY:
        return Kind.SETUP if any(_runs(job, at) and job.setup for job in jobs) else Kind.RUN
    doing = {kind for job in jobs if (kind := _stage(job, at)) is not None}
    for kind in (Kind.SYNC, Kind.HELD, Kind.SETUP):
        if kind in doing:
            return kind
    ending = rental.ending
    return Kind.ENDING if ending is not None and at >= ending.at else Kind.IDLE


def _runs(job: Job, at: float) -> bool:
    return job.started_at is not None and job.started_at <= at < _or_ever(job.ended_at)


def _stage(job: Job, at: float) -> Kind | None:
    """Return what a ready machine does for `job` at `at`; None: nothing."""
    if at >= _or_ever(job.ended_at):
        waits = job.started_at is not None and at < _or_ever(job.collected_at)
        return Kind.HELD if waits else None
    if at < job.submitted_at or (job.started_at is not None and at >= job.started_at):
        return None
    return Kind.SYNC if job.sync_at is not None and at >= job.sync_at else Kind.SETUP


def _or_ever(at: float | None) -> float:
    return float("inf") if at is None else at
