"""The façade speaks Vast: shapes, refusals, keys, limits and faults as VAST_API.md says."""

import msgspec
import pytest
import trio
import trio.testing

from support.sim_hosts import CONTROL_TOKEN, EPOCH, SmallFacade
from vastd.errors import InvalidRequest
from vastd.simulator.facade.backend import HostState, NoMachines
from vastd.simulator.facade.fault_names import NamedFault, fault_names, parse_fault
from vastd.simulator.facade.http import Ending, Reply
from vastd.simulator.faults import BOOT_SAYS, FaultKind, MachineFaultKind, Point
from vastd.simulator.service import stop_when_idle

pytestmark = pytest.mark.sim

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAwELYvJsGJl3PAejUxg9vBqz8LYcK3G test"


@pytest.fixture
def vast() -> SmallFacade:
    return SmallFacade()


def test_every_route_answers_with_and_without_its_trailing_slash(vast: SmallFacade) -> None:
    find = vast.facade._router.find
    for path in ("/api/v0/bundles", "/api/v0/ssh", "/api/v0/asks/5", "/sim/status"):
        method = {"/api/v0/bundles": "POST", "/api/v0/asks/5": "PUT"}.get(path, "GET")
        assert find(method, path) is not None
        assert find(method, f"{path}/") is not None


# -- keys --------------------------------------------------------------------------------


async def test_an_unknown_key_is_a_404_that_says_auth_error(vast: SmallFacade) -> None:
    vast.key = "wrong"

    status, body = await vast.call("GET", "/api/v0/users/current")

    assert status == 404
    assert body == {"success": False, "error": "auth_error", "msg": "Invalid user key"}


async def test_no_key_is_a_403(vast: SmallFacade) -> None:
    vast.key = None

    status, body = await vast.call("GET", "/api/v1/instances/")

    assert status == 403
    assert body == {"success": False, "error": "auth_error", "msg": "This action requires login."}


async def test_the_key_may_come_as_a_parameter(vast: SmallFacade) -> None:
    key, vast.key = vast.key, None
    assert key is not None

    status, _ = await vast.call("GET", "/api/v0/users/current/", api_key=key)

    assert status == 200


async def test_offers_need_no_key_but_refuse_a_wrong_one(vast: SmallFacade) -> None:
    vast.key = None
    anonymous, _ = await vast.call("POST", "/api/v0/bundles/", {})
    vast.key = "wrong"
    wrong, _ = await vast.call("POST", "/api/v0/bundles/", {})

    assert (anonymous, wrong) == (200, 404)


async def test_an_instance_key_reaches_its_own_instance_and_nothing_else(vast: SmallFacade) -> None:
    mine, other = await vast.rent("mine"), await vast.rent("other")
    vast.key = vast.market.contract(mine).api_key

    assert (await vast.call("GET", f"/api/v0/instances/{mine}/"))[0] == 200
    assert (await vast.call("PUT", f"/api/v0/instances/{mine}/", {"label": "x"}))[0] == 200
    assert (await vast.call("GET", f"/api/v0/instances/{other}/"))[0] == 403
    assert (await vast.call("DELETE", f"/api/v0/instances/{other}/"))[0] == 403
    assert (await vast.call("GET", "/api/v1/instances/"))[0] == 403
    assert (await vast.call("GET", "/api/v0/users/current/"))[0] == 403
    assert (await vast.call("DELETE", f"/api/v0/instances/{mine}/"))[0] == 200
    assert {c.instance_id: c.stage for c in vast.market.live_contracts()}[mine] == "destroying"


async def test_a_scoped_key_is_refused_outside_its_scopes(vast: SmallFacade) -> None:
    key = vast.market.account.add_api_key("r", permissions=frozenset({"instance_read"}))
    vast.key = key.token

    assert (await vast.call("GET", "/api/v1/instances/"))[0] == 200
    status, body = await vast.call("PUT", f"/api/v0/asks/{vast.free_offer()}/", {"image": "a"})
    assert status == 403
    assert isinstance(body, dict)
    assert body["error"] == "not_authorized"


async def test_the_control_routes_accept_the_control_token_alone(vast: SmallFacade) -> None:
    assert (await vast.call("GET", "/sim/status"))[0] == 403
    vast.key = CONTROL_TOKEN

    status, body = await vast.call("GET", "/sim/status")

    assert status == 200
    assert isinstance(body, dict)
    assert body["live"] == []


