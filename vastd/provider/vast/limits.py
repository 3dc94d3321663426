"""How Vast says "too often", and how long it wants to be left alone.

Documented to come without `Retry-After`; the official client 1.9.1 reads one all the same,
and `X-RateLimit-Reset` for the daily quota. Expect neither, use both (VAST_API 1.2).
"""

import math
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from vastd.errors import RateLimited
from vastd.provider.vast.http import Reply
from vastd.provider.vast.operations import Call

DEFAULT_REST_S: Final = 6.0  # guess: above every documented threshold
MIN_REST_S: Final = 1.0  # the smallest documented threshold
DAY_S: Final = 86_400.0
# An epoch beyond this is in milliseconds: as seconds it would lie in the year 5138.
MILLISECONDS_FROM: Final = 1e11

RATE_MARKS: Final = ("rate_limit_exceeded", "api requests too frequent", "search_quota_exceeded")
_THRESHOLD: Final = re.compile(r"threshold\s*=\s*(\d+(?:\.\d+)?)")


def is_rate_limit(status: int, said: str) -> bool:
    """Whether an answer means "too often"; `said` is its text in lower case.

    Behind a 5xx the request may have run all the same, so there the text does not count.
    """
    return status == 429 or (status < 500 and any(mark in said for mark in RATE_MARKS))


def rate_limited(call: Call, reply: Reply, said: str, quoted: str, now: float) -> RateLimited:
    """Return the error for such an answer; `now` is the wall clock in epoch seconds."""
    if "search_quota_exceeded" in said:
        reset = _epoch(reply.headers.get("x-ratelimit-reset"))
        rest_s = _clamped((reset if reset is not None else _next_utc_midnight(now)) - now)
        return RateLimited(
            f"cannot {call}: the daily search quota is used up: {quoted}",
            retry_after_s=rest_s,
            quota=True,
            hint=f"vast resets it in {rest_s / 3600:.1f} h",
        )
    threshold = _THRESHOLD.search(said)
    asked_s = [
        rest_s
        for rest_s in (
            _retry_after_s(reply.headers.get("retry-after"), now),
            float(threshold[1]) if threshold else None,
        )
        if rest_s is not None
    ]
    rest_s = _clamped(max(asked_s, default=DEFAULT_REST_S))
    return RateLimited(f"cannot {call}: {quoted}", retry_after_s=rest_s)


def _clamped(rest_s: float) -> float:
    # No reset is further away than the daily one; a garbled header must not stop us for years.
    return min(max(rest_s, MIN_REST_S), DAY_S)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _epoch(text: str | None) -> float | None:
    value = _number(text)
    if value is None or value == 0:
        return None
    return value / 1000 if value >= MILLISECONDS_FROM else value


def _retry_after_s(text: str | None, now: float) -> float | None:
    """Read both forms of RFC 9110: seconds, or a date."""
    seconds = _number(text)
    if seconds is not None or not text:
        return seconds
    try:
        date = parsedate_to_datetime(text)
        if date.tzinfo is None:  # "-0000" in the header
            date = date.replace(tzinfo=UTC)
        return date.timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None


def _next_utc_midnight(now: float) -> float:
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (day + timedelta(days=1)).timestamp()
