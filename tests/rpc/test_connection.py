"""Framing, envelopes and errors, over a real Unix socket."""

import json

import pytest
import trio

from rpc.rig import running
from vastd_protocol.framing import MAX_FRAME_BYTES, frame

STATUS = b'{"jsonrpc":"2.0","id":7,"method":"daemon.status"}'


async def test_headers_split_at_every_byte_get_the_answer(rig):
    message = frame(STATUS)
    async with rig.client() as client:
        for cut in range(1, len(message)):
            await client.stream.send_all(message[:cut])
            await trio.testing.wait_all_tasks_blocked()
            await client.stream.send_all(message[cut:])
            reply = await client.receive()
            assert (reply["id"], reply["result"]["daemon"]["pid"]) == (7, 1)


async def test_a_first_brace_means_one_message_per_line_also_in_the_answers(rig):
    async with rig.client() as client:
        await client.stream.send_all(STATUS + b"\n" + STATUS + b"\r\n\n")

        data = b""
        while data.count(b"\n") < 2:
            data += await client.stream.receive_some()

    first, second = data.splitlines()
    assert json.loads(first) == json.loads(second)
    assert json.loads(first)["id"] == 7


async def test_the_last_line_needs_no_newline_and_is_answered_after_the_client_closed_its_side(rig):
    async with rig.client(lines=True) as client:
        await client.stream.send_all(STATUS)
        await client.stream.send_eof()

        assert [reply["id"] for reply in await client.rest()] == [7]


@pytest.mark.parametrize("message_id", [0, -1, 7, "a", "", None, 2**62])
async def test_an_id_comes_back_as_it_was_sent(rig, message_id):
    async with rig.client() as client:
        reply = await client.call("daemon.status", id=message_id)

        assert reply["id"] == message_id
        assert "result" in reply


@pytest.mark.parametrize("params", [b"null", b"[]", b"[null]", b"{}", b"[{}]", b" [ null ] ", None])
async def test_all_spellings_of_no_parameters_are_the_same(rig, params):
    text = b"" if params is None else b',"params":' + params
    async with rig.client() as client:
        await client.stream.send_all(frame(b'{"id":1,"method":"daemon.status"' + text + b"}"))

        assert "result" in await client.receive()


async def test_a_single_object_by_position_is_the_parameters(rig):
    async with rig.client() as client:
        reply = await client.call("exec.run", [{"command": "echo"}])

        assert reply["result"]["stdout"] == "echo"


@pytest.mark.parametrize(
    ("body", "code", "message_id"),
    [
        (b"{", -32700, None),
        (b"{}x", -32700, None),
        (b'{"method":"daemon.status","id":1,"params":' + b"[" * 100_000 + b"}", -32700, None),
        (b'{"method":"\xff","id":1}', -32700, None),
        (b"[" + STATUS + b"]", -32600, None),
        (b"[]", -32600, None),
        (b"3", -32600, None),
        (b'{"id":5}', -32600, 5),
        (b'{"id":5,"method":3}', -32600, 5),
        (b'{"id":5,"method":"daemon.status","jsonrpc":"1.0"}', -32600, 5),
        (b'{"id":1.5,"method":"daemon.status"}', -32600, None),
        (b'{"id":{},"method":"daemon.status"}', -32600, None),
        (b'{"id":123456789012345678901234567890,"method":"daemon.status"}', -32600, None),
    ],
)
async def test_a_body_that_is_no_request_is_told_so_and_the_connection_goes_on(
    rig, body, code, message_id
):
    async with rig.client() as client:
        await client.stream.send_all(frame(body) + frame(STATUS))
        reply, after = await client.receive(), await client.receive()

        assert (reply["error"]["code"], reply["id"]) == (code, message_id)
        assert after["id"] == 7


async def test_a_line_that_is_no_json_is_told_so_and_the_connection_goes_on(rig):
    async with rig.client(lines=True) as client:
        await client.stream.send_all(b"{nonsense\nmore of it\n" + STATUS + b"\n")

        replies = [await client.receive() for _ in range(3)]

        assert [reply.get("error", {}).get("code") for reply in replies] == [-32700, -32700, None]


