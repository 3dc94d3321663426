"""What an offer must satisfy, as bounds on Vast's fields and as the filter object to send.

What depends on an offer's own hours (reliability, remaining contract) is sent in the loosest form
any card could need; `screening` judges it per offer (C-07).
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from vastd.core import gpus, sizing
from vastd.core.money import SECONDS_PER_HOUR, to_usd
from vastd.core.offer_fields import Value
from vastd.core.query import DEFAULTS, Filters, OfferFilter
from vastd.core.sizing import Confidence, Requirements

ABSOLUTE_FLOOR: Final = 0.95  # SRC-13: strictly above, for every job
# SRC-12, at an edge the stricter (C-07): (hours from which it counts, least reliability).
RELIABILITY_BANDS: Final = ((24.0, 0.999), (5.0, 0.995), (1.0, 0.98), (0.0, 0.95))
LONG_JOB_H: Final = 5.0  # SRC-08: from more than this the host must promise to stay
CONTRACT_FACTOR: Final = 2.0  # SRC-08
MIN_DOWN_MBPS: Final = 100  # SRC-01: strictly above; megabit
BIG_VRAM_MB: Final = 24_000  # SRC-01: above it offers are few, and no network filter is sent
NO_BLACKWELL_CAP: Final = 1200  # SRC-03: what is sent; B200 and B300 (10.x) are removed here


class Name(StrEnum):
    """The filters, as counted and shown. Order: what a machine is, then what could be relaxed."""

    AVAILABLE = "not rentable"
    BLOCKED = "blocked machine"
    TAKEN = "being rented"
    UNVERIFIED = "unverified"
    GPU_NAME = "gpu_name"
    NUM_GPUS = "num_gpus"
    GPU_RAM = "gpu_ram"
    GPU_ARCH = "gpu_arch"
    CUDA = "cuda"
    COMPUTE_CAP = "compute_cap"
    DISK = "disk"
    RELIABILITY = "reliability"
    DURATION = "duration"
    INET_DOWN = "inet_down"
    BID = "bid"
    PRICE = "price"
    BUDGET = "budget"


# What a search that explains still insists on: the machine itself, not its terms.
CORE: Final = frozenset(
    {Name.AVAILABLE, Name.UNVERIFIED, Name.GPU_NAME, Name.NUM_GPUS, Name.GPU_RAM}
)


class Bound(Struct, frozen=True, kw_only=True):
    """One test on one field of Vast's. `sent` replaces `value` on the wire where it is looser."""

    name: str  # a `Name`, or a field of the user's query
    field: str
    op: str
    value: Value
    sent: Value | None = None
    confidence: Confidence = Confidence.STATED


def reliability_floor(hours: float | None) -> float:
    """Return the least reliability for a job of that many hours (SRC-12); unknown: 0.95."""
    if hours is None:
        return ABSOLUTE_FLOOR
    return next(floor for since, floor in RELIABILITY_BANDS if hours >= since)


def contract_s(hours: float) -> float | None:
    """Return how long the host must stay for a job of `hours`, in seconds; None for short jobs."""
    return CONTRACT_FACTOR * hours * SECONDS_PER_HOUR if hours > LONG_JOB_H else None


def fewest_hours(req: Requirements) -> float | None:
    """Return the buffered hours on the fastest card that could be offered, or None."""
    if req.hours is None:
        return None
    reference = req.hours.reference_speed
    if reference is None or len(req.gpu_names) == 1:
        return req.hours.buffered
    return req.hours.buffered * reference / gpus.fastest_speed(req.gpu_names)


def plan_bounds(req: Requirements) -> list[Bound]:
    """Return the bounds of a task, in the order in which they explain a removal."""
    disk = _bound(Name.DISK, "disk_space", "gte", req.disk_gb.value, req.disk_gb.confidence)
    return [
        *base_bounds(),
        *_machine_bounds(req),
        *_software_bounds(req),
        disk,
        *_trust_bounds(req),
        *_term_bounds(req),
    ]


def offer_bounds(offer_id: int) -> list[Bound]:
    """Return the search for one offer the user chose; the filter `id` would match nothing."""
    return [Bound(name="offer", field="ask_contract_id", op="eq", value=offer_id)]


def base_bounds() -> list[Bound]:
    """Return what Vast's own client asks for by default."""
    names = {"verified": Name.UNVERIFIED}
    return [
        _bound(names.get(field, Name.AVAILABLE), field, "eq", value, Confidence.DEFAULT)
        for field, value in DEFAULTS.items()
    ]


