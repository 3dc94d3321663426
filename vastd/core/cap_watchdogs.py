"""The watchdogs of caps that several machines share: of a day, a month, a project.

Rules
1. At the cap every machine ends that it covers: the money is spent, whichever machine spent it.
   Who gets what is left was decided before, when each was rented.
2. A stopped machine is not ended: it may hold the only copy of something (`Pace.kept_back`).
3. The warning comes once per cap and window, on the record of the machine that costs most.
"""

from typing import Final

from vastd.core.alarms import Alarm, End, Warn, Watch, Watchdog
from vastd.core.money import show
from vastd.core.pace import WORDS, Pace
from vastd.core.rental import Phase, Trigger

_ENDABLE: Final = frozenset(
    {Phase.BOOTING, Phase.VERIFYING, Phase.READY, Phase.BUSY, Phase.COLLECTING}
)


def cap(watch: Watch) -> Alarm | None:
    """End a machine in time for a shared cap to hold."""
    found = _first(watch, 1.0)
    if found is None or watch.rental.phase not in _ENDABLE:
        return None
    ending = watch.rental.ending
    if ending is not None and ending.trigger is not Trigger.JOB_DONE:
        return None
    at, pace = found
    end = End(rental_id=watch.rental.rental_id, trigger=Trigger.BUDGET, why=pace.used_up)
    return Alarm(at=at, action=end)


def cap_warn(watch: Watch) -> Alarm | None:
    """Warn when a shared cap is nearly used up."""
    percent = watch.limits.warn_percent
    found = _first(watch, percent / 100, untold=True)
    if found is None:
        return None
    at, pace = found
    # Not what is spent alone: what it takes to end everything belongs to it.
    why = (
        f"spending and winding down reach {percent:.0f} % of {WORDS[pace.cap]}: {pace.text}, "
        f"{show(pace.kept_back)} to wind down"
    )
    if pace.project is not None:
        why += f", {pace.project}"
    return Alarm(
        at=at, action=Warn(rental_id=watch.rental.rental_id, watchdog=pace.warning, why=why)
    )


def _first(watch: Watch, share: float, *, untold: bool = False) -> tuple[float, Pace] | None:
    """Return the pace that reaches `share` of its cap first, with the instant."""
    due = [
        (at, pace)
        for pace in watch.paces
        if pace.covers(watch.rental)
        and (not untold or (not pace.told and pace.dearest == watch.rental.rental_id))
        and (at := pace.reaches(share)) is not None
    ]
    return min(due, key=lambda pair: pair[0], default=None)


def _limits_text(watch: Watch) -> str:
    known = [pace for pace in watch.paces if pace.covers(watch.rental)]
    return ", ".join(f"{pace.cap} {show(pace.limit)}" for pace in known) or "no shared cap"


CAP_DOGS: Final = (
    Watchdog(
        name="cap",
        check=cap,
        watches="what all machines spent this day, month and on this project (UTC), plus the "
        "cost of winding them down",
        limit=_limits_text,
        action="TERM, collect, destroy",
    ),
    Watchdog(
        name="cap_warn",
        check=cap_warn,
        watches="what all machines spent this day, month and on this project (UTC), plus the "
        "cost of winding them down",
        limit=lambda w: f"{w.limits.warn_percent:.0f} % of {_limits_text(w)}",
        action="warn, once per cap and window",
    ),
)
