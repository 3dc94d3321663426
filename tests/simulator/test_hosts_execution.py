"""Bytes between a channel and a process: bounded both ways, whole, and ended as OpenSSH ends them."""

import signal
from collections.abc import Mapping, Sequence

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from vastd.simulator.hosts.execution import CHUNK_BYTES, INPUT_HIGH_BYTES, Execution

pytestmark = pytest.mark.sim

WINDOW_BYTES = 1_000_000
LIMIT_S = 20.0


class BareSandbox:
    """Runs the command right here."""

    running = True

    async def start(self, env: Mapping[str, str], *, disk_full: bool = False) -> None: ...

    def argv(self, session: Sequence[str], settings: Mapping[str, str], *, tty: bool) -> list[str]:
        return ["setsid", "/bin/sh", "-c", session[0]]

    def open_pty(self) -> int:
        raise OSError("no terminals here")

    def leader_of(self, pid: int) -> int | None:
        return pid

    async def stop(self) -> None: ...


class Window:
    """A channel whose client reads nothing until `open` is called."""

    def __init__(self, *, closed_after: int = 1 << 60) -> None:
        self.received = {None: 0, 1: 0}
        self.execution: Execution | None = None
        self.reading_paused = False
        self.ended: int | str | None = None
        self._closed_after = closed_after

    def write(self, data: bytes, datatype: int | None = None) -> None:
        self.received[datatype] += len(data)
        assert self.execution is not None
        if sum(self.received.values()) >= self._closed_after:
            self.execution.pause_writing()

    def open(self) -> None:
        assert self.execution is not None
        self._closed_after = 1 << 60
        self.execution.resume_writing()

    def write_eof(self) -> None: ...

    def exit(self, status: int) -> None:
        self.ended = status

    def exit_with_signal(self, signal: str) -> None:
        self.ended = signal

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False


def begin(window: Window, command: str) -> Execution:
    execution = Execution(BareSandbox(), window, [command], {}, None)
    window.execution = execution
    return execution


async def test_a_full_window_stops_reading_the_process() -> None:
    window = Window(closed_after=WINDOW_BYTES)
    execution = begin(window, "head -c 20000000 /dev/zero")

    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(execution.run)
            while window.received[None] < WINDOW_BYTES:
                await trio.lowlevel.checkpoint()
            await wait_all_tasks_blocked(0.05)
            held = window.received[None]
            window.open()

    assert held < WINDOW_BYTES + 2 * CHUNK_BYTES
    assert window.received[None] == 20_000_000
    assert window.ended == 0


async def test_a_process_that_does_not_read_stops_the_channel() -> None:
    window = Window()
    execution = begin(window, "read line; wc -c")
    data = b"x" * CHUNK_BYTES

    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(execution.run)
            sent = 0
            while not window.reading_paused:
                execution.data_received(data)
                sent += len(data)
            stopped_at = sent
            # The line it waits for comes last, so everything before it must have been held.
            execution.data_received(b"\nrest")
            execution.eof_received()

    assert INPUT_HIGH_BYTES < stopped_at <= INPUT_HIGH_BYTES + CHUNK_BYTES
    assert not window.reading_paused
    assert window.ended == 0


async def test_the_channel_ends_only_when_the_output_is_closed_too() -> None:
    window = Window()
    execution = begin(window, "exec 3<&0; (read x <&3; echo late) & exec true")

    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(execution.run)
            await wait_all_tasks_blocked(0.05)
            early = window.ended
            execution.eof_received()

    assert early is None
    assert window.received == {None: len("late\n"), 1: 0}
    assert window.ended == 0


async def test_a_signal_reaches_the_group_and_its_death_is_told() -> None:
    window = Window()
    execution = begin(window, "echo up; sleep 60")

    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(execution.run)
            while not window.received[None]:
                await trio.lowlevel.checkpoint()
            execution.signal("NONSENSE")
            execution.signal("TERM")

    assert window.ended == signal.SIGTERM.name.removeprefix("SIG")


async def test_a_cancelled_execution_leaves_no_child() -> None:
    window = Window()
    execution = begin(window, "sleep 60")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(execution.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert execution._process.returncode == -signal.SIGKILL
    assert window.ended is None
