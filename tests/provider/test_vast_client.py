"""Which request each call of the port makes, and what it makes of the answer."""

import json
from typing import Any

import httpx2
import pytest
import trio
from trio.testing import MockClock

from support.scripted_vast import SECRET, answer, scripted
from vastd.core.market import Account, Created, CreateSpec, Instance, OfferQuery, SshKey
from vastd.core.money import Micros
from vastd.errors import (
    AuthRejected,
    BadSpec,
    ContractChanged,
    CreatedButFailed,
    NoSuchInstance,
    OfferGone,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    Refused,
    Unreachable,
)
from vastd.provider.vast.client import VastProvider

OFFER = {
    "id": 7001, "ask_contract_id": 7001, "machine_id": 501, "gpu_name": "RTX 4090",
    "num_gpus": 1, "gpu_ram": 24564, "dph_total": 0.4123,
}  # fmt: skip
OK = {"success": True}
LOST = httpx2.ReadError("connection reset")


def a_spec(**changes: Any) -> CreateSpec:
    fields: dict[str, Any] = {
        "offer_id": 7001,
        "image": "pytorch/pytorch",
        "disk_gb": 32,
        "label": "demo/train vastd-ab12cd34-r-1",
    }
    return CreateSpec(**(fields | changes))


# -- what is sent ------------------------------------------------------------------------


async def test_a_request_carries_the_key_in_its_header_and_nowhere_else():
    async with scripted({"offers": []}) as (provider, vast):
        await provider.search_offers(OfferQuery())

    asked = vast.asked[0]
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert asked.headers["user-agent"] == "vastd/1.2.3"
    assert asked.headers["content-type"] == "application/json"
    assert SECRET not in f"{asked.method}{asked.path}{asked.query}{asked.body}"


async def test_a_search_sends_vasts_defaults_the_disk_and_the_order():
    query = OfferQuery(
        filters={"gpu_ram": {"gte": 24000}, "gpu_name": {"in": ["RTX 4090", "RTX 3090"]}},
        order=[("dph_total", "asc"), ("score", "desc")],
        limit=5,
        disk_gb=40.0,
    )

    async with scripted({"offers": [OFFER]}) as (provider, vast):
        offers = await provider.search_offers(query)

    assert [offer.offer_id for offer in offers] == [7001]
    assert (vast.asked[0].method, vast.asked[0].path) == ("POST", "/api/v0/bundles/")
    assert vast.asked[0].body == {
        "verified": {"eq": True},
        "external": {"eq": False},
        "rentable": {"eq": True},
        "gpu_ram": {"gte": 24000},
        "gpu_name": {"in": ["RTX 4090", "RTX 3090"]},
        "order": [["dph_total", "asc"], ["score", "desc"]],
        "type": "on-demand",
        "limit": 5,
        "allocated_storage": 40.0,
    }


async def test_a_search_overrides_or_drops_a_default_and_translates_the_id():
    filters: dict[str, dict[str, object]] = {
        "verified": {"eq": False}, "external": {}, "id": {"eq": 7001},
    }  # fmt: skip

    async with scripted({"offers": []}) as (provider, vast):
        await provider.search_offers(OfferQuery(filters=filters, interruptible=True))

    body = vast.asked[0].body
    assert body["verified"] == {"eq": False}
    assert body["ask_contract_id"] == {"eq": 7001}
    assert body["type"] == "bid"
    assert "external" not in body
    assert "id" not in body


async def test_a_search_gives_no_more_than_was_asked_for():
    rows = [OFFER | {"ask_contract_id": number} for number in range(1, 10)]

    async with scripted({"offers": rows}) as (provider, _vast):
        offers = await provider.search_offers(OfferQuery(limit=3))

    assert [offer.offer_id for offer in offers] == [1, 2, 3]


