"""Calls on the socket in all three framings, beside a bare trio echo; notifications per second."""

import base64
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import Row
from bench.timing import in_turn
from support.builders import a_rental
from support.installed import Installed, installed
from vastd.core import events as ev
from vastd.core.rental import Phase
from vastd.store.store import opened
from vastd_protocol import envelope

LIMIT = 2.0  # DESIGN 5: at least half as fast
BODY = b'{"jsonrpc":"2.0","id":1,"method":"daemon.status"}'
ECHO = """\
import sys, trio
reply = bytes.fromhex(sys.argv[2])
async def serve(stream):
    async for _ in stream:
        await stream.send_all(reply)
async def main():
    sock = trio.socket.socket(trio.socket.AF_UNIX)
    await sock.bind(sys.argv[1])
    sock.listen()
    print(flush=True)
    await trio.serve_listeners(serve, [trio.SocketListener(sock)])
trio.run(main)
"""
WEBSOCKET_ECHO = """\
import sys, trio
from trio_websocket import ConnectionClosed, wrap_server_stream
reply = bytes.fromhex(sys.argv[2]).decode()
async def serve(stream):
    async with trio.open_nursery() as nursery:
        socket = await (await wrap_server_stream(nursery, stream)).accept()
        try:
            while True:
                await socket.get_message()
                await socket.send_message(reply)
        except ConnectionClosed:
            nursery.cancel_scope.cancel()
async def main():
    sock = trio.socket.socket(trio.socket.AF_UNIX)
    await sock.bind(sys.argv[1])
    sock.listen()
    print(flush=True)
    await trio.serve_listeners(serve, [trio.SocketListener(sock)])
trio.run(main)
"""
FRAMINGS: dict[str, Callable[[bytes], bytes]] = {
    "lines": lambda body: body + b"\n",
    "headers": lambda body: b"Content-Length: %d\r\n\r\n%s" % (len(body), body),
    "WebSocket": lambda body: _masked(body),
}
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: vastd\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n"
)


def measure(*, quick: bool) -> list[Row]:
    """Return one row for each framing, and the rate of notifications."""
    calls, runs = (200, 1) if quick else (2000, 7)
    rows = []
    with installed() as vast:
        vast.start()
        for name, frame in FRAMINGS.items():
            path = str(vast.socket)
            message = frame(BODY)
            reply = Client(path, name).call(message)
            websocket = name == "WebSocket"
            text = reply[4:] if websocket else reply  # behind a header for up to 65,535 bytes
            with _echo(vast.root / f"echo-{name}", text, websocket=websocket) as peer:
                spoken = name if websocket else ""
                ours, floor = in_turn(
                    lambda: Client(path, name).time_ms(message, calls),  # noqa: B023 - used here
                    lambda: Client(peer, spoken).time_ms(message, calls),  # noqa: B023
                    runs=runs,
                )
            rows.append(
                Row(
                    what=f"RPC round trip, {name}",
                    ours=ours,
                    peer=floor,
                    peer_what="bare trio-websocket echo" if websocket else "bare trio echo",
                    limit=LIMIT,
                )
            )
        rows.append(_notifications(vast, 200 if quick else 3000))
    return rows


class Client:
    """A raw client that waits for each answer; all answers to one message are equally long."""

    def __init__(self, path: str, framing: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._size = 0  # of an answer; 0 until the first
        if framing == "WebSocket":
            self._socket.sendall(UPGRADE % base64.b64encode(os.urandom(16)))
            while b"\r\n\r\n" not in self._socket.recv(65536):
                pass

    def call(self, message: bytes) -> bytes:
        """Return the answer to one message."""
        self._socket.sendall(message)
        answer = self._socket.recv(65536)
        while len(answer) < self._size:
            answer += self._socket.recv(65536)
        return answer

    def time_ms(self, message: bytes, count: int) -> float:
        """Return the milliseconds a call takes, on average over `count`; closes the connection."""
        self._size = len(self.call(message))
        began = time.perf_counter()
        for _ in range(count):
            self.call(message)
        spent = time.perf_counter() - began
        self._socket.close()
        return spent * 1e3 / count


def _masked(body: bytes) -> bytes:
    """Return a client's text frame (RFC 6455, 5.2); a mask of zeros leaves the text as it is."""
    assert len(body) < 126
    return bytes((0x81, 0x80 | len(body))) + bytes(4) + body


@contextmanager
def _echo(path: Path, reply: bytes, *, websocket: bool) -> Iterator[str]:
    code = WEBSOCKET_ECHO if websocket else ECHO
    argv = [sys.executable, "-c", code, str(path), reply.hex()]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as peer:
        assert peer.stdout is not None
        peer.stdout.readline()
        try:
            yield str(path)
        finally:
            peer.kill()


def _notifications(vast: Installed, count: int) -> Row:
    """Have `count` stored events sent to a new subscriber, and count how fast they come."""
    vast.stop()
    now = time.time()
    events = [
        ev.Warned(rental_id="r000000", at=now, watchdog="bench", why=f"number {n}")
        for n in range(count)
    ]
    with opened(vast.state) as store:
        store.write(events, [a_rental(Phase.GONE, rental_id="r000000")], [])
    vast.start()
    subscribe = envelope.request(1, "event.subscribe", b'{"after":0}') + b"\n"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(vast.socket))
        client.sendall(subscribe)
        began, seen = time.perf_counter(), -1  # the first line is the answer
        while seen < count:
            seen += client.recv(65536).count(b"\n")
        rate = count / (time.perf_counter() - began)
    return Row(what="notifications to one subscriber, from the store", ours=rate, unit="per s")
