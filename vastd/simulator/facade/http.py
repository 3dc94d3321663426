"""HTTP/1.1 on a trio listener, with h11: requests in, replies out, and broken endings on demand.

Rules
1. A connection serves one request at a time and is kept open as HTTP/1.1 says.
2. A request that is no HTTP gets 400 once; what does not come at all gets nothing.
3. Bodies and headers are bounded; the bound is answered, not suffered.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio
from msgspec import Struct, field

LOG: Final = logging.getLogger(__name__)
BODY_LIMIT_BYTES: Final = 2_000_000  # guess; the largest real body is a create of some 40 kB
HEAD_LIMIT_BYTES: Final = 65_536
IDLE_LIMIT_S: Final = 120.0  # guess; the official client's own time-out (VAST_API 1.2)
CHUNK_BYTES: Final = 65_536
JSON: Final = "application/json"  # VAST_API 2.1: exactly this, without a charset


class Ending(StrEnum):
    """What becomes of the answer."""

    SENT = "sent"
    DROPPED = "dropped"  # the connection breaks instead


class Request(Struct, frozen=True, kw_only=True):
    """One request as it came. Header names are lower case."""

    method: str
    path: str  # percent-decoded, without the query
    query: dict[str, str] = field(default_factory=dict)  # the last one of a repeated name
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Reply(Struct, frozen=True, kw_only=True):
    """One answer."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    ending: Ending = Ending.SENT
    then: Callable[[], None] | None = None  # called once the answer is out


Handler = Callable[[Request], Awaitable[Reply]]


async def serve_connection(stream: trio.abc.Stream, handler: Handler) -> None:
    """Serve one client until it leaves, errs or falls silent."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT_BYTES)
    try:
        while True:
            with trio.move_on_after(IDLE_LIMIT_S) as idle:
                request = await _read_request(connection, stream)
            if idle.cancelled_caught or request is None:
                return
            reply = request if isinstance(request, Reply) else await handler(request)
            if reply.ending is Ending.DROPPED:
                return
            await _send(connection, stream, reply)
            if reply.then is not None:
                reply.then()
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return  # the client is gone; what it asked for has happened all the same
    except h11.RemoteProtocolError as exc:
        await _send_bad_request(connection, stream, exc)
    finally:
        await trio.aclose_forcefully(stream)


async def _read_request(
    connection: h11.Connection, stream: trio.abc.Stream
) -> Request | Reply | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        match event:
            case h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    await stream.send_all(connection.send(go_on) or b"")
                connection.receive_data(bytes(await stream.receive_some(CHUNK_BYTES)))
            case h11.Request():
                head = event
            case h11.Data():
                body += event.data
                if len(body) > BODY_LIMIT_BYTES:
                    return Reply(status=413, body=b'{"success":false,"error":"too_large"}')
            case h11.EndOfMessage():
                assert head is not None
                return _request(head, bytes(body))
            case _:  # ConnectionClosed
                return None


def _request(head: h11.Request, body: bytes) -> Request:
    target = urlsplit(head.target.decode("latin-1"))
    return Request(
        method=head.method.decode("latin-1").upper(),
        path=unquote(target.path),
        query=dict(parse_qsl(target.query, keep_blank_values=True)),
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers},
        body=body,
    )


async def _send(connection: h11.Connection, stream: trio.abc.Stream, reply: Reply) -> None:
    headers: Mapping[str, str] = {
        "Content-Type": reply.content_type,
        "Content-Length": str(len(reply.body)),
        "Date": formatdate(usegmt=True),  # RFC 9110, 6.6.1; Vast's frontends send it, too
        **reply.headers,
    }
    head = h11.Response(
        status_code=reply.status, headers=[(k.encode(), v.encode()) for k, v in headers.items()]
    )
    data = connection.send(head) or b""
    data += connection.send(h11.Data(data=reply.body)) or b""
    data += connection.send(h11.EndOfMessage()) or b""
    await stream.send_all(data)


async def _send_bad_request(
    connection: h11.Connection, stream: trio.abc.Stream, exc: h11.RemoteProtocolError
) -> None:
    if connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return
    reply = Reply(status=exc.error_status_hint, body=b"bad request", content_type="text/plain")
    try:
        await _send(connection, stream, reply)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        LOG.debug("a client that sent garbage did not wait for the answer")