async def test_a_batch_in_lines_is_refused_by_name(rig):
    async with rig.client(lines=True) as client:
        await client.stream.send_all(b"[" + STATUS + b"]\n")
        reply = await client.receive()

        assert reply["error"]["message"] == "batches are not supported"
        assert "result" in await client.call("daemon.status")


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\r\n",
        b"hello\n",
        b"GARBAGE\r\n",
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Type: json\r\n\r\n",
        b"Content-Length: 5\n\n",
        b"\x00\x01\x02\n",
        b"x" * 9000,
        b"Content-Length: %d\r\n\r\n" % (MAX_FRAME_BYTES + 1),
    ],
)
async def test_broken_framing_is_told_and_closes_that_connection_only(rig, garbage):
    async with rig.client() as bystander, rig.client() as client:
        await bystander.request("job.wait", {})
        await rig.world.began.wait()
        await client.stream.send_all(frame(STATUS) + garbage)

        replies = await client.rest()

        codes = {reply["id"]: reply.get("error", {}).get("code") for reply in replies}
        assert codes == {7: None, None: -32700}
        rig.world.gate.set()
        assert (await bystander.receive())["result"]["settled"] is True


async def test_broken_framing_ends_a_wait_after_a_moment(tmp_path, autojump_clock):
    async with running(tmp_path / "s") as rig, rig.client() as client:
        await client.request("job.wait", {}, id="wait")
        await client.stream.send_all(b"hello\r\n")
        started = trio.current_time()

        replies = await client.rest()

        codes = {reply["id"]: reply["error"]["code"] for reply in replies}
        assert codes == {None: -32700, "wait": -32800}
        assert trio.current_time() - started == 1


async def test_an_oversized_line_closes_that_connection_only(rig):
    async with rig.client(lines=True) as bystander, rig.client(lines=True) as client:
        with pytest.raises(trio.BrokenResourceError):
            await client.stream.send_all(b"{" + b" " * (MAX_FRAME_BYTES + 500_000))

        assert "result" in await bystander.call("daemon.status")


async def test_a_frame_of_just_the_limit_is_read(rig):
    body = STATUS + b" " * (MAX_FRAME_BYTES - len(STATUS))
    async with rig.client() as client:
        await client.stream.send_all(frame(body))

        assert (await client.receive())["id"] == 7


@pytest.mark.parametrize("head", [b"G", b"GE", b"GET ", b"Content-Len", b"{", b'{"id":1,"me', b""])
async def test_a_client_that_resets_in_the_middle_disturbs_nobody(rig, head):
    async with rig.client() as bystander:
        await bystander.request("job.wait", {})
        for _ in range(3):
            async with rig.client() as client:
                await client.stream.send_all(head)
        for _ in range(3):
            async with rig.client() as client:
                await client.request("job.wait", {})  # leaves without reading the answer
        await rig.world.began.wait()
        rig.world.gate.set()

        assert (await bystander.receive())["result"]["settled"] is True
        assert "result" in await bystander.call("daemon.status")


async def test_an_unknown_method_gets_a_suggestion(rig):
    async with rig.client() as client:
        reply = await client.call("deamon.status")

        assert reply["error"] == {
            "code": -32601,
            "message": "no method 'deamon.status'; did you mean 'daemon.status'?",
            "data": {"kind": "method_not_found", "hint": "rpc.discover lists all methods"},
        }


async def test_an_error_of_ours_carries_code_kind_hint_and_retryable(rig):
    async with rig.client() as client:
        reply = await client.call("rental.get", {"rental": "x"})

        assert reply["error"] == {
            "code": 1009,
            "message": "no rental 'x'",
            "data": {"kind": "not_found", "hint": "vastctl ls"},
        }


@pytest.mark.parametrize("rental", ["bug", "crash"])
async def test_a_bug_is_logged_with_method_and_id_and_not_told(rig, caplog, rental):
    async with rig.client() as client:
        reply = await client.call("rental.get", {"rental": rental}, id="id-9")

        assert reply["error"]["code"] == -32603
        assert "secret" not in json.dumps(reply)
        (record,) = caplog.records
        assert "method=rental.get" in record.getMessage()
        assert "id='id-9'" in record.getMessage()
        assert record.exc_info is not None
        assert "result" in await client.call("daemon.status")


async def test_a_notification_gets_no_answer(rig):
    async with rig.client() as client:
        for method in ("daemon.status", "rental.get", "no.such", "initialized", "$/setTrace"):
            await client.send({"jsonrpc": "2.0", "method": method})
        await client.send({"jsonrpc": "2.0", "method": "rental.get", "params": {"wrong": 1}})

        assert (await client.call("daemon.status", id="only"))["id"] == "only"


