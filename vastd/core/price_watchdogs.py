"""The watchdogs of a price that moves under a running machine.

Rules
1. What counts is what the instance bills, not what the offer said (BUD-11).
2. One listing is no proof: the new price must stand for a while.
3. Over its hourly cap a machine rented for jobs is ended like one that is over its budget. One
   that somebody works on himself is only warned about: its disk may hold the only copy.
"""

from typing import Final

from vastd.core import billing
from vastd.core.alarms import Alarm, Watch, Watchdog, end, warn
from vastd.core.money import Micros, show_rate
from vastd.core.rental import Phase, Trigger

_RUNNING: Final = frozenset({Phase.VERIFYING, Phase.READY, Phase.BUSY, Phase.COLLECTING})
STANDS_S: Final = 90.0  # guess: three listings while a machine is busy
NOTABLE: Final = 0.02  # guess: less is rounding, or a disk of another size


def price(watch: Watch) -> Alarm | None:
    """End a machine rented for jobs that bills more per hour than the user allowed."""
    cap, rate = watch.rental.policy.max_dph, _rate(watch)
    if cap is None or rate is None or rate <= cap or watch.rental.purpose != "job":
        return None
    at = watch.rental.rates[-1].since + STANDS_S
    why = f"it bills {show_rate(rate)}, over its cap of {show_rate(cap)}; {_before(watch)}"
    proven = (watch.seen.seen_begun_at or 0.0) >= at
    return end(watch, at, Trigger.BUDGET, why, proven=proven)


def price_warn(watch: Watch) -> Alarm | None:
    """Warn about a price that is not the one it was rented for, once for each price."""
    rate = _rate(watch)
    if rate is None:
        return None
    agreed = billing.order_rate(watch.rental.order)
    if abs(rate - agreed) <= agreed * NOTABLE:
        return None
    cap = watch.rental.policy.max_dph
    over = "" if cap is None or rate <= cap else f", over its cap of {show_rate(cap)}"
    why = f"it bills {show_rate(rate)} now{over}; {_before(watch)}"
    return warn(watch, f"price_warn-{rate}", watch.rental.rates[-1].since + STANDS_S, why)


def _rate(watch: Watch) -> Micros | None:
    """Return what it bills while it runs; None while it does not."""
    row = watch.seen.instance
    running = row is not None and row.status == "running" and watch.rental.phase in _RUNNING
    return billing.rate(watch.rental) if running and watch.rental.rates else None


def _before(watch: Watch) -> str:
    return f"it was rented for {show_rate(billing.order_rate(watch.rental.order))}"


def _cap_text(watch: Watch) -> str:
    cap = watch.rental.policy.max_dph
    return "no hourly cap" if cap is None else show_rate(cap)


PRICE_DOGS: Final = (
    Watchdog(
        name="price",
        check=price,
        watches="what the instance bills per hour",
        limit=_cap_text,
        action="TERM, collect, destroy",
    ),
    Watchdog(
        name="price_warn",
        check=price_warn,
        watches="what the instance bills per hour, against what it was rented for",
        limit=lambda _: f"{NOTABLE:.0%}",
        action="warn, once for each price",
    ),
)
