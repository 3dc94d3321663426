"""Bids for interruptible machines: what one costs per hour, and whether somebody bid more.

A bid is for the whole machine and for its GPUs alone: its disk is billed on top (VAST_API 7.1).
"""

from vastd.core.market import Instance, InstanceStatus
from vastd.core.money import show_rate
from vastd.core.rental import Rental
from vastd.core.statuses import Standing, standing


def is_outbid(rental: Rental, row: Instance) -> bool:
    """Return whether an interruptible machine shows one of the known patterns of being outbid.

    VAST_API 8.2 (7): all three wishes `stopped`; no container although it is meant to run; or out
    of contact while the lowest bid that wins is above ours. Clients of Vast disagree, so all count.
    """
    if rental.order.bid is None or row.is_bid is False:
        return False
    if row.status in (InstanceStatus.EXITED, InstanceStatus.STOPPED):
        return True
    wishes = {row.cur_state, row.intended_status, row.next_state}
    if wishes == {InstanceStatus.STOPPED} and row.status != InstanceStatus.RUNNING:
        return True
    below = standing(row.status, row.intended_status) in (Standing.DOWN, Standing.LOST)
    return below and is_beaten(rental, row)


def is_beaten(rental: Rental, row: Instance) -> bool:
    """Return whether the lowest bid that wins is known to be above ours."""
    bid = rental.order.bid
    return bid is not None and row.min_bid is not None and row.min_bid > bid


def against(rental: Rental, row: Instance | None) -> str:
    """Return our bid and the lowest that wins now, for a sentence."""
    assert rental.order.bid is not None
    ours = f"our bid is {show_rate(rental.order.bid)}"
    if row is None or row.min_bid is None:
        return ours
    return f"{ours}, the lowest that wins is {show_rate(row.min_bid)}"
