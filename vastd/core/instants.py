"""Instants, lengths of time, sizes and counts as text; instants as RFC 3339 in UTC with `Z`."""

from datetime import UTC, datetime


def rfc3339(epoch_s: float) -> str:
    """Return an instant to the millisecond."""
    text = datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def shown(epoch_s: float) -> str:
    """Return an instant for a sentence, to the second: `2026-12-01 00:57:53 UTC`."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def maybe(epoch_s: float | None) -> str | None:
    """Return an instant, or None for none."""
    return None if epoch_s is None else rfc3339(epoch_s)


def size(count: int) -> str:
    """Return a number of bytes for people, in units of 1,000."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def plural(count: int, noun: str) -> str:
    """Return `1 file`, `2 files`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def span(seconds: float) -> str:
    """Return a length of time for a sentence: `40 s`, `9 min`, `2.5 h`, `400 days`."""
    length = abs(seconds)
    for unit, size_s, below in (("s", 1.0, 120.0), ("min", 60.0, 7200.0), ("h", 3600.0, 172_800.0)):
        if length < below:
            value = length / size_s
            return f"{value:.1f} h" if unit == "h" else f"{value:.0f} {unit}"
    return f"{length / 86_400.0:.0f} days"
