"""Vast's field names over our `Offer`: what a filter on a field reads, and whether it holds."""

from collections.abc import Callable, Mapping
from typing import Final

from vastd.core import gpus
from vastd.core.market import Offer
from vastd.core.money import Micros, to_usd
from vastd.core.query import driver_number

Scalar = bool | int | float | str | None
Value = Scalar | tuple[Scalar, ...]


def read(offer: Offer, field: str) -> Scalar:
    """Return what the offer says in Vast's units; None when unknown or not kept by us."""
    reader = _READERS.get(field)
    return None if reader is None else reader(offer)


def holds(have: Scalar, op: str, wanted: Value) -> bool | None:
    """Return whether the test holds; None when the value is unknown, so nothing can be said."""
    if have is None or wanted is None:
        return None
    if isinstance(wanted, tuple):
        found = any(_same(have, item) for item in wanted)
        return found if op in ("in", "eq") else not found
    if op in ("eq", "in"):
        return _same(have, wanted)
    if op in ("neq", "notin"):
        return not _same(have, wanted)
    if not isinstance(have, int | float) or not isinstance(wanted, int | float):
        return None
    match op:
        case "gt":
            return have > wanted
        case "gte":
            return have >= wanted
        case "lt":
            return have < wanted
        case _:
            return have <= wanted


def shortfall(have: Scalar, op: str, wanted: Value) -> float | None:
    """Return how far a failed bound is off, relative to what is wanted; None for other tests."""
    if isinstance(have, bool) or isinstance(wanted, bool):
        return None
    if not isinstance(have, int | float) or not isinstance(wanted, int | float) or wanted == 0:
        return None
    return abs(have - wanted) / abs(wanted) if op in ("gt", "gte", "lt", "lte") else None


def _same(have: Scalar, wanted: Scalar) -> bool:
    if isinstance(have, str) and isinstance(wanted, str):
        return have.casefold() == wanted.casefold()
    return have == wanted


def _usd(micros: Micros | None) -> float | None:
    return None if micros is None else to_usd(micros)


def _country(offer: Offer) -> str | None:
    # The filter wants the two letters, the row says "Region, CC" (VAST_API 2.1).
    return None if not offer.geolocation else offer.geolocation.strip()[-2:]


def _arch(offer: Offer) -> str | None:
    cuda = gpus.runs_cuda(offer.gpu_name)
    return None if cuda is None else "nvidia" if cuda else "amd"


def _compute_cap(offer: Offer) -> int | None:
    if offer.compute_cap:
        return offer.compute_cap
    model = gpus.find(offer.gpu_name)
    return None if model is None or not model.compute_cap else model.compute_cap


def _driver(offer: Offer) -> int | None:
    return None if offer.driver_version is None else driver_number(offer.driver_version)


def _per_dollar(amount: float | None, offer: Offer) -> float | None:
    return None if amount is None or offer.dph <= 0 else amount / to_usd(offer.dph)


_READERS: Final[Mapping[str, Callable[[Offer], Scalar]]] = {
    "ask_contract_id": lambda o: o.offer_id,
    "machine_id": lambda o: o.machine_id,
    "host_id": lambda o: o.host_id,
    "gpu_name": lambda o: o.gpu_name,
    "gpu_arch": _arch,
    "num_gpus": lambda o: o.num_gpus,
    "gpu_ram": lambda o: o.gpu_ram_mb,
    "gpu_total_ram": lambda o: o.gpu_ram_mb * o.num_gpus,
    "cpu_ram": lambda o: o.cpu_ram_mb,
    "cpu_cores_effective": lambda o: o.cpu_cores,
    "disk_space": lambda o: o.disk_space_gb,
    "dph_total": lambda o: _usd(o.dph),
    "dph_base": lambda o: _usd(o.dph_base),
    "min_bid": lambda o: _usd(o.min_bid),
    "storage_cost": lambda o: o.storage_usd_gb_month,
    "inet_down": lambda o: o.inet_down_mbps,
    "inet_up": lambda o: o.inet_up_mbps,
    "inet_down_cost": lambda o: o.inet_down_usd_gb,
    "inet_up_cost": lambda o: o.inet_up_usd_gb,
    "reliability": lambda o: o.reliability,
    "reliability2": lambda o: o.reliability,
    "compute_cap": _compute_cap,
    "cuda_max_good": lambda o: o.cuda_max_good,
    "driver_version": _driver,
    "dlperf": lambda o: o.dlperf,
    "dlperf_per_dphtotal": lambda o: _per_dollar(o.dlperf, o),
    "total_flops": lambda o: o.total_flops,
    "flops_per_dphtotal": lambda o: _per_dollar(o.total_flops, o),
    "geolocation": _country,
    "verified": lambda o: o.verified,
    "rentable": lambda o: o.rentable,
    "direct_port_count": lambda o: o.direct_port_count,
    "duration": lambda o: o.duration_s,
}
