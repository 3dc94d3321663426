"""The way to the daemon: finding its socket, whole messages in and out, what to say if it is not there."""

import os
import socket
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final, Protocol

from vastctl.errors import CliError, ConnectionLost, DaemonAbsent, UsageError
from vastd_protocol import paths
from vastd_protocol.errors import ExitCode
from vastd_protocol.framing import MAX_FRAME_BYTES, Decoder, FramingError, frame

CONNECT_S: Final = 5.0  # guess; a local socket is accepted at once or never
SEND_S: Final = 30.0  # guess; the daemon reads at once unless it hangs
READ_BYTES: Final = 262_144  # guess; a few frames of log at once
_TRUSTED_UIDS: Final = frozenset({0})  # root could read everything anyway
START_HINT: Final = "start it: `vastd` in a terminal, or `vastctl daemon start`"
SIMULATE_HINT: Final = "start it: `vastctl daemon start --simulate`"


class Link(Protocol):
    """A connection that carries whole messages."""

    def send(self, body: bytes) -> None:
        """Send one message, or raise `ConnectionLost`."""

    def receive(self, timeout_s: float | None) -> bytes | None:
        """Return the next message, None after `timeout_s`; raise `ConnectionLost` at its end."""

    def close(self) -> None:
        """Close the connection."""


class SocketLink:
    """A link over a connected socket; framing is `Content-Length`."""

    def __init__(self, connected: socket.socket, path: Path) -> None:
        self._socket = connected
        self._path = path
        self._decoder = Decoder()
        self._bodies: deque[bytes] = deque()

    def send(self, body: bytes) -> None:
        if len(body) > MAX_FRAME_BYTES:
            raise UsageError(
                f"the request has {len(body)} bytes, more than the {MAX_FRAME_BYTES} allowed"
            )
        try:
            self._socket.settimeout(SEND_S)
            self._socket.sendall(frame(body))
        except OSError as exc:
            raise ConnectionLost(f"vastd at {self._path} closed the connection: {exc}") from exc

    def receive(self, timeout_s: float | None) -> bytes | None:
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._bodies:
            # 0 would make the socket non-blocking, which raises something else.
            left = None if end is None else max(end - time.monotonic(), 0.001)
            try:
                self._socket.settimeout(left)
                data = self._socket.recv(READ_BYTES)
            except TimeoutError:
                return None
            except OSError as exc:
                raise ConnectionLost(
                    f"the connection to vastd at {self._path} broke: {exc}"
                ) from exc
            if not data:
                self._bodies.extend(self._decoder.finish())
                if not self._bodies:
                    raise ConnectionLost(f"vastd at {self._path} closed the connection")
                break
            try:
                self._bodies.extend(self._decoder.feed(data))
            except FramingError as exc:
                raise garbage(self._path, str(exc)) from exc
        return self._bodies.popleft()

    def close(self) -> None:
        self._socket.close()


def garbage(path: Path | str, what: str) -> CliError:
    """Return the error for an answer that is no answer of vastd."""
    return CliError(
        f"the answer on {path} cannot be understood: {what}",
        hint="does another program listen there? compare `vastctl version` with `vastd --version`",
        exit_code=ExitCode.UNREACHABLE,
    )


def candidates(named: str | None) -> list[Path]:
    """Return the sockets to try, best first; `named` (`--socket`) stands alone."""
    return [Path(named)] if named else paths.socket_candidates()


def connect(named: str | None) -> SocketLink:
    """Connect to the first daemon that listens; raises as `open_socket`."""
    return SocketLink(*open_socket(named))


def open_socket(named: str | None) -> tuple[socket.socket, Path]:
    """Return a socket that is connected to the first daemon that listens, and its path.

    Raises:
        DaemonAbsent: no socket, or only ones a dead daemon left behind.
        CliError: a socket that is not ours, or may not be used.
    """
    tried = candidates(named)
    stale: Path | None = None
    for path in tried:
        if paths.too_long(path):
            raise CliError(
                f"socket path {str(path)!r} is longer than the system allows "
                f"({paths.MAX_SOCKET_PATH_BYTES} bytes)",
                hint="set VASTD_SOCKET, for vastd and vastctl alike, to a shorter path",
                exit_code=ExitCode.AUTH_OR_CONFIG,
            )
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(CONNECT_S)
            connected.connect(str(path))
            _check_peer(connected, path)
        except (FileNotFoundError, NotADirectoryError):
            connected.close()
        except ConnectionRefusedError:
            connected.close()
            stale = stale or path
        except OSError as exc:
            connected.close()
            raise CliError(
                f"cannot connect to {path}: {exc.strerror or exc}",
                hint="its owner and mode must let you in; a busy vastd may need a moment",
                exit_code=ExitCode.UNREACHABLE,
            ) from exc
        except CliError:
            connected.close()
            raise
        else:
            return connected, path
    raise absent(stale or tried[0], stale=stale is not None)


def _check_peer(connected: socket.socket, path: Path) -> None:
    """Refuse a socket that another user made: he would learn commands and variables of jobs."""
    if not hasattr(socket, "SO_PEERCRED"):
        return
    # struct ucred {pid, uid, gid}, native 32-bit numbers (man 7 unix).
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    uid = int.from_bytes(credentials[4:8], sys.byteorder)
    if uid != os.getuid() and uid not in _TRUSTED_UIDS:
        raise CliError(
            f"the program that listens on {path} belongs to user id {uid}, not to you",
            hint="name the right socket with `--socket PATH` or VASTD_SOCKET",
            exit_code=ExitCode.UNREACHABLE,
        )


def absent(path: Path, *, stale: bool) -> DaemonAbsent:
    """Return the error for a daemon that is not there, with what may be billing meanwhile."""
    state = paths.state_dir()
    on_record = live_on_record(state)
    # The simulator outlives its vastd; its file is there only while it can be used.
    simulated = (state / "simulator" / "service.json").exists()
    hint = SIMULATE_HINT if simulated else START_HINT
    if on_record:
        noun = "rental is" if on_record == 1 else "rentals are"
        hint += f"; {on_record} {'simulated ' if simulated else ''}{noun} on record"
        hint += "" if simulated else " and may still bill"
    else:
        hint += "; no live rental is on record"
    left = " (it left its socket behind)" if stale else ""
    return DaemonAbsent(f"vastd is not running at {path}{left}", hint=hint)


def live_on_record(state: Path) -> int:
    """Return how many entries of the state file are not destroyed; 0 if it cannot be read."""
    from msgspec import DecodeError
    from msgspec.json import decode

    try:
        entries = decode((state / "vast-instances.json").read_bytes())
    except (OSError, DecodeError):
        return 0
    if not isinstance(entries, list):
        return 0
    return sum(1 for e in entries if isinstance(e, dict) and e.get("status") != "destroyed")
