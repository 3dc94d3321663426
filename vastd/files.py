"""Files that are replaced as a whole: whoever reads one sees the old text or the new, never half.

Order of a write (DESIGN D4): temporary file in the same directory, fsync, rename, fsync of the
directory. A crash at any point leaves the old file, and at worst a temporary one beside it.
"""

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

STALE_TEMP_S: Final = 3600.0  # guess: no write of ours takes an hour, so nobody still owns it


def write_atomic(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace `path` by `data`; on return it survives a power cut.

    `mode` None keeps the permissions of a file that exists and gives a new one what the umask
    allows. A symbolic link at `path` is replaced, not followed: in somebody's project it could
    point anywhere.

    Raises:
        OSError: nothing was changed, the old file is whole.
    """
    if mode is None:
        mode = _mode_of(path)
    # A random name, not a fixed one: two daemons may write into one project at the same time.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600)
    try:
        with open(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _fsync_directory(path.parent)


def make_private_dir(path: Path) -> None:
    """Make `path` and its missing parents, the new ones for us alone (0700).

    Raises:
        OSError: it could not be made, or something that is not a directory is in the way.
    """
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(path))


def remove_leftovers(path: Path) -> None:
    """Remove temporary files that killed writers of `path` left more than an hour ago."""
    oldest = time.time() - STALE_TEMP_S
    for leftover in _temporaries(path):
        with contextlib.suppress(OSError):
            if leftover.lstat().st_mtime < oldest:
                leftover.unlink()


def _temporaries(path: Path) -> Iterator[Path]:
    prefix = f".{path.name}."
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.name.endswith(".tmp"):
                yield Path(entry.path)


def _mode_of(path: Path) -> int | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    return stat.S_IMODE(info.st_mode) if stat.S_ISREG(info.st_mode) else None


def _fsync_directory(directory: Path) -> None:
    # The rename is done; some network file systems refuse to sync a directory, which must not
    # be reported as a failed write.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
