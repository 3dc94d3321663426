"""What a rental costs: exact sums over its rate segments, never less than the truth.

A rate change is seen only at a listing, so it is dated back to the listing before: the
difference is at most one polling interval, on the safe side (DESIGN 4.4: spend <= caps + one
poll).
"""

from typing import Final

from vastd.core.market import Instance, InstanceStatus
from vastd.core.money import Micros, for_seconds, from_usd
from vastd.core.rental import Order, Phase, Rental

HOURS_PER_MONTH: Final = 720.0  # VAST_API 2.4: 30 x 24

# VAST_API 7.1 and 8.1: statuses in which the GPU is not billed. `frozen` was seen to bill. Of a host
# that lost its contact (`offline`) nothing is billed, says the billing page; the pricing page has
# storage billed "regardless of running state". Every client we know of believes the first.
_STORAGE_ONLY: Final = frozenset(
    {
        InstanceStatus.CREATED,
        InstanceStatus.LOADING,
        InstanceStatus.EXITED,
        InstanceStatus.STOPPED,
        InstanceStatus.SCHEDULING,
    }
)


def cost(rental: Rental, now: float) -> Micros:
    """Return what `rental` has cost until `now`, each segment rounded up.

    `now` may lie in the past: what began later costs nothing by then.
    """
    ends = [*(segment.since for segment in rental.rates[1:]), now]
    return Micros(
        sum(
            for_seconds(segment.rate, min(until, now) - segment.since)
            # Without segments nothing bills yet, and `ends` holds only `now`.
            for segment, until in zip(rental.rates, ends, strict=False)
        )
    )


def rate(rental: Rental) -> Micros:
    """Return what the rental costs per hour now."""
    return rental.rates[-1].rate if rental.rates else Micros(0)


def expected_rate(rental: Rental) -> Micros:
    """Return the hourly rate while running, as far as known: the dearest seen, else the offer's.

    The *instance's* billed rate counts, not the offer's (REQUIREMENTS BUD-11, X-17).
    """
    seen = max((segment.rate for segment in rental.rates), default=Micros(0))
    return max(seen, order_rate(rental.order))


def order_rate(order: Order) -> Micros:
    """Return what an order costs per hour while it runs: a bid is for the GPUs, its disk is extra."""
    if order.bid is None:
        return order.offer.dph
    offer = order.offer
    if offer.storage_usd_gb_month is not None:
        disk = from_usd(offer.storage_usd_gb_month * order.disk_gb / HOURS_PER_MONTH)
    else:
        disk = Micros(0 if offer.dph_base is None else max(0, offer.dph - offer.dph_base))
    return Micros(order.bid + disk)


def storage_rate(rental: Rental, instance: Instance | None = None) -> Micros:
    """Return what the disk costs per hour, from the row, else from the offer, else a bound."""
    if instance is not None and instance.storage_dph is not None:
        return instance.storage_dph
    offer = rental.order.offer
    if offer.storage_usd_gb_month is not None:
        return from_usd(offer.storage_usd_gb_month * rental.order.disk_gb / HOURS_PER_MONTH)
    # Unknown storage price: the whole rate is the only bound that is never too low.
    return offer.dph


def rate_of(rental: Rental, instance: Instance) -> Micros:
    """Return what `instance` bills per hour in the status its row shows."""
    running = instance.dph if instance.dph is not None else expected_rate(rental)
    if instance.status is None or instance.status in _STORAGE_ONLY:
        return min(storage_rate(rental, instance), running)
    if instance.status == InstanceStatus.OFFLINE:
        return Micros(0)
    return running


def burn(rentals: list[Rental]) -> Micros:
    """Return what all rentals that may bill cost per hour together."""
    return Micros(sum(rate(r) for r in rentals if r.phase is not Phase.GONE))
