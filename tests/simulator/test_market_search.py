"""The offers of the simulated market and how a search finds them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.sim_market import HandClock, a_market, an_order
from vastd.core.market import OfferQuery
from vastd.core.money import from_usd
from vastd.simulator.refusals import MarketRefused

pytestmark = pytest.mark.sim

CLOCK = HandClock()
MARKET = a_market(CLOCK)  # only read in this module
EVERYTHING = {name: {"in": [True, False]} for name in ("verified", "rentable", "rented")}


def all_rows(market=MARKET):
    """Every offer, past the cap of 64, by asking card by card."""
    rows = []
    for name in market.gpu_names():
        for verified in (True, False):
            for bound in ("lte", "gt"):
                body = {**EVERYTHING, "gpu_name": {"eq": name}, "verified": {"eq": verified}}
                rows += market.search({**body, "num_gpus": {bound: 1}}).rows
    return rows


def test_the_market_has_a_few_hundred_offers_from_the_3060_to_the_h200():
    rows = all_rows()
    names = {row["gpu_name"] for row in rows}

    assert 250 <= len(rows) == len(MARKET.offer_ids()) <= 400
    assert {"RTX 3060", "RTX 4090", "A100 SXM4", "H100 SXM", "H200", "RTX 5090"} <= names
    assert {row["verification"] for row in rows} == {"verified", "unverified", "deverified"}
    assert any(row["direct_port_count"] == 0 for row in rows)
    assert any(row["inet_down"] < 150 for row in rows)
    assert any(row["reliability"] < 0.95 for row in rows)


@pytest.mark.parametrize("seed", range(8))
def test_every_seed_makes_a_market_with_a_cheap_verified_24_gb_card(seed):
    market = a_market(HandClock(), seed)

    cheap = market.find_offers(OfferQuery(filters={"gpu_ram": {"gte": 24_000}}))

    assert from_usd(0.05) < cheap[0].dph < from_usd(0.30)


def test_the_same_seed_makes_the_same_market_and_another_seed_another():
    def cheapest(market):
        return market.search({"order": [["dph_total", "asc"]]}).rows

    assert a_market(HandClock()).machines == MARKET.machines
    assert cheapest(a_market(HandClock())) == cheapest(MARKET)
    assert a_market(HandClock(), 8).machines != MARKET.machines


def test_a_row_is_json_and_prices_are_the_sum_of_their_parts():
    for row in MARKET.search({"allocated_storage": 100}).rows:
        json.dumps(row, allow_nan=False)
        disk = row["storage_cost"] * 100 / 720
        assert row["dph_total"] == pytest.approx(row["dph_base"] + disk, abs=2e-6)
        assert row["storage_total_cost"] == pytest.approx(disk, abs=1e-6)
        assert row["id"] == row["ask_contract_id"]


def test_a_machine_offers_overlapping_chunks():
    rows = [row for row in all_rows() if row["gpu_name"] == "RTX 4090"]
    by_machine = {}
    for row in rows:
        by_machine.setdefault(row["machine_id"], []).append(set(row["gpu_ids"]))
    largest = max(by_machine.values(), key=len)

    assert len(largest) >= 4
    assert any(a < b for a in largest for b in largest)


def test_the_defaults_hide_what_is_unverified():
    assert all(row["verified"] and row["rentable"] for row in MARKET.search({}).rows)
    loose = MARKET.search({"verified": {"eq": False}}).rows
    assert loose
    assert not any(row["verified"] for row in loose)
    raw = MARKET.search({"order": [["verified", "asc"]]}, defaults=False).rows
    assert not raw[0]["verified"]


def test_at_most_64_rows_come_back_whatever_the_limit():
    assert len(MARKET.search({"limit": 3000}).rows) == 64
    assert len(MARKET.search({"limit": "5"}).rows) == 5
    assert len(MARKET.search({"limit": 0}).rows) == 64
    assert len(MARKET.search({"limit": "inf"}).rows) == 64


NUMBERS = st.sampled_from(["gpu_ram", "num_gpus", "dph_total", "reliability", "inet_down"])
TESTS = {
    "gte": lambda a, b: a >= b,
    "gt": lambda a, b: a > b,
    "lte": lambda a, b: a <= b,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "neq": lambda a, b: a != b,
}


@given(
    field=NUMBERS,
    op=st.sampled_from(sorted(TESTS)),
    pick=st.integers(0, 10_000),
    as_text=st.booleans(),
)
@settings(max_examples=30)
def test_every_row_found_passes_the_filter_and_none_is_forgotten(field, op, pick, as_text):
    every = ALL_ROWS
    bound = every[pick % len(every)][field]
    body = {**EVERYTHING, field: {op: str(bound) if as_text else bound}}

    found = {row["id"] for row in MARKET.search({**body, "order": [["id", "asc"]]}).rows}

    expected = sorted(row["id"] for row in every if TESTS[op](row[field], bound))
    assert found == set(expected[:64])


ALL_ROWS = all_rows()


def test_lists_and_names_and_countries_filter():
    names = {"in": ["RTX 4090", "RTX 5090"]}
    assert {r["gpu_name"] for r in MARKET.search({"gpu_name": names}).rows} == set(names["in"])
    for op in ("notin", "nin"):
        rows = MARKET.search({"gpu_name": {op: names["in"]}}).rows
        assert rows
        assert not {row["gpu_name"] for row in rows} & set(names["in"])
    assert {r["geolocation"][-2:] for r in MARKET.search({"geolocation": {"eq": "US"}}).rows} == {
        "US"
    }
    assert MARKET.search({"gpu_name": {"eq": "RTX_4090"}}).rows == []
    assert all(r["hosting_type"] == 1 for r in MARKET.search({"datacenter": {"eq": "true"}}).rows)
    assert MARKET.search({"external": {"eq": False}}).rows


def test_filtering_on_id_finds_nothing_and_ask_contract_id_does():
    wanted = MARKET.search({}).rows[0]["id"]

    assert MARKET.search({"id": {"eq": wanted}}).rows == []
    found = MARKET.search({"ask_contract_id": {"eq": wanted}}).rows
    assert [row["id"] for row in found] == [wanted]


def test_an_unknown_field_filters_nothing_and_is_noted():
    result = MARKET.search({"gpu_colour": {"eq": "red"}})

    assert len(result.rows) == 64
    assert result.unknown_fields == ["gpu_colour"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"gpu_name": "RTX 4090"}, "q.gpu_name: Input should be a valid dictionary"),
        ({"num_gpus": {"near": 3}}, "unknown operator 'near'"),
        ({"type": "free"}, "unknown type"),
        ({"type": ["bid"]}, "unknown type"),
        ({"order": "score-"}, "order"),
        ({"order": [["score"]]}, "order"),
    ],
)
def test_a_body_vast_cannot_read_is_a_400(body, text):
    with pytest.raises(MarketRefused, match=text) as refused:
        MARKET.search(body)
    assert refused.value.status == 400


def test_order_sorts_by_several_columns_and_puts_missing_values_last():
    rows = MARKET.search({"order": [["num_gpus", "desc"], ["dph_total", "asc"]]}).rows
    keys = [(-row["num_gpus"], row["dph_total"]) for row in rows]

    assert keys == sorted(keys)


def test_a_bid_search_prices_with_the_lowest_bid():
    usual = {r["id"]: r for r in MARKET.search({"num_gpus": {"eq": 1}}).rows}
    spot = {r["id"]: r for r in MARKET.search({"num_gpus": {"eq": 1}, "type": "bid"}).rows}

    shared = usual.keys() & spot.keys()
    assert shared
    for offer_id in shared:
        assert spot[offer_id]["dph_base"] == spot[offer_id]["min_bid"]
        assert spot[offer_id]["dph_total"] < usual[offer_id]["dph_total"]


def test_a_leaking_search_ignores_numeric_bounds_alone():
    body = {"gpu_name": {"eq": "RTX 4090"}, "num_gpus": {"gte": 99}}

    assert MARKET.search(body).rows == []
    assert {row["gpu_name"] for row in MARKET.search(body, leak=True).rows} == {"RTX 4090"}


def test_our_own_form_of_an_offer_says_what_the_row_says():
    query = OfferQuery(filters={"gpu_name": {"eq": "H100 SXM"}}, disk_gb=120)
    rows = MARKET.search(
        {**query.filters, "order": [["dph_total", "asc"]], "allocated_storage": 120}
    ).rows

    offers = MARKET.find_offers(query)

    assert [offer.offer_id for offer in offers] == [row["id"] for row in rows]
    for offer, row in zip(offers, rows, strict=True):
        assert offer.dph == from_usd(row["dph_total"])
        assert offer.gpu_ram_mb == row["gpu_ram"]
        assert offer.min_bid == from_usd(row["min_bid"])
        assert offer.cpu_cores == row["cpu_cores_effective"]


@given(picks=st.lists(st.tuples(st.integers(0, 500), st.booleans()), max_size=12))
@settings(max_examples=8)
def test_renting_a_chunk_hides_every_chunk_that_shares_a_gpu_until_it_is_free(picks):
    clock = HandClock()
    market = a_market(clock)
    rented = []
    for pick, keep in picks:
        free = market.search({"limit": 64, "gpu_name": {"eq": "RTX 4090"}}).rows
        if not free:
            break
        row = free[pick % len(free)]
        contract = market.create(row["id"], an_order())
        if keep:
            rented.append((contract, set(row["gpu_ids"]), row["machine_id"]))
        else:
            market.destroy(contract.instance_id)
            clock.tick(60)
            again = market.search({"machine_id": {"eq": row["machine_id"]}}).rows
            assert row["id"] not in {r["id"] for r in again}  # back under a new id
        shown = market.search({"gpu_name": {"eq": "RTX 4090"}}).rows
        for _, gpu_ids, machine_id in rented:
            for other in shown:
                assert other["machine_id"] != machine_id or not gpu_ids & set(other["gpu_ids"])

    for contract, _, _ in rented:
        market.destroy(contract.instance_id)
    clock.tick(60)
    assert len(market.search({"gpu_name": {"eq": "RTX 4090"}}).rows) == len(
        MARKET.search({"gpu_name": {"eq": "RTX 4090"}}).rows
    )
