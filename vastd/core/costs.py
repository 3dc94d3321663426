"""What was spent on what: the bills of all rentals, cut by day, rental, project or kind of GPU.

Rules
1. Every part is a difference of a bill at two instants: the parts add up to the bill exactly.
2. A GPU is billed from the container's start; before, and while stopped, only the disk is.
3. Waste is what a machine cost that could not serve (BUD-14): zero when billing never began.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from vastd.core.instants import rfc3339
from vastd.core.job import Job
from vastd.core.money import SECONDS_PER_HOUR, Micros
from vastd.core.rental import BOOT_FAILURES, Phase, Rental
from vastd.core.spending import Window, day_of, spent

_DISK_ALONE: Final = frozenset({Phase.PLANNED, Phase.CREATING, Phase.BOOTING, Phase.STOPPED})


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
    storage: Micros
    waste: Micros
    billed_s: float
    gpu_s: float


class Row(Struct, frozen=True, kw_only=True):
    """The sum of some parts."""

    key: str
    label: str
    rentals: int
    cost: Micros
    storage: Micros
    waste: Micros
    billed_s: float
    gpu_s: float


def parts(
    rentals: Iterable[Rental], jobs: Iterable[Job], window: Window, now: float, *, daily: bool
) -> list[Part]:
    """Return what each rental cost in `window` until `now`, per day of UTC when `daily`; parts that
    cost nothing are left out."""
    failed = {a.rental_id for job in jobs for a in job.attempts if a.reason is not None}
    return [
        _part(rental, piece, now, failed=rental.rental_id in failed)
        for rental in rentals
        for piece in (_days(rental, window, now) if daily else (window,))
        if spent(rental, piece, now) > 0
    ]


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
        storage=Micros(sum(part.storage for part in found)),
        waste=Micros(sum(part.waste for part in found)),
        billed_s=sum(part.billed_s for part in found),
        gpu_s=sum(part.gpu_s for part in found),
    )


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


def _part(rental: Rental, window: Window, now: float, *, failed: bool) -> Part:
    cost = spent(rental, window, now)
    idle = [_cut(span, window, now) for span in _disk_alone(rental, now)]
    spans = [span for span in idle if span.until > span.start]
    billed_s = _billed_s(rental, _cut(Window(window.start, window.end), window, now))
    wasted = failed or rental.end_reason in BOOT_FAILURES
    return Part(
        rental=rental,
        window=window,
        cost=cost,
        storage=Micros(sum(spent(rental, span, now) for span in spans)),
        waste=cost if wasted else Micros(0),
        billed_s=billed_s,
        gpu_s=(billed_s - sum(_billed_s(rental, span) for span in spans))
        * rental.order.offer.num_gpus,
    )


def _disk_alone(rental: Rental, now: float) -> Iterator[Window]:
    end = rental.ended_at if rental.ended_at is not None else now
    for (phase, began), (_, until) in pairwise([*rental.phases, (Phase.GONE, end)]):
        if phase in _DISK_ALONE and until > began:
            yield Window(began, until)


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
