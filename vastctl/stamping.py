"""The time in front of each line of a log: when its first byte came home."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from vastctl import words
from vastd_protocol.methods.log import LogTime

WIDTH: Final = len("2026-12-01 05:43:37")
UNKNOWN: Final = "time unknown"


class Stamps:
    """The times of one piece of log, as they are written in front of lines."""

    def __init__(self, times: Sequence[LogTime]) -> None:
        self._ends = [time.end for time in times]
        self._times = times
        self._written: dict[int, bytes] = {}  # a piece has many lines and few times

    def time_of(self, offset: int) -> str | None:
        """Return when the byte at `offset` came home, None if that is not known."""
        number = bisect_right(self._ends, offset)
        return self._times[number].at if number < len(self._times) else None

    def at(self, offset: int) -> bytes:
        """Return what goes in front of a line that begins at `offset` of the log."""
        number = bisect_right(self._ends, offset)
        if number not in self._written:
            known = self.time_of(offset)
            text = UNKNOWN if known is None else words.date_and_clock(known)
            self._written[number] = f"{text:<{WIDTH}}  ".encode()
        return self._written[number]


class Stamper:
    """Puts times in front of lines that come in pieces. The pieces must be adjacent."""

    def __init__(self) -> None:
        self._inside = False  # the last piece ended inside a line

    def stamped(self, offset: int, data: bytes, stamps: Stamps) -> bytes:
        """Return `data`, which begins at `offset` of the log, with a time at each line's start."""
        parts: list[bytes] = []
        position = 0
        while position < len(data):
            if not self._inside:
                parts.append(stamps.at(offset + position))
            end = data.find(b"\n", position) + 1
            self._inside = end == 0
            end = end or len(data)
            parts.append(data[position:end])
            position = end
        return b"".join(parts)
