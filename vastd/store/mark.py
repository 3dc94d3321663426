"""The mark beside the database: how far the store is known to have come (I8).

A valid database can still be an old one: a copy put back, or a write-ahead log that was removed.
The mark names the store and its newest event, so that such a database is never believed.

Rules
1. It may lag behind the database, never lead: it is written after the commit, which is synced.
2. It is overwritten in place and not synced: a kill of the daemon keeps what the kernel has, and
   after a power cut an older mark says less, not something false.
"""

import logging
import os
import zlib
from pathlib import Path
from typing import Final

from msgspec import Struct

from vastd.files import write_atomic

_log = logging.getLogger(__name__)

NAME: Final = "store-mark"
_CURSOR_DIGITS: Final = 20  # of a 64-bit number: every mark is as long as the one it overwrites


class Marked(Struct, frozen=True, kw_only=True):
    """What a mark says: the store's id, and an event it certainly held."""

    store_id: str
    cursor: int


class Mark:
    """The mark of an open store."""

    def __init__(self, descriptor: int, store_id: str) -> None:
        self._descriptor = descriptor
        self._store_id = store_id

    def note(self, cursor: int) -> None:
        """Write down that event `cursor` is on disk. A disk that refuses leaves the old mark."""
        try:
            os.pwrite(self._descriptor, _line(self._store_id, cursor), 0)
        except OSError as exc:
            _log.debug("mark not moved to %d: %s", cursor, exc)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def read_mark(state_dir: Path) -> Marked | None:
    """Return what the mark says; None when there is none, or none that can be understood."""
    path = state_dir / NAME
    try:
        text = path.read_text("ascii")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        _log.warning(
            "%s cannot be read (%s): whether the store is the newest is not known", path, exc
        )
        return None
    words = text.split()
    if len(words) != 3 or not words[1].isdecimal() or _check(words[0], int(words[1])) != words[2]:
        _log.warning("%s makes no sense: whether the store is the newest is not known", path)
        return None
    return Marked(store_id=words[0], cursor=int(words[1]))


def open_mark(state_dir: Path, store_id: str, cursor: int) -> Mark | None:
    """Open the mark for a store that was proven, at its newest event; None if the disk refuses:
    an old mark of the same store stays true."""
    path = state_dir / NAME
    try:
        if read_mark(state_dir) != Marked(store_id=store_id, cursor=cursor):
            write_atomic(path, _line(store_id, cursor), mode=0o600)
        return Mark(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW), store_id)
    except OSError as exc:
        _log.warning("%s is not kept: %s", path, exc)
        return None


def forget_mark(state_dir: Path) -> None:
    """Remove the mark of a store that was put aside.

    Raises:
        OSError: it stays, and no other store would be believed beside it.
    """
    (state_dir / NAME).unlink(missing_ok=True)


def _line(store_id: str, cursor: int) -> bytes:
    return f"{store_id} {cursor:0{_CURSOR_DIGITS}d} {_check(store_id, cursor)}\n".encode("ascii")


def _check(store_id: str, cursor: int) -> str:
    return f"{zlib.crc32(f'{store_id} {cursor}'.encode()):08x}"
