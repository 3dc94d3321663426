"""How values are shown to people: money, spans of time, bytes, ages, phases."""

import re
from datetime import UTC, datetime
from typing import Final

UNKNOWN: Final = "-"

_SECONDS: Final = re.compile(r"(?<![\w.])([0-9]{2,9}) s\b")  # as vastd writes limits

# Words for phases (DESIGN 4.1): what a user wants to know is whether it works and whether it bills.
PHASE_WORDS: Final = {
    "planned": "planned",
    "creating": "renting",
    "booting": "booting",
    "verifying": "checking",
    "ready": "ready",
    "busy": "running a job",
    "collecting": "collecting",
    "stopped": "stopped, storage bills",
    "destroying": "destroying, may bill",
    "gone": "gone",
}


# Why a machine stands still, where the word alone would say too little.
STOPS: Final = {
    "outbid": "outbid",
    "credit": "account out of credit",
    "lease": "its lease ran out",
    "contract": "the host's contract is over",
    "exited": "its main process ended",
}

KINDS: Final = {
    "loading": "loading",
    "setup": "set-up",
    "sync": "sync",
    "run": "run",
    "collect": "collecting",
    "idle": "idle, no job",
    "held": "held for results",
    "storage": "stopped, storage",
    "ending": "ending",
}


def kind(name: str) -> str:
    """Return what a machine's time was for, in words."""
    return KINDS.get(name, name)


def phase(name: str) -> str:
    """Return the words for a phase; an unknown one stays as it is."""
    return PHASE_WORDS.get(name, name)


def money(usd: float | None) -> str:
    """Return an amount: cents from a dollar on, four digits below."""
    if usd is None:
        return UNKNOWN
    sign, usd = ("-" if usd < 0 else ""), abs(usd)
    return f"{sign}${usd:.2f}" if usd == 0 or usd >= 1 else f"{sign}${usd:.4f}"


def rate(usd_h: float | None) -> str:
    """Return a price per hour: three decimals, a fourth below a cent (a stopped disk)."""
    if usd_h is None:
        return UNKNOWN
    return f"${usd_h:.3f}/h" if usd_h == 0 or abs(usd_h) >= 0.01 else f"${usd_h:.4f}/h"


def gpu(name: str | None, count: int | None) -> str:
    """Return `2x RTX_4090`, or the bare name for one."""
    if not name:
        return UNKNOWN
    return f"{count}x {name}" if count and count > 1 else name


def size(count: int | None) -> str:
    """Return bytes in decimal units."""
    if count is None:
        return UNKNOWN
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def span(total_s: float) -> str:
    """Return a length of time in its two largest units."""
    whole = max(0, int(total_s))
    if whole < 60:
        return f"{whole}s"
    minutes, secs = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{secs:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02}h"


def limit(total_s: float) -> str:
    """Return a chosen length of time without parts that are zero: `12h`, `1h30m`, `20m`."""
    left = max(0, round(total_s))
    parts: list[str] = []
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        if unit == "d" and left < 2 * unit_s:
            continue  # a day or so is read as hours
        number, left = divmod(left, unit_s)
        parts += [f"{number}{unit}"] if number else []
    return "".join(parts) or "0s"


def without_seconds(text: str) -> str:
    """Return `text` with lengths such as `43200 s` written as `12h`."""
    return _SECONDS.sub(lambda found: limit(int(found[1])), text)


def epoch(instant: str | None) -> float | None:
    """Return epoch seconds of an RFC 3339 instant; None when it is absent or unreadable."""
    if instant is None:
        return None
    try:
        parsed = datetime.fromisoformat(instant)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def age(instant: str | None, now: float) -> str:
    """Return how long ago `instant` was."""
    at = epoch(instant)
    return UNKNOWN if at is None else span(now - at)


def countdown(instant: str | None, now: float) -> str:
    """Return the time left until `instant`."""
    at = epoch(instant)
    if at is None:
        return UNKNOWN
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} over"


def span_left(instant: str | None, now: float) -> str:
    """Return the time left until `instant`, without a word before it."""
    at = epoch(instant)
    return UNKNOWN if at is None else span(max(0.0, at - now))


def clock(instant: str | None) -> str:
    """Return the local time of day of `instant`, seconds included."""
    at = epoch(instant)
    if at is None:
        return UNKNOWN
    return datetime.fromtimestamp(at, tz=UTC).astimezone().strftime("%H:%M:%S")


def date_and_clock(instant: str | None) -> str:
    """Return local date and time of `instant`."""
    at = epoch(instant)
    if at is None:
        return UNKNOWN
    return datetime.fromtimestamp(at, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def count(number: int, noun: str) -> str:
    """Return `1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
