"""Putting verified files where the user expects them, without losing what lies there.

Rules
1. A file appears under its final name whole, or not at all: it is renamed into place.
2. Nothing is deleted: a different file is kept beside as `NAME.before-JOB`.
3. No link is followed: a name from a machine reaches only real directories below the
   destination.
"""

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import Final

from vastd.core.instants import size
from vastd.errors import TransferFailed, UnsafePath
from vastd.jobs.digest import sha256_of

INCOMING: Final = ".vastd-incoming"
_MAKE_TRIES: Final = 5  # guess: each one lost a race against another collection's end
_SPARE_BYTES: Final = 16 * 1024 * 1024  # guess: directories, journals; a disk is never filled


class Placement:
    """One destination directory and the staging area inside it (same file system)."""

    def __init__(self, destination: Path, keep_as: str) -> None:
        """`keep_as` is what a replaced file's name gets: `before-<job id>`."""
        self._destination = destination.absolute()
        self._keep_as = keep_as
        # Each job's own: two machines may bring results into one project at the same time.
        self.staging = self._destination / INCOMING / keep_as
        self._placed: set[str] = set()

    def prepare(self) -> None:
        """Make the destination and its staging area.

        Raises:
            TransferFailed: they cannot be made.
            UnsafePath: the staging area is a link.
        """
        for attempt in range(1, _MAKE_TRIES + 1):
            try:
                self.staging.mkdir(parents=True, exist_ok=True)
                break
            except FileNotFoundError as exc:
                # Another collection has just removed the shared parent, which was empty.
                if attempt == _MAKE_TRIES:
                    raise _failed(self.staging, exc) from exc
            except OSError as exc:
                raise _failed(self.staging, exc) from exc
        for directory in (self.staging.parent, self.staging):
            if directory.is_symlink():
                raise UnsafePath(f"{str(directory)!r} is a link; remove it and repeat")

    def check_space(self, needed_bytes: int) -> None:
        """Raise TransferFailed if the files do not fit on the local disk."""
        try:
            free = shutil.disk_usage(self.staging).free
        except OSError as exc:
            raise _failed(self.staging, exc) from exc
        if needed_bytes + _SPARE_BYTES > free:
            raise TransferFailed(
                f"{size(needed_bytes)} do not fit into {str(self._destination)!r}: the local disk "
                f"has {size(free)} free, and {size(_SPARE_BYTES)} stay free",
                hint="free space and repeat; the machine keeps its files meanwhile",
            )

    async def is_home(self, name: str, size: int, digest: str) -> bool:
        """Tell whether the file is in place already, with this content."""
        try:
            final = self._final(name, make=False)
            status = final.lstat()
        except (OSError, UnsafePath, TransferFailed):
            return False
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return False
        return await sha256_of(final) == digest

    async def accept(self, staged: Path, size: int, digest: str) -> bool:
        """Tell whether a staged file matches; one that grew since it was listed is cut back."""
        try:
            status = os.lstat(staged)
            if not stat.S_ISREG(status.st_mode) or status.st_size < size:
                return False
            if await sha256_of(staged, size) != digest:
                return False
            if status.st_size > size:
                os.truncate(staged, size)
        except OSError:
            return False
        return True

    async def place(self, staged: Path, name: str) -> None:
        """Move a staged file to its final name, keeping what differs there.

        Raises:
            UnsafePath: a directory on the way is a link.
            TransferFailed: it cannot be written there.
        """
        final = self._final(name, make=True)
        try:
            if _exists(final) and name not in self._placed and not await _grew(final, staged):
                os.rename(final, self._free_name(final))
            os.replace(staged, final)
        except OSError as exc:
            raise _failed(final, exc) from exc
        self._placed.add(name)

    def finish(self) -> None:
        """Remove the staging area after everything is in place."""
        shutil.rmtree(self.staging, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty: another collection is under way
            self.staging.parent.rmdir()

    def _final(self, name: str, *, make: bool) -> Path:
        here = self._destination
        parts = name.split("/")
        for part in parts[:-1]:
            here = here / part
            if make and not _exists(here):
                try:
                    here.mkdir()
                except OSError as exc:
                    raise _failed(here, exc) from exc
            if here.is_symlink():
                raise UnsafePath(
                    f"{str(here)!r} is a link; files from a machine are not written through links",
                    hint="replace it by a directory, or collect to another destination",
                )
            if _exists(here) and not here.is_dir():
                raise TransferFailed(f"{str(here)!r} is in the way: a directory is needed there")
        final = here / parts[-1]
        if final.is_dir() and not final.is_symlink():
            raise TransferFailed(f"{str(final)!r} is in the way: a file is to go there")
        return final

    def _free_name(self, final: Path) -> Path:
        kept = final.with_name(f"{final.name}.{self._keep_as}")
        number = 2
        while _exists(kept):
            kept = final.with_name(f"{final.name}.{self._keep_as}.{number}")
            number += 1
        return kept


async def _grew(old: Path, new: Path) -> bool:
    """Tell whether `old` is how `new` begins: a log collected again loses nothing."""
    status = os.lstat(old)
    if not stat.S_ISREG(status.st_mode) or status.st_size > os.lstat(new).st_size:
        return False
    return await sha256_of(old) == await sha256_of(new, status.st_size)


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _failed(path: Path, exc: OSError) -> TransferFailed:
    return TransferFailed(
        f"{str(path)!r} could not be written: {exc.strerror}",
        hint="free space or fix the permissions, then repeat; the machine keeps its files",
    )
