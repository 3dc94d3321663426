"""Instants as text: RFC 3339 in UTC with `Z`, as every file and message of ours has them."""

from datetime import UTC, datetime


def rfc3339(epoch_s: float) -> str:
    """Return an instant to the millisecond."""
    text = datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def maybe(epoch_s: float | None) -> str | None:
    """Return an instant, or None for none."""
    return None if epoch_s is None else rfc3339(epoch_s)


def span(seconds: float) -> str:
    """Return a duration for people: `45s`, `12m 05s`, `3h 20m`, `2d 04h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3600:02d}h"


def size(count: int) -> str:
    """Return a number of bytes for people, in units of 1,000."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
