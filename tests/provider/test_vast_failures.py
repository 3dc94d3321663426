"""Every failure Vast is known to answer with, and what we conclude from it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastd import errors
from vastd.errors import (
    AuthRejected,
    BadSpec,
    ContractChanged,
    CreatedButFailed,
    NoCredit,
    NoSuchInstance,
    NotPermitted,
    OfferGone,
    OutcomeUnknown,
    RateLimited,
    Refused,
    SpendRateLimit,
)
from vastd.provider.vast.failures import failure_of, is_empty_key_list
from vastd.provider.vast.http import Reply
from vastd.provider.vast.operations import ON_INSTANCE, READS, Call, Operation
from vastd.provider.vast.wire import parse_json

NOW = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC
SECONDS_TO_MIDNIGHT = 35_200.0

SEARCH, CREATE, LIST, GET = Operation.SEARCH, Operation.CREATE, Operation.LIST, Operation.GET
DESTROY, STOP, START, LABEL = (
    Operation.DESTROY, Operation.STOP, Operation.START, Operation.LABEL,
)  # fmt: skip
BID, KEYS, ADD_KEY = Operation.BID, Operation.KEYS, Operation.ADD_KEY
ATTACH, ACCOUNT = Operation.ATTACH_KEY, Operation.ACCOUNT

INVALID_KEY = {"success": False, "error": "auth_error", "msg": "Invalid user key"}
NO_HEADER = {"success": False, "error": "auth_error", "msg": "This action requires login."}
EXPIRED = {"success": False, "msg": "Session expired. Please log in again."}
NO_INSTANCE = {"success": False, "error": "no_such_instance", "msg": "Instance not found"}
NOT_FOUND = {"success": False, "error": "not_found", "msg": "Instance 42 not found"}
TAKEN_LIVE = {
    "success": False,
    "error": "invalid_args",
    "msg": "error 404/3603: no_such_ask  Instance type by id 7001 is not available.",
    "ask_id": 7001,
}
TAKEN_410 = {
    "success": False,
    "error": "no_such_ask",
    "msg": "error 410/3907: no_such_ask Instance type 7001 is no longer available.",
}
DEPRECATED = {
    "success": False,
    "error": "deprecated_endpoint",
    "msg": "This endpoint is gone. Use /api/v1/instances/ instead.",
}
BUSY = {
    "success": False,
    "error": "resources_unavailable",
    "msg": "Required resources are currently unavailable, state change queued.",
}
HTML = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
PLAIN_429 = b"API requests too frequent"
ROUTE_404 = {"detail": "Not Found"}


def judge(
    operation: Operation,
    status: int,
    body: Any,
    *,
    headers: dict[str, str] | None = None,
    hidden: tuple[str, ...] = (),
) -> errors.ProviderError | None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = Reply(status=status, headers=headers or {}, body=data)
    call = Call(operation=operation, subject="42")
    return failure_of(call, reply, parse_json(data), now=NOW, hidden=hidden)


def no(code: str, msg: str = "") -> dict[str, object]:
    return {"success": False, "error": code, "msg": msg}


TABLE = [
    # a wrong, missing, expired or half-authenticated key, in all its forms
    *[(op, 401, INVALID_KEY, AuthRejected) for op in Operation],
    *[(op, 403, NO_HEADER, AuthRejected) for op in Operation],
    *[(op, 404, INVALID_KEY, AuthRejected) for op in Operation],
    *[(op, 404, EXPIRED, AuthRejected) for op in Operation],
    *[(op, 200, INVALID_KEY, AuthRejected) for op in Operation],
    (ACCOUNT, 401, "Unauthorized", AuthRejected),
    (GET, 401, b"<html>login</html>", AuthRejected),
    (DESTROY, 401, {"msg": "... requires Two Factor Authentication"}, AuthRejected),
    (STOP, 403, no("not_authorized", "This action requires login."), AuthRejected),
    (STOP, 403, no("not_authorized", "you may not"), NotPermitted),
    (CREATE, 403, {"msg": "error 403/3586: ask is not your own"}, NotPermitted),
    (CREATE, 400, no("invalid_args", "error 403/3586 not your own"), NotPermitted),
    (CREATE, 403, HTML, OutcomeUnknown),
    (LIST, 403, HTML, OutcomeUnknown),
    # a taken offer
    (CREATE, 400, TAKEN_LIVE, OfferGone),
    (CREATE, 404, TAKEN_LIVE, OfferGone),
    (CREATE, 410, TAKEN_410, OfferGone),
    (CREATE, 404, no("no_such_ask"), OfferGone),
    (CREATE, 200, TAKEN_LIVE, OfferGone),
    (CREATE, 409, {"detail": "no_such_ask"}, OfferGone),
    # an instance in spite of a failure
    (CREATE, 400, TAKEN_LIVE | {"new_contract": 9}, CreatedButFailed),
    (CREATE, 400, no("invalid_price") | {"new_contract": "9"}, CreatedButFailed),
    (CREATE, 200, {"success": False, "new_contract": 9, "msg": "bid too low"}, CreatedButFailed),
    (CREATE, 500, {"msg": "boom", "new_contract": 9}, CreatedButFailed),
    (CREATE, 429, {"detail": "API requests too frequent", "new_contract": 9}, CreatedButFailed),
    (CREATE, 404, INVALID_KEY | {"new_contract": 9}, CreatedButFailed),
    (CREATE, 400, {"success": False, "detail": {"new_contract": 9}}, CreatedButFailed),
    (CREATE, 400, no("invalid_args") | {"new_contract": "soon"}, OutcomeUnknown),
    (CREATE, 400, no("invalid_args") | {"new_contract": True}, OutcomeUnknown),
    (CREATE, 400, no("invalid_args") | {"new_contract": None}, BadSpec),
    # money
    (CREATE, 400, no("insufficient_credit", "Your account lacks credit;"), NoCredit),
    (START, 400, no("insufficient_credit"), NoCredit),
    (CREATE, 411, no("", "prepay"), NoCredit),
    (CREATE, 411, HTML, OutcomeUnknown),
    (CREATE, 400, no("spend_rate_limit", "too fast"), SpendRateLimit),
    (CREATE, 429, no("spend_rate_limit", "too fast"), SpendRateLimit),
    # what no offer would accept
    (CREATE, 400, no("invalid_args", "error 400/3467: bad image"), BadSpec),
    (CREATE, 400, no("invalid_price", "out of bounds"), BadSpec),
    (CREATE, 400, no("no_ssh_key_for_vm"), BadSpec),
    (CREATE, 400, {"msg": "error 400/3467: image"}, BadSpec),
    (CREATE, 422, {"detail": [{"loc": ["disk"], "msg": "Input should be a number"}]}, BadSpec),
    (SEARCH, 400, {"msg": "q.gpu_name: Input should be a valid dictionary"}, BadSpec),
    (SEARCH, 400, no("invalid_request", "Invalid json body"), BadSpec),
    (BID, 400, no("invalid_price"), BadSpec),
    # other refusals
    (START, 200, BUSY, Refused),
    (LABEL, 400, no("label_too_long"), Refused),
    (ADD_KEY, 400, no("no_ssh_key"), Refused),
    (DESTROY, 200, {"success": False, "msg": "cannot"}, Refused),
    (STOP, 409, no("conflict", "busy"), Refused),
    (DESTROY, 410, no("gone", "gone"), Refused),
    (CREATE, 422, no("whatever"), Refused),
    (CREATE, 200, no("whatever"), OutcomeUnknown),
    (CREATE, 200, BUSY, OutcomeUnknown),
    # an instance Vast does not know, and what only looks like it
    *[(op, 404, NO_INSTANCE, NoSuchInstance) for op in sorted(ON_INSTANCE)],
    *[(op, 404, NOT_FOUND, NoSuchInstance) for op in sorted(ON_INSTANCE)],
    (DESTROY, 400, no("invalid_args", "error 404/1: no_such_instance"), NoSuchInstance),
    (DESTROY, 200, NO_INSTANCE, NoSuchInstance),
    (GET, 404, HTML, ContractChanged),
    (DESTROY, 404, HTML, OutcomeUnknown),
    (GET, 404, ROUTE_404, ContractChanged),
    (DESTROY, 404, ROUTE_404, OutcomeUnknown),
    (CREATE, 404, ROUTE_404, OutcomeUnknown),
    (GET, 404, {}, ContractChanged),
    (DESTROY, 404, b"", OutcomeUnknown),
    (LIST, 404, NOT_FOUND, ContractChanged),
    (CREATE, 404, NOT_FOUND, Refused),
    # a retired endpoint
    (LIST, 410, DEPRECATED, ContractChanged),
    (LIST, 200, DEPRECATED, ContractChanged),
    (LIST, 410, b"", ContractChanged),
    (LIST, 410, HTML, ContractChanged),
    (GET, 410, no("gone", "gone"), ContractChanged),
    (SEARCH, 410, DEPRECATED, ContractChanged),
    (CREATE, 410, DEPRECATED, ContractChanged),
    (LIST, 400, no("invalid_request", "dph is not a valid search key"), ContractChanged),
    (LIST, 400, no("invalid_token"), OutcomeUnknown),
    (ACCOUNT, 302, b"", ContractChanged),
    (CREATE, 308, b"", OutcomeUnknown),
    # nobody knows
    *[(op, 500, {"success": False, "msg": "boom"}, OutcomeUnknown) for op in Operation],
    *[(op, status, HTML, OutcomeUnknown) for op in Operation for status in (200, 502, 503, 504)],
    *[(op, 200, b"", OutcomeUnknown) for op in Operation],
    *[(op, 200, b"null", OutcomeUnknown) for op in Operation],
    *[(op, 200, b'{"success": true, "new_con', OutcomeUnknown) for op in Operation],
    *[(op, 500, PLAIN_429, OutcomeUnknown) for op in Operation],
    (DESTROY, 200, b'"ok"', OutcomeUnknown),
    (CREATE, 408, b"", OutcomeUnknown),
    (CREATE, 400, HTML, OutcomeUnknown),
    (CREATE, 503, no("insufficient_credit"), OutcomeUnknown),
    # too often
    *[(op, 429, PLAIN_429, RateLimited) for op in Operation],
    *[(op, 429, b"", RateLimited) for op in Operation],
    (CREATE, 429, {"detail": "API requests too frequent endpoint threshold=4.5"}, RateLimited),
    (DESTROY, 429, no("rate_limit_exceeded", "… threshold=3.0"), RateLimited),
    (DESTROY, 400, no("rate_limit_exceeded"), RateLimited),
    (SEARCH, 429, no("search_quota_exceeded", "Daily search quota exceeded"), RateLimited),
]


@pytest.mark.req("FAI-06")
@pytest.mark.parametrize(("operation", "status", "body", "expected"), TABLE)
def test_every_documented_failure_leads_to_one_conclusion(
    operation: Operation, status: int, body: Any, expected: type[errors.ProviderError]
):
    error = judge(operation, status, body)

    assert type(error) is expected
    assert str(error)[0].islower()
    assert not str(error).endswith(".")


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (CREATE, {"success": True, "new_contract": 1001, "instance_api_key": "f00d"}),
        (CREATE, {"new_contract": 1001}),
        (DESTROY, {"success": True}),
        (STOP, {"success": True, "msg": "", "error": None}),
        (SEARCH, {"offers": []}),
        (LIST, {"instances": []}),
        (GET, {"instances": None}),
        (KEYS, []),
        (ACCOUNT, {"id": 42, "credit": 12.5}),
        (ATTACH, {"success": True, "msg": "SSH key added to instance."}),
        (START, {"success": True, "msg": "auth_error no_such_instance too frequent"}),
    ],
)
def test_success_is_no_failure_whatever_words_it_uses(operation: Operation, body: Any):
    assert judge(operation, 200, body) is None


@pytest.mark.parametrize("status", [400, 200, 500])
def test_the_instance_left_by_a_failed_create_is_named(status: int):
    error = judge(CREATE, status, no("invalid_price") | {"new_contract": 1234})

    assert isinstance(error, CreatedButFailed)
    assert error.instance_id == 1234


@pytest.mark.req("SRC-16")
@pytest.mark.parametrize(
    ("body", "headers", "rest_s"),
    [
        (PLAIN_429, {}, 6.0),
        (b"", {}, 6.0),
        ({"detail": "API requests too frequent endpoint threshold=4.5"}, {}, 4.5),
        (no("rate_limit_exceeded", "too frequent endpoint threshold=3.0"), {}, 3.0),
        (PLAIN_429, {"retry-after": "2"}, 2.0),
        (PLAIN_429, {"retry-after": "120"}, 120.0),
        ({"detail": "too frequent, threshold=4.5"}, {"retry-after": "2"}, 4.5),
        (PLAIN_429, {"retry-after": "Mon, 21 Sep 2026 14:14:00 GMT"}, 40.0),
        (PLAIN_429, {"retry-after": "Mon, 21 Sep 2026 14:13:50 -0000"}, 30.0),
        (PLAIN_429, {"retry-after": "soon"}, 6.0),
        (PLAIN_429, {"retry-after": "-5"}, 6.0),
        (PLAIN_429, {"retry-after": "nan"}, 6.0),
        (PLAIN_429, {"retry-after": "0"}, 1.0),
        (PLAIN_429, {"retry-after": "1e300"}, 86_400.0),
    ],
)
def test_a_429_says_how_long_to_wait(body: Any, headers: dict[str, str], rest_s: float):
    error = judge(DESTROY, 429, body, headers=headers)

    assert isinstance(error, RateLimited)
    assert error.retry_after_s == rest_s
    assert not error.quota


@pytest.mark.req("SRC-16")
@pytest.mark.parametrize(
    ("headers", "rest_s"),
    [
        ({"x-ratelimit-reset": str(NOW + 500)}, 500.0),
        ({"x-ratelimit-reset": str(int((NOW + 500) * 1000))}, 500.0),  # milliseconds
        ({}, SECONDS_TO_MIDNIGHT),
        ({"x-ratelimit-reset": "tomorrow"}, SECONDS_TO_MIDNIGHT),
        ({"x-ratelimit-reset": "0"}, SECONDS_TO_MIDNIGHT),
        ({"x-ratelimit-reset": str(NOW - 500)}, 1.0),
    ],
)
def test_the_daily_search_quota_rests_until_its_reset(headers: dict[str, str], rest_s: float):
    error = judge(SEARCH, 429, no("search_quota_exceeded", "Daily quota"), headers=headers)

    assert isinstance(error, RateLimited)
    assert error.quota
    assert error.retry_after_s == rest_s


def test_a_404_for_the_key_list_means_none_unless_it_speaks_of_our_key():
    def says_none(status: int, body: Any) -> bool:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return is_empty_key_list(Reply(status=status, headers={}, body=data))

    assert says_none(404, no("not_found", "No SSH keys found for this user"))
    assert not says_none(404, INVALID_KEY)
    assert not says_none(404, EXPIRED)
    assert not says_none(404, HTML)
    assert not says_none(410, DEPRECATED)
    assert not says_none(200, [])


def test_a_message_names_the_call_and_hides_what_must_stay_hidden():
    error = judge(
        CREATE,
        400,
        no("invalid_args", "bad login hunter2hunter2 \x1b[31m for\nkey abcdef123456"),
        hidden=("hunter2hunter2", "abcdef123456", "bad"),
    )

    assert str(error) == (
        "cannot create 42: vast answered 400 (invalid_args: bad login [hidden] [31m for key [hidden])"
    )


def test_a_page_of_html_is_not_poured_into_the_message():
    assert str(judge(LIST, 502, HTML)) == "cannot list instances 42: vast answered 502 (a web page)"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["success", "error", "msg", "detail", "new_contract", "instances"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(
    operation=st.sampled_from(list(Operation)),
    status=st.sampled_from([200, 204, 301, 400, 401, 403, 404, 410, 411, 418, 429, 500, 503]),
    body=json_values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60),
    retry_after=st.text(max_size=30),
)
def test_no_answer_whatever_crashes_or_turns_a_failure_into_nothing(
    operation: Operation, status: int, body: bytes, retry_after: str
):
    error = judge(
        operation, status, body, headers={"retry-after": retry_after, "x-ratelimit-reset": "9"}
    )

    assert isinstance(error, errors.ProviderError) or (error is None and status < 300)
    if operation in READS:
        assert not isinstance(error, CreatedButFailed)