# -- offers and creation -----------------------------------------------------------------


async def test_search_asks_refuses_a_flat_body(vast: SmallFacade) -> None:
    status, body = await vast.call("PUT", "/api/v0/search/asks/", {"num_gpus": {"eq": 1}})

    assert status == 400
    assert isinstance(body, dict)
    assert "Extra inputs are not permitted" in str(body["msg"])


async def test_search_asks_applies_no_defaults(vast: SmallFacade) -> None:
    query = {"select_cols": ["*"], "q": {"verified": {"eq": False}}}

    status, body = await vast.call("PUT", "/api/v0/search/asks/", query)

    assert status == 200
    assert isinstance(body, dict)
    assert {row["verified"] for row in body["offers"]} == {False}


async def test_a_create_answers_with_the_instance_and_its_key(vast: SmallFacade) -> None:
    offer = vast.free_offer()

    status, body = await vast.call(
        "PUT", f"/api/v0/asks/{offer}/",
        {"client_id": "me", "image": "ubuntu:22.04", "disk": "12.5", "label": "l",
         "env": {"A": "b", "-p 80:80": "1"}, "runtype": "ssh_direc ssh_proxy", "price": None,
         "cancel_unavail": False, "target_state": "running", "onstart": "echo hi"},
    )  # fmt: skip

    assert status == 200
    assert isinstance(body, dict)
    assert body["success"] is True
    contract = vast.market.contract(body["new_contract"])
    assert body["instance_api_key"] == contract.api_key
    assert contract.order.disk_gb == 12.5
    assert contract.order.env == {"A": "b", "-p 80:80": "1"}
    assert vast.market.journal[-1].kind == "create"


async def test_an_env_that_is_a_string_is_silently_ignored(vast: SmallFacade) -> None:
    instance_id = await vast.rent(env="-e A=b")

    assert vast.market.contract(instance_id).order.env == {}


async def test_a_taken_offer_is_a_400_whose_text_says_no_such_ask(vast: SmallFacade) -> None:
    offer = vast.free_offer()
    body = {"image": "ubuntu"}
    await vast.call("PUT", f"/api/v0/asks/{offer}/", body)

    status, reply = await vast.call("PUT", f"/api/v0/asks/{offer}/", body)

    assert status == 400
    assert isinstance(reply, dict)
    assert reply["error"] == "invalid_args"
    assert "no_such_ask" in reply["msg"]


async def test_a_bid_that_is_too_low_names_the_instance_it_made(vast: SmallFacade) -> None:
    offer = vast.free_offer()

    status, reply = await vast.call(
        "PUT", f"/api/v0/asks/{offer}/", {"image": "ubuntu", "price": 0.001}
    )

    assert status == 400
    assert isinstance(reply, dict)
    assert [c.instance_id for c in vast.market.live_contracts()] == [reply["new_contract"]]


async def test_a_body_that_is_no_json_object_is_invalid_request(vast: SmallFacade) -> None:
    for body in (b"{", b"[1]", b"nonsense"):
        reply = await vast.raw("PUT", f"/api/v0/asks/{vast.free_offer()}/", body)
        assert reply.status == 400
        assert b"Invalid json body" in reply.body


# -- reading -----------------------------------------------------------------------------


