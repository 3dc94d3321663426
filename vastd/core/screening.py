"""Checks every offer against every bound again, and says why one was removed.

Rules
1. Numeric filters have been seen to leak (VAST_API 2.1): nothing is believed because it was asked.
2. A value Vast does not report removes nothing: Vast was asked for the bound as well.
3. Reliability, remaining contract and budget are judged with the offer's own buffered hours
   (C-07, C-12); a total equal to the budget passes (BUD-02).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from vastd.core.estimate import Candidate
from vastd.core.filters import Bound, Name, contract_s, reliability_floor
from vastd.core.market import Offer
from vastd.core.money import SECONDS_PER_HOUR, Micros, show
from vastd.core.offer_fields import Scalar, holds, read, shortfall
from vastd.core.sizing import Requirements


class Limits(Struct, frozen=True, kw_only=True):
    """What is judged on the estimate rather than on the offer's row."""

    max_price: Micros | None = None  # per hour
    budget: Micros | None = None  # of the whole job
    min_reliability: float | None = None  # the user's own floor; None: by hours
    long_contract: bool = True  # insist on SRC-08
    bands: bool = True  # insist on SRC-12
    blocked: Mapping[int, str] = field(default_factory=dict)  # machine id -> why
    taken: Mapping[int, str] = field(default_factory=dict)  # offer id -> who rents it just now


class Rejection(Struct, frozen=True, kw_only=True):
    """Why an offer was removed. `gap` is how far off it is, relative; None: not a near miss."""

    name: str
    detail: str
    gap: float | None = None


class Screened(Struct, frozen=True, kw_only=True):
    """A candidate with every reason against it, in the order of `Name`; it fits if there is none."""

    candidate: Candidate
    rejections: tuple[Rejection, ...]


def screen(
    candidates: Iterable[Candidate], req: Requirements, bounds: Sequence[Bound], limits: Limits
) -> list[Screened]:
    """Return each candidate with the reasons against it, in the order given."""
    return [
        Screened(candidate=c, rejections=tuple(check(c, req, bounds, limits))) for c in candidates
    ]


def fitting(screened: Iterable[Screened]) -> list[Candidate]:
    """Return those nothing speaks against."""
    return [one.candidate for one in screened if not one.rejections]


def removed(screened: Iterable[Screened]) -> dict[str, int]:
    """Return how many offers each filter removed, most first; each offer counts once, at its first."""
    counts = Counter(one.rejections[0].name for one in screened if one.rejections)
    return {str(name): count for name, count in counts.most_common()}


def near_misses(screened: Iterable[Screened], most: int) -> list[Screened]:
    """Return up to `most` offers, one per machine, that fail one measurable test only; closest first."""
    close = [
        one for one in screened if len(one.rejections) == 1 and one.rejections[0].gap is not None
    ]
    close.sort(
        key=lambda one: (
            one.rejections[0].gap or 0.0,
            one.candidate.price,
            one.candidate.offer.offer_id,
        )
    )
    machines = {one.candidate.offer.machine_id: one for one in reversed(close)}
    return [one for one in close if machines[one.candidate.offer.machine_id] is one][:most]


def check(
    candidate: Candidate, req: Requirements, bounds: Iterable[Bound], limits: Limits
) -> list[Rejection]:
    """Return every reason to remove the offer, in the order of `Name`; empty when it fits."""
    # What is judged comes first: it names the offer's own hours and the user's own limits.
    found = _judged(candidate, req, limits)
    found += [
        _rejection(candidate.offer, bound)
        for bound in bounds
        if holds(read(candidate.offer, bound.field), bound.op, bound.value) is False
    ]
    order = list(Name)
    # The same filter may fail twice (a bound and its per-offer form): one reason is enough.
    unique = {rejection.name: rejection for rejection in reversed(found)}
    return sorted(
        unique.values(), key=lambda r: order.index(Name(r.name)) if r.name in order else -1
    )


def _judged(c: Candidate, req: Requirements, limits: Limits) -> list[Rejection]:
    found = []
    if c.offer.machine_id in limits.blocked:
        why = f"machine {c.offer.machine_id}: {limits.blocked[c.offer.machine_id]}"
        found.append(Rejection(name=Name.BLOCKED, detail=why))
    if c.offer.offer_id in limits.taken:
        who = limits.taken[c.offer.offer_id]
        found.append(Rejection(name=Name.TAKEN, detail=f"it is being rented for {who}"))
    found += _reliability(c, limits)
    found += _contract(c, limits)
    found += _bid(c, req)
    if limits.max_price is not None and c.price > limits.max_price:
        found.append(
            Rejection(
                name=Name.PRICE,
                detail=f"{show(c.price)}/h (limit {show(limits.max_price)}/h)",
                gap=c.price / limits.max_price - 1,
            )
        )
    if limits.budget is not None:
        found += _budget(c, limits.budget)
    return found