async def test_a_create_on_demand_has_no_price_and_may_not_leave_a_stopped_instance():
    spec = a_spec(onstart="echo hi", env={"A": "1", "-p 8080:8080": "1"})

    async with scripted({"success": True, "new_contract": 1001, "instance_api_key": "f"}) as (
        provider,
        vast,
    ):
        created = await provider.create_instance(spec)

    assert created == Created(instance_id=1001)
    assert (vast.asked[0].method, vast.asked[0].path) == ("PUT", "/api/v0/asks/7001/")
    assert vast.asked[0].body == {
        "client_id": "me",
        "image": "pytorch/pytorch",
        "disk": 32.0,
        "label": "demo/train vastd-ab12cd34-r-1",
        "env": {"A": "1", "-p 8080:8080": "1"},
        "onstart": "echo hi",
        "runtype": "ssh_direc ssh_proxy",
        "target_state": "running",
        "cancel_unavail": True,
    }
    assert isinstance(vast.asked[0].body["disk"], float)


async def test_a_bid_makes_it_interruptible_and_a_login_is_passed_on():
    async with scripted({"new_contract": "1001"}) as (provider, vast):
        created = await provider.create_instance(
            a_spec(bid=Micros(210_000), image_login="-u me -p pw docker.io")
        )

    assert created == Created(instance_id=1001)
    assert vast.asked[0].body["price"] == 0.21
    assert vast.asked[0].body["image_login"] == "-u me -p pw docker.io"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"onstart": "x" * 4097}, "onstart script has 4097 characters"),
        ({"image": "py torch"}, "white space"),
        ({"image": ""}, "empty"),
        ({"image": "a\x1bb"}, "is not an image name"),
        ({"image": "x" * 1025}, "1025 characters"),
        ({"label": "x" * 257}, "257 characters"),
        ({"label": " "}, "no label"),
        ({"disk_gb": float("nan")}, "disk"),
        ({"disk_gb": -1}, "disk"),
        ({"env": {"": "1"}}, "usable name"),
        ({"env": {"A=B": "1"}}, "usable name"),
        ({"env": {"A": "x" * 32_768}}, "32769 characters"),
        ({"bid": Micros(0)}, "bid of"),
        ({"bid": Micros(129_000_000)}, "bid of"),
    ],
)
async def test_a_spec_vast_would_refuse_or_cut_is_refused_unsent(
    changes: dict[str, Any], words: str
):
    async with scripted(OK) as (provider, vast):
        with pytest.raises(BadSpec, match=words):
            await provider.create_instance(a_spec(**changes))

    assert vast.asked == []


async def test_onstart_of_the_longest_length_is_sent():
    async with scripted({"new_contract": 1}) as (provider, vast):
        await provider.create_instance(a_spec(onstart="x" * 4096))

    assert len(vast.asked[0].body["onstart"]) == 4096


CALLS: list[tuple[str, tuple[Any, ...], str, str, Any]] = [
    ("destroy_instance", (42,), "DELETE", "/api/v0/instances/42/", {}),
    ("stop_instance", (42,), "PUT", "/api/v0/instances/42/", {"state": "stopped"}),
    ("start_instance", (42,), "PUT", "/api/v0/instances/42/", {"state": "running"}),
    ("set_label", (42, "my label"), "PUT", "/api/v0/instances/42/", {"label": "my label"}),
    ("change_bid", (42, Micros(330_000)), "PUT", "/api/v0/instances/bid_price/42/",
     {"client_id": "me", "price": 0.33}),
    ("add_ssh_key", ("ssh-ed25519 AAAA d\n",), "POST", "/api/v0/ssh/",
     {"ssh_key": "ssh-ed25519 AAAA d"}),
    ("attach_ssh_key", (42, "ssh-ed25519 AAAA d"), "POST", "/api/v0/instances/42/ssh/",
     {"ssh_key": "ssh-ed25519 AAAA d"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "method", "path", "body"), CALLS)
async def test_every_write_sends_one_request_as_the_official_client_does(
    name: str, args: tuple[Any, ...], method: str, path: str, body: Any
):
    async with scripted(OK) as (provider, vast):
        await getattr(provider, name)(*args)

    (asked,) = vast.asked
    assert (asked.method, asked.path, asked.body, asked.query) == (method, path, body, {})


# -- what a lost or odd answer means -----------------------------------------------------


@pytest.mark.req("CRE-09")
@pytest.mark.parametrize("step", [LOST, answer(b"<html>", 502), httpx2.ReadTimeout("slow")])
async def test_a_create_whose_answer_is_lost_is_unknown_and_sent_only_once(step: Any):
    async with scripted(step) as (provider, vast):
        with pytest.raises(OutcomeUnknown):
            await provider.create_instance(a_spec())

    assert len(vast.asked) == 1


@pytest.mark.req("CRE-06")
@pytest.mark.parametrize(
    "body", [OK, {"success": True, "new_contract": "soon"}, {"new_contract": 0}, {}]
)
async def test_a_created_instance_without_an_id_is_an_unknown_outcome(body: Any):
    async with scripted(body) as (provider, _vast):
        with pytest.raises(OutcomeUnknown, match="without the id"):
            await provider.create_instance(a_spec())


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ConnectError("refused"),
        httpx2.ConnectTimeout("slow"),
        httpx2.ProxyError("407"),
        httpx2.PoolTimeout("full"),
    ],
)
async def test_without_a_connection_nothing_was_done(error: Exception):
    async with scripted(error) as (provider, _vast):
        with pytest.raises(Unreachable, match=r"no connection to vast\.example"):
            await provider.create_instance(a_spec())


