"""Subscriptions: gapless, at each follower's own pace, never waited for."""

import base64
import json

import pytest
import trio

from rpc.rig import MemoryEvents, MemoryLogs, running
from vastd.rpc.dispatch import Call
from vastd.rpc.errors import RpcError
from vastd.rpc.hub import MAX_SUBSCRIPTIONS, Hub
from vastd_protocol.methods.event import Progress


def publish(rig, count=1, **changes):
    for _ in range(count):
        rig.world.hub.publish_event(rig.world.events.add(**changes))


async def cursors(client, count):
    return [(await client.receive())["params"]["cursor"] for _ in range(count)]


async def test_a_subscription_gets_events_from_now_on(rig):
    publish(rig, 3)
    async with rig.client() as client:
        reply = await client.call("event.subscribe", {})
        publish(rig, 2)

        assert reply["result"]["cursor"] == 3
        message = await client.receive()
        assert message["method"] == "event.published"
        assert message["params"]["cursor"] == 4
        assert await cursors(client, 1) == [5]


async def test_replay_goes_over_into_live_without_gap_or_repeat(rig):
    publish(rig, 1000)
    async with rig.client() as client:
        await client.request("event.subscribe", {"after": 10})
        assert (await client.receive())["result"]["cursor"] == 10
        got = []
        for _ in range(100):
            publish(rig, 2)
            got += await cursors(client, 1)
        got += await cursors(client, 1190 - len(got))

        assert got == list(range(11, 1201))


async def test_the_answer_comes_before_the_first_notification(rig):
    publish(rig, 5)
    async with rig.client() as client:
        await client.request("event.subscribe", {"after": 0}, id="sub")

        assert (await client.receive())["id"] == "sub"
        assert await cursors(client, 5) == [1, 2, 3, 4, 5]


async def test_live_events_do_not_read_the_store(rig):
    async with rig.client() as client:
        await client.call("event.subscribe", {})
        await trio.testing.wait_all_tasks_blocked()
        before = rig.world.events.reads
        publish(rig, 10)

        assert await cursors(client, 10) == list(range(1, 11))
        assert rig.world.events.reads == before


@pytest.mark.parametrize(
    ("narrow", "expected"),
    [
        ({"rental": "r-1"}, [1, 2]),
        ({"job": "j-1"}, [2]),
        ({"rental": "r-2", "job": "j-1"}, []),
        ({}, [1, 2, 3]),
    ],
)
async def test_filters_hold_for_replay_and_live(rig, narrow, expected):
    def some():
        publish(rig, rental_id="r-1")
        publish(rig, rental_id="r-1", job_id="j-1")
        publish(rig, rental_id="r-2")

    some()
    async with rig.client() as client:
        await client.call("event.subscribe", {"after": 0} | narrow)
        await trio.testing.wait_all_tasks_blocked()
        some()
        got = await cursors(client, 2 * len(expected))

        assert got == expected + [cursor + 3 for cursor in expected]
        assert "result" in await client.call("daemon.status")


async def test_a_cursor_beyond_the_newest_event_starts_at_the_newest(rig):
    publish(rig, 2)
    async with rig.client() as client:
        assert (await client.call("event.subscribe", {"after": 99}))["result"]["cursor"] == 2


async def test_unsubscribing_ends_the_stream_of_that_connection_only(rig):
    async with rig.client() as client, rig.client() as other:
        ids = [
            (await one.call("event.subscribe", {}))["result"]["subscription_id"]
            for one in (client, other)
        ]
        stranger = await client.call("event.unsubscribe", {"subscription_id": ids[1]})
        mine = await client.call("event.unsubscribe", {"subscription_id": ids[0]})
        twice = await client.call("event.unsubscribe", {"subscription_id": ids[0]})
        publish(rig)

        found = [reply["result"]["found"] for reply in (stranger, mine, twice)]
        assert found == [False, True, False]
        assert await cursors(other, 1) == [1]
        assert (await client.call("daemon.status", id="x"))["id"] == "x"


