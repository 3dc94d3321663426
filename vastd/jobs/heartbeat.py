"""The job's own sign of life, read however badly it was written.

The writer may be in the middle of a line, may write NaN (which is no JSON), or may put the
wrong types: what can be read is used, the rest is None, and nothing here ever raises.
"""

import json
import math
from typing import Final

from vastd.jobs.port import Heartbeat

MAX_HEARTBEAT_BYTES: Final = 4096  # SCHEMAS 9 needs about 100; the runner sends no more


def parse_heartbeat(data: bytes) -> Heartbeat:
    """Return what `data` says; the newest complete object wins when there are several lines."""
    for line in [data, *reversed(data.splitlines())]:
        found = _object(line)
        if found is not None:
            return Heartbeat(
                epoch=_number(found.get("epoch")),
                step=_integer(found.get("step")),
                loss=_number(found.get("loss")),
                timestamp=_string(found.get("timestamp")),
            )
    return Heartbeat()


def _object(data: bytes) -> dict[str, object] | None:
    try:
        # The standard parser, because it reads NaN and Infinity, which Python's writer emits.
        value = json.loads(data[:MAX_HEARTBEAT_BYTES])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _integer(value: object) -> int | None:
    number = _number(value)
    if number is None or abs(number) >= 2**63:
        return None
    return int(number)


def _string(value: object) -> str | None:
    return value[:100] if isinstance(value, str) else None
