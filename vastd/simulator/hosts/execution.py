"""One command of one SSH channel: its process, and the bytes between the two.

Rules
1. Memory is bounded both ways: a full send window stops us reading the process, a process that
   does not read stops the channel.
2. As with OpenSSH, the channel ends when the process has ended *and* its output is closed; on a
   terminal, when the process has ended.
3. A channel that goes away kills nothing: the process meets end of file, a broken pipe or, on a
   terminal, a hang-up.
"""

import fcntl
import os
import signal
import struct
import subprocess
import termios
from collections import deque
from contextlib import suppress
from typing import Final, Protocol

import trio
from msgspec import Struct

from vastd.simulator.hosts.processes import signal_group, wait_for_exit
from vastd.simulator.hosts.sandbox import OUTSIDE_ENV, Sandbox

CHUNK_BYTES: Final = 65_536
INPUT_HIGH_BYTES: Final = 262_144  # more than this waiting for the process stops the channel
INPUT_LOW_BYTES: Final = 65_536
SSH_EXTENDED_DATA_STDERR: Final = 1  # RFC 4254, 5.2
TIOCSPTLCK: Final = 0x40045431  # linux, asm-generic/ioctls.h: unlock the other end
TIOCGPTPEER: Final = 0x5441  # linux, asm-generic/ioctls.h: open the other end, by descriptor


class Channel(Protocol):
    """What an execution needs of an SSH channel. Every call returns at once."""

    def write(self, data: bytes, datatype: int | None = None) -> None: ...
    def write_eof(self) -> None: ...
    def exit(self, status: int) -> None: ...
    def exit_with_signal(self, signal: str) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Terminal(Struct, frozen=True, kw_only=True):
    """The terminal a client asked for."""

    kind: str
    columns: int
    rows: int


