"""The service manager that started us (systemd), if one did: what it is told, by sd_notify(3).

Rules
1. Its variables are taken out of the environment at the start: a child that sent READY or a ping
   of its own would speak for us.
2. Telling never waits and never fails: a manager that does not listen is no reason to stop work.
"""

import logging
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final

log = logging.getLogger(__name__)

# sd_notify(3), sd_watchdog_enabled(3). LISTEN_* stay: LISTEN_PID names its reader by itself.
_TAKEN: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_USEC: Final = 1_000_000


class ServiceManager:
    """Tells the manager how we are. Without an `address` there is none, and nothing is sent."""

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s  # a ping is due within it; None: no pings are wanted

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> "ServiceManager":
        """Return the manager that `environ` names, and take its variables out."""
        address, usec, pid = (environ.pop(name, "") for name in _TAKEN)
        if not address.startswith(("/", "@")):
            if address:
                log.warning("NOTIFY_SOCKET=%r is no Unix socket: not notified", address)
            return cls()
        mine = pid in ("", str(os.getpid()))
        watched = mine and usec.isdecimal() and int(usec) > 0
        return cls(address, int(usec) / _USEC if watched else None)

    @property
    def present(self) -> bool:
        """Return whether a service manager wants to be told."""
        return self._address is not None

    def ready(self, status: str) -> bool:
        """Say that the start, or a reload, is over; return whether it was heard."""
        return self._tell("READY=1", f"STATUS={_line(status)}")

    def status(self, text: str) -> bool:
        """Say in one line how we are."""
        return self._tell(f"STATUS={_line(text)}")

    def alive(self) -> bool:
        """Ping the watchdog."""
        return self._tell("WATCHDOG=1")

    def reloading(self) -> bool:
        """Say that the configuration is read again; `ready` ends it."""
        # The instant is what Type=notify-reload (systemd 253) compares with its signal.
        return self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> bool:
        """Say that we end."""
        return self._tell("STOPPING=1", f"STATUS={_line(status)}")

    def _tell(self, *lines: str) -> bool:
        if self._address is None:
            return True
        # `@` is how a name in the abstract namespace is written (unix(7)).
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto("\n".join(lines).encode(), address)
        except OSError as exc:
            log.debug("service manager not told %s: %s", lines[0], exc)
            return False
        return True


def _line(text: str) -> str:
    """Return `text` as one line: a line break would begin another assignment."""
    return " ".join(text.split())