async def pages(vast: SmallFacade, **query: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    token: str | None = None
    while True:
        more = {} if token is None else {"after_token": token}
        status, body = await vast.call("GET", "/api/v1/instances/", **query, **more)
        assert status == 200, body
        assert isinstance(body, dict)
        found += body["instances"]
        token = body["next_token"]
        if token is None:
            return found


async def test_pages_of_25_hold_every_row_once_in_any_order(vast: SmallFacade) -> None:
    ids = [await vast.rent(f"l{number % 3}") for number in range(60)]

    assert [row["id"] for row in await pages(vast)] == ids
    by_label = await pages(
        vast, limit="7", order_by='[{"col":"label","dir":"desc"},{"col":"id","dir":"asc"}]'
    )
    assert sorted(str(row["id"]) for row in by_label) == sorted(map(str, ids))
    assert [row["label"] for row in by_label] == sorted(
        (str(row["label"]) for row in by_label), reverse=True
    )


async def test_a_row_that_vanishes_between_two_pages_hides_no_other(vast: SmallFacade) -> None:
    ids = [await vast.rent() for _ in range(30)]
    _, first = await vast.call("GET", "/api/v1/instances/", limit="10")
    assert isinstance(first, dict)
    vast.market.contract(ids[9]).vanish(vast.clock())
    vast.market.contract(ids[3]).vanish(vast.clock())
    vast.market.world.settle(vast.clock())

    _, second = await vast.call(
        "GET", "/api/v1/instances/", limit="10", after_token=first["next_token"]
    )

    assert isinstance(second, dict)
    assert [row["id"] for row in second["instances"]] == ids[10:20]


async def test_the_list_counts_labels_and_filters_columns(vast: SmallFacade) -> None:
    first, _, _ = await vast.rent("a"), await vast.rent("b"), await vast.rent("b")

    _, body = await vast.call(
        "GET", "/api/v1/instances/", select_filters='{"label":{"in":["a","c"]}}',
        select_cols='["id","nonsense"]',
    )  # fmt: skip

    assert isinstance(body, dict)
    assert body["instances"] == [{"id": first, "nonsense": None}]
    assert body["label_counts"] == {"a": 1, "b": 2}
    assert (body["instances_found"], body["total_instances"]) == (1, 1)


async def test_id_can_be_filtered_in_the_list(vast: SmallFacade) -> None:
    _, second = await vast.rent(), await vast.rent()

    rows = await pages(vast, select_filters=f'{{"id":{{"eq":{second}}}}}')

    assert [row["id"] for row in rows] == [second]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"select_filters": '{"dph_total":{"lt":1}}'}, "invalid_request"),
        ({"order_by": '[{"col":"dph_total"}]'}, "invalid_request"),
        ({"select_filters": "{"}, "invalid_request"),
        ({"after_token": "nonsense"}, "invalid_token"),
    ],
)
async def test_nonsense_in_a_list_query_is_refused(
    vast: SmallFacade, query: dict[str, str], error: str
) -> None:
    status, body = await vast.call("GET", "/api/v1/instances/", **query)

    assert status == 400
    assert isinstance(body, dict)
    assert body["error"] == error


async def test_a_limit_of_zero_means_five(vast: SmallFacade) -> None:
    for _ in range(8):
        await vast.rent()

    _, body = await vast.call("GET", "/api/v1/instances/", limit="0")

    assert isinstance(body, dict)
    assert body["instances_found"] == 5


async def test_the_old_list_is_retired(vast: SmallFacade) -> None:
    status, body = await vast.call("GET", "/api/v0/instances/")

    assert status == 410
    assert isinstance(body, dict)
    assert body["error"] == "deprecated_endpoint"


async def test_an_unknown_id_reads_as_null(vast: SmallFacade) -> None:
    assert await vast.call("GET", "/api/v0/instances/99/") == (200, {"instances": None})


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/v0/nonsense/"), ("DELETE", "/api/v0/bundles/"), ("POST", "/api/v0/asks/bulk/")],
)
async def test_what_is_not_modelled_is_a_404_in_the_usual_form(
    method: str, path: str, vast: SmallFacade
) -> None:
    body = {"success": False, "error": "not_found", "msg": f"no route {method} {path}"}

    assert await vast.call(method, path, {}) == (404, body)


# -- changing ----------------------------------------------------------------------------


async def test_a_put_stops_starts_and_labels(vast: SmallFacade) -> None:
    instance_id = await vast.rent()
    vast.clock.now += 600
    path = f"/api/v0/instances/{instance_id}/"

    assert await vast.call("PUT", path, {"state": "stopped"}) == (200, {"success": True})
    vast.clock.now += 60
    assert vast.market.contract(instance_id).actual_status == "exited"
    assert await vast.call("PUT", path, {"state": "running"}) == (200, {"success": True})
    assert await vast.call("PUT", path, {"label": "new"}) == (200, {"success": True})
    assert vast.market.contract(instance_id).label == "new"
    assert (await vast.call("PUT", path, {"state": "sideways"}))[0] == 400
    assert (await vast.call("PUT", "/api/v0/instances/9/", {"state": "stopped"}))[0] == 404


