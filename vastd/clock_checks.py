"""Whether the clock of this computer can be believed: for `doctor`, and for whoever connects."""

from vastd.clocks import Clock
from vastd.core.instants import span
from vastd.core.timekeeping import WRONG_S
from vastd_protocol.methods.doctor import CheckView

_SET_IT = "set the clock, and let a time service keep it (`timedatectl set-ntp true`)"


def clock_check(clock: Clock) -> CheckView:
    """Return what the clock looks like beside Vast's."""
    behind = clock.behind_vast
    wrong = behind is not None and abs(behind) > WRONG_S
    if clock.ahead:
        text = f"{_stepped(clock.ahead)}; {_beside_vast(behind)}"
        return CheckView(id="clock", level="warning", text=text, fix=_SET_IT if wrong else None)
    if wrong:
        text = f"{_beside_vast(behind)}; limits count the time that passes, and are not affected"
        return CheckView(id="clock", level="warning", text=text, fix=_SET_IT)
    return CheckView(id="clock", level="ok", text=_beside_vast(behind))


def clock_warning(clock: Clock) -> str | None:
    """Return what a client must know to read our instants; None while there is nothing odd."""
    return _stepped(clock.ahead) if clock.ahead else None


def _stepped(ahead_s: float) -> str:
    way = "ahead of" if ahead_s > 0 else "behind"
    return (
        f"the clock of this computer was set and is {span(ahead_s)} {way} the time of the record: "
        "while machines are on record their limits go on by the time that really passes"
    )


def _beside_vast(behind_s: float | None) -> str:
    if behind_s is None:
        return "the clock was not compared with Vast's yet"
    if abs(behind_s) < 2.0:  # guess: Vast tells whole seconds, and its answer travels
        return "the clock agrees with Vast's"
    return f"the clock is {span(behind_s)} {'behind' if behind_s > 0 else 'ahead of'} Vast's"
