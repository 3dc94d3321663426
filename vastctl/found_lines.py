"""The lines of a log that a search found, put together from pieces that may cut them anywhere."""

from typing import Final, NamedTuple

from vastctl.searching import LineSearch
from vastctl.stamping import Stamps

# A longer line is searched in pieces: `re` looks for the alarm every 4,096 positions, and on a
# line of 1 MiB that was seen to take 5 s (x*y), on this much 0.03 s.
MAX_LINE_BYTES: Final = 65_536


class FoundLine(NamedTuple):
    """A line that matches, without its line break."""

    offset: int  # of the log
    line: bytes
    ended: bool  # False: the log stops inside it, or it was cut
    stamps: Stamps | None  # of the piece in which it begins; None: no times were asked for


class FoundLines:
    """Takes the pieces of a log in their order and gives the lines that match."""

    def __init__(self, search: LineSearch) -> None:
        self._search = search
        self._rest = b""
        self._rest_at = 0
        self._rest_stamps: Stamps | None = None  # of the piece in which `_rest` begins

    def of(self, offset: int, data: bytes, stamps: Stamps | None) -> list[FoundLine]:
        """Return the lines found that end in `data`, which begins at `offset` of the log."""
        if self._rest:
            at, first = self._rest_at, self._rest_stamps
        else:
            at, first = offset, stamps
        *whole, self._rest = (self._rest + data).split(b"\n")
        made: list[FoundLine] = []
        for line in whole:
            made.append(FoundLine(at, line, True, first))
            at, first = at + len(line) + 1, stamps
        if len(self._rest) > MAX_LINE_BYTES:
            made.append(FoundLine(at, self._rest, False, first))
            at, first, self._rest = at + len(self._rest), stamps, b""
        self._rest_at, self._rest_stamps = at, first
        return self._matching(made)

    def close(self) -> list[FoundLine]:
        """Return the last line if it has no line break and matches."""
        rest, self._rest = self._rest, b""
        line = FoundLine(self._rest_at, rest, False, self._rest_stamps)
        return self._matching([line]) if rest else []

    def _matching(self, made: list[FoundLine]) -> list[FoundLine]:
        found = set(self._search.matching([one.line for one in made]))
        return [one for one in made if one.line in found]