async def test_a_start_without_free_gpus_is_a_200_that_says_no(vast: SmallFacade) -> None:
    instance_id = await vast.rent()
    vast.clock.now += 600
    vast.market.stop(instance_id)
    vast.clock.now += 60
    vast.market.occupy(vast.market.contract(instance_id).machine.machine_id)

    status, body = await vast.call("PUT", f"/api/v0/instances/{instance_id}/", {"state": "running"})

    assert status == 200
    assert isinstance(body, dict)
    assert (body["success"], body["error"]) == (False, "resources_unavailable")


async def test_a_destroyed_instance_is_gone_after_a_while_and_then_a_404(vast: SmallFacade) -> None:
    instance_id = await vast.rent()
    path = f"/api/v0/instances/{instance_id}/"

    assert (await vast.call("DELETE", path, {}))[0] == 200
    vast.clock.now += 60

    assert await vast.call("GET", path) == (200, {"instances": None})
    status, body = await vast.call("DELETE", path, {})
    assert status == 404
    assert isinstance(body, dict)
    assert body["error"] == "no_such_instance"


async def test_the_log_is_fetched_without_a_key_from_an_unguessable_url(vast: SmallFacade) -> None:
    class Talking(NoMachines):
        def container_log(self, instance_id: int) -> str:
            return "one\ntwo\nthree two\n"

    vast = SmallFacade(machines=Talking())
    instance_id = await vast.rent()

    _, body = await vast.call(
        "PUT", f"/api/v0/instances/request_logs/{instance_id}/", {"tail": "1", "filter": "two"}
    )

    assert isinstance(body, dict)
    path = str(body["result_url"]).removeprefix(vast.backend.url)
    vast.key = None
    assert (await vast.raw("GET", path)).body == b"three two\n"
    assert (await vast.raw("GET", "/instance_logs/guess.log")).status == 404


async def test_only_ls_rm_and_du_can_be_commanded(vast: SmallFacade) -> None:
    instance_id = await vast.rent()
    path = f"/api/v0/instances/command/{instance_id}/"

    assert (await vast.call("PUT", path, {"command": "ls -l /root"}))[0] == 200
    for command in ("cat /etc/passwd", "", "ls 'unbalanced", "ls " + "x" * 600):
        status, body = await vast.call("PUT", path, {"command": command})
        assert status == 400
        assert isinstance(body, dict)
        assert "Invalid command given." in body["msg"]


# -- account -----------------------------------------------------------------------------


async def test_keys_are_a_404_while_there_are_none_and_a_list_afterwards(vast: SmallFacade) -> None:
    assert (await vast.call("GET", "/api/v0/ssh/"))[0] == 404
    _, made = await vast.call("POST", "/api/v0/ssh/", {"ssh_key": PUBLIC_KEY})
    assert isinstance(made, dict)

    status, keys = await vast.call("GET", "/api/v0/ssh/")

    assert status == 200
    assert isinstance(keys, list)
    assert [(key["id"], key["public_key"]) for key in keys] == [(made["key"]["id"], PUBLIC_KEY)]
    assert (await vast.call("DELETE", f"/api/v0/ssh/{made['key']['id']}/"))[0] == 200
    assert (await vast.call("GET", "/api/v0/ssh/"))[0] == 404


async def test_an_instance_lists_its_keys_as_json_within_json(vast: SmallFacade) -> None:
    instance_id = await vast.rent()
    path = f"/api/v0/instances/{instance_id}/ssh/"
    assert (await vast.call("POST", path, {"ssh_key": PUBLIC_KEY}))[0] == 200

    _, body = await vast.call("GET", path)

    assert isinstance(body, dict)
    keys = msgspec.json.decode(body["ssh_keys"])
    assert [key["public_key"] for key in keys] == [PUBLIC_KEY]
    assert vast.market.contract(instance_id).accepts(PUBLIC_KEY)
    assert (await vast.call("DELETE", f"{path}{keys[0]['id']}/"))[0] == 200
    assert not vast.market.contract(instance_id).accepts(PUBLIC_KEY)


async def test_secrets_are_masked(vast: SmallFacade) -> None:
    await vast.call("POST", "/api/v0/secrets/", {"key": "token", "value": "s3cret"})

    _, body = await vast.call("GET", "/api/v0/secrets/")

    assert body == {"success": True, "secrets": {"TOKEN": "********"}}