async def test_a_low_bid_that_leaves_a_stopped_instance_names_it():
    body = {"success": False, "error": "invalid_price", "msg": "too low", "new_contract": 77}

    async with scripted(answer(body, 400)) as (provider, _vast):
        with pytest.raises(CreatedButFailed) as caught:
            await provider.create_instance(a_spec(bid=Micros(10_000)))

    assert caught.value.instance_id == 77


async def test_an_error_repeats_neither_the_key_nor_the_login_nor_the_environment():
    body = {"error": "invalid_args", "msg": f"-u me -p hunter2hunter2 TOKENTOKEN {SECRET}"}

    async with scripted(answer(body, 400)) as (provider, _vast):
        with pytest.raises(BadSpec) as caught:
            await provider.create_instance(
                a_spec(image_login="-u me -p hunter2hunter2 x.io", env={"T": "TOKENTOKEN"})
            )

    assert "-u me -p [hidden] [hidden] [hidden]" in str(caught.value)


async def test_a_start_on_a_taken_gpu_is_refused_with_the_way_out():
    body = {
        "success": False,
        "error": "resources_unavailable",
        "msg": "Required resources are currently unavailable, state change queued.",
    }

    async with scripted(body) as (provider, _vast):
        with pytest.raises(Refused) as caught:
            await provider.start_instance(42)

    assert "stop the instance" in caught.value.hint


# -- one instance ------------------------------------------------------------------------


async def test_one_instance_is_read():
    async with scripted({"instances": {"id": 42, "actual_status": "loading"}}) as (provider, vast):
        instance = await provider.get_instance(42)

    assert instance == Instance(instance_id=42, status="loading")
    assert (vast.asked[0].path, vast.asked[0].query) == ("/api/v0/instances/42/", {"owner": "me"})
    assert vast.asked[0].body is None


@pytest.mark.parametrize(
    "step",
    [
        {"instances": None},
        answer({"success": False, "error": "no_such_instance", "msg": "Instance not found"}, 404),
    ],
)
async def test_an_instance_vast_does_not_know_is_none(step: Any):
    async with scripted(step) as (provider, _vast):
        assert await provider.get_instance(42) is None


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (answer({"success": False, "error": "auth_error", "msg": "x"}, 404), AuthRejected),
        (answer({"msg": "Session expired. Please log in again."}, 404), AuthRejected),
        (answer(b"<html>", 404), ContractChanged),
        (answer({"detail": "Not Found"}, 404), ContractChanged),
        ({}, ContractChanged),
        ({"instances": []}, ContractChanged),
        ({"instances": {}}, ContractChanged),
        ({"instances": {"id": 43}}, ContractChanged),
        (answer(b"null"), OutcomeUnknown),
        (answer(b""), OutcomeUnknown),
        (answer(b'""'), ContractChanged),
        (answer(b"[]"), ContractChanged),
        (LOST, OutcomeUnknown),
    ],
)
async def test_nothing_else_reads_as_an_absent_instance(step: Any, expected: type[Exception]):
    async with scripted(step) as (provider, _vast):
        with pytest.raises(expected):
            await provider.get_instance(42)


