"""A regular expression over lines of a log, with a limit: some expressions never come to an end."""

import re
import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

from vastctl.errors import CliError, UsageError
from vastd_protocol.errors import ExitCode

SEARCH_S: Final = 2.0  # guess; a sound expression reads a piece of log in milliseconds

SHORTEST_S: Final = 0.001  # an alarm of zero would never ring


class _TooLong(Exception):
    """Raised by the alarm in the middle of a match; `re` looks for signals while it works."""


class LineSearch:
    """Finds the lines that match. Only for the main thread: it uses the process's alarm clock."""

    def __init__(self, text: str, *, limit_s: float | None = None) -> None:
        """`limit_s` is what `--timeout` allows all pieces together; `SEARCH_S` bounds each.

        Raises:
            UsageError: `text` is no regular expression.
        """
        self._text = text
        self._allowed_s = limit_s
        self._spent_s = 0.0
        try:
            self._pattern = re.compile(text.encode())
        except (re.error, OverflowError, RecursionError) as exc:
            raise UsageError(f"--search {text!r} is no regular expression: {exc}") from None

    def matching(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the lines that match.

        Raises:
            CliError: it takes too long.
        """
        left_s = float("inf") if self._allowed_s is None else self._allowed_s - self._spent_s
        before = signal.signal(signal.SIGALRM, _ring)
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, min(SEARCH_S, max(left_s, SHORTEST_S)))
        try:
            return [line for line in lines if self._pattern.search(line)]
        except _TooLong:
            late = left_s < SEARCH_S
            most = f"{self._allowed_s:g} s" if late else f"{SEARCH_S:g} s on a piece of the log"
            raise CliError(
                f"--search {self._text!r} took more than {most}",
                hint="nested repeats such as (a+)+ try every way to split a line: write a+",
                exit_code=ExitCode.TIMED_OUT if late else ExitCode.USAGE,
            ) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
            self._spent_s += time.monotonic() - began


def _ring(_number: int, _frame: FrameType | None) -> None:
    raise _TooLong