async def test_a_subscriber_that_closed_its_sending_side_still_gets_events(rig):
    async with rig.client() as client:
        await client.request("event.subscribe", {})
        await client.stream.send_eof()
        await client.receive()
        publish(rig)

        assert await cursors(client, 1) == [1]


async def test_a_subscriber_that_does_not_read_delays_nobody_and_misses_nothing(rig):
    async with rig.client() as slow, rig.client() as quick:
        await slow.call("event.subscribe", {})
        await quick.call("event.subscribe", {})
        got = []
        for _ in range(300):
            publish(rig, 10, reason="x" * 1000)
            got += await cursors(quick, 10)
        assert got == list(range(1, 3001))

        assert await cursors(slow, 3000) == list(range(1, 3001))


async def test_a_slow_subscriber_gets_the_newest_progress_of_each_step(rig):
    async with rig.client() as client:
        await client.call("event.subscribe", {"progress": True})
        for step in ("sync", "collect"):
            for done in range(20_000):
                rig.world.hub.publish_progress(Progress(step=step, done=done, rental_id="r-1"))
        newest = {}
        count = 0
        while newest != {"sync": 19_999, "collect": 19_999}:
            params = (await client.receive())["params"]
            assert params["done"] > newest.get(params["step"], -1)
            newest[params["step"]] = params["done"]
            count += 1

        assert count < 40_000


async def test_progress_is_filtered_and_only_for_those_who_ask(rig):
    async with rig.client() as client, rig.client() as plain:
        await client.call("event.subscribe", {"progress": True, "rental": "r-1"})
        await plain.call("event.subscribe", {})
        await trio.testing.wait_all_tasks_blocked()
        for rental_id in ("r-2", "r-1"):
            rig.world.hub.publish_progress(Progress(step="sync", done=1, rental_id=rental_id))
        publish(rig)

        message = await client.receive()
        assert (message["method"], message["params"]["rental_id"]) == ("progress", "r-1")
        assert await cursors(plain, 1) == [1]


async def follow(client, offset=0):
    reply = await client.call("log.subscribe", {"job": "j-1", "offset": offset})
    return reply["result"]["subscription_id"]


async def log_until_eof(client):
    """Return the pieces of a log: (offset, bytes, dropped)."""
    pieces = []
    while True:
        params = (await client.receive())["params"]
        pieces.append((params["offset"], base64.b64decode(params["data"]), params["dropped"]))
        if params["eof"]:
            return pieces


async def test_a_log_is_followed_from_an_offset_to_its_end(rig):
    rig.world.logs.data["j-1"] = b"0123456789"
    async with rig.client() as client:
        await follow(client, offset=4)
        first = (await client.receive())["params"]
        rig.world.logs.data["j-1"] += b"abc"
        rig.world.hub.log_grew("j-1")
        second = (await client.receive())["params"]
        rig.world.logs.over.add("j-1")
        rig.world.hub.log_grew("j-1")
        third = (await client.receive())["params"]

    got = [(p["offset"], base64.b64decode(p["data"]), p["eof"]) for p in (first, second, third)]
    assert got == [(4, b"456789", False), (10, b"abc", False), (13, b"", True)]


@pytest.mark.parametrize(("offset", "expected"), [(-3, b"789"), (-99, b"0123456789"), (10, b"")])
async def test_a_finished_log_ends_with_eof_at_once(rig, offset, expected):
    rig.world.logs.data["j-1"] = b"0123456789"
    rig.world.logs.over.add("j-1")
    async with rig.client() as client:
        await follow(client, offset)

        ((at, data, dropped),) = await log_until_eof(client)
        assert (at, data, dropped) == (10 - len(expected), expected, 0)


async def test_an_offset_beyond_the_log_waits_until_the_log_is_there(rig):
    async with rig.client() as client:
        await follow(client, offset=5)
        rig.world.logs.data["j-1"] = b"01234567"
        rig.world.hub.log_grew("j-1")

        assert base64.b64decode((await client.receive())["params"]["data"]) == b"567"