async def test_charges_need_both_days_and_add_up_to_the_bill(vast: SmallFacade) -> None:
    instance_id = await vast.rent()
    vast.clock.now += 3600
    none, _ = await vast.call("GET", "/api/v0/charges/")

    _, body = await vast.call(
        "GET", "/api/v0/charges/", select_filters='{"day":{"gte":0,"lte":9e9}}'
    )

    assert none == 400
    assert isinstance(body, dict)
    charge = body["results"][0]
    assert charge["source"] == f"instance-{instance_id}"
    assert charge["amount"] == pytest.approx(sum(item["amount"] for item in charge["items"]))
    assert charge["amount"] > 0


# -- limits ------------------------------------------------------------------------------


async def test_limits_are_off_unless_asked_for(vast: SmallFacade) -> None:
    for _ in range(5):
        assert (await vast.call("GET", "/api/v1/instances/"))[0] == 200


async def test_a_violated_create_limit_costs_a_penalty() -> None:
    vast = SmallFacade(rate_limits=True)
    await vast.rent()
    vast.clock.now += 4

    async def create() -> int:
        path = f"/api/v0/asks/{vast.free_offer()}/"
        return (await vast.raw("PUT", path, b'{"image":"a"}')).status

    assert await create() == 429
    vast.clock.now += 11
    assert await create() == 429
    vast.clock.now += 12
    assert await create() == 200


async def test_ten_searches_may_come_at_once_and_the_eleventh_waits() -> None:
    vast = SmallFacade(rate_limits=True)

    codes = [(await vast.raw("POST", "/api/v0/bundles/", b"{}")).status for _ in range(11)]

    assert codes == [200] * 10 + [429]
    vast.clock.now += 60
    assert (await vast.raw("POST", "/api/v0/bundles/", b"{}")).status == 200


# -- idling ------------------------------------------------------------------------------


async def test_a_service_is_idle_only_without_contract_and_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    vast = SmallFacade(clock=lambda: EPOCH + trio.current_time())
    instance_id = await vast.rent()
    stop = trio.Event()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_when_idle, 600.0, vast.facade, vast.backend, stop)
        await trio.sleep(3600)
        while_rented = stop.is_set()
        await vast.call("DELETE", f"/api/v0/instances/{instance_id}/")
        destroyed_at = trio.current_time()
        await trio.sleep(500)
        await vast.call("GET", "/api/v1/instances/")
        await stop.wait()

    assert not while_rented
    assert 1_100.0 <= trio.current_time() - destroyed_at <= 1_200.0


# -- faults ------------------------------------------------------------------------------


async def strike(vast: SmallFacade, kind: FaultKind) -> Reply:
    vast.faults.inject(Point.CREATE, kind, hang_s=3.0)
    return await vast.raw("PUT", f"/api/v0/asks/{vast.free_offer()}/", b'{"image":"a"}')


@pytest.mark.parametrize(
    ("kind", "status", "happened"),
    [
        (FaultKind.LOSE_REQUEST, 0, False),
        (FaultKind.TIMEOUT, 0, False),
        (FaultKind.LOSE_ANSWER, 0, True),
        (FaultKind.HTTP_429, 429, False),
        (FaultKind.HTTP_500, 500, False),
        (FaultKind.HTTP_500_AFTER, 500, True),
        (FaultKind.HTTP_410, 410, False),
        (FaultKind.AUTH_404, 404, False),
        (FaultKind.AUTH_401, 401, False),
        (FaultKind.HTML, 502, False),
        (FaultKind.EMPTY_BODY, 200, True),
        (FaultKind.NULL, 200, True),
        (FaultKind.TRUNCATED_PAGE, 200, True),
        (FaultKind.OFFER_GONE, 400, False),
        (FaultKind.NO_CREDIT, 400, False),
        (FaultKind.SPEND_RATE, 400, False),
    ],
)
async def test_a_fault_shows_as_bad_http_before_or_after_the_effect(
    vast: SmallFacade,
    autojump_clock: trio.testing.MockClock,
    kind: FaultKind,
    status: int,
    happened: bool,
) -> None:
    reply = await strike(vast, kind)

    assert (0 if reply.ending is Ending.DROPPED else reply.status) == status
    assert (len(vast.market.live_contracts()) == 1) is happened
    assert vast.faults.pending() == []


