"""JSON-RPC messages as both ends write and read them."""

import json

import pytest
from msgspec import UNSET

from vastd_protocol import envelope
from vastd_protocol.errors import ErrorCode, ErrorData, ErrorObject, ExitCode, exit_code


@pytest.mark.parametrize("message_id", [0, 7, "a", None])
def test_a_request_comes_back_as_it_was_written(message_id):
    body = envelope.request(message_id, "rental.get", b'{"rental":"r-1"}')

    assert json.loads(body) == {
        "jsonrpc": "2.0",
        "id": message_id,
        "method": "rental.get",
        "params": {"rental": "r-1"},
    }
    request = envelope.decode(body, type=envelope.Request)
    assert (request.id, request.method) == (message_id, "rental.get")


def test_an_absent_id_is_not_a_null_id():
    assert envelope.decode(b'{"method":"x"}', type=envelope.Request).id is UNSET
    assert envelope.decode(b'{"method":"x","id":null}', type=envelope.Request).id is None


def test_a_null_result_is_a_result():
    reply = envelope.decode(envelope.result(1, b"null"), type=envelope.Reply)

    assert bytes(reply.result) == b"null"
    assert reply.error is UNSET


def test_an_error_carries_code_message_and_data():
    data = ErrorData(kind="not_found", hint="vastctl ls", retryable=True)
    body = envelope.failure("x", ErrorObject(1009, "no rental", data))

    assert json.loads(body) == {
        "jsonrpc": "2.0",
        "id": "x",
        "error": {
            "code": 1009,
            "message": "no rental",
            "data": {"kind": "not_found", "hint": "vastctl ls", "retryable": True},
        },
    }
    assert envelope.decode(body, type=envelope.Reply).error.data == data


def test_a_notification_has_a_method_and_no_id():
    body = envelope.notification("progress", b"{}")

    assert json.loads(body) == {"jsonrpc": "2.0", "method": "progress", "params": {}}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.INVALID_PARAMS, ExitCode.USAGE),
        (ErrorCode.VAST_AUTH, ExitCode.AUTH_OR_CONFIG),
        (ErrorCode.NOT_FOUND, ExitCode.NOT_FOUND),
        (ErrorCode.BUDGET_EXCEEDED, ExitCode.REFUSED),
        (ErrorCode.UNCONFIRMED, ExitCode.UNCONFIRMED),
        (ErrorCode.NO_OFFERS, ExitCode.NO_OFFER),
        (ErrorCode.JOB_ACTIVE, ExitCode.JOB_ACTIVE),
        (ErrorCode.BUSY, ExitCode.FAILED),
        (424242, ExitCode.FAILED),
    ],
)
def test_an_error_code_gives_the_exit_code(code, expected):
    assert exit_code(code) == expected
