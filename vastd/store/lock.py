"""The lock on a state directory: one process owns the store (I5)."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vastd.errors import StoreError, StoreLocked


@contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """Hold the state directory while the block runs; the kernel frees it when we die.

    Raises:
        StoreLocked: another daemon holds it; its pid is in the message as advice only.
        StoreError: the directory cannot be made or written.
    """
    path = state_dir / "vastd.lock"
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        state_dir.chmod(0o700)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StoreError(
            f"cannot use the state directory {state_dir}: {exc.strerror}",
            hint="make it writable, or name another one with VASTD_STATE_DIR",
        ) from exc
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            pid = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
            raise StoreLocked(
                f"another vastd owns {state_dir}" + (f" (pid {pid})" if pid else ""),
                hint="use it (`vastctl daemon status`), or stop it first (`vastctl daemon stop`)",
            ) from exc
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
