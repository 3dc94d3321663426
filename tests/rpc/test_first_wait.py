"""Work that never gives way needs no second task; work that does is told of once, in time."""

import pytest
import trio

from vastd.rpc.first_wait import tell_first_wait


async def test_work_that_never_waits_ends_without_a_word():
    told = []

    async def work():
        return 7

    assert await tell_first_wait(work(), lambda: told.append("waits")) == 7
    assert told == []


async def test_work_that_waits_is_told_of_once_before_others_run():
    order = []

    async def work():
        order.append("begins")
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        order.append("ends")
        return 7

    async def other():
        order.append("other")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert await tell_first_wait(work(), lambda: order.append("waits")) == 7

    assert [word for word in order if word != "other"] == ["begins", "waits", "ends"]
    assert order.index("waits") < order.index("other")


async def test_an_error_before_and_after_the_first_wait_reaches_the_caller():
    async def at_once():
        raise ValueError("at once")

    async def later():
        await trio.lowlevel.checkpoint()
        raise ValueError("later")

    for work in (at_once, later):
        with pytest.raises(ValueError, match=r"at once|later"):
            await tell_first_wait(work(), lambda: None)


async def test_cancelling_reaches_work_that_waits():
    ended = []

    async def work():
        try:
            await trio.sleep_forever()
        finally:
            ended.append("cleaned up")

    with trio.move_on_after(0) as scope:
        await tell_first_wait(work(), lambda: None)

    assert scope.cancelled_caught
    assert ended == ["cleaned up"]


async def test_requests_answered_from_memory_leave_others_their_turn(rig):
    """Many requests in one read, none of which waits: other tasks run between any two of them."""
    count = 300
    turns = 0

    async def other():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with rig.client(lines=True) as client, trio.open_nursery() as nursery:
        nursery.start_soon(other)
        line = b'{"jsonrpc":"2.0","id":1,"method":"offer.search","params":{"limit":1}}\n'
        await client.stream.send_all(line * count)
        for _ in range(count):
            assert "result" in await client.receive()
        nursery.cancel_scope.cancel()

    assert turns >= count