def query_bounds(query: OfferFilter) -> list[Bound]:
    """Return the user's own query as bounds, each counted under the field's name."""
    found = []
    for field, tests in query.filters.items():
        for op, value in tests.items():
            wanted = tuple(value) if isinstance(value, list) else value
            assert wanted is None or isinstance(wanted, bool | int | float | str | tuple)
            found.append(Bound(name=field, field=field, op=op, value=wanted))
    return found


def wire(bounds: Iterable[Bound]) -> Filters:
    """Return the filter object to send; of two bounds on one side the tighter."""
    filters: Filters = {}
    for bound in bounds:
        value = bound.value if bound.sent is None else bound.sent
        tests = filters.setdefault(bound.field, {})
        known = tests.get(bound.op)
        if isinstance(known, int | float) and isinstance(value, int | float):
            if bound.op in ("gt", "gte"):
                value = max(known, value)
            elif bound.op in ("lt", "lte"):
                value = min(known, value)
        tests[bound.op] = list(value) if isinstance(value, tuple) else value
    return filters


def _machine_bounds(req: Requirements) -> list[Bound]:
    bounds = []
    if req.gpu_names:
        bounds.append(_bound(Name.GPU_NAME, "gpu_name", "in", req.gpu_names))
    # Always sent: without it machines of every size come back (C-39).
    count = req.num_gpus
    bounds.append(_bound(Name.NUM_GPUS, "num_gpus", "eq", count.value, count.confidence))
    if req.gpu_ram_mb is not None:
        bounds.append(_bound(Name.GPU_RAM, "gpu_ram", "gte", req.gpu_ram_mb.value))
    return bounds


def _software_bounds(req: Requirements) -> list[Bound]:
    if req.cuda is None:
        return []
    because = req.cuda.confidence
    bounds = [
        _bound(Name.GPU_ARCH, "gpu_arch", "eq", "nvidia", because),
        _bound(Name.CUDA, "cuda_max_good", "gte", req.cuda.value, because),
    ]
    if req.compute_cap_below is not None:
        below = req.compute_cap_below.value
        bound = _bound(Name.COMPUTE_CAP, "compute_cap", "lt", below, because)
        sent = NO_BLACKWELL_CAP if below == sizing.BLACKWELL_CAP else None
        bounds.append(structs.replace(bound, sent=sent))
    if req.compute_cap_min is not None:
        least = req.compute_cap_min.value
        bounds.append(_bound(Name.COMPUTE_CAP, "compute_cap", "gte", least, because))
    return bounds


def _trust_bounds(req: Requirements) -> list[Bound]:
    """Return what the host must be and promise; the forms by hours are the loosest possible."""
    default = Confidence.DEFAULT
    # Strict and absolute, whatever the hours.
    bounds = [_bound(Name.RELIABILITY, "reliability", "gt", ABSOLUTE_FLOOR, default)]
    fewest = fewest_hours(req)
    if req.min_reliability is not None:
        floor, because = req.min_reliability.value, req.min_reliability.confidence
    else:
        floor, because = reliability_floor(fewest), default
    if floor > ABSOLUTE_FLOOR:
        bounds.append(_bound(Name.RELIABILITY, "reliability", "gte", floor, because))
    if fewest is not None and (seconds := contract_s(fewest)) is not None:
        bounds.append(_bound(Name.DURATION, "duration", "gte", round(seconds), default))
    return bounds


def _term_bounds(req: Requirements) -> list[Bound]:
    bounds = []
    if req.gpu_ram_mb is None or req.gpu_ram_mb.value <= BIG_VRAM_MB:
        default = Confidence.DEFAULT
        bounds.append(_bound(Name.INET_DOWN, "inet_down", "gt", MIN_DOWN_MBPS, default))
    cap = req.max_dph
    # A bid's price is the bid and the disk, which no field of Vast's says: judged here only.
    if cap is not None and not req.interruptible:
        bounds.append(_bound(Name.PRICE, "dph_total", "lte", to_usd(cap.value), cap.confidence))
    return bounds


def _bound(
    name: Name,
    field: str,
    op: str,
    value: Value,
    confidence: Confidence = Confidence.STATED,
) -> Bound:
    return Bound(name=name, field=field, op=op, value=value, confidence=confidence)
