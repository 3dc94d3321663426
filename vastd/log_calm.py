"""A log filter for troubles that repeat many times a second: one line a minute, without a traceback."""

import logging
import time
from collections.abc import Callable
from typing import Final

EVERY_S: Final = 60.0  # guess: seen soon, and a day of it is a page


class Calm(logging.Filter):
    """Lets one record pass per `EVERY_S`, with its cause in the line and how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed_at: float | None = None
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether `record` is written; it is changed if it is."""
        now = self._clock()
        if self._passed_at is not None and now - self._passed_at < EVERY_S:
            self._left_out += 1
            return False
        cause = record.exc_info[1] if record.exc_info else None
        more = f" ({self._left_out} more since the last line)" if self._left_out else ""
        record.msg = f"{record.getMessage()}{f': {cause}' if cause else ''}{more}"
        record.args, record.exc_info, record.exc_text = None, None, None
        self._passed_at, self._left_out = now, 0
        return True
