"""A real HTTP server on loopback whose every move a test decides, down to a reset."""

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import h11
import trio
from msgspec import Struct


class Arrived(Struct, frozen=True):
    """One request that came in completely."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Behaviour = Callable[[trio.SocketStream, Arrived], Awaitable[None]]


class LoopbackServer:
    """What came in, and where the server is."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.arrived: list[Arrived] = []
        self.first_arrived = trio.Event()
        self.connections = 0


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[LoopbackServer]:
    """Serve with `behaviour`: it gets the raw stream and one complete request per connection."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = LoopbackServer(listener.socket.getsockname()[1])

    async def one(stream: trio.SocketStream) -> None:
        server.connections += 1
        async with stream:
            try:
                arrived = await _receive(stream)
            except (h11.RemoteProtocolError, trio.BrokenResourceError):
                arrived = None  # not HTTP, or gone before the request was complete
            if arrived is not None:
                server.arrived.append(arrived)
                server.first_arrived.set()
                await behaviour(stream, arrived)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, one, [listener])
        yield server
        nursery.cancel_scope.cancel()


async def _receive(stream: trio.SocketStream) -> Arrived | None:
    connection = h11.Connection(h11.SERVER)
    head: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        match event:
            case h11.NEED_DATA:
                connection.receive_data(await stream.receive_some())
            case h11.Request():
                head = event
            case h11.Data():
                body += bytes(event.data)
            case h11.EndOfMessage() if head is not None:
                return Arrived(
                    head.method.decode(),
                    head.target.decode(),
                    {name.decode(): value.decode() for name, value in head.headers},
                    body,
                )
            case _:
                return None


def http(status: int, body: bytes = b"", **headers: str) -> bytes:
    """Return a complete answer; header names are written with underscores."""
    lines = [f"HTTP/1.1 {status} Scripted", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def saying(data: bytes) -> Behaviour:
    """Send `data` and close in good order."""

    async def behave(stream: trio.SocketStream, _arrived: Arrived) -> None:
        await stream.send_all(data)

    return behave


def resetting_after(data: bytes) -> Behaviour:
    """Send `data`, then break the connection with a RST."""

    async def behave(stream: trio.SocketStream, _arrived: Arrived) -> None:
        await stream.send_all(data)
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return behave


def silent_after(data: bytes) -> Behaviour:
    """Send `data` and hold the line for ever."""

    async def behave(stream: trio.SocketStream, _arrived: Arrived) -> None:
        await stream.send_all(data)
        await trio.sleep_forever()

    return behave
