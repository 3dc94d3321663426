"""The lock on a state directory: one process owns the store (I5).

Rules
1. The lock is on a file in the directory; the kernel frees it when its holder dies.
2. A directory that was removed under its holder takes that file along, and a second daemon on a new
   one would see the first one's machines as foreign. So the holder also holds a name that no file
   system knows: an abstract socket (unix(7), Linux only), which dies with its process, too.
"""

import fcntl
import hashlib
import logging
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from vastd.errors import StateUnusable, StoreLocked

_log = logging.getLogger(__name__)

_UCRED: Final = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED


@contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """Hold the state directory while the block runs; the kernel frees it when we die.

    Raises:
        StoreLocked: another daemon holds it; its pid is in the message as advice only.
        StateUnusable: the directory cannot be made or written.
    """
    path = state_dir / "vastd.lock"
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        state_dir.chmod(0o700)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StateUnusable(f"cannot use the state directory {state_dir}: {exc.strerror}") from exc
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            pid = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
            raise StoreLocked(
                f"another vastd owns {state_dir}" + (f" (pid {pid})" if pid else ""),
                hint="use it (`vastctl daemon status`), or stop it first (`vastctl daemon stop`)",
            ) from exc
        with _named(state_dir):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield
    finally:
        os.close(handle)


@contextmanager
def _named(state_dir: Path) -> Iterator[None]:
    """Hold the directory by its name while the block runs (rule 2).

    Raises:
        StoreLocked: another process of ours holds it.
    """
    if sys.platform != "linux":
        yield
        return
    digest = hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:32]
    name = f"\0vastd-{os.getuid()}-{digest}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        try:
            held.bind(name)
            held.listen(1)
        except OSError as exc:
            pid = _holder(name)
            if pid is not None:
                raise StoreLocked(
                    f"vastd (pid {pid}) still owns {state_dir}, although its files were removed: "
                    "it watches and ends its machines from memory",
                    hint="`vastctl ls` while its socket is there; stop that process when its "
                    "machines are gone, or put the directory back, and start vastd again",
                ) from exc
            _log.warning("%s is not held by name: %s", state_dir, exc.strerror)
        yield


def _holder(name: str) -> int | None:
    """Return the process of ours that listens on `name`; None if it is not ours. Anybody can take a
    name, and a stranger must not keep us from starting."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(1.0)  # guess: a full queue; the kernel answers without its holder
        try:
            asking.connect(name)
        except OSError:
            return None
        pid, uid, _ = _UCRED.unpack(
            asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        )
    return pid if uid == os.getuid() else None
