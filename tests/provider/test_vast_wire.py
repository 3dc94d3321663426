"""Vast's JSON: a surprising field costs that field, never the row, never the loop."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastd.core.market import Account, Instance, Offer, SshKey
from vastd.errors import ContractChanged
from vastd.provider.vast.wire import (
    UNREADABLE,
    account_from,
    instance_from,
    offers_from,
    parse_json,
    ssh_keys_from,
)

# As recorded with the official client 1.9.1.
OFFER_ROW: dict[str, Any] = {
    "id": 7001, "ask_contract_id": 7001, "machine_id": 501, "host_id": 9, "bundle_id": 8001,
    "gpu_name": "RTX 4090", "num_gpus": 1, "gpu_ram": 24564, "gpu_total_ram": 24564,
    "cpu_ram": 515000, "cpu_cores": 64, "cpu_cores_effective": 8.0, "cuda_max_good": 12.8,
    "driver_version": "570.86.15", "compute_cap": 890, "dph_base": 0.4, "dph_total": 0.4123,
    "min_bid": 0.2, "is_bid": False, "storage_cost": 0.15, "disk_space": 300.0,
    "inet_up": 700.0, "inet_down": 800.0, "inet_up_cost": 0.003, "inet_down_cost": 0.004,
    "dlperf": 90.0, "total_flops": 82.6, "reliability2": 0.995, "reliability": 0.99,
    "duration": 864000.0, "verification": "verified", "rentable": True, "rented": False,
    "direct_port_count": 50, "geolocation": "Sweden, SE",
}  # fmt: skip
INSTANCE_ROW: dict[str, Any] = {
    "id": 1001, "machine_id": 501, "actual_status": "running", "intended_status": "running",
    "cur_state": "running", "next_state": "running", "status_msg": "success, running img/ssh",
    "gpu_name": "RTX 4090", "num_gpus": 1, "gpu_ram": 24564.0, "gpu_util": 97.5,
    "disk_space": 20.0, "disk_usage": 3.5, "ssh_host": "ssh4.vast.ai", "ssh_port": 21000,
    "dph_total": 0.4123, "storage_total_cost": 0.0041, "image_uuid": "pytorch/pytorch",
    "image_runtype": "ssh_direc ssh_proxy", "label": "demo", "start_date": 1760000000.0,
    "end_date": 1760864000.0, "extra_env": [["A", "1"]], "public_ipaddr": "203.0.113.7",
    "is_bid": False, "min_bid": 0.2,
    "ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "40112"},
                         {"HostIp": "::", "HostPort": "40113"}]},
}  # fmt: skip


def an_offer(**changes: Any) -> Offer:
    return offers_from({"offers": [OFFER_ROW | changes]}, 50.0)[0]


def an_instance(**changes: Any) -> Instance:
    return instance_from(INSTANCE_ROW | changes)


def test_a_recorded_offer_is_read_completely():
    assert an_offer() == Offer(
        offer_id=7001, machine_id=501, host_id=9, gpu_name="RTX 4090", num_gpus=1,
        gpu_ram_mb=24564, cpu_cores=8.0, cpu_ram_mb=515000, disk_space_gb=300.0, dph=412300,
        dph_base=400000, min_bid=200000, storage_usd_gb_month=0.15, inet_down_mbps=800.0,
        inet_up_mbps=700.0, inet_down_usd_gb=0.004, inet_up_usd_gb=0.003, reliability=0.995,
        compute_cap=890, cuda_max_good=12.8, driver_version="570.86.15", dlperf=90.0,
        total_flops=82.6, geolocation="Sweden, SE", verified=True, rentable=True,
        direct_port_count=50, duration_s=864000.0,
    )  # fmt: skip


def test_a_recorded_instance_is_read_completely():
    assert an_instance() == Instance(
        instance_id=1001, machine_id=501, label="demo", status="running",
        intended_status="running", cur_state="running", next_state="running",
        status_msg="success, running img/ssh", image="pytorch/pytorch",
        runtype="ssh_direc ssh_proxy", gpu_name="RTX 4090", num_gpus=1, gpu_ram_mb=24564,
        disk_space_gb=20.0, disk_usage_gb=3.5, dph=412300, storage_dph=4100, is_bid=False,
        min_bid=200000, gpu_util=97.5, public_ip="203.0.113.7", direct_ssh_port=40112,
        ssh_host="ssh4.vast.ai", ssh_port=21000, start_at=1760000000.0, end_at=1760864000.0,
    )  # fmt: skip


def test_only_the_id_of_an_instance_is_needed():
    assert instance_from({"id": 5}) == Instance(instance_id=5)
    assert instance_from(dict.fromkeys(INSTANCE_ROW) | {"id": "5"}) == Instance(instance_id=5)


@pytest.mark.parametrize(
    "row", [{}, {"id": None}, {"id": 0}, {"id": 1.5}, {"id": "x"}, None, [], 7]
)
def test_an_instance_row_without_an_id_makes_the_inventory_unknown(row: Any):
    with pytest.raises(ContractChanged, match="without an id"):
        instance_from(row)


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"ports": None}, "direct_ssh_port", None),
        ({"ports": {}}, "direct_ssh_port", None),
        ({"ports": []}, "direct_ssh_port", None),
        ({"ports": ["22/tcp"]}, "direct_ssh_port", None),
        ({"ports": {"22/tcp": None}}, "direct_ssh_port", None),
        ({"ports": {"22/tcp": []}}, "direct_ssh_port", None),
        ({"ports": {"22/tcp": [None, {"HostPort": ""}, {"HostPort": 7}]}}, "direct_ssh_port", 7),
        ({"ports": {"22/tcp": {"HostPort": "40112"}}}, "direct_ssh_port", 40112),
        ({"ports": {"22/tcp": [{"HostPort": "70000"}]}}, "direct_ssh_port", None),
        ({"ports": {"8080/tcp": [{"HostPort": "40112"}]}}, "direct_ssh_port", None),
        ({"public_ipaddr": "203.0.113.7\n"}, "public_ip", "203.0.113.7"),
        ({"public_ipaddr": "2001:db8::7"}, "public_ip", "2001:db8::7"),
        ({"public_ipaddr": ""}, "public_ip", None),
        ({"public_ipaddr": "-oProxyCommand=evil"}, "public_ip", None),
        ({"public_ipaddr": 7}, "public_ip", None),
        ({"ssh_host": "-oProxyCommand=evil"}, "ssh_host", None),
        ({"ssh_host": "ssh4.vast.ai; evil"}, "ssh_host", None),
        ({"ssh_host": "127.0.0.1"}, "ssh_host", "127.0.0.1"),
        ({"ssh_host": "::1"}, "ssh_host", "::1"),
        ({"ssh_port": "21000"}, "ssh_port", 21000),
        ({"ssh_port": 0}, "ssh_port", None),
        ({"dph_total": "0.5"}, "dph", 500000),
        ({"dph_total": None}, "dph", None),
        ({"dph_total": -1}, "dph", None),
        ({"dph_total": 1e300}, "dph", None),
        ({"dph_total": True}, "dph", None),
        ({"dph_total": {"usd": 1}}, "dph", None),
        ({"storage_total_cost": 0}, "storage_dph", 0),
        ({"storage_total_cost": None, "storage_cost": 0.36}, "storage_dph", 10000),
        ({"storage_total_cost": None}, "storage_dph", None),
        ({"disk_usage": -1}, "disk_usage_gb", None),
        ({"gpu_ram": "24564.4"}, "gpu_ram_mb", 24564),
        ({"gpu_ram": 10**30}, "gpu_ram_mb", None),
        ({"is_bid": 1}, "is_bid", True),
        ({"is_bid": 0.0}, "is_bid", False),
        ({"is_bid": "true"}, "is_bid", True),
        ({"is_bid": "perhaps"}, "is_bid", None),
        ({"is_bid": [True]}, "is_bid", None),
        ({"actual_status": None}, "status", None),
        ({"actual_status": "warp"}, "status", "warp"),
        ({"label": ""}, "label", None),
        ({"label": {"a": 1}}, "label", None),
        ({"label": "a\ud800b"}, "label", "a?b"),
        ({"status_msg": 17}, "status_msg", None),
        ({"start_date": None}, "start_at", None),
        ({"extra_env": None}, "instance_id", 1001),
    ],
)
def test_a_surprising_field_of_an_instance_costs_only_itself(
    changes: dict[str, Any], field: str, expected: Any
):
    instance = an_instance(**changes)

    assert getattr(instance, field) == expected
    assert instance.machine_id == 501


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"gpu_ram": 24564.4}, "gpu_ram_mb", 24564),
        ({"num_gpus": "2"}, "num_gpus", 2),
        ({"dph_total": "0.4123"}, "dph", 412300),
        # 0.4 + 0.15 * 50 GB / 720 h
        ({"dph_total": None}, "dph", 410417),
        ({"id": None}, "offer_id", 7001),
        ({"ask_contract_id": None}, "offer_id", 7001),
        ({"verification": "deverified"}, "verified", False),
        ({"verification": "unverified"}, "verified", False),
        ({"verification": None, "verified": True}, "verified", True),
        ({"verification": 3}, "verified", None),
        ({"rentable": None}, "rentable", True),
        ({"rentable": False}, "rentable", False),
        ({"rented": True}, "rentable", False),
        ({"reliability2": None}, "reliability", 0.99),
        ({"reliability2": 99.5}, "reliability", 0.99),
        ({"compute_cap": "n/a"}, "compute_cap", None),
        ({"inet_down": "fast"}, "inet_down_mbps", None),
        ({"driver_version": 570}, "driver_version", None),
        ({"min_bid": []}, "min_bid", None),
    ],
)
def test_a_surprising_field_of_an_offer_costs_only_itself(
    changes: dict[str, Any], field: str, expected: Any
):
    assert getattr(an_offer(**changes), field) == expected


@pytest.mark.parametrize(
    "missing",
    [
        {"id": None, "ask_contract_id": None},
        {"machine_id": None},
        {"gpu_name": ""},
        {"num_gpus": 0},
        {"gpu_ram": "many"},
        {"dph_total": None, "dph_base": None},
    ],
)
def test_an_offer_that_cannot_be_rented_is_left_out_alone(
    missing: dict[str, Any], caplog: pytest.LogCaptureFixture
):
    rows = [OFFER_ROW | missing, OFFER_ROW | {"ask_contract_id": 7002}, None]

    with caplog.at_level("INFO"):
        offers = offers_from({"offers": rows}, 50.0)

    assert [offer.offer_id for offer in offers] == [7002]
    assert "2 of 3 offers are unreadable" in caplog.text


def test_an_offer_that_comes_twice_is_given_once():
    assert len(offers_from({"offers": [OFFER_ROW, OFFER_ROW]}, 50.0)) == 1


@pytest.mark.parametrize("document", [{}, {"offers": None}, {"offers": {}}, [], "", 7])
def test_a_search_without_a_list_of_offers_is_a_changed_contract(document: Any):
    with pytest.raises(ContractChanged):
        offers_from(document, 50.0)


def test_offers_of_which_none_can_be_read_are_a_changed_contract_and_none_at_all_is_not():
    with pytest.raises(ContractChanged, match="not one of 2 offers"):
        offers_from({"offers": [{"offer": 1}, {"offer": 2}]}, 50.0)

    assert offers_from({"offers": []}, 50.0) == []


def test_nan_and_infinity_in_a_body_are_missing_values():
    body = json.dumps(INSTANCE_ROW | {"gpu_util": float("nan"), "dph_total": float("inf")})

    instance = instance_from(parse_json(body.encode()))

    assert (instance.gpu_util, instance.dph, instance.num_gpus) == (None, None, 1)


def test_text_that_spells_nan_or_infinity_is_no_number():
    instance = an_instance(gpu_util="nan", dph_total="inf", disk_space="inf")

    assert (instance.gpu_util, instance.dph, instance.disk_space_gb) == (None, None, None)


@pytest.mark.parametrize("body", [b"", b"  ", b"<html>", b'{"a": ', b"[" * 100_000, b"{}{}"])
def test_what_is_not_json_is_unreadable(body: bytes):
    assert parse_json(body) is UNREADABLE


@pytest.mark.parametrize(
    "body",
    [
        b"18446744073709551616",
        b"1e999",
        b"-0.0",
        b'"\\ud800"',
        b'"\xc3\xa9\xed\xa0\x80"',
        b'{"a": 1, "a": -Infinity}',
        b"9007199254740993.0",
        b" [1, 2.5, true, null]\n",
    ],
)
def test_what_the_fast_reader_refuses_is_read_as_the_standard_library_reads_it(body: bytes):
    assert parse_json(body) == json.loads(body.decode("utf-8", "replace"))


def test_a_byte_order_mark_or_a_broken_character_does_not_hide_the_rest():
    assert parse_json(b'\xef\xbb\xbf{"id": 1}') == {"id": 1}
    assert parse_json(b'{"id": 1, "label": "\xff"}') == {
        "id": 1,
        "label": "\N{REPLACEMENT CHARACTER}",
    }


@pytest.mark.parametrize(
    "document",
    [
        [{"id": 71, "public_key": "ssh-ed25519 AAAA demo"}],
        [{"id": "71", "key": "ssh-ed25519 AAAA demo\n"}],
        {"ssh_keys": [{"id": 71, "key": "ssh-ed25519 AAAA demo"}]},
        {"ssh_keys": '[{"id": 71, "key": "ssh-ed25519 AAAA demo"}]'},
        [
            None,
            {"id": 70, "key": "ssh-rsa gone", "deleted_at": "2026-01-01"},
            {"id": 72},
            {"id": 71, "public_key": "ssh-ed25519 AAAA demo", "deleted_at": None},
        ],
    ],
)
def test_ssh_keys_are_read_in_every_form_they_come_in(document: Any):
    assert ssh_keys_from(document) == [SshKey(key_id=71, public_key="ssh-ed25519 AAAA demo")]


@pytest.mark.parametrize("document", [{}, {"ssh_keys": None}, {"ssh_keys": "none"}, "x", 7])
def test_ssh_keys_of_another_shape_are_a_changed_contract(document: Any):
    with pytest.raises(ContractChanged):
        ssh_keys_from(document)


def test_the_account_is_read_and_its_credit_may_be_below_zero():
    assert account_from({"id": 42, "email": "a@example.org", "credit": -0.5, "api_key": "x"}) == (
        Account(user_id=42, email="a@example.org", credit=-500000)
    )
    assert account_from({"id": 42, "credit": "lots"}) == Account(user_id=42)


@pytest.mark.parametrize("document", [{}, {"msg": "none"}, [], "Unauthorized"])
def test_an_answer_without_an_account_is_a_changed_contract(document: Any):
    with pytest.raises(ContractChanged):
        account_from(document)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(
    changes=st.dictionaries(
        st.sampled_from([name for name in INSTANCE_ROW if name != "id"]), anything
    )
)
def test_no_field_of_an_instance_can_crash_the_listing(changes: dict[str, Any]):
    assert an_instance(**changes).instance_id == 1001


@given(changes=st.dictionaries(st.sampled_from(list(OFFER_ROW)), anything))
def test_no_field_of_an_offer_can_crash_a_search(changes: dict[str, Any]):
    rows = [OFFER_ROW | changes, OFFER_ROW | {"ask_contract_id": 7002}]

    assert offers_from({"offers": rows}, 50.0)[-1].offer_id == 7002
