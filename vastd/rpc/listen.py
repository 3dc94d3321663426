"""The socket clients connect to: where it lies, who may use it, and whose inode it is.

Rules
1. The directory is private (0700) and the socket 0600 from the first instant.
2. A socket somebody answers on is never replaced; one nobody answers on is a leftover of a
   daemon that was killed.
3. At the end only our own inode is removed: a newer daemon may have put its own there.
"""

import fcntl
import logging
import os
import socket
import stat
import struct
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct

from vastd.errors import ConfigError, StoreLocked
from vastd_protocol import paths

BACKLOG: Final = 128  # guess: a burst of clients while one loop turn is busy
FIRST_PASSED_FD: Final = 3  # sd_listen_fds(3)
_UCRED: Final = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED
_LOCAL_PEERCRED: Final = 1  # macOS sys/un.h, level SOL_LOCAL (0)
_XUCRED: Final = struct.Struct("2I")  # macOS struct xucred: version, uid, …

logger = logging.getLogger(__name__)


class Door(Struct, frozen=True, kw_only=True):
    """An open socket. `passed` means systemd made it and keeps it."""

    listeners: list[trio.SocketListener]
    path: Path  # what clients connect to
    passed: bool


@asynccontextmanager
async def listening(
    environ: Mapping[str, str] = os.environ, *, state: Path | None = None
) -> AsyncIterator[Door]:
    """Open the daemon's socket and remove it at the end: systemd's if one was passed, else ours.

    The caller holds the lock of the state directory. `state` is that directory when it was
    named explicitly.

    Raises:
        StoreLocked: another daemon answers there.
        ConfigError: no usable place; says which and what to set.
    """
    if passed := passed_sockets(environ):
        path = Path(os.fsdecode(passed[0].getsockname()))
        yield Door(listeners=[_listener(sock) for sock in passed], path=path, passed=True)
        return
    sock, path = _first_usable(
        paths.socket_candidates(state), own_directory="VASTD_SOCKET" not in environ
    )
    inode = _inode(path)
    try:
        yield Door(listeners=[_listener(sock)], path=path, passed=False)
    finally:
        sock.close()
        if inode is not None and _inode(path) == inode:
            path.unlink(missing_ok=True)


def peer_allowed(stream: trio.SocketStream) -> bool:
    """Return whether the other end runs as our user or as root."""
    uid = peer_uid(stream)
    if uid_allowed(uid, os.getuid()):
        return True
    logger.warning("client refused uid=%s", uid)
    return False


def uid_allowed(uid: int | None, own: int) -> bool:
    """Return whether a peer of user `uid` (None: unknown) may talk to a daemon of user `own`."""
    return uid in (own, 0)  # root can read our memory anyway


def peer_uid(stream: trio.SocketStream) -> int | None:
    """Return the user id of a Unix socket's other end; None where the system does not tell."""
    if stream.socket.family != socket.AF_UNIX:
        return None
    if hasattr(socket, "SO_PEERCRED"):
        data = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        return int(_UCRED.unpack(data)[1])
    if sys.platform == "darwin":
        data = stream.socket.getsockopt(0, _LOCAL_PEERCRED, 76)
        return int(_XUCRED.unpack_from(data)[1])
    return None


