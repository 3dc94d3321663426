"""When the pieces of a job's log came home: a small index beside each copy, for reading only.

Rules
1. A record (offset, instant) says: what lies between the record before it and `offset` was home at
   that instant. It is written after the bytes, so the index may lag behind the log, never lead;
   bytes behind the last record have no known time.
2. Bytes whose time nobody noted (a kill between log and index, a lost index) get a record without
   an instant before the next one, so that they are never told as new.
3. What cannot be read or makes no sense is unknown. Nothing here ever holds up a log.
4. One record a second, and half as often after every 65,536 of them: 1 MB for 18 hours without a
   pause, 9 MB for a year.
"""

import contextlib
import logging
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

_log = logging.getLogger(__name__)

RECORD_BYTES: Final = 16
SPACING_S: Final = 1.0  # between records; people compare logs by the second
HALVED_AFTER: Final = 65_536  # records; guess: 18 hours to the second, and an index of 1 MB
SCAN_BYTES: Final = 4096 * RECORD_BYTES  # of one read while searching backwards; guess
REPAIR_RECORDS: Final = 4096  # guess: a broken end is some records long, else all of it is broken
_NUMBER_BYTES: Final = 6  # offsets to 281 TB, instants to the year 10889
_SUM_BYTES: Final = 4


class Mark(Struct, frozen=True):
    """Bytes up to `end` were home at `at_s` (epoch seconds, None: unknown)."""

    end: int
    at_s: float | None


class Since(Struct, frozen=True):
    """Where what came home in a time begins, and whether the index knows that of every byte."""

    offset: int
    known: bool


class _Broken(Exception):
    """A record that was not written by us, or not whole."""


class LogTimes:
    """`<dir>/<job_id>.times`, one per log."""

    def __init__(self, directory: Path) -> None:
        self._dir = directory

    def path(self, job_id: str) -> Path:
        """Return where the index of a log lies, whether or not it exists."""
        return self._dir / f"{job_id}.times"

    def note(self, job_id: str, start: int, end: int, at_s: float) -> None:
        """Note that the bytes from `start` to `end` are home now. A disk that refuses is logged."""
        try:
            handle = os.open(self.path(job_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _note(handle, start, end, at_s)
            finally:
                os.close(handle)
        except OSError as exc:
            _log.warning("job=%s when its log came home is not noted: %s", job_id, exc.strerror)

    def between(self, job_id: str, start: int, end: int, limit: int) -> list[Mark]:
        """Return at most `limit` marks that cover the bytes from `start` on, in order: the last one
        reaches to `end` or beyond unless there are more, or nothing is known of the rest."""
        found: list[Mark] = []
        with contextlib.suppress(OSError, _Broken), self._opened(job_id) as handle:
            at = _first_beyond(handle, start)
            count = _count(handle)
            while at < count and len(found) < limit and (not found or found[-1].end < end):
                found.append(_read(handle, at))
                at += 1
        return found

    def since(self, job_id: str, at_s: float, size: int) -> Since:
        """Return where the part begins of a log of `size` bytes that came home at `at_s` or later.
        Bytes of unknown time are part of it when what surrounds them is."""
        known = found = False
        try:
            with self._opened(job_id) as handle:
                for mark in _backwards(handle):
                    if mark.end > size:
                        break  # of another log: it leads, and so nothing is known
                    if not found:
                        known, found = mark.end == size, True
                    if mark.at_s is None:
                        known = False
                    elif mark.at_s < at_s:
                        return Since(mark.end, known)
        except (OSError, _Broken):
            known = False
        return Since(0, known or size == 0)

    def drop(self, job_id: str) -> None:
        """Remove the index of a log; one that cannot be removed stays."""
        with contextlib.suppress(OSError):
            self.path(job_id).unlink(missing_ok=True)

    @contextmanager
    def _opened(self, job_id: str) -> Iterator[int]:
        handle = os.open(self.path(job_id), os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield handle
        finally:
            os.close(handle)


def _note(handle: int, start: int, end: int, at_s: float) -> None:
    count, last = _sound_end(handle, start)
    home = 0 if last is None else last.end
    if home < start:
        _write(handle, count, Mark(start, None), Mark(end, at_s))
    elif last is not None and last.at_s is not None and _same_window(last.at_s, at_s, count):
        _write(handle, count - 1, Mark(end, last.at_s))
    else:
        _write(handle, count, Mark(end, at_s))


def _same_window(last_s: float, at_s: float, count: int) -> bool:
    # A clock that was set back begins a new record.
    return 0 <= at_s - last_s < SPACING_S * (1 << count // HALVED_AFTER)


def _sound_end(handle: int, start: int) -> tuple[int, Mark | None]:
    """Cut off what is broken at the end, and what tells of bytes that are not home any more; return
    how many records are left and the last of them."""
    count = _count(handle)
    last: Mark | None = None
    at = count
    while at > 0:
        try:
            found = _read(handle, at - 1)
        except _Broken:
            found = None
        if found is not None and found.end <= start:
            last = found
            break
        at = 0 if count - at > REPAIR_RECORDS else at - 1
    if os.fstat(handle).st_size != at * RECORD_BYTES:
        os.ftruncate(handle, at * RECORD_BYTES)
    return at, last


def _first_beyond(handle: int, offset: int) -> int:
    """Return the number of the first record that ends behind `offset`."""
    low, high = 0, _count(handle)
    while low < high:
        middle = (low + high) // 2
        if _read(handle, middle).end > offset:
            high = middle
        else:
            low = middle + 1
    return low


def _backwards(handle: int) -> Iterator[Mark]:
    end = _count(handle) * RECORD_BYTES
    while end > 0:
        begin = max(0, end - SCAN_BYTES)
        data = os.pread(handle, end - begin, begin)
        for at in range(len(data) - RECORD_BYTES, -1, -RECORD_BYTES):
            yield _decoded(data[at : at + RECORD_BYTES])
        end = begin


def _count(handle: int) -> int:
    return os.fstat(handle).st_size // RECORD_BYTES


def _read(handle: int, number: int) -> Mark:
    return _decoded(os.pread(handle, RECORD_BYTES, number * RECORD_BYTES))


def _write(handle: int, number: int, *marks: Mark) -> None:
    data = b"".join(_encoded(mark) for mark in marks)
    if os.pwrite(handle, data, number * RECORD_BYTES) != len(data):
        raise OSError(28, os.strerror(28))  # ENOSPC: the half is cut off at the next note


def _encoded(mark: Mark) -> bytes:
    at_ms = 0 if mark.at_s is None else max(1, round(mark.at_s * 1000))
    body = mark.end.to_bytes(_NUMBER_BYTES, "little") + at_ms.to_bytes(_NUMBER_BYTES, "little")
    return body + zlib.crc32(body).to_bytes(_SUM_BYTES, "little")


def _decoded(data: bytes) -> Mark:
    body, check = data[:-_SUM_BYTES], data[-_SUM_BYTES:]
    if len(data) != RECORD_BYTES or zlib.crc32(body).to_bytes(_SUM_BYTES, "little") != check:
        raise _Broken
    at_ms = int.from_bytes(body[_NUMBER_BYTES:], "little")
    return Mark(int.from_bytes(body[:_NUMBER_BYTES], "little"), at_ms / 1000 if at_ms else None)
