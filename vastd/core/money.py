"""Money inside vastd: integer micro-dollars, so that sums equal their parts (DESIGN D9)."""

from typing import Final, NewType

Micros = NewType("Micros", int)
"""Millionths of one US dollar."""

MICROS_PER_USD: Final = 1_000_000
SECONDS_PER_HOUR: Final = 3600


def from_usd(usd: float) -> Micros:
    """Return `usd` rounded to the nearest micro-dollar."""
    return Micros(round(usd * MICROS_PER_USD))


def to_usd(micros: int) -> float:
    """Return dollars with at most 6 decimals."""
    return round(micros / MICROS_PER_USD, 6)


def for_seconds(micros_per_hour: int, seconds: float) -> Micros:
    """Return what `seconds` cost at an hourly rate, rounded up: a bill is never understated."""
    if seconds <= 0:
        return Micros(0)
    # Rounded to the microsecond first so that float noise cannot add a micro-dollar.
    exact = micros_per_hour * round(seconds * 1_000_000)
    return Micros(-(-exact // (SECONDS_PER_HOUR * 1_000_000)))


def show(micros: int) -> str:
    """Return `$1.23`, with more digits below a cent so that small sums are not shown as zero."""
    usd = to_usd(micros)
    return f"${usd:.2f}" if abs(usd) >= 0.1 or usd == 0 else f"${usd:.4f}"


def show_two(one: int, other: int) -> tuple[str, str]:
    """Return two sums that are compared, with digits enough that different ones look different."""
    digits = _digits_apart(one, other, 2 if abs(to_usd(min(one, other))) >= 0.1 else 4)
    if digits is None:
        return show(one), show(other)
    return f"${to_usd(one):.{digits}f}", f"${to_usd(other):.{digits}f}"


def show_two_rates(one: int, other: int) -> tuple[str, str]:
    """Return two prices per hour that are compared, as `show_two`."""
    digits = _digits_apart(one, other, 3 if abs(to_usd(min(one, other))) >= 0.01 else 4)
    if digits is None:
        return show_rate(one), show_rate(other)
    return f"${to_usd(one):.{digits}f}/h", f"${to_usd(other):.{digits}f}/h"


def _digits_apart(one: int, other: int, usual: int) -> int | None:
    """Return how many digits tell two sums apart; None when they are shown as always."""
    if one == other or round(to_usd(one), usual) != round(to_usd(other), usual):
        return None
    return 4 if usual < 4 and round(to_usd(one), 4) != round(to_usd(other), 4) else 6


def show_rate(micros_per_hour: int) -> str:
    """Return `$0.155/h`, with a fourth digit for the cents a stopped disk costs."""
    usd = to_usd(micros_per_hour)
    return f"${usd:.3f}/h" if abs(usd) >= 0.01 or usd == 0 else f"${usd:.4f}/h"
