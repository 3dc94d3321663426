"""SHA-256 of local files, in slices that leave the daemon responsive."""

import hashlib
from pathlib import Path
from typing import Final

import trio

from vastd.errors import TransferFailed

_SLICE_BYTES: Final = 1024 * 1024  # about 1 ms of hashing


async def sha256_of(path: Path, limit: int | None = None) -> str:
    """Return the hex digest of a file, or of its first `limit` bytes.

    Raises:
        TransferFailed: it cannot be read.
    """
    digest = hashlib.sha256()
    left = limit
    try:
        with path.open("rb") as file:
            while left is None or left > 0:
                data = file.read(_SLICE_BYTES if left is None else min(left, _SLICE_BYTES))
                if not data:
                    break
                digest.update(data)
                left = None if left is None else left - len(data)
                await trio.lowlevel.checkpoint()
    except OSError as exc:
        raise TransferFailed(f"{str(path)!r} could not be read: {exc.strerror}") from exc
    return digest.hexdigest()
