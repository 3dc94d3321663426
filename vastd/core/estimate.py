"""What one offer would cost for one task: its price, its hours, its total, its odds.

Rules
1. hours(offer) = reference hours x reference speed / speed of the offer's GPUs together (SEL-01).
   On the very GPU that was named, the hours are the hours, whatever the table says.
2. total = price x plain hours, plus the traffic where both gigabytes and price are known.
3. Unknown speed means unknown hours and unknown total, never those of an RTX 3090.
"""

from typing import Final

from msgspec import Struct

from vastd.core import gpus, money
from vastd.core.gpus import Speed
from vastd.core.market import Offer
from vastd.core.money import Micros
from vastd.core.sizing import Hours, Requirements

# A first bid above the lowest that would win now, so that the next bidder does not stop us at once.
# A guess; Vast publishes no distribution of bids.
BID_MARGIN: Final = 1.1


class Candidate(Struct, frozen=True, kw_only=True):
    """An offer with what it would mean for the task. Prices and totals are micro-dollars."""

    offer: Offer
    price: Micros  # per hour, as it would be billed: disk included, the bid for interruptible
    bid: Micros | None  # what to send as bid; None on demand
    speed: Speed  # of one GPU
    machine_speed: float | None  # of all its GPUs, relative to one RTX 3090; None when unknown
    hours: float | None  # None without hours of the task, or without a speed
    buffered_hours: float | None  # for decisions about money and reliability
    total: Micros | None
    risk: float = 0.0  # what the machine's history adds to its price in the ranking, as a share
    history: str = ""  # what speaks against the machine, in words
    interruption_chance: float | None  # 1 - r^h: the host fails while the job runs; 0 to 1


def estimate(
    offer: Offer, req: Requirements, *, efficiency: float = gpus.SCALING_EFFICIENCY
) -> Candidate:
    """Return what `offer` would mean for a task that needs `req`."""
    speed = gpus.speed_of(
        offer.gpu_name,
        gpu_ram_mb=offer.gpu_ram_mb,
        num_gpus=offer.num_gpus,
        dlperf=offer.dlperf,
        total_flops=offer.total_flops,
    )
    whole = None
    if speed.per_gpu is not None:
        whole = gpus.machine_speed(speed.per_gpu, offer.num_gpus, efficiency)
    bid = _bid(offer, req)
    price = _price(offer, req, bid)
    ratio = _ratio(offer, req, whole, efficiency)
    hours = req.hours.plain * ratio if req.hours is not None and ratio is not None else None
    buffered = req.hours.buffered * ratio if req.hours is not None and ratio is not None else None
    return Candidate(
        offer=offer,
        price=price,
        bid=bid,
        speed=speed,
        machine_speed=whole,
        hours=hours,
        buffered_hours=buffered,
        total=None if hours is None else total_cost(offer, req, price, hours),
        interruption_chance=interruption_chance(offer.reliability, buffered),
    )


def interruption_chance(reliability: float | None, hours: float | None) -> float | None:
    """Return 1 - r^h (SEL-13), or None when either is unknown."""
    if reliability is None or hours is None or not 0 <= reliability <= 1:
        return None
    return 1.0 - float(reliability**hours)


def total_cost(offer: Offer, req: Requirements, price: Micros, hours: float) -> Micros:
    """Return what the whole job would cost, traffic included where it is known."""
    traffic = _traffic(req.download_gb, offer.inet_down_usd_gb)
    traffic += _traffic(req.upload_gb, offer.inet_up_usd_gb)
    return Micros(money.for_seconds(price, hours * money.SECONDS_PER_HOUR) + traffic)


def _traffic(gigabytes: float | None, usd_gb: float | None) -> int:
    return 0 if gigabytes is None or usd_gb is None else money.from_usd(gigabytes * usd_gb)


def _bid(offer: Offer, req: Requirements) -> Micros | None:
    if not req.interruptible:
        return None
    if req.bid is not None:
        return req.bid
    if offer.min_bid is None:
        return None
    bid = round(offer.min_bid * BID_MARGIN)
    # Above the on-demand price an interruptible machine makes no sense.
    return Micros(bid if offer.dph_base is None else max(min(bid, offer.dph_base), offer.min_bid))


def _price(offer: Offer, req: Requirements, bid: Micros | None) -> Micros:
    if bid is None:
        return offer.dph
    return Micros(bid + _disk_price(offer, req))


def _disk_price(offer: Offer, req: Requirements) -> int:
    if offer.dph_base is not None:
        return max(0, offer.dph - offer.dph_base)
    if offer.storage_usd_gb_month is None:
        return 0
    # A month of Vast's is 720 hours (VAST_API 2.4).
    return money.from_usd(offer.storage_usd_gb_month * req.disk_gb.value / 720)


def _ratio(offer: Offer, req: Requirements, whole: float | None, efficiency: float) -> float | None:
    """Return this machine's hours over the reference machine's."""
    if req.hours is None:
        return None
    count = req.num_gpus.value
    if len(req.gpu_names) == 1 and offer.gpu_name in req.gpu_names:
        return gpus.machine_speed(1.0, count, efficiency) / gpus.machine_speed(
            1.0, offer.num_gpus, efficiency
        )
    reference = _reference_speed(req.hours)
    if reference is None or whole is None or whole <= 0:
        return None
    return gpus.machine_speed(reference, count, efficiency) / whole


def _reference_speed(hours: Hours) -> float | None:
    return hours.reference_speed
