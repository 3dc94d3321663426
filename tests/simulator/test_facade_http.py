"""The façade's HTTP: framing, bounds and broken endings, without a network."""

import pytest
import trio
import trio.testing

from vastd.simulator.facade.http import (
    BODY_LIMIT_BYTES,
    IDLE_LIMIT_S,
    Ending,
    Reply,
    Request,
    serve_connection,
)

pytestmark = pytest.mark.sim

GET = b"GET /a%20b/?x=1&x=2&y= HTTP/1.1\r\nHost: h\r\nX-Thing: v\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"


class Recorder:
    """A handler that remembers requests and answers each with its number."""

    def __init__(self, reply: Reply | None = None) -> None:
        self.requests: list[Request] = []
        self._reply = reply

    async def __call__(self, request: Request) -> Reply:
        self.requests.append(request)
        return self._reply or Reply(body=f"answer {len(self.requests)}".encode())


async def exchange(recorder: Recorder, data: list[bytes], *, end: bool = True) -> bytes:
    """Send pieces to a server of its own and return all it sends until it closes."""
    ours, theirs = trio.testing.memory_stream_pair()
    received = bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, theirs, recorder)
        for piece in data:
            await ours.send_all(piece)
        if end:
            await ours.send_eof()
        async for chunk in ours:
            received += chunk
    return bytes(received)


async def test_path_query_and_headers_arrive_decoded() -> None:
    recorder = Recorder()

    await exchange(recorder, [GET])

    request = recorder.requests[0]
    assert (request.method, request.path) == ("GET", "/a b/")
    assert request.query == {"x": "2", "y": ""}
    assert request.headers["x-thing"] == "v"


async def test_two_requests_split_at_every_byte_get_two_answers_on_one_connection() -> None:
    recorder = Recorder()

    received = await exchange(recorder, [bytes([byte]) for byte in GET + POST])

    assert [request.body for request in recorder.requests] == [b"", b"body"]
    assert received.index(b"answer 1") < received.index(b"answer 2")


async def test_content_type_is_exactly_json() -> None:
    received = await exchange(Recorder(), [GET])

    assert b"\r\nContent-Type: application/json\r\n" in received


async def test_garbage_gets_one_400_and_the_connection_ends() -> None:
    recorder = Recorder()

    received = await exchange(recorder, [b"\x16\x03\x01 not http at all\r\n\r\n"], end=False)

    assert received.startswith(b"HTTP/1.1 400 ")
    assert recorder.requests == []


async def test_a_body_over_the_bound_gets_413_and_is_not_handled() -> None:
    recorder = Recorder()
    head = f"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {BODY_LIMIT_BYTES + 1}\r\n\r\n"

    received = await exchange(recorder, [head.encode(), b"x" * (BODY_LIMIT_BYTES + 1)])

    assert received.startswith(b"HTTP/1.1 413 ")
    assert recorder.requests == []


async def test_a_dropped_ending_sends_no_byte() -> None:
    recorder = Recorder(Reply(ending=Ending.DROPPED))

    received = await exchange(recorder, [POST], end=False)

    assert received == b""
    assert len(recorder.requests) == 1


async def test_what_follows_an_answer_is_called_once_it_is_out() -> None:
    called: list[str] = []
    recorder = Recorder(Reply(body=b"bye", then=lambda: called.append("then")))

    received = await exchange(recorder, [GET])

    assert received.endswith(b"bye")
    assert called == ["then"]


async def test_a_silent_client_is_let_go(autojump_clock: trio.testing.MockClock) -> None:
    before = trio.current_time()

    received = await exchange(Recorder(), [], end=False)

    assert received == b""
    assert trio.current_time() - before == pytest.approx(IDLE_LIMIT_S)


async def test_connection_close_is_honoured() -> None:
    recorder = Recorder()
    request = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"

    received = await exchange(recorder, [request, request], end=False)

    assert received.count(b"HTTP/1.1 200") == 1
    assert len(recorder.requests) == 1
