"""WebSocket clients: the upgrade, and one message per frame (trio-websocket).

The library's reader raises through its nursery when a peer vanishes at a bad moment
(trio-websocket 23, 96, 184, 187), so the nursery given here is the connection's own, and
`connection.serve` turns whatever comes out of it into the end of that one connection.
"""

import logging
from collections.abc import Collection
from typing import Final

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

from vastd.rpc.stream import RECEIVE_BYTES, ClientStream
from vastd_protocol.framing import MAX_FRAME_BYTES, FramingError

HANDSHAKE_S: Final = 10.0  # guess; the request is one local packet
CLOSE_S: Final = 2.0  # guess; a browser answers a close frame within milliseconds

logger = logging.getLogger(__name__)


class WebSocketTransport:
    """Messages on an accepted WebSocket."""

    def __init__(self, socket: WebSocketConnection, stream: ClientStream) -> None:
        self._socket = socket
        self._stream = stream

    @property
    def unsent(self) -> bool:
        """Return False: nothing is ever sent in part."""
        return False

    async def receive(self) -> list[bytes]:
        """Return the next message; none when the client closed."""
        try:
            message = await self._socket.get_message()
        except (ConnectionClosed, trio.ClosedResourceError):
            return []
        body = message.encode() if isinstance(message, str) else message
        # The library counts characters of a text message, the contract counts bytes.
        if len(body) > MAX_FRAME_BYTES:
            raise FramingError(f"a message of {len(body)} bytes, over {MAX_FRAME_BYTES}")
        return [body]

    def send_now(self, body: bytes) -> bool:
        """Return False: frames are written under the library's own lock."""
        return False

    async def send(self, bodies: list[bytes]) -> None:
        """Write `bodies`, one text frame each."""
        for body in bodies:
            try:
                await self._socket.send_message(body.decode())
            except ConnectionClosed as exc:
                raise trio.BrokenResourceError("the WebSocket is closed") from exc

    async def wait_hangup(self) -> None:
        """Return when the stream ended: a WebSocket is never closed in one direction only."""
        await self._stream.ended.wait()

    async def aclose(self) -> None:
        """Say goodbye, within `CLOSE_S` even while being cancelled."""
        with trio.move_on_after(CLOSE_S, shield=True):
            await self._socket.aclose()


async def accept(
    nursery: trio.Nursery, stream: ClientStream, origins: Collection[str]
) -> WebSocketTransport | None:
    """Answer the upgrade; None if it was refused or never completed.

    A page in a browser sends `Origin`: it must be one the user listed, or any web site could
    talk to the daemon through the user's browser. Programs send none.
    """
    with trio.move_on_after(HANDSHAKE_S) as scope:
        nursery.start_soon(_cancel_at_end, stream, scope)
        request = await wrap_server_stream(
            nursery,
            stream,
            max_message_size=MAX_FRAME_BYTES,
            receive_buffer_size=RECEIVE_BYTES,
        )
        origin = _origin(request.headers)
        if origin is not None and origin not in origins:
            logger.warning("websocket refused origin=%r", origin)
            await request.reject(403, body=b"this origin is not listed in [websocket] origins\n")
            return None
        return WebSocketTransport(await request.accept(), stream)
    return None


def peer_left(exc: Exception) -> bool:
    """Return whether `exc` says only that the other end had gone before it was answered.

    The library's reader raises that through the nursery when it refuses a request (any plain
    `GET`) of a client that does not wait for the answer.
    """
    if isinstance(exc, ExceptionGroup):
        return exc.split(ConnectionClosed)[1] is None
    return isinstance(exc, ConnectionClosed)


async def _cancel_at_end(stream: ClientStream, scope: trio.CancelScope) -> None:
    # Without a complete request the library waits for ever, also when the peer has left.
    await stream.ended.wait()
    scope.cancel()


def _origin(headers: list[tuple[bytes, bytes]]) -> str | None:
    found = (value for name, value in headers if name.lower() == b"origin")
    value = next(found, None)
    return None if value is None else value.decode("latin-1")
