"""Checksums that need not be computed again: remembered with what the file system said of the file.

Rules
1. A file is the one we read while device, inode, size, time of content and time of change are
   the same. Programs can set the time of content back; they cannot set the time of change.
2. Nothing is remembered of a file that was changed in the very moment it was looked at: a later
   change in the same tick of the clock would show the same times.
3. Times are compared only with times of the same computer.
4. All of it is in memory. Whoever has lost it reads the files again.
"""

import os
import time
from pathlib import Path
from typing import Final, Generic, TypeVar

import trio
from msgspec import Struct

from vastd.errors import TransferFailed
from vastd.jobs.digest import sha256_of

_MAX_FILES: Final = 50_000  # about 20 MB; beyond it all is forgotten, which costs one reading
_TICK_NS: Final = 20_000_000  # Linux stamps files with the time of the last tick, at 100 Hz or more
_SECOND_NS: Final = 1_000_000_000
_COARSE_NS: Final = 2 * _SECOND_NS  # the coarsest time stamps in use, those of FAT
_LOOKED_UP_AT_ONCE: Final = 50  # about 0.3 ms between chances for the daemon's other tasks

Name = TypeVar("Name", str, bytes)


class FileState(Struct, frozen=True, kw_only=True):
    """What a file system says of a file; a change of its content changes it."""

    device: int
    inode: int
    bytes: int
    mtime_ns: int
    ctime_ns: int

    def is_settled(self, now_ns: int) -> bool:
        """Return whether any change after `now_ns`, on the same clock, shows in the times."""
        whole = self.ctime_ns % _SECOND_NS == 0  # perhaps whole seconds are all there is
        return self.ctime_ns + (_COARSE_NS if whole else 0) < now_ns


class KnownSums(Generic[Name]):
    """SHA-256 by name, each good for one state of the file."""

    def __init__(self) -> None:
        self._known: dict[Name, tuple[FileState, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def get(self, name: Name, state: FileState) -> str | None:
        """Return the digest of a file in this state, or None when it has to be read."""
        known = self._known.get(name)
        return known[1] if known is not None and known[0] == state else None

    def keep(self, name: Name, state: FileState, digest: str, now_ns: int) -> None:
        """Remember what was read after `state` was looked at, which was at `now_ns`."""
        if not state.is_settled(now_ns):
            self._known.pop(name, None)
            return
        if len(self._known) >= _MAX_FILES:
            self._known.clear()
        self._known[name] = (state, digest)


class LocalSums:
    """SHA-256 of files here."""

    def __init__(self) -> None:
        self._known = KnownSums[str]()
        self._answered = 0

    async def of(self, path: Path) -> str:
        """Return the digest of a file as it is now.

        Raises:
            TransferFailed: it cannot be read.
        """
        now_ns = time.time_ns() - _TICK_NS
        state = _state_of(path)
        name = str(path)
        digest = self._known.get(name, state)
        if digest is None:
            digest = await sha256_of(path)
            self._known.keep(name, state, digest, now_ns)
            return digest
        self._answered += 1
        if self._answered % _LOOKED_UP_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        return digest


def _state_of(path: Path) -> FileState:
    try:
        status = os.stat(path)
    except OSError as exc:
        raise TransferFailed(f"{str(path)!r} could not be read: {exc.strerror}") from exc
    return FileState(
        device=status.st_dev,
        inode=status.st_ino,
        bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
    )
