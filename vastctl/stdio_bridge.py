"""`rpc --stdio`: the bytes of stdin to the daemon's socket and back, in whatever framing they are.

Rules
1. Nothing is read, changed or waited for: what can be written now is written now.
2. Neither side is read while much of it waits for a slow other one.
3. stdin at its end closes only that half: answers still come. The rest ends with the daemon, or
   when nobody reads stdout any more.
"""

import os
import select
import socket
from typing import Final

PIECE_BYTES: Final = 65_536  # a pipe's whole buffer on Linux
HELD_BYTES: Final = 262_144  # guess: a few pieces; more only hides a slow reader
# A pipe that poll calls writable takes so much without blocking (POSIX). Making stdout itself
# non-blocking would do so for everybody who shares it, such as the shell that started us.
WRITE_BYTES: Final = select.PIPE_BUF

_READABLE: Final = select.POLLIN | select.POLLHUP | select.POLLERR
_BROKEN: Final = select.POLLERR | select.POLLNVAL


class StdioBridge:
    """One bridge between two descriptors and a connected socket."""

    def __init__(self, source: int, sink: int, connected: socket.socket) -> None:
        self._source = source
        self._sink = sink
        self._socket = connected
        self._to_daemon = bytearray()
        self._to_sink = bytearray()
        self._source_open = True
        self._half_closed = False
        self._daemon_open = True

    def run(self) -> bool:
        """Carry bytes until one side ends; return whether it was the client who ended.

        False means that the daemon closed the connection while the client was still there.
        """
        self._socket.setblocking(False)
        while self._daemon_open or self._to_sink:
            ready = self._wait()
            if ready.get(self._sink, 0) & (_BROKEN | select.POLLHUP):
                return True  # nobody reads any more
            if ready.get(self._source, 0) & (_READABLE | select.POLLNVAL):
                self._read_source()
            if ready.get(self._socket.fileno(), 0):
                self._serve_socket(ready[self._socket.fileno()])
            if ready.get(self._sink, 0) & select.POLLOUT and not self._write_sink():
                return True
        return not self._source_open

    def _wait(self) -> dict[int, int]:
        wanted = select.poll()
        if self._source_open and self._daemon_open and len(self._to_daemon) < HELD_BYTES:
            wanted.register(self._source, select.POLLIN)
        if self._daemon_open:
            events = select.POLLIN if len(self._to_sink) < HELD_BYTES else 0
            events |= select.POLLOUT if self._to_daemon else 0
            if events:  # a daemon that hung up would be reported without end
                wanted.register(self._socket, events)
        # Without events a closed reader still shows, as an error.
        wanted.register(self._sink, select.POLLOUT if self._to_sink else 0)
        ready: dict[int, int] = {}
        for handle, events in wanted.poll():
            ready[handle] = ready.get(handle, 0) | events  # stdin and stdout may be one terminal
        return ready

    def _read_source(self) -> None:
        try:
            data = os.read(self._source, PIECE_BYTES)
        except OSError:
            data = b""  # a terminal that is gone
        self._to_daemon += data
        self._source_open = bool(data)
        self._finish_writing()

    def _serve_socket(self, events: int) -> None:
        try:
            if self._to_daemon and events & select.POLLOUT:
                sent = self._socket.send(self._to_daemon)
                del self._to_daemon[:sent]
                self._finish_writing()
            if events & _READABLE and len(self._to_sink) < HELD_BYTES:
                data = self._socket.recv(PIECE_BYTES)
                self._to_sink += data
                self._daemon_open = bool(data)
        except BlockingIOError:
            return
        except OSError:
            self._daemon_open = False

    def _finish_writing(self) -> None:
        if self._source_open or self._to_daemon or self._half_closed or not self._daemon_open:
            return
        self._half_closed = True
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._daemon_open = False

    def _write_sink(self) -> bool:
        try:
            written = os.write(self._sink, self._to_sink[:WRITE_BYTES])
        except BlockingIOError:
            return True  # whoever started us made it non-blocking
        except OSError:
            return False
        del self._to_sink[:written]
        return True
