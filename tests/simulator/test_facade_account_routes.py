"""The façade's smaller routes: bills, API keys, templates, launch, update, and volumes it lacks."""

from typing import Any

import pytest

from support.sim_hosts import SmallFacade

pytestmark = pytest.mark.sim

DAY_S = 86_400.0
BOOTED_S = 3600.0


@pytest.fixture
def vast() -> SmallFacade:
    return SmallFacade()


async def ok(vast: SmallFacade, method: str, path: str, body: object = None, **query: str) -> Any:
    status, reply = await vast.call(method, path, body, **query)
    assert status == 200, reply
    return reply


async def refused(vast: SmallFacade, method: str, path: str, body: object) -> tuple[int, str]:
    status, reply = await vast.call(method, path, body)
    assert isinstance(reply, dict)
    assert reply["success"] is False
    return status, str(reply["error"])


# -- bills -------------------------------------------------------------------------------


async def test_the_old_and_the_new_bill_of_an_instance_have_the_same_sum(vast: SmallFacade) -> None:
    instance_id = await vast.rent("a")
    vast.clock.now += BOOTED_S
    now = vast.clock.now
    day = f'{{"day": {{"gte": {now - DAY_S}, "lte": {now}}}}}'

    (charge,) = (await ok(vast, "GET", "/api/v0/charges/", select_filters=day))["results"]
    old = await ok(
        vast, "GET", "/api/v0/users/me/invoices", sdate="0", edate=str(now), inc_charges="true"
    )

    sums = [float(row["amount"]) for row in old["invoices"] if row["type"] == "charge"]
    assert charge["source"] == f"instance-{instance_id}"
    assert charge["amount"] == pytest.approx(sum(sums), abs=1e-5)
    assert charge["amount"] == pytest.approx(old["current"]["charges"], abs=1e-5)
    assert [row["type"] for row in old["invoices"]].count("payment") == 1


async def test_a_bill_within_the_day_is_found_though_the_bound_lies_before_it(
    vast: SmallFacade,
) -> None:
    await vast.rent("a")
    now = vast.clock.now
    day = f'{{"day": {{"gte": {now - DAY_S}, "lte": {now - 1}}}}}'
    before = f'{{"day": {{"gte": {now - 9 * DAY_S}, "lte": {now - 2 * DAY_S}}}}}'

    assert (await ok(vast, "GET", "/api/v0/charges/", select_filters=day))["count"] == 1
    assert (await ok(vast, "GET", "/api/v0/charges/", select_filters=before))["count"] == 0


async def test_contracts_are_found_by_label_among_those_named(vast: SmallFacade) -> None:
    one, two = await vast.rent("a"), await vast.rent("a")
    await vast.rent("b")

    body = {"label": "a", "contract_ids": [one]}
    assert (await ok(vast, "POST", "/api/v0/contracts/fetch/", body))["contracts"] == [{"id": one}]
    body = {"label": "b", "contract_ids": [one, two]}
    assert (await ok(vast, "POST", "/api/v0/contracts/fetch/", body))["contracts"] == []


# -- keys --------------------------------------------------------------------------------


async def test_a_new_key_may_do_what_its_categories_say(vast: SmallFacade) -> None:
    body = {"name": "k", "permissions": {"api": {"instance_read": {}}}}
    made = await ok(vast, "POST", "/api/v0/auth/apikeys/", body)
    listed = await ok(vast, "GET", "/api/v0/auth/apikeys/")
    shown = await ok(vast, "GET", f"/api/v0/auth/apikeys/{made['id']}/")

    assert {row["name"] for row in listed["apikeys"]} == {"owner", "k"}
    assert made["key"] not in str(listed) + str(shown)
    vast.key = made["key"]
    assert (await vast.call("GET", "/api/v1/instances/"))[0] == 200
    assert (await vast.call("GET", "/api/v0/users/current/"))[0] == 403


@pytest.mark.parametrize(
    "permissions",
    [
        {"api": {"everything": {}}},
        {"api": {"misc": {"api.x": {"constraints": {"id": {"eq": 1}}}}}},
        {"misc": {}},
        ["misc"],
    ],
)
async def test_permissions_that_cannot_be_kept_make_no_key(
    permissions: object, vast: SmallFacade
) -> None:
    body = {"name": "k", "permissions": permissions}

    assert await refused(vast, "POST", "/api/v0/auth/apikeys/", body) == (400, "invalid_args")
    assert len((await ok(vast, "GET", "/api/v0/auth/apikeys/"))["apikeys"]) == 1


async def test_a_deleted_and_a_replaced_key_are_accepted_no_more(vast: SmallFacade) -> None:
    made = await ok(vast, "POST", "/api/v0/auth/apikeys/", {"name": "k"})
    assert await ok(vast, "DELETE", f"/api/v0/auth/apikeys/{made['id']}/", {}) == "ok"
    assert vast.market.account.authenticate(made["key"]) is None

    old = vast.key
    vast.key = (await ok(vast, "PUT", "/api/v0/commands/reset_apikey/", {}))["new_api_key"]
    assert (await ok(vast, "GET", "/api/v0/users/current"))["api_key"] == vast.key
    assert vast.market.account.authenticate(old) is None


