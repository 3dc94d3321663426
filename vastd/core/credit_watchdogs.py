"""The watchdogs of the account's credit: warn while something can be done, end before Vast stops.

Rules
1. A machine is warned about when the credit will be gone before its own end, once a day.
2. Only machines rented for jobs are ended, in time for their results to come home: what somebody
   works on himself is left for Vast to stop, because its disk may hold the only copy.
3. An account that is at or below zero and whose machines run all the same is not stopped by that
   (Vast charges a card, perhaps): then nothing is ended.
"""

from typing import Final

from vastd.core import billing
from vastd.core.alarms import Alarm, Watch, Watchdog, end, warn
from vastd.core.credit import CreditLook, runs_until
from vastd.core.instants import rfc3339, shown
from vastd.core.money import show, show_rate
from vastd.core.rental import Phase, Rental, StopCause, Trigger

_RUNNING: Final = frozenset(
    {Phase.BOOTING, Phase.VERIFYING, Phase.READY, Phase.BUSY, Phase.COLLECTING}
)
HELD_WARN_S: Final = 86_400.0  # guess: daily is neither silence nor noise


def credit_warn(watch: Watch) -> Alarm | None:
    """Warn that Vast will stop the machine before its own end, because nothing is left to pay it."""
    look, rental = watch.credit, watch.rental
    if look is None or look.zero_at is None or rental.phase not in _RUNNING:
        return None
    if _lasts_for(look, rental):
        return None
    until = runs_until(rental, look.now)
    why = (
        f"the credit of the account ({show(look.left)}) is used up by {shown(look.zero_at)} at "
        f"{show_rate(look.burn)}, and this machine may run until {shown(until)}: Vast stops it "
        f"then, and disks go on billing {show_rate(look.after_zero)} below zero; add credit"
    )
    return warn(watch, f"credit_warn-{rfc3339(look.now)[:10]}", look.read_at, why)


def credit(watch: Watch) -> Alarm | None:
    """End a machine rented for jobs while its end, and its results, can still be paid for."""
    look, rental = watch.credit, watch.rental
    if look is None or look.act_at is None or look.read <= 0 or rental.phase not in _RUNNING:
        return None
    if not watch.limits.end_at_zero_credit or rental.purpose != "job":
        return None
    if _lasts_for(look, rental):
        return None
    why = f"the credit of the account is used up: {show(look.left)} left, it pays for what ends"
    return end(watch, look.act_at, Trigger.BUDGET, why, proven=look.proven)


def credit_out(watch: Watch) -> Alarm | None:
    """Say once a day that a machine stands still for want of credit while its disk bills."""
    rental = watch.rental
    if rental.phase is not Phase.STOPPED or rental.stopped_by is not StopCause.CREDIT:
        return None
    told = sum(1 for name in rental.warned if name.startswith("credit_out"))
    why = (
        f"{rental.stop_detail}, at {show_rate(billing.rate(rental))}; a top-up does not start it: "
        "add credit and `vastctl start` it, or `vastctl destroy` it"
    )
    at = rental.phase_since + told * HELD_WARN_S
    return warn(watch, f"credit_out-{told + 1}", at, why)


def _lasts_for(look: CreditLook, rental: Rental) -> bool:
    """Return whether the credit lasts until the end of `rental`."""
    return look.zero_at is None or look.zero_at >= runs_until(rental, look.now)


def _text(watch: Watch) -> str:
    look = watch.credit
    if look is None:
        return "the credit is not known"
    lasts = "it lasts" if look.zero_at is None else f"used up by {shown(look.zero_at)}"
    return f"{show(look.left)} at {show_rate(look.burn)}: {lasts}"


def _ending_text(watch: Watch) -> str:
    return _text(watch) if watch.limits.end_at_zero_credit else "only warned about (on_zero_credit)"


CREDIT_DOGS: Final = (
    Watchdog(
        name="credit",
        check=credit,
        watches="the account's credit, less what is billed, plus the cost of winding down",
        limit=_ending_text,
        action="TERM, collect, destroy",
    ),
    Watchdog(
        name="credit_warn",
        check=credit_warn,
        watches="the account's credit and when every machine ends",
        limit=_text,
        action="warn, once a day",
    ),
    Watchdog(
        name="credit_out",
        check=credit_out,
        watches="days since a machine stands still for want of credit",
        limit=lambda _: f"{HELD_WARN_S:.0f} s",
        action="warn, every day",
    ),
)
