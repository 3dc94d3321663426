"""One client's socket: bytes read ahead are given back, and writing shows how far it came."""

import os
import select
from collections.abc import Callable
from typing import Final

import trio

RECEIVE_BYTES: Final = 64 * 1024  # guess: one read takes a whole ordinary request
PIECE_BYTES: Final = 64 * 1024  # guess: below the 208 KiB a Unix socket buffers on Linux


def _nothing() -> None:
    pass


class ClientStream(trio.abc.Stream):
    """A connected socket. `progressed` is called whenever the peer took some bytes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._ahead = b""
        self.progressed: Callable[[], None] = _nothing
        self.ended: Final = trio.Event()  # the peer sends nothing more, or the stream is closed

    def push_back(self, data: bytes) -> None:
        """Have `receive_some` return `data` first."""
        self._ahead = data + self._ahead

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return some bytes; empty when the peer will send no more."""
        if self._ahead:
            await trio.lowlevel.checkpoint()
            data, self._ahead = (
                self._ahead[:max_bytes],
                self._ahead[max_bytes or len(self._ahead) :],
            )
            return data
        data = await self._read(max_bytes or RECEIVE_BYTES)
        if not data:
            self.ended.set()
        return data

    async def _read(self, max_bytes: int) -> bytes:
        """Wait first, then read: trying before, as trio does, fails whenever a client waits for
        its answer before it asks again, and costs a system call and an exception."""
        while (descriptor := self._stream.socket.fileno()) >= 0:
            await trio.lowlevel.wait_readable(descriptor)
            try:
                return os.read(descriptor, max_bytes)
            except BlockingIOError:
                continue  # epoll may wake for nothing (select(2), BUGS)
            except OSError as exc:
                raise trio.BrokenResourceError(f"socket broken: {exc.strerror}") from exc
        raise trio.ClosedResourceError("the socket is closed")

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`, piece by piece, so that a slow peer differs from a dead one."""
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            await self._stream.send_all(view[start : start + PIECE_BYTES])
            self.progressed()

    def send_now(self, data: bytes) -> int:
        """Return how many bytes the kernel takes at once; 0 also when the peer is gone.

        Saves the writer's task switch for the ordinary short answer (measured: 20 of 50 µs).
        """
        try:
            return os.write(self._stream.socket.fileno(), data)
        except OSError:
            return 0  # full, or broken: the writer's next send meets the reason

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the kernel would take some bytes."""
        await self._stream.wait_send_all_might_not_block()

    async def wait_hangup(self) -> None:
        """Return when the peer can neither send nor read any more.

        A peer that only closed its sending side (`nc -N`, `socat`) still waits for answers.
        Reading tells both alike as "end"; epoll reports the difference without being asked.
        Where there is no epoll this never returns, and writing finds out.
        """
        if not hasattr(select, "epoll"):
            await trio.sleep_forever()
        with select.epoll(1) as poller:
            poller.register(self._stream.socket.fileno(), 0)
            await trio.lowlevel.wait_readable(poller.fileno())

    async def aclose(self) -> None:
        """Close the socket."""
        self.ended.set()
        await self._stream.aclose()
