"""WebSocket clients on the same socket: one message per frame."""

import json
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, wrap_client_stream

from rpc.rig import running
from vastd_protocol.framing import MAX_FRAME_BYTES


@asynccontextmanager
async def connected(rig, headers=()):
    """A WebSocket client whose stream is closed at the end, whatever became of it."""
    stream = await trio.open_unix_socket(str(rig.path))
    try:
        async with trio.open_nursery() as nursery:
            socket = await wrap_client_stream(
                nursery, stream, "localhost", "/", extra_headers=list(headers)
            )
            yield socket
            await socket.aclose()
            nursery.cancel_scope.cancel()
    finally:
        await trio.aclose_forcefully(stream)


async def call(socket, method, params=None):
    await socket.send_message(json.dumps({"id": 1, "method": method, "params": params}))
    return json.loads(await socket.get_message())


async def send_until_closed(socket, text):
    with suppress(ConnectionClosed):
        await socket.send_message(text)


async def test_each_frame_is_one_message_and_so_is_each_answer(rig):
    async with connected(rig) as socket:
        for _ in range(3):
            assert (await call(socket, "daemon.status"))["result"]["daemon"]["pid"] == 1
        await socket.send_message(b'{"id":2,"method":"daemon.status"}')
        assert json.loads(await socket.get_message())["id"] == 2
        assert (await call(socket, "rental.get"))["error"]["code"] == 1009
        await socket.send_message("nonsense")
        assert json.loads(await socket.get_message())["error"]["code"] == -32700


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 40])
async def test_an_upgrade_split_anywhere_is_recognised(rig, cut):
    request = (
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    async with rig.client() as client:
        await client.stream.send_all(request[:cut])
        await trio.testing.wait_all_tasks_blocked()
        await client.stream.send_all(request[cut:])

        assert (await client.stream.receive_some()).startswith(b"HTTP/1.1 101 ")


async def test_events_come_as_frames(rig):
    async with connected(rig) as socket:
        await call(socket, "event.subscribe", {})
        for _ in range(200):
            rig.world.hub.publish_event(rig.world.events.add(reason="x" * 10_000))

        got = [json.loads(await socket.get_message())["params"]["cursor"] for _ in range(200)]

    assert got == list(range(1, 201))


async def test_closing_the_socket_ends_its_waits(rig):
    async with connected(rig) as socket:
        await socket.send_message('{"id":1,"method":"job.wait"}')
        await rig.world.began.wait()

    await rig.world.over.wait()
    assert rig.world.waits == 0


async def test_a_web_page_is_refused_unless_its_origin_is_listed(tmp_path, caplog):
    async with running(tmp_path / "s", origins=["http://localhost:3000"]) as rig:
        async with connected(rig, [(b"Origin", b"http://localhost:3000")]) as good:
            assert "result" in await call(good, "daemon.status")

        with pytest.raises(ExceptionGroup) as caught:
            async with connected(rig, [(b"Origin", b"https://evil.example")]):
                pass

        (refused,) = caught.value.exceptions
        assert isinstance(refused, ConnectionRejected)
        assert refused.status_code == 403
    assert "https://evil.example" in caplog.text


@pytest.mark.parametrize(
    "head",
    [
        b"GET ",
        b"GET / HTTP/1.1\r\n",
        b"GET garbage\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET \x00\xff\r\n\r\n",
    ],
)
async def test_an_upgrade_that_never_completes_disturbs_nobody(tmp_path, autojump_clock, head):
    async with running(tmp_path / "s") as rig, rig.client() as bystander:
        started = trio.current_time()
        async with rig.client() as client:
            await client.stream.send_all(head)
            await client.stream.send_eof()
            while await client.stream.receive_some():
                pass

        assert trio.current_time() == started
        assert "result" in await bystander.call("daemon.status")


async def test_a_half_upgrade_that_just_stays_is_closed(tmp_path, autojump_clock):
    async with running(tmp_path / "s", limit_s=100) as rig, rig.client() as client:
        await client.stream.send_all(b"GET / HTTP/1.1\r\n")
        started = trio.current_time()

        assert await client.stream.receive_some() == b""
        assert trio.current_time() - started == 10


async def test_a_peer_that_vanishes_in_the_middle_of_a_frame_disturbs_nobody(rig):
    async with rig.client() as bystander:
        for ending in (b"", b"\x81", b"\x81\xfe\x10\x00mask" + b"x" * 9, b"\x89\x80mask"):
            async with connected(rig) as socket:
                await call(socket, "event.subscribe", {})
                await socket.send_message('{"id":1,"method":"job.wait"}')
                await socket._stream.send_all(ending)
                await socket._stream.aclose()
            rig.world.hub.publish_event(rig.world.events.add())

        assert "result" in await bystander.call("daemon.status")


async def test_an_oversized_message_closes_that_connection_only(rig):
    async with rig.client() as bystander, connected(rig) as socket:
        # Counted in bytes, as everywhere else: these characters have two each.
        await socket.send_message("é" * (MAX_FRAME_BYTES // 2 + 1))
        error = json.loads(await socket.get_message())["error"]
        with pytest.raises(ConnectionClosed):
            await socket.get_message()

        assert error["code"] == -32700
        assert "result" in await bystander.call("daemon.status")


async def test_a_message_over_the_limit_in_characters_is_not_even_stored(rig):
    async with rig.client() as bystander, connected(rig) as socket:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_until_closed, socket, "x" * (MAX_FRAME_BYTES + 100_000))
            with pytest.raises(ConnectionClosed):
                await socket.get_message()

        assert "result" in await bystander.call("daemon.status")


async def test_a_stop_closes_web_sockets_too(rig):
    async with connected(rig) as socket:
        await call(socket, "daemon.status")
        rig.stop.set()

        with pytest.raises(ConnectionClosed):
            await socket.get_message()
        await rig.stopped.wait()


@pytest.mark.parametrize("head", [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_a_browser_that_leaves_before_its_refusal_is_no_error(rig, caplog, head):
    async with rig.client() as bystander:
        stream = await trio.open_unix_socket(str(rig.path))
        await stream.send_all(head)
        await stream.aclose()

        assert "result" in await bystander.call("daemon.status")
        await trio.testing.wait_all_tasks_blocked()

    assert [record.message for record in caplog.records] == []
