"""A regular expression over lines of a log, with a limit: some expressions never come to an end."""

import re
import signal
from collections.abc import Sequence
from types import FrameType
from typing import Final

from vastctl.errors import CliError, UsageError
from vastd_protocol.errors import ExitCode

SEARCH_S: Final = 2.0  # guess; a sound expression reads a piece of log in milliseconds


class _TooLong(Exception):
    """Raised by the alarm in the middle of a match; `re` looks for signals while it works."""


class LineSearch:
    """Finds the lines that match. Only for the main thread: it uses the process's alarm clock."""

    def __init__(self, text: str, *, limit_s: float | None = None) -> None:
        """`limit_s` is what `--timeout` allows the whole command; `SEARCH_S` bounds each piece.

        Raises:
            UsageError: `text` is no regular expression.
        """
        self._text = text
        self._late = limit_s is not None and limit_s < SEARCH_S
        self._limit_s = min(SEARCH_S, limit_s or SEARCH_S)
        try:
            self._pattern = re.compile(text.encode())
        except (re.error, OverflowError, RecursionError) as exc:
            raise UsageError(f"--search {text!r} is no regular expression: {exc}") from None

    def matching(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the lines that match.

        Raises:
            CliError: it takes too long.
        """
        before = signal.signal(signal.SIGALRM, _ring)
        signal.setitimer(signal.ITIMER_REAL, self._limit_s)
        try:
            return [line for line in lines if self._pattern.search(line)]
        except _TooLong:
            raise CliError(
                f"--search {self._text!r} took more than {self._limit_s:g} s on a piece of the log",
                hint="nested repeats such as (a+)+ try every way to split a line: write a+",
                exit_code=ExitCode.TIMED_OUT if self._late else ExitCode.USAGE,
            ) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)


def _ring(_number: int, _frame: FrameType | None) -> None:
    raise _TooLong