@pytest.mark.parametrize("code", ["no_such_instance", "not_found"])
async def test_destroying_what_is_gone_says_so(code: str):
    async with scripted(answer({"success": False, "error": code, "msg": ""}, 404)) as (provider, _):
        with pytest.raises(NoSuchInstance):
            await provider.destroy_instance(42)


# -- the listing -------------------------------------------------------------------------


def page(first: int, count: int, *, total: Any, token: Any = None, **more: Any) -> dict[str, Any]:
    rows = [{"id": number} for number in range(first, first + count)]
    return {
        "success": True,
        "instances": rows,
        "total_instances": total,
        "next_token": token,
    } | more


async def ids(provider: VastProvider) -> list[int]:
    return [instance.instance_id for instance in await provider.list_instances()]


@pytest.mark.req("WAI-08")
async def test_a_listing_follows_every_page(autojump_clock: MockClock):
    pages = [
        page(1, 25, total=60, token="T2"), page(26, 25, total=60, token="T3"),
        page(51, 10, total=60),
    ]  # fmt: skip

    async with scripted(*pages, page_interval_s=1.1) as (provider, vast):
        listed = await ids(provider)

    assert listed == list(range(1, 61))
    assert [asked.query.get("after_token") for asked in vast.asked] == [None, "T2", "T3"]
    assert {asked.path for asked in vast.asked} == {"/api/v1/instances/"}
    assert vast.asked[0].query["limit"] == "25"
    assert json.loads(vast.asked[0].query["select_filters"]) == {}
    assert json.loads(vast.asked[0].query["order_by"]) == [{"col": "id", "dir": "asc"}]
    # Pages count against the threshold of the list too.
    assert trio.current_time() == 2.2


async def test_an_empty_account_lists_nothing():
    async with scripted(page(1, 0, total=0)) as (provider, _vast):
        assert await ids(provider) == []


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [{"id": 1}]},
        page(1, 1, total=None),
        page(1, 1, total="1"),
        page(1, 1, total=1, token=""),
        page(1, 25, total=None, token=None) | {"instances": [{"id": 1}, {"id": 1}]},
    ],
)
async def test_a_listing_does_not_need_its_optional_fields(body: Any):
    async with scripted(body) as (provider, _vast):
        assert await ids(provider) == [1]


UNKNOWN: list[tuple[list[Any], type[ProviderError]]] = [
    ([page(1, 25, total=26, token="T2"), LOST], OutcomeUnknown),
    ([page(1, 25, total=26, token="T2"), answer(b"<html>", 502)], OutcomeUnknown),
    ([page(1, 25, total=26, token="T2"), answer(b"too frequent", 429)], RateLimited),
    ([page(1, 25, total=26)], OutcomeUnknown),
    ([page(1, 0, total=3)], OutcomeUnknown),
    ([page(1, 3, total=2)], OutcomeUnknown),
    ([page(1, 25, total=26, token="T2"), page(26, 1, total=25)], OutcomeUnknown),
    ([page(1, 25, total=99, token="T2"), page(26, 25, total=99, token="T2")], OutcomeUnknown),
    ([page(1, 25, total=99, token="T2"), page(1, 25, total=99, token="T3")], OutcomeUnknown),
    ([page(1, 0, total=99, token="T2")], OutcomeUnknown),
    # Instance 3 ended between the pages, and 26 slipped through.
    ([page(1, 25, total=30, token="T2"), page(27, 4, total=29)], OutcomeUnknown),
    # A page that comes again, however well it ends later.
    (
        [
            page(1, 25, total=60, token="T2"),
            page(26, 25, total=60, token="T2"),
            page(51, 10, total=60),
        ],
        OutcomeUnknown,
    ),
    (
        [
            page(1, 25, total=26, token="T2"),
            page(1, 25, total=26, token="T3"),
            page(26, 1, total=26),
        ],
        OutcomeUnknown,
    ),
    ([page(1, 25, total=99, token=7)], ContractChanged),
    ([{"instances": [{"id": number} for number in range(1, 26)]}], ContractChanged),
    ([{"success": True, "instances": [{"id": 1}, {"label": "x"}]}], ContractChanged),
    ([{"success": True, "instances": [{"id": 1}, None]}], ContractChanged),
    ([{"success": True, "instances": None}], ContractChanged),
    ([{"success": True, "instances": {}}], ContractChanged),
    ([{"success": True}], ContractChanged),
    ([answer(b'""')], ContractChanged),
    ([answer(b"[]")], ContractChanged),
    ([answer(b"null")], OutcomeUnknown),
    ([answer(b"")], OutcomeUnknown),
    ([answer(b"<html>")], OutcomeUnknown),
    (
        [answer({"success": False, "error": "deprecated_endpoint", "msg": "x"}, 410)],
        ContractChanged,
    ),
    ([answer({"success": False, "error": "auth_error", "msg": "x"}, 404)], AuthRejected),
]


