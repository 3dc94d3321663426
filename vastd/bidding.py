"""Changing the bid of an interruptible machine: within its caps, and never by vastd's own decision.

Rules
1. A bid is raised only when the user says so: it is more than was agreed to.
2. What Vast answered is recorded. Without an answer the higher of both bids is, so that no cap is
   judged by less than what may be billed.
"""

from typing import Final

import trio
from msgspec import structs

from vastd.core import billing
from vastd.core import events as ev
from vastd.core.bids import against
from vastd.core.money import Micros, from_usd, show_rate
from vastd.core.rental import Phase, Rental
from vastd.errors import InvalidRequest, OutcomeUnknown, PolicyRefused
from vastd.shell import Shell
from vastd.spending import admit

REQUEST_TIMEOUT_S: Final = 60.0  # guess; the row of the next listing tells what holds
LOWEST: Final = from_usd(0.001)  # VAST_API 5: change bid
HIGHEST_PER_GPU: Final = from_usd(32)  # VAST_API 5: change bid
_ALIVE: Final = frozenset(
    {
        Phase.BOOTING,
        Phase.VERIFYING,
        Phase.READY,
        Phase.BUSY,
        Phase.COLLECTING,
        Phase.STOPPED,
    }
)


def check_bid(shell: Shell, rental: Rental, bid: Micros, *, losing: bool) -> None:
    """Return if `bid` may be sent for `rental`; `losing`: also one that does not win now.

    Raises:
        InvalidRequest: it has no bid, or Vast would not take this one.
        PolicyRefused: over the hourly cap, or it would be outbid at once.
        CapReached: a cap that machines share has no room for it.
    """
    held = rental.order.bid
    if held is None:
        raise InvalidRequest(
            f"rental {rental.name!r} is on demand: it has no bid, and its kind cannot be changed"
        )
    if rental.phase not in _ALIVE:
        raise PolicyRefused(f"rental {rental.name!r} is {rental.phase}: its bid cannot be changed")
    highest = Micros(HIGHEST_PER_GPU * rental.order.offer.num_gpus)
    if not LOWEST <= bid <= highest:
        raise InvalidRequest(
            f"a bid must be {show_rate(LOWEST)} to {show_rate(highest)} for this machine, "
            f"not {show_rate(bid)}"
        )
    after = structs.replace(rental, order=structs.replace(rental.order, bid=bid))
    rate, cap = billing.order_rate(after.order), rental.policy.max_dph
    if cap is not None and rate > cap:
        raise PolicyRefused(
            f"with that bid rental {rental.name!r} costs {show_rate(rate)}, disk included, over its "
            f"cap of {show_rate(cap)}",
            hint="bid less; the cap is budget.max_dph_usd of when it was rented",
        )
    row = shell.observed.world.of(rental.rental_id).instance
    if row is not None and row.min_bid is not None and bid < row.min_bid and not losing:
        raise PolicyRefused(
            f"a bid of {show_rate(bid)} does not win rental {rental.name!r} now: "
            f"{against(rental, row)}; nothing was changed",
            hint=f"bid at least {show_rate(row.min_bid)}, or confirm it with `-y`",
        )
    if bid > held:
        # It may run, and bill, again as soon as Vast has the bid.
        admit(shell, structs.replace(after, phase=Phase.READY, estimated_hours=None))


async def send_bid(shell: Shell, rental: Rental, bid: Micros) -> ev.BidChanged:
    """Tell Vast the bid and return what is to be recorded.

    Raises:
        Refused, ProviderError: nothing was changed.
        OutcomeUnknown: no answer. A higher bid is on record then, because it may hold.
    """
    assert rental.instance_id is not None
    assert rental.order.bid is not None
    row = shell.observed.world.of(rental.rental_id).instance
    lowest = None if row is None else row.min_bid
    changed = ev.BidChanged(
        rental_id=rental.rental_id,
        at=shell.wall_clock(),
        bid=bid,
        before=rental.order.bid,
        lowest=lowest,
    )
    try:
        with trio.fail_after(REQUEST_TIMEOUT_S):
            await shell.provider.change_bid(rental.instance_id, bid)
    except (OutcomeUnknown, trio.TooSlowError) as exc:
        if bid > rental.order.bid:
            shell.ledger.commit(changed)
        raise OutcomeUnknown(
            f"Vast did not say whether it took the bid of {show_rate(bid)} for instance "
            f"{rental.instance_id}: {exc or 'no answer'}",
            hint="say it again: a bid may be sent twice",
        ) from exc
    return structs.replace(changed, at=shell.wall_clock())