async def test_429_comes_in_three_forms(vast: SmallFacade) -> None:
    bodies = {(await strike(vast, FaultKind.HTTP_429)).content_type for _ in range(3)}

    assert bodies == {"text/plain", "application/json"}


async def test_a_flickering_list_hides_a_row_once(vast: SmallFacade) -> None:
    first, second = await vast.rent(), await vast.rent()
    vast.faults.inject(Point.LIST, FaultKind.FLICKER, instance_id=None)

    assert [row["id"] for row in await pages(vast)] == [first]
    assert [row["id"] for row in await pages(vast)] == [first, second]


async def test_a_leaking_search_ignores_bounds(vast: SmallFacade) -> None:
    vast.faults.inject(Point.SEARCH, FaultKind.LEAK)
    body = {"dph_total": {"lte": 0.0}}

    _, leaked = await vast.call("POST", "/api/v0/bundles/", body)
    _, honest = await vast.call("POST", "/api/v0/bundles/", body)

    assert isinstance(leaked, dict)
    assert len(leaked["offers"]) > 0
    assert honest == {"offers": []}


async def test_faults_can_be_ordered_over_the_control_route(vast: SmallFacade) -> None:
    owner, vast.key = vast.key, CONTROL_TOKEN
    order = {
        "calls": [{"point": "list", "kind": "http_500", "times": 2}],
        "machine": {"kind": "wrong_gpu"},
    }
    assert (await vast.call("POST", "/sim/faults", order))[0] == 200
    assert (await vast.call("POST", "/sim/faults", {"calls": [{"point": "x"}]}))[0] == 400
    vast.key = owner

    assert (await vast.raw("GET", "/api/v1/instances/")).status == 500
    instance_id = await vast.rent()
    assert vast.market.contract(instance_id).trouble.wrong_gpu is not None


async def test_waiting_for_a_machine_has_an_end(autojump_clock: trio.testing.MockClock) -> None:
    class Never(NoMachines):
        async def wait_for(self, instance_id: int, state: HostState) -> None:
            await trio.sleep_forever()

    vast = SmallFacade(machines=Never())
    vast.key = CONTROL_TOKEN

    assert (await vast.call("GET", "/sim/wait/7", state="ssh"))[0] == 408
    assert (await vast.call("GET", "/sim/wait/7", state="nonsense"))[0] == 400


async def test_the_network_can_be_cut_for_a_while(vast: SmallFacade) -> None:
    owner, vast.key = vast.key, CONTROL_TOKEN
    await vast.call("POST", "/sim/faults", {"network_down_s": 30.0})
    vast.key = owner

    assert (await vast.raw("GET", "/api/v1/instances/")).ending is Ending.DROPPED
    vast.clock.now += 31
    assert (await vast.raw("GET", "/api/v1/instances/")).status == 200


async def test_the_journal_holds_every_request_and_no_key(vast: SmallFacade) -> None:
    await vast.rent("mine")
    key, vast.key = vast.key, CONTROL_TOKEN
    assert key is not None

    reply = await vast.raw("GET", "/sim/journal")

    journal = msgspec.json.decode(reply.body)
    assert [entry["label"] for entry in journal["market"]] == ["mine"]
    assert [r["method"] for r in journal["requests"]] == ["PUT"]
    assert key.encode() not in reply.body


def test_a_fault_has_a_name() -> None:
    assert parse_fault("outbid").machine is not None
    call = parse_fault("destroy:lose_answerx3").call
    assert call is not None
    assert (call.point, call.kind, call.times) == ("destroy", "lose_answer", 3)
    usual = parse_fault("lose_answer").call
    assert usual is not None
    assert usual.point == "create"
    assert parse_fault("commands_in_tmux").login_tmux
    for name, said in BOOT_SAYS.items():
        boot = parse_fault(f"boot_{name}").machine
        assert boot is not None
        assert (boot.kind, boot.message) == (MachineFaultKind.BOOT_ERROR, said)
    for name in fault_names():
        assert parse_fault(name) != NamedFault()
    with pytest.raises(InvalidRequest, match="no fault is called 'nonsense'"):
        parse_fault("nonsense")