@pytest.mark.parametrize(("script", "expected"), UNKNOWN)
async def test_a_listing_that_is_not_surely_complete_is_unknown_and_never_short(
    script: list[Any], expected: type[ProviderError]
):
    async with scripted(*script) as (provider, _vast):
        with pytest.raises(expected):
            await provider.list_instances()


async def test_a_server_that_never_ends_its_pages_is_left():
    def endless() -> list[Any]:
        return [page(number, 1, total=None, token=f"T{number}") for number in range(1, 500)]

    async with scripted(*endless()) as (provider, vast):
        with pytest.raises(OutcomeUnknown, match="round in circles after 400 pages"):
            await provider.list_instances()

    assert len(vast.asked) == 400


# -- keys and account --------------------------------------------------------------------


async def test_ssh_keys_are_listed_and_a_404_without_a_word_on_the_key_means_none():
    rows = [{"id": 71, "user_id": 42, "key": "ssh-ed25519 AAAA d", "deleted_at": None}]
    none = answer({"success": False, "error": "not_found", "msg": "No SSH keys found"}, 404)

    async with scripted(rows, none, []) as (provider, vast):
        assert await provider.list_ssh_keys() == [
            SshKey(key_id=71, public_key="ssh-ed25519 AAAA d")
        ]
        assert await provider.list_ssh_keys() == []
        assert await provider.list_ssh_keys() == []

    assert {asked.path for asked in vast.asked} == {"/api/v0/ssh/"}


async def test_a_rejected_key_is_not_an_empty_list_of_ssh_keys():
    body = {"success": False, "error": "auth_error", "msg": "Invalid user key"}

    async with scripted(answer(body, 404)) as (provider, _vast):
        with pytest.raises(AuthRejected):
            await provider.list_ssh_keys()


async def test_a_key_that_is_there_already_is_as_good_as_added():
    there = answer({"success": False, "error": "invalid_args", "msg": "Key already exists"}, 400)

    async with scripted(there) as (provider, vast):
        await provider.add_ssh_key("ssh-ed25519 AAAA d")
        await provider.attach_ssh_key(42, "ssh-ed25519 AAAA d")

    assert len(vast.asked) == 2


async def test_a_key_for_an_instance_that_is_gone_already_is_not_attached():
    gone = answer({"success": False, "error": "no_such_instance", "msg": "already gone"}, 404)

    async with scripted(gone) as (provider, _vast):
        with pytest.raises(NoSuchInstance):
            await provider.attach_ssh_key(42, "ssh-ed25519 AAAA d")


async def test_a_key_vast_will_not_take_is_refused():
    bad = answer({"success": False, "error": "no_ssh_key", "msg": "no key in it"}, 400)

    async with scripted(bad) as (provider, _vast):
        with pytest.raises(Refused):
            await provider.add_ssh_key("garbage")


async def test_the_account_is_read():
    async with scripted({"id": 42, "email": "a@b.c", "credit": 12.5}) as (provider, vast):
        account = await provider.get_account()

    assert account == Account(user_id=42, email="a@b.c", credit=Micros(12_500_000))
    assert vast.asked[0].path == "/api/v0/users/current/"


async def test_a_taken_offer_is_told_apart_from_a_bad_request():
    taken = {
        "success": False, "error": "invalid_args", "ask_id": 7001,
        "msg": "error 404/3603: no_such_ask  Instance type by id 7001 is not available.",
    }  # fmt: skip

    async with scripted(answer(taken, 400)) as (provider, _vast):
        with pytest.raises(OfferGone, match="from offer 7001"):
            await provider.create_instance(a_spec())