def _reliability(c: Candidate, limits: Limits) -> list[Rejection]:
    have = c.offer.reliability
    hours = c.buffered_hours
    floor = limits.min_reliability
    if floor is None:
        floor = reliability_floor(hours) if limits.bands else 0.0
    if have is None or have >= floor:
        return []
    by_hours = limits.min_reliability is None and hours is not None
    why = f" for {hours:.1f} h" if by_hours else ""
    return [
        Rejection(
            name=Name.RELIABILITY,
            detail=f"reliability {have:.4g} (at least {floor:g}{why})",
            gap=floor / have - 1 if have > 0 else None,
        )
    ]


def _contract(c: Candidate, limits: Limits) -> list[Rejection]:
    if not limits.long_contract or c.buffered_hours is None or c.offer.duration_s is None:
        return []
    needed = contract_s(c.buffered_hours)
    if needed is None or c.offer.duration_s >= needed:
        return []
    return [
        Rejection(
            name=Name.DURATION,
            detail=f"the host stays {c.offer.duration_s / SECONDS_PER_HOUR:.1f} h"
            f" (twice {c.buffered_hours:.1f} h wanted)",
            gap=needed / c.offer.duration_s - 1 if c.offer.duration_s > 0 else None,
        )
    ]


def _bid(c: Candidate, req: Requirements) -> list[Rejection]:
    if not req.interruptible:
        return []
    if c.bid is None:
        return [Rejection(name=Name.BID, detail="the lowest bid is not known")]
    if c.offer.min_bid is None or c.bid >= c.offer.min_bid:
        return []
    return [
        Rejection(
            name=Name.BID,
            detail=f"bid {show(c.bid)}/h is below the lowest that wins, {show(c.offer.min_bid)}/h",
            gap=c.offer.min_bid / c.bid - 1,
        )
    ]


def _budget(c: Candidate, budget: Micros) -> list[Rejection]:
    if c.total is None or c.hours is None or c.buffered_hours is None:
        return []
    # The gate takes the buffered hours (C-12); equal passes (BUD-02).
    total = Micros(c.total if c.hours <= 0 else round(c.total * c.buffered_hours / c.hours))
    if total <= budget:
        return []
    return [
        Rejection(
            name=Name.BUDGET,
            detail=f"{show(total)} in all (budget {show(budget)})",
            gap=total / budget - 1 if budget > 0 else None,
        )
    ]


# How a field is shown: its name in words, a divisor, and the unit.
_SHOWN: Final = {
    "gpu_ram": ("GPU memory", 1000.0, " GB"),
    "gpu_total_ram": ("GPU memory in all", 1000.0, " GB"),
    "cpu_ram": ("memory", 1000.0, " GB"),
    "disk_space": ("free disk", 1.0, " GB"),
    "duration": ("days the host stays", 86_400.0, ""),
    "inet_down": ("download", 1.0, " Mb/s"),
    "inet_up": ("upload", 1.0, " Mb/s"),
    "compute_cap": ("compute capability", 100.0, ""),
    "cuda_max_good": ("highest CUDA of the driver", 1.0, ""),
    "dph_total": ("price in $/h", 1.0, ""),
    "num_gpus": ("GPUs", 1.0, ""),
}
_SIGNS: Final = {
    "eq": "must be", "neq": "must not be", "gt": "above", "gte": "at least", "lt": "below",
    "lte": "at most", "in": "one of", "notin": "none of",
}  # fmt: skip


def _rejection(offer: Offer, bound: Bound) -> Rejection:
    have = read(offer, bound.field)
    label, divisor, unit = _SHOWN.get(bound.field, (bound.field, 1.0, ""))
    wanted = bound.value
    values = wanted if isinstance(wanted, tuple) else (wanted,)
    shown = ", ".join(_show(value, divisor, unit) for value in values)
    return Rejection(
        name=bound.name,
        detail=f"{label} {_show(have, divisor, unit)} ({_SIGNS[bound.op]} {shown})",
        gap=shortfall(have, bound.op, wanted),
    )


def _show(value: Scalar, divisor: float, unit: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return (
        f"{round(value / divisor, 4):g}{unit}" if divisor == 1.0 else f"{value / divisor:.1f}{unit}"
    )
