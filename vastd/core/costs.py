"""What was spent on what: the bills of all rentals, cut by day, rental, project or kind of GPU.

Rules
1. Every part is a difference of a bill at two instants: the parts add up to the bill exactly.
2. A GPU is billed from the container's start; before, and while stopped, only the disk is.
3. What it was spent on, and what of it was wasted, is told as `explain` tells it
   (`core/cost_spans.py`); a machine that could not serve is all waste (BUD-14), and costs nothing
   when billing never began.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from vastd.core import cost_spans
from vastd.core.cost_spans import Kind, Piece
from vastd.core.instants import rfc3339
from vastd.core.job import Job, JobState
from vastd.core.money import SECONDS_PER_HOUR, Micros
from vastd.core.rental import Rental
from vastd.core.spending import Window, day_of, spent

_DISK_ALONE: Final = frozenset({Kind.LOADING, Kind.STORAGE})


class By(StrEnum):
    """What the rows are."""

    DAY = "day"
    RENTAL = "rental"
    PROJECT = "project"
    GPU = "gpu"


class Part(Struct, frozen=True, kw_only=True):
    """What one rental cost in one window. Times are seconds."""

    rental: Rental
    window: Window
    cost: Micros
    kinds: dict[Kind, Micros]  # what it was spent on; the parts add up to `cost`
    waste: Micros
    billed_s: float
    gpu_s: float


class Row(Struct, frozen=True, kw_only=True):
    """The sum of some parts."""

    key: str
    label: str
    rentals: int
    cost: Micros
    kinds: dict[Kind, Micros]
    waste: Micros
    billed_s: float
    gpu_s: float

    @property
    def storage(self) -> Micros:
        """What stopped machines cost for their disks."""
        return self.kinds.get(Kind.STORAGE, Micros(0))


def parts(
    rentals: Iterable[Rental], jobs: Iterable[Job], window: Window, now: float, *, daily: bool
) -> list[Part]:
    """Return what each rental cost in `window` until `now`, per day of UTC when `daily`; parts that
    cost nothing are left out."""
    placed: dict[str, list[Job]] = defaultdict(list)
    failed: set[str] = set()
    for job in jobs:
        failed.update(failed_on(job))
        if job.rental_id is not None:
            placed[job.rental_id].append(job)
    return [
        _part(rental, placed.get(rental.rental_id, ()), failed, piece, now)
        for rental in rentals
        for piece in (_days(rental, window, now) if daily else (window,))
        if spent(rental, piece, now) > 0
    ]


def failed_on(job: Job) -> set[str]:
    """Return the rentals that could not serve `job`."""
    failed = {attempt.rental_id for attempt in job.attempts if attempt.reason is not None}
    if job.rental_id is not None and went_with_it(job):
        failed.add(job.rental_id)
    return failed


def went_with_it(job: Job) -> bool:
    """Return whether the machine rented for `job` took its results along: nothing came home, and
    nobody tries any more. A job that was cancelled was given up by its user."""
    given_up = job.collected is False and job.collect_final
    return job.rents and given_up and job.state is not JobState.CANCELLED


def bill(rental: Rental, failed: Collection[str], spans: Sequence[cost_spans.Span]) -> list[Piece]:
    """Return what each kind of time took, cost and wasted. `failed`: rentals that could not serve."""
    return cost_spans.pieces(
        spans,
        all_wasted=cost_spans.why_wasted(rental, failed) is not None,
        idle_is_use=cost_spans.idle_is_use(rental),
    )


def rows(found: Sequence[Part], by: By) -> list[Row]:
    """Return the parts summed up: days oldest first, everything else the dearest first."""
    groups: dict[str, list[Part]] = defaultdict(list)
    for part in found:
        groups[_key(part, by)].append(part)
    made = [total(group, key, _label(group[0], by)) for key, group in groups.items()]
    if by is By.DAY:
        return sorted(made, key=lambda row: row.key)
    return sorted(made, key=lambda row: (-row.cost, row.key))


def total(found: Sequence[Part], key: str = "", label: str = "") -> Row:
    """Return the sum of `found`."""
    return Row(
        key=key,
        label=label,
        rentals=len({part.rental.rental_id for part in found}),
        cost=Micros(sum(part.cost for part in found)),
        kinds=_together(found),
        waste=Micros(sum(part.waste for part in found)),
        billed_s=sum(part.billed_s for part in found),
        gpu_s=sum(part.gpu_s for part in found),
    )


def _together(found: Sequence[Part]) -> dict[Kind, Micros]:
    sums: dict[Kind, Micros] = {}
    for part in found:
        for kind, cost in part.kinds.items():
            sums[kind] = Micros(sums.get(kind, 0) + cost)
    return {kind: sums[kind] for kind in Kind if kind in sums}


def _key(part: Part, by: By) -> str:
    match by:
        case By.DAY:
            return rfc3339(part.window.start)[:10]
        case By.RENTAL:
            return part.rental.rental_id
        case By.PROJECT:
            return part.rental.project or ""
        case By.GPU:
            return part.rental.order.offer.gpu_name


def _label(part: Part, by: By) -> str:
    match by:
        case By.RENTAL:
            return part.rental.name
        case By.PROJECT:
            return PurePath(part.rental.project).name if part.rental.project else "no project"
        case _:
            return _key(part, by)


def _days(rental: Rental, window: Window, now: float) -> Iterator[Window]:
    if not rental.rates:
        return
    at = max(window.start, rental.rates[0].since)
    last = rental.rates[-1]
    end = min(now, window.until, last.since if last.rate == 0 else now)
    while at < end:
        day = day_of(at)
        # The first day is cut where the report begins; the key is still that day's.
        yield Window(max(day.start, window.start), day.end)
        at = day.until


def _part(
    rental: Rental, jobs: Sequence[Job], failed: Collection[str], window: Window, now: float
) -> Part:
    found = cost_spans.spans(rental, jobs, now, window)
    pieces = bill(rental, failed, found)
    billed_s = _billed_s(rental, _cut(Window(window.start, window.end), window, now))
    alone = [Window(span.since, span.until) for span in found if span.kind in _DISK_ALONE]
    return Part(
        rental=rental,
        window=window,
        cost=spent(rental, window, now),
        kinds={piece.kind: piece.cost for piece in pieces},
        waste=Micros(sum(piece.waste for piece in pieces)),
        billed_s=billed_s,
        gpu_s=(billed_s - sum(_billed_s(rental, span) for span in alone))
        * rental.order.offer.num_gpus,
    )


def _cut(span: Window, window: Window, now: float) -> Window:
    return Window(max(span.start, window.start), min(span.until, window.until, now))


def _billed_s(rental: Rental, span: Window) -> float:
    """Return for how long `span` was billed at a rate above zero."""
    ends = [*(segment.since for segment in rental.rates[1:]), span.until]
    return sum(
        max(0.0, min(until, span.until) - max(segment.since, span.start))
        for segment, until in zip(rental.rates, ends, strict=True)
        if segment.rate > 0
    )


def hours(seconds: float) -> float:
    """Return hours as they are shown to programs: to the microhour."""
    return round(seconds / SECONDS_PER_HOUR, 6)