async def test_a_backlog_is_served_in_full_however_slowly_it_is_read(rig):
    log = bytes(range(256)) * 20_000
    rig.world.logs.data["j-1"] = log
    rig.world.logs.over.add("j-1")
    async with rig.client() as one, rig.client() as two:
        await follow(one)
        await follow(two)
        await trio.testing.wait_all_tasks_blocked()
        for client in (one, two):
            pieces = await log_until_eof(client)
            assert b"".join(data for _, data, _ in pieces) == log
            assert [dropped for *_, dropped in pieces] == [0] * len(pieces)


async def test_a_slow_follower_is_told_exactly_how_much_was_dropped(rig):
    async with rig.client() as client:
        await follow(client)
        await trio.testing.wait_all_tasks_blocked()
        log = b""
        for number in range(50):
            log += b"%04d" % number * 25_000
            rig.world.logs.data["j-1"] = log
            rig.world.hub.log_grew("j-1")
            await trio.testing.wait_all_tasks_blocked()
        rig.world.logs.over.add("j-1")
        rig.world.hub.log_grew("j-1")
        pieces = await log_until_eof(client)

    assert sum(dropped for *_, dropped in pieces) > 0
    expected = 0
    for offset, data, dropped in pieces:
        assert offset == expected + dropped
        assert data == log[offset : offset + len(data)]
        expected = offset + len(data)
    assert expected == len(log)


async def test_a_subscription_that_fails_ends_its_connection_and_no_other(rig, caplog):
    def broken(*_args):
        raise OSError("disk gone")

    async with rig.client() as client, rig.client() as bystander:
        await follow(client)
        rig.world.logs.read = broken
        rig.world.hub.log_grew("j-1")

        assert await client.receive() is None
        assert "result" in await bystander.call("daemon.status")
    assert "subscription failed" in caplog.text


class KeepingPeer:
    """A connection that takes everything and keeps it."""

    number = 1

    def __init__(self):
        self.forget = []
        self.taken = []

    def notify_encoded(self, body):
        self.taken.append(body)
        return True

    async def wait_room(self):
        await trio.lowlevel.checkpoint()

    def at_close(self, forget):
        self.forget.append(forget)


async def test_what_happens_before_the_answer_is_sent_comes_after_it(nursery):
    events = MemoryEvents()
    hub = Hub(events, MemoryLogs())
    call = Call(KeepingPeer(), 1)

    hub.follow_events(call, progress=True)
    hub.publish_event(events.add())
    hub.publish_progress(Progress(step="sync", done=1))
    before = list(call.peer.taken)
    nursery.start_soon(call.streams[0])  # what the connection does after the answer
    await trio.testing.wait_all_tasks_blocked()
    nursery.cancel_scope.cancel()

    assert before == []
    methods = [json.loads(body)["method"] for body in call.peer.taken]
    assert methods == ["event.published", "progress"]


def test_subscriptions_of_one_connection_are_bounded_and_forgotten_with_it():
    hub = Hub(MemoryEvents(), MemoryLogs())
    peer = KeepingPeer()
    for _ in range(MAX_SUBSCRIPTIONS):
        hub.follow_events(Call(peer, 1))
    with pytest.raises(RpcError, match="64 subscriptions"):
        hub.follow_log(Call(peer, 1), job_id="j-1")

    (forget,) = peer.forget
    forget()

    assert hub.unsubscribe(peer, "s-1") is False
    hub.follow_events(Call(peer, 1))


async def test_an_answer_overtakes_a_queue_of_notifications(tmp_path):
    async with running(tmp_path / "s", note_limit_bytes=4_000_000) as rig, rig.client() as client:
        await client.call("event.subscribe", {})
        await trio.testing.wait_all_tasks_blocked()
        publish(rig, 3000, reason="x" * 1000)
        await client.request("daemon.status", id="soon")
        await trio.testing.wait_all_tasks_blocked()
        before = 0
        while (await client.receive()).get("id") != "soon":
            before += 1

        assert before < 1000