async def test_cancelling_a_wait_answers_it_with_cancelled_and_ends_it(rig):
    async with rig.client() as client:
        await client.request("job.wait", {}, id=0)
        await rig.world.began.wait()
        await client.send({"method": "$/cancelRequest", "params": {"id": 0}})

        assert (await client.receive())["error"]["code"] == -32800
        assert rig.world.waits == 0


async def test_cancelling_takes_the_very_id_and_never_another(rig):
    async with rig.client() as client:
        await client.request("job.wait", {}, id=1)
        await rig.world.began.wait()
        for other in ("1", 2, None):
            await client.send({"method": "$/cancelRequest", "params": {"id": other}})
        await client.call("daemon.status")

        assert rig.world.waits == 1


async def test_requests_run_side_by_side_and_answer_out_of_order(rig):
    async with rig.client() as client:
        await client.request("job.wait", {}, id="slow")
        await rig.world.began.wait()
        assert (await client.call("daemon.status", id="quick"))["id"] == "quick"
        rig.world.gate.set()

        assert (await client.receive())["id"] == "slow"


async def test_too_many_requests_in_flight_are_answered_busy(tmp_path):
    async with running(tmp_path / "s", max_in_flight=2) as rig, rig.client() as client:
        for number in range(3):
            await client.request("job.wait", {}, id=f"w{number}")
        busy = await client.receive()
        rig.world.gate.set()

        assert (busy["id"], busy["error"]["code"]) == ("w2", 1018)
        assert busy["error"]["data"]["retryable"] is True
        assert {(await client.receive())["id"] for _ in range(2)} == {"w0", "w1"}


async def test_quick_requests_sent_in_one_go_are_never_busy(rig):
    async with rig.client() as client:
        await client.stream.send_all(frame(STATUS) * 500)

        replies = [await client.receive() for _ in range(500)]

        assert all("result" in reply for reply in replies)


async def test_hanging_up_ends_a_wait(rig):
    async with rig.client() as client:
        await client.request("job.wait", {})
        await rig.world.began.wait()

    await rig.world.over.wait()
    assert rig.world.waits == 0


async def test_closing_only_the_sending_side_does_not_end_a_wait(rig):
    async with rig.client() as client:
        await client.request("job.wait", {})
        await client.stream.send_eof()
        await rig.world.began.wait()
        await trio.testing.wait_all_tasks_blocked()
        rig.world.gate.set()

        assert [reply["result"]["settled"] for reply in await client.rest()] == [True]


async def test_an_answer_larger_than_a_frame_is_an_error_that_says_so(rig):
    async with rig.client() as client:
        reply = await client.call("offer.search", {"limit": MAX_FRAME_BYTES})

        assert "over the limit" in reply["error"]["message"]


async def test_a_large_answer_arrives_whole_although_the_client_starts_to_read_late(rig):
    async with rig.client() as client:
        for _ in range(3):
            await client.request("offer.search", {"limit": 2_000_000})
        await trio.testing.wait_all_tasks_blocked()

        replies = [await client.receive() for _ in range(3)]

        assert [len(reply["result"]["as_of"]) for reply in replies] == [2_000_000] * 3
        assert {reply["id"] for reply in replies} == {1, 2, 3}


async def test_a_client_that_reads_no_answers_is_disconnected_and_holds_up_nobody(
    tmp_path, autojump_clock
):
    """Real sockets: the clock jumps only while nothing moves."""
    async with (
        running(tmp_path / "s", limit_s=1000) as rig,
        rig.client() as bystander,
        rig.client() as client,
    ):
        await client.request("offer.search", {"limit": 2_000_000})
        await trio.sleep(59)
        assert "result" in await bystander.call("daemon.status")
        await trio.sleep(2)

        with pytest.raises(trio.BrokenResourceError):
            await client.stream.send_all(b"x" * 10_000_000)


async def test_a_client_that_reads_no_answers_is_not_read_from_either(tmp_path, autojump_clock):
    async with running(tmp_path / "s", limit_s=1000) as rig, rig.client() as client:
        sent = 0
        with trio.move_on_after(30):
            while sent < 1000:
                await client.request("offer.search", {"limit": 500_000})
                sent += 1

        assert sent < 1000
