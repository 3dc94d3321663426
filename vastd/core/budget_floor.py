"""The smallest budget with which it makes sense that a machine runs.

A machine is ended when what it cost, with what winding it down costs, reaches its budget. One that
has no more than that is ended as soon as it is there: it would cost, and do nothing.
"""

from vastd.core import billing
from vastd.core.limits import Limits
from vastd.core.money import Micros, for_seconds, show, show_rate, to_usd
from vastd.core.refusal import SHORTEST_S
from vastd.core.rental import Rental
from vastd.core.spending import wind_down_s

_CENT = 10_000  # micro-dollars


def smallest(rental: Rental, limits: Limits, now: float) -> Micros:
    """Return what `rental` needs as its whole budget to run for a few minutes from now on: what it
    cost, those minutes, and the winding down."""
    rate = billing.expected_rate(rental)
    ahead = for_seconds(rate, wind_down_s(rental, limits) + SHORTEST_S)
    return Micros(billing.cost(rental, now) + ahead)


def too_small(rental: Rental, limits: Limits, now: float) -> tuple[str, str] | None:
    """Return why the budget of `rental` would end it at once, and what to do; None if it does not."""
    budget, least = rental.policy.budget, smallest(rental, limits, now)
    if budget is None or budget >= least:
        return None
    rate = billing.expected_rate(rental)
    down = for_seconds(rate, wind_down_s(rental, limits))
    spent = billing.cost(rental, now)
    before = f"{show(spent)} of it is spent, " if spent else ""
    why = (
        f"a budget of {show(budget)} would end it at once: {before}winding down a machine of "
        f"{show_rate(rate)} takes {wind_down_s(rental, limits):.0f} s and {show(down)}, and in less "
        f"than {SHORTEST_S / 60:.0f} min it can do nothing"
    )
    enough = f"{to_usd(-(-least // _CENT) * _CENT):.2f}"
    how = f"vastctl policy {rental.name} budget={enough}" if spent else f"--budget {enough}"
    return (
        why,
        f"the smallest budget that would do is ${enough} (`{how}`); or take a cheaper machine",
    )