def passed_sockets(environ: Mapping[str, str]) -> list[socket.socket]:
    """Return the listening Unix sockets systemd passed to this very process (sd_listen_fds)."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = environ.get("LISTEN_FDS", "")
    found: list[socket.socket] = []
    for fd in range(FIRST_PASSED_FD, FIRST_PASSED_FD + (int(count) if count.isdecimal() else 0)):
        try:
            sock = socket.socket(fileno=fd)
        except OSError as exc:
            raise ConfigError(
                f"descriptor {fd} passed by systemd is no socket: {exc}",
                hint="compare vastd.socket with the one shipped with vastd",
            ) from exc
        if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
            raise ConfigError(
                f"descriptor {fd} passed by systemd is no Unix stream socket",
                hint="vastd.socket needs ListenStream= with a path",
            )
        sock.set_inheritable(False)
        found.append(sock)
    return found


def _listener(sock: socket.socket) -> trio.SocketListener:
    sock.setblocking(False)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def _first_usable(candidates: list[Path], *, own_directory: bool) -> tuple[socket.socket, Path]:
    """Bind the first candidate that can be used; a live daemon on any of those tried is final."""
    refused: list[ConfigError] = []
    for path in candidates:
        try:
            return bind(path, own_directory=own_directory), path
        except ConfigError as exc:
            refused.append(exc)
    if len(refused) == 1:
        raise refused[0]
    text = "; ".join(str(exc) for exc in refused)
    raise ConfigError(f"no place for the socket: {text}", hint="set VASTD_SOCKET to a short path")


def bind(path: Path, *, own_directory: bool) -> socket.socket:
    """Listen on `path`, replacing a socket nobody answers on.

    `own_directory`: the directory is there for nothing else, so its mode may be corrected.

    Raises:
        StoreLocked: another daemon answers there, or is starting at this moment.
        ConfigError: the path is too long, taken by something else, or its directory is not safe.
    """
    if paths.too_long(path):
        raise ConfigError(
            f"the socket path {str(path)!r} has {len(os.fsencode(path))} bytes, the system"
            f" allows {paths.MAX_SOCKET_PATH_BYTES}",
            hint="set VASTD_SOCKET to a shorter path, e.g. in /run/user",
        )
    _make_private(path.parent, own=own_directory)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Two daemons that find the same leftover must not remove each other's new socket.
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_leftover(path)
        return _bind(path)
    except BlockingIOError as exc:
        raise StoreLocked(
            f"another vastd is starting on {str(path)!r}", hint="vastctl daemon status"
        ) from exc
    except OSError as exc:
        raise ConfigError(
            f"cannot listen on {str(path)!r}: {exc.strerror}",
            hint="set VASTD_SOCKET to a path in a directory of yours",
        ) from exc
    finally:
        os.close(directory)


def _bind(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # bind(2) applies the umask and nothing else, so the mode is right before anyone can connect.
    # The umask belongs to the process: there is no thread and no await between the two calls.
    before = os.umask(0o177)
    try:
        sock.bind(os.fspath(path))
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    sock.listen(BACKLOG)
    return sock


def _make_private(directory: Path, *, own: bool) -> None:
    """Make `directory` with mode 0700, or check that nobody else can put a socket into it.

    One that exists is closed to others only if it is our `own`, not one the user chose.
    """
    try:
        missing = [part for part in (directory, *directory.parents) if not part.exists()]
        for part in reversed(missing):
            part.mkdir(mode=0o700, exist_ok=True)
        info = directory.stat()
    except OSError as exc:
        raise ConfigError(
            f"cannot make the socket's directory {str(directory)!r}: {exc.strerror}",
            hint="set VASTD_SOCKET to a path in a directory of yours",
        ) from exc
    ours = info.st_uid == os.getuid()
    others_write = bool(info.st_mode & 0o022) and not info.st_mode & stat.S_ISVTX
    if not stat.S_ISDIR(info.st_mode) or (not ours and info.st_uid != 0) or others_write:
        raise ConfigError(
            f"the socket's directory {str(directory)!r} belongs to uid {info.st_uid} with mode"
            f" {stat.S_IMODE(info.st_mode):o}: others could put their own socket there",
            hint=f"chmod 700 {directory}, or set VASTD_SOCKET elsewhere",
        )
    if own and ours and info.st_mode & 0o077:
        directory.chmod(0o700)


def _remove_leftover(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(
            f"{str(path)!r} exists and is no socket", hint="move it away, or set VASTD_SOCKET"
        )
    if answers(path):
        raise StoreLocked(
            f"another vastd answers on {str(path)!r}",
            hint="use it (`vastctl daemon status`), stop it first (`vastctl daemon stop`), or set "
            "VASTD_SOCKET to another path",
        )
    logger.info("leftover socket removed path=%s", path)
    path.unlink(missing_ok=True)


def answers(path: Path) -> bool:
    """Return whether a process listens on `path`. Never blocks."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except BlockingIOError:
            return True  # its backlog is full: busy, and alive
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    return info.st_dev, info.st_ino
