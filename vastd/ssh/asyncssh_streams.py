"""One remote command over asyncssh: its collected output, or its open streams."""

import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Final

import asyncssh
import trio
from asyncssh.channel import SSHChannel

from vastd.errors import SshClosed
from vastd.ssh.port import CommandResult

_SIGNALS: Final = {"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "SEGV": 11, "TERM": 15}


class Capture(asyncssh.SSHClientSession[bytes]):
    """Collects a command's output up to a limit and drains the rest."""

    def __init__(self, limit_bytes: int) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.truncated = False
        self.exit_code: int | None = None
        self.error: Exception | None = None
        self.ended = trio.Event()
        self._limit_bytes = limit_bytes

    def result(self) -> CommandResult:
        """Return how the command ended; raises what asyncssh raised if the way broke."""
        if self.error is not None:
            raise self.error
        if self.exit_code is None:
            raise asyncssh.ConnectionLost("a command ended without an exit code")
        return CommandResult(
            exit_code=self.exit_code,
            stdout=bytes(self.stdout),
            stderr=bytes(self.stderr),
            truncated=self.truncated,
        )

    def data_received(self, data: bytes, datatype: int | None) -> None:
        kept = self.stderr if datatype == asyncssh.EXTENDED_DATA_STDERR else self.stdout
        room = self._limit_bytes - len(kept)
        kept += data[:room] if room > 0 else b""
        self.truncated = self.truncated or len(data) > room

    def exit_status_received(self, status: int) -> None:
        self.exit_code = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.exit_code = 128 + _SIGNALS.get(signal, 127)

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.ended.set()


class Process:
    """A running command; `cross` runs a coroutine in asyncssh's loop."""

    def __init__(
        self,
        cross: Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]],
        writer: asyncssh.SSHWriter[bytes],
        reader: asyncssh.SSHReader[bytes],
        translated: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._cross = cross
        self._writer = writer
        self._reader = reader
        self._translated = translated

    async def send(self, data: bytes) -> None:
        with self._translated():
            self._writer.write(data)
            await self._cross(self._writer.drain())

    async def send_eof(self) -> None:
        with self._translated():
            self._writer.write_eof()
        await trio.lowlevel.checkpoint()

    async def receive(self, limit: int) -> bytes:
        with self._translated():
            data: bytes = await self._cross(self._reader.read(limit))
        return data

    async def wait(self) -> int:
        channel = self._writer.channel
        with self._translated():
            await self._cross(channel.wait_closed())
        code = channel.get_exit_status()  # type: ignore[attr-defined]  # a client channel has it
        if code is None:
            raise SshClosed("a command ended without an exit code")
        return int(code)


def end_channel(channel: SSHChannel[Any]) -> None:
    """Close a channel whose command may still run; the connection stays."""
    assert isinstance(channel, asyncssh.SSHClientChannel)
    with contextlib.suppress(OSError):
        channel.send_signal("TERM")
    channel.abort()