class Execution:
    """A process in an instance, wired to a channel. `run` must be awaited exactly once."""

    def __init__(
        self,
        sandbox: Sandbox,
        channel: Channel,
        session: list[str],
        settings: dict[str, str],
        terminal: Terminal | None,
    ) -> None:
        """Start the process.

        Raises:
            OSError, SandboxFailed: it could not be started.
        """
        self._sandbox = sandbox
        self._channel = channel
        self._connected = True
        self._input: deque[bytes] = deque()
        self._input_bytes = 0
        self._input_ended = False
        self._input_paused = False
        self._input_news = trio.Event()
        self._may_write = trio.Event()
        self._may_write.set()
        self._tty = terminal is not None
        if terminal is not None:
            self._stdin, self._process = self._start_on_terminal(
                sandbox, session, settings, terminal
            )
            self._outputs: list[tuple[int, int | None]] = [(os.dup(self._stdin), None)]
        else:
            self._stdin, self._outputs, self._process = self._start_on_pipes(
                sandbox, session, settings
            )
        for descriptor in (self._stdin, *(fd for fd, _ in self._outputs)):
            os.set_blocking(descriptor, False)

    @staticmethod
    def _start_on_pipes(
        sandbox: Sandbox, session: list[str], settings: dict[str, str]
    ) -> tuple[int, list[tuple[int, int | None]], subprocess.Popen[bytes]]:
        theirs: list[int] = []
        ours: list[int] = []
        try:
            for is_input in (True, False, False):
                read_end, write_end = os.pipe()
                theirs.append(read_end if is_input else write_end)
                ours.append(write_end if is_input else read_end)
            process = subprocess.Popen(
                sandbox.argv(session, settings, tty=False),
                stdin=theirs[0], stdout=theirs[1], stderr=theirs[2], env=OUTSIDE_ENV, cwd="/",
            )  # fmt: skip
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        return ours[0], [(ours[1], None), (ours[2], SSH_EXTENDED_DATA_STDERR)], process

    @staticmethod
    def _start_on_terminal(
        sandbox: Sandbox, session: list[str], settings: dict[str, str], terminal: Terminal
    ) -> tuple[int, subprocess.Popen[bytes]]:
        master = sandbox.open_pty()
        slave = -1
        try:
            fcntl.ioctl(master, TIOCSPTLCK, struct.pack("i", 0))
            slave = fcntl.ioctl(master, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            _resize(master, terminal.columns, terminal.rows)
            process = subprocess.Popen(
                sandbox.argv(session, {**settings, "TERM": terminal.kind}, tty=True),
                stdin=slave, stdout=slave, stderr=slave, env=OUTSIDE_ENV, cwd="/",
            )  # fmt: skip
        except BaseException:
            os.close(master)
            raise
        finally:
            if slave >= 0:
                os.close(slave)
        return master, process

    # -- what the channel tells us; called between two steps of any task -------------------

    def data_received(self, data: bytes) -> None:
        if self._stdin < 0:
            return  # nobody reads it; keep the channel flowing
        self._input.append(data)
        self._input_bytes += len(data)
        self._input_news.set()
        if self._input_bytes > INPUT_HIGH_BYTES and not self._input_paused:
            self._input_paused = True
            self._channel.pause_reading()

    def eof_received(self) -> None:
        self._input_ended = True
        self._input_news.set()

    def pause_writing(self) -> None:
        self._may_write = trio.Event()

    def resume_writing(self) -> None:
        self._may_write.set()

    def resize(self, columns: int, rows: int) -> None:
        if self._tty and self._stdin >= 0:
            _resize(self._stdin, columns, rows)

    def signal(self, name: str) -> None:
        """Send a signal by its RFC 4254 name ("TERM") to the command's process group."""
        number = getattr(signal, f"SIG{name}", None)
        leader = self._sandbox.leader_of(self._process.pid)
        if isinstance(number, signal.Signals) and leader is not None:
            signal_group(leader, number)

    def connection_lost(self) -> None:
        self._connected = False
        self._close_input()
        for descriptor, _ in self._outputs:
            trio.lowlevel.notify_closing(descriptor)
        self._may_write.set()

    # -- the tasks -----------------------------------------------------------------------

    async def run(self) -> None:
        """Carry bytes until the process has ended, then tell the channel how."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._feed)
                async with trio.open_nursery() as readers:
                    for descriptor, datatype in self._outputs:
                        readers.start_soon(self._drain, descriptor, datatype)
                    code = await wait_for_exit(self._process)
                    if self._tty:
                        readers.cancel_scope.cancel()
                nursery.cancel_scope.cancel()
            if self._tty:
                self._drain_rest()
            self._report(code)
        finally:
            self._close()

    def _report(self, code: int) -> None:
        with suppress(OSError):  # the channel may have closed a moment ago
            if not self._connected:
                return
            if code < 0:
                self._channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
            else:
                self._channel.exit(code)

    async def _feed(self) -> None:
        """Carry the channel's data to the process, in order, until one of them ends."""
        while True:
            while not self._input:
                if self._input_ended:
                    # A terminal stays open for its output.
                    if not self._tty:
                        self._close_input()
                    return
                self._input_news = trio.Event()
                await self._input_news.wait()
            data = self._input.popleft()
            if not await self._feed_all(data):
                self._close_input()
                return
            self._input_bytes -= len(data)
            if self._input_bytes < INPUT_LOW_BYTES:
                self._resume_reading()

    async def _feed_all(self, data: bytes) -> bool:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                with suppress(trio.ClosedResourceError):
                    await trio.lowlevel.wait_writable(self._stdin)
            except OSError:  # the process closed its input, or we did
                return False
        return True

    def _close_input(self) -> None:
        if self._stdin >= 0:
            trio.lowlevel.notify_closing(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
        self._input.clear()
        self._input_bytes = 0
        self._input_ended = True
        self._input_news.set()
        self._resume_reading()

    def _resume_reading(self) -> None:
        if self._input_paused and self._connected:
            self._input_paused = False
            self._channel.resume_reading()

    async def _drain(self, descriptor: int, datatype: int | None) -> None:
        """Carry output to the channel until it ends or the channel is gone."""
        while self._connected:
            await self._may_write.wait()
            with suppress(trio.ClosedResourceError):
                await trio.lowlevel.wait_readable(descriptor)
            if not self._connected or not self._pass_on(descriptor, datatype):
                break
        self._close_output(descriptor)

    def _pass_on(self, descriptor: int, datatype: int | None) -> bool:
        try:
            data = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:  # EIO: the last holder of the terminal is gone
            return False
        if data:
            with suppress(OSError):  # closing: connection_lost is on its way
                self._channel.write(data, datatype)
        return bool(data)

    def _drain_rest(self) -> None:
        """Pass on what a terminal still holds after its process ended."""
        for descriptor, _ in self._outputs:
            with suppress(OSError):  # nothing more, or the terminal hung up
                while self._connected and (data := os.read(descriptor, CHUNK_BYTES)):
                    self._channel.write(data)

    def _close_output(self, descriptor: int) -> None:
        self._outputs = [(fd, kind) for fd, kind in self._outputs if fd != descriptor]
        os.close(descriptor)

    def _close(self) -> None:
        for descriptor, _ in list(self._outputs):
            self._close_output(descriptor)
        self._connected = False
        self._close_input()
        if self._process.poll() is None:
            # Cancelled: the instance is being ended, this process only waits for it.
            self._process.kill()
            self._process.wait()


def _resize(master: int, columns: int, rows: int) -> None:
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
