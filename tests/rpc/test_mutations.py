"""Changes: each request id once, whoever is still there to hear of it."""

import pytest
import trio

from rpc.rig import running
from vastd.errors import OutcomeUnknown, StoreError

DESTROY = {"rental": "r-1", "request_id": "q-1"}


async def test_a_change_goes_on_after_its_client_hung_up_and_a_repeat_gets_its_answer(rig):
    async with rig.client() as client:
        await client.request("rental.destroy", DESTROY)
        await rig.world.began.wait()
    await trio.testing.wait_all_tasks_blocked()

    async with rig.client() as client:
        await client.request("rental.destroy", DESTROY)
        await trio.testing.wait_all_tasks_blocked()
        rig.world.gate.set()

        assert (await client.receive())["result"]["rental_id"] == "r-1"
    assert rig.world.destroyed == ["r-1"]
    assert rig.world.begun == 1


async def test_a_repeat_after_the_end_returns_the_stored_answer(rig):
    rig.world.gate.set()
    async with rig.client() as client:
        first = await client.call("rental.destroy", DESTROY, id=1)
    async with rig.client(lines=True) as client:
        again = await client.call("rental.destroy", DESTROY, id=1)

    assert first == again
    assert rig.world.destroyed == ["r-1"]
    assert rig.world.answers.puts == [("q-1", "rental.destroy")]


async def test_an_answer_stored_by_the_handler_is_returned_and_not_stored_twice(rig):
    rig.world.gate.set()
    rig.world.seal = True
    async with rig.client() as client:
        first = await client.call("rental.destroy", DESTROY)
        again = await client.call("rental.destroy", DESTROY)

    assert first["result"] == again["result"]
    assert rig.world.destroyed == ["r-1"]
    assert rig.world.answers.puts == []


async def test_spelling_out_a_default_or_another_order_is_the_same_request(rig):
    rig.world.gate.set()
    async with rig.client() as client:
        await client.call("rental.destroy", DESTROY)
        again = await client.call(
            "rental.destroy", {"force": False, "request_id": "q-1", "rental": "r-1"}
        )

    assert again["result"]["rental_id"] == "r-1"
    assert rig.world.destroyed == ["r-1"]


@pytest.mark.parametrize("running_still", [True, False])
@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("rental.destroy", {"rental": "r-2"}, "for rental.destroy with other parameters"),
        ("exec.run", {"command": "true"}, "for rental.destroy"),
    ],
)
async def test_a_request_id_used_for_something_else_is_refused(
    rig, running_still, method, params, words
):
    async with rig.client() as client:
        await client.request("rental.destroy", DESTROY)
        if not running_still:
            rig.world.gate.set()
            await client.receive()
        reply = await client.call(method, params | {"request_id": "q-1"})

    assert reply["error"]["code"] == -32600
    assert reply["error"]["message"] == f"request_id 'q-1' was already used {words}"


async def test_without_a_request_id_every_call_is_carried_out(rig):
    rig.world.gate.set()
    async with rig.client() as client:
        for _ in range(2):
            await client.call("rental.destroy", {"rental": "r-1"})

    assert rig.world.destroyed == ["r-1", "r-1"]


async def test_a_failed_change_is_told_to_all_who_wait_and_may_be_tried_again(rig):
    rig.world.failure = OutcomeUnknown("no answer from Vast")
    async with rig.client() as one, rig.client() as two:
        await one.request("rental.destroy", DESTROY)
        await two.request("rental.destroy", DESTROY)
        await trio.testing.wait_all_tasks_blocked()
        rig.world.gate.set()
        replies = [await one.receive(), await two.receive()]
        rig.world.failure = None
        again = await one.call("rental.destroy", DESTROY)

    assert [reply["error"]["data"]["kind"] for reply in replies] == ["unconfirmed"] * 2
    assert again["result"]["rental_id"] == "r-1"
    assert rig.world.destroyed == ["r-1"]


async def test_a_change_cannot_be_cancelled_halfway(rig):
    async with rig.client() as client:
        await client.request("rental.destroy", DESTROY, id=5)
        await rig.world.began.wait()
        await client.send({"method": "$/cancelRequest", "params": {"id": 5}})
        await client.call("daemon.status")
        rig.world.gate.set()

        assert (await client.receive())["result"]["rental_id"] == "r-1"


async def test_an_answer_that_cannot_be_stored_does_not_make_the_change_a_failure(rig, caplog):
    def full(*_args):
        raise StoreError("disk full")

    rig.world.gate.set()
    rig.world.answers.put = full
    async with rig.client() as client:
        reply = await client.call("rental.destroy", DESTROY)

    assert reply["result"]["rental_id"] == "r-1"
    assert "answer not stored method=rental.destroy request_id='q-1'" in caplog.text


@pytest.mark.parametrize("request_id", ["", "x" * 201])
async def test_a_request_id_has_1_to_200_characters(rig, request_id):
    async with rig.client() as client:
        reply = await client.call("rental.destroy", {"request_id": request_id})

    assert reply["error"]["code"] == -32602


async def test_a_stop_answers_the_changes_under_way_and_ends_the_waits(rig):
    async with rig.client() as client, rig.client() as idle:
        await client.request("rental.destroy", DESTROY, id="change")
        await client.request("job.wait", {}, id="wait")
        await idle.call("daemon.status")
        await trio.testing.wait_all_tasks_blocked()
        rig.stop.set()
        cancelled = await client.receive()
        rig.world.gate.set()

        assert (cancelled["id"], cancelled["error"]["code"]) == ("wait", -32800)
        assert (await client.receive())["id"] == "change"
        assert await client.receive() is None
        assert await idle.receive() is None
    await rig.stopped.wait()
    with pytest.raises(OSError):
        async with rig.client():
            pass


async def test_a_stop_waits_for_a_change_whose_client_left_but_not_for_ever(
    tmp_path, autojump_clock
):
    async with running(tmp_path / "s", stop_grace_s=5) as rig:
        async with rig.client() as client:
            await client.request("rental.destroy", DESTROY)
            await rig.world.began.wait()
        started = trio.current_time()
        rig.stop.set()
        await rig.stopped.wait()

        assert trio.current_time() - started == 5
        assert rig.world.answers.stored == {}
