"""The SSH port: what the job layer needs of one connection, free of any SSH library.

Rules
1. Everything is bytes: what a machine prints is data, not text we trust.
2. Output is capped where it is read; the rest is drained and counted as truncated.
3. Cancelling a call closes its channel, not the connection. The remote command is told to
   end, but sshd passes that on for nobody who logs in as root: a command that may hang brings
   its own limit (`jobs.remote_shell.bounded`).
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from vastd.jobs.port import Endpoint


class CommandResult(Struct, frozen=True, kw_only=True):
    """How one remote command ended. `exit_code` is 128 + n when signal n ended it."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False


class SshProcess(Protocol):
    """A running remote command with open streams."""

    async def send(self, data: bytes) -> None:
        """Write to its input, waiting while the far side is slow.

        Raises:
            SshError: the way broke.
        """
        ...

    async def send_eof(self) -> None:
        """Close its input."""
        ...

    async def receive(self, limit: int) -> bytes:
        """Return up to `limit` bytes of its output; empty at the end."""
        ...

    async def wait(self) -> int:
        """Wait for the end and return the exit code.

        Raises:
            SshError: the way broke first, or no code came.
        """
        ...


class Upload(Struct, frozen=True, kw_only=True):
    """A local file to send, from byte `offset` on, into `partial`, which becomes `target`."""

    source: Path
    partial: bytes
    target: bytes
    offset: int  # what `partial` holds already; it is cut there first
    mode: int  # permission bits
    mtime: float


class SftpFiles(Protocol):
    """Files on the machine. Paths are absolute bytes.

    Every method raises `SshError` when the way broke and `TransferFailed` when one of both
    sides refused (no space, no permission).
    """

    async def size(self, path: bytes) -> int | None:
        """Return the size of a regular file, or None if there is none."""
        ...

    async def upload(self, order: Upload, progress: Callable[[int], None]) -> None:
        """Write one file; it appears under its name when it is whole.

        `progress` gets the number of new bytes of each chunk.
        """
        ...

    async def download(
        self, source: bytes, target: Path, offset: int, progress: Callable[[int], None]
    ) -> None:
        """Append `source` from byte `offset` on to `target`, which has `offset` bytes."""
        ...


class SshConnection(Protocol):
    """An open connection to one machine, shared by many tasks."""

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def is_open(self) -> bool: ...

    async def run(
        self, command: str, *, stdin: bytes = b"", timeout_s: float, limit_bytes: int
    ) -> CommandResult:
        """Run one command through the login shell, to its end.

        Raises:
            SshTimeout: not finished in time; it may still run.
            SshClosed: the way broke: unknown whether it ran.
        """
        ...

    def open_process(
        self, command: str, *, terminal: bool = False
    ) -> AbstractAsyncContextManager[SshProcess]:
        """Start a command with open streams, on a terminal if asked; leaving ends it."""
        ...

    def open_sftp(self) -> AbstractAsyncContextManager[SftpFiles]:
        """Open the machine's file service."""
        ...

    async def close(self) -> None:
        """Close the connection and everything that runs over it. Repeatable."""
        ...


class SshDialer(Protocol):
    """Makes connections."""

    async def connect(self, endpoint: Endpoint, instance_id: int) -> SshConnection:
        """Log in at one address, once.

        Raises:
            SshRefused: nobody listens there (yet).
            SshTimeout: no answer in time.
            SshClosed: the peer hung up or does not speak SSH.
            SshAuthRejected: our key is not accepted.
            SshHostKeyChanged: not the machine we knew under this id.
        """
        ...
