"""The reserve file: room on the disk that is kept for recording how machines end (I6)."""

import os
from pathlib import Path
from typing import Final

RESERVE: Final = "reserve"
RESERVE_BYTES: Final = 8 * 1024 * 1024  # DESIGN I6: released on a full disk


def keep_reserve(state_dir: Path) -> bool:
    """Make the reserve file, so that a full disk still leaves room to record endings; return
    whether it is there. It is not made of the last room there is."""
    path = state_dir / RESERVE
    try:
        if path.exists() and path.stat().st_size >= RESERVE_BYTES:
            return True
        free = os.statvfs(state_dir)
        if free.f_bavail * free.f_frsize < 2 * RESERVE_BYTES:
            return False
        path.write_bytes(bytes(RESERVE_BYTES))
    except OSError:
        return False
    return True


def release_reserve(state_dir: Path) -> bool:
    """Give the reserve back to a full disk; return whether there was one."""
    try:
        (state_dir / RESERVE).unlink()
    except OSError:
        return False
    return True
