"""How messages travel on one connection, and which of the three ways a client chose (DESIGN D5).

The first bytes decide: `{` or `[` is one JSON object per line, `GET ` a WebSocket, anything
else `Content-Length` headers.
"""

from typing import Final, Protocol

from vastd.rpc.stream import RECEIVE_BYTES, ClientStream
from vastd_protocol import framing
from vastd_protocol.framing import Decoder

_UPGRADE: Final = b"GET "


class Transport(Protocol):
    """Whole message bodies in and out."""

    @property
    def unsent(self) -> bool:
        """Return whether a part of a message that `send_now` took is still to be sent."""
        ...

    async def receive(self) -> list[bytes]:
        """Return the next bodies; none when the client sends no more.

        Raises:
            FramingError: the rest of the connection cannot be read; answers still can be sent.
            BrokenResourceError, ClosedResourceError: the connection is gone.
        """
        ...

    def send_now(self, body: bytes) -> bool:
        """Take `body` if its beginning can be written at once; False: nothing was done."""
        ...

    async def send(self, bodies: list[bytes]) -> None:
        """Write what is unsent, then `bodies`.

        Raises:
            BrokenResourceError, ClosedResourceError: the connection is gone.
        """
        ...

    async def wait_hangup(self) -> None:
        """Return, once `receive` came to the end, when the client cannot read any more either."""
        ...


class FramedTransport:
    """Headers or lines on a byte stream."""

    def __init__(self, stream: ClientStream) -> None:
        self._stream = stream
        self._decoder = Decoder()
        self._rest = b""

    @property
    def unsent(self) -> bool:
        """Return whether a message was sent in part."""
        return bool(self._rest)

    async def receive(self) -> list[bytes]:
        """Return the next bodies; none at the end."""
        while data := await self._stream.receive_some(RECEIVE_BYTES):
            if bodies := self._decoder.feed(data):
                return bodies
        return self._decoder.finish()

    def send_now(self, body: bytes) -> bool:
        """Take `body` if the kernel takes its beginning."""
        if self._rest:
            return False
        data = self._frame(body)
        taken = self._stream.send_now(data)
        if taken == 0:
            return False
        self._rest = data[taken:]
        return True

    async def send(self, bodies: list[bytes]) -> None:
        """Write the rest of a message sent in part, then `bodies`, in one go."""
        data = self._rest + b"".join(map(self._frame, bodies))
        self._rest = b""
        await self._stream.send_all(data)

    async def wait_hangup(self) -> None:
        """Return when the client has closed both directions."""
        await self._stream.wait_hangup()

    def _frame(self, body: bytes) -> bytes:
        return framing.line(body) if self._decoder.lines else framing.frame(body)


async def wants_websocket(stream: ClientStream) -> bool:
    """Read as far as needed to know whether the client asks for a WebSocket; loses no byte.

    Raises:
        BrokenResourceError: the connection is gone.
    """
    head = b""
    while len(head) < len(_UPGRADE) and _UPGRADE.startswith(head):
        data = await stream.receive_some(RECEIVE_BYTES)
        if not data:
            break
        head += data
    stream.push_back(head)
    return head.startswith(_UPGRADE)