# -- templates and what is rented with them ----------------------------------------------

TEMPLATE = {
    "name": "t", "image": "ubuntu", "tag": "24.04", "env": "-e A=1 -e B='two words' -p 80:80",
    "onstart": "echo hi", "ssh_direct": True, "runtype": "ssh",
}  # fmt: skip


async def test_a_template_fills_what_a_create_leaves_open(vast: SmallFacade) -> None:
    made = (await ok(vast, "POST", "/api/v0/template/", TEMPLATE))["template"]
    again = (await ok(vast, "POST", "/api/v0/template/", TEMPLATE))["template"]
    assert again == made

    body = {"template_hash_id": made["hash_id"], "image": None, "env": {"A": "2"}, "disk": 10}
    reply = await ok(vast, "PUT", f"/api/v0/asks/{vast.free_offer()}/", body)

    order = vast.market.contract(reply["new_contract"]).order
    assert order.image == "ubuntu:24.04"
    assert order.env == {"A": "2", "B": "two words", "-p 80:80": "1"}
    assert (order.onstart, order.runtype) == ("echo hi", "ssh_direc ssh_proxy")


async def test_a_changed_template_keeps_its_id_and_gets_another_hash(vast: SmallFacade) -> None:
    made = (await ok(vast, "POST", "/api/v0/template/", TEMPLATE))["template"]
    body = {**TEMPLATE, "name": "u", "id": made["id"], "hash_id": made["hash_id"]}
    changed = (await ok(vast, "PUT", "/api/v1/template/", body))["template"]

    assert changed["id"] == made["id"]
    assert changed["hash_id"] != made["hash_id"]
    gone = {"template_hash_id": made["hash_id"], "disk": 10}
    path = f"/api/v0/asks/{vast.free_offer()}/"
    assert await refused(vast, "PUT", path, gone) == (404, "not_found")
    assert vast.market.live_contracts() == []


async def test_an_update_makes_the_container_anew_with_what_it_names(vast: SmallFacade) -> None:
    instance_id = await vast.rent("a", env={"A": "1"}, onstart="echo 1")
    path = f"/api/v0/instances/update_template/{instance_id}/"
    assert await refused(vast, "PUT", path, {"image": "x"}) == (400, "invalid_args")
    vast.clock.now += BOOTED_S
    disk = vast.market.contract(instance_id).disk_id

    await ok(vast, "PUT", path, {"id": instance_id, "image": "debian:12", "env": {"B": "2"}})

    contract = vast.market.contract(instance_id)
    assert (contract.order.image, contract.order.env) == ("debian:12", {"B": "2"})
    assert (contract.order.onstart, contract.order.disk_gb) == ("echo 1", 10.0)
    assert contract.disk_id == disk + 1


async def test_a_launch_rents_the_first_offer_of_its_search_or_nothing(vast: SmallFacade) -> None:
    query = {"num_gpus": {"eq": "1"}, "order": [["dph_total", "asc"]], "limit": 3}
    first = vast.market.search(dict(query)).rows[0]["id"]
    body = {"image": "ubuntu:22.04", "disk": 10.0, "q": query}

    reply = await ok(vast, "PUT", "/api/v0/launch_instance/", body)
    assert vast.market.contract(reply["new_contract"]).offer_id == first

    body["q"] = {"gpu_name": {"eq": "Abacus"}}
    assert (await refused(vast, "PUT", "/api/v0/launch_instance/", body))[0] == 404
    assert len(vast.market.live_contracts()) == 1


@pytest.mark.parametrize(
    "mounting",
    [
        {"volume_info": {"create_new": True, "volume_id": 1, "mount_path": "/d"}},
        {"env": {"-v V.3001:/mnt": "1"}},
    ],
)
async def test_a_volume_that_cannot_be_mounted_rents_nothing(
    mounting: dict[str, object], vast: SmallFacade
) -> None:
    path = f"/api/v0/asks/{vast.free_offer()}/"
    body = {"image": "ubuntu:22.04", "disk": 10, **mounting}

    assert await refused(vast, "PUT", path, body) == (404, "no_such_volume")
    assert vast.market.live_contracts() == []


async def test_the_list_says_what_it_can_be_filtered_by(vast: SmallFacade) -> None:
    assert (await ok(vast, "GET", "/api/v0/instances/filters/"))["filters"] == []
    await vast.rent("a")
    await vast.rent("b")

    rows = (await ok(vast, "GET", "/api/v0/instances/filters/"))["filters"]

    assert 1 <= len(rows) <= 2
    assert set(rows[0]) == {"actual_status", "verification", "gpu_name"}


async def test_a_driver_is_searched_by_its_number(vast: SmallFacade) -> None:
    rows = vast.market.search({"driver_version": {"gte": 560_000_000}}).rows
    every = vast.market.search({}).rows

    assert rows
    assert all(int(str(row["driver_version"])[:3]) >= 560 for row in rows)
    assert any(int(str(row["driver_version"])[:3]) < 560 for row in every)
