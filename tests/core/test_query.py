"""Vast's query language: what the official client sends, and where we are better."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastd.core.query import FIELDS, OfferFilter, driver_number, parse, with_defaults
from vastd.errors import InvalidRequest

# What the official client 1.9.1 sends for these, with its number strings as numbers.
SENT_BY_THE_CLIENT = [
    ("", {}),
    (
        "gpu_ram>=48 num_gpus>=1 reliability>0.95",
        {"gpu_ram": {"gte": 48000.0}, "num_gpus": {"gte": 1}, "reliability": {"gt": 0.95}},
    ),
    (
        "gpu_name=RTX_4090 cuda_vers>=12.4 geolocation in [SE,US] dph<0.5 inet_down>=200",
        {
            "gpu_name": {"eq": "RTX 4090"},
            "cuda_max_good": {"gte": 12.4},
            "geolocation": {"in": ["SE", "US"]},
            "dph_total": {"lt": 0.5},
            "inet_down": {"gte": 200},
        },
    ),
    (
        "verified=any duration>3 cpu_ram>=32 driver_version>=535.86.05 rented=false",
        {
            "duration": {"gt": 259200.0},
            "cpu_ram": {"gte": 32000.0},
            "driver_version": {"gte": 535086005},
            "rented": {"eq": False},
        },
    ),
    ("gpu_ram>=20 gpu_ram<=25", {"gpu_ram": {"gte": 20000.0, "lte": 25000.0}}),
    (
        'gpu_name notin ["RTX 3090","Tesla T4"]',
        {"gpu_name": {"notin": ["RTX 3090", "Tesla T4"]}},
    ),
    (
        "num_gpus gte 2 gpu_ram lte 25 inet_up_cost lt 0.01 gpu_name neq RTX_3090",
        {
            "num_gpus": {"gte": 2},
            "gpu_ram": {"lte": 25000.0},
            "inet_up_cost": {"lt": 0.01},
            "gpu_name": {"neq": "RTX 3090"},
        },
    ),
    ('gpu_name="RTX 4090"', {"gpu_name": {"eq": "RTX 4090"}}),
    (
        "gpu_total_ram>=80 gpu_mem_bw>500 dlperf_usd>100 dph_total<=1.5 compute_cap>=800 disk_bw>1",
        {
            "gpu_total_ram": {"gte": 80000.0},
            "gpu_mem_bw": {"gt": 500},
            "dlperf_per_dphtotal": {"gt": 100},
            "dph_total": {"lte": 1.5},
            "compute_cap": {"gte": 800},
            "disk_bw": {"gt": 1},
        },
    ),
    ("machine_id!=5 gpu_arch=nvidia", {"machine_id": {"neq": 5}, "gpu_arch": {"eq": "nvidia"}}),
    ("geolocation not in [CN,VN]", {"geolocation": {"notin": ["CN", "VN"]}}),
    ("cluster_id=null", {"cluster_id": {"eq": None}}),
]

BETTER_THAN_THE_CLIENT = [
    ("gpu_name notin ['RTX 3090','Tesla T4']", {"gpu_name": {"notin": ["RTX 3090", "Tesla T4"]}}),
    ("gpu_name=[RTX_4090,RTX_3090]", {"gpu_name": {"in": ["RTX 4090", "RTX 3090"]}}),
    ("gpu_name!=[RTX_4090,RTX_3090]", {"gpu_name": {"notin": ["RTX 4090", "RTX 3090"]}}),
    ("id=7001", {"ask_contract_id": {"eq": 7001}}),
    ("gpu_name=4090", {"gpu_name": {"eq": "RTX 4090"}}),
    ("gpu_name=h100", {"gpu_name": {"in": ["H100 PCIE", "H100 SXM", "H100 NVL"]}}),
    ("gpu_name!=h100", {"gpu_name": {"notin": ["H100 PCIE", "H100 SXM", "H100 NVL"]}}),
    ("geolocation in SE", {"geolocation": {"in": ["SE"]}}),
    ("driver_version>=570", {"driver_version": {"gte": 570000000}}),
    ("  num_gpus = 1\n gpu_ram >= 24 ", {"num_gpus": {"eq": 1}, "gpu_ram": {"gte": 24000.0}}),
    ("gpu_name=RTX_9999", {"gpu_name": {"eq": "RTX 9999"}}),
]

# (query, position from 1, a word of the message, a word of the hint)
MISTAKES = [
    ("gpu_ram 48", 9, "operator after 'gpu_ram'", ">="),
    ("gpu_ram>=", 10, "'gpu_ram' has no value", "example"),
    ("num_gpus=1 gpu_rm>=3", 12, "'gpu_rm'", "did you mean 'gpu_ram'"),
    ("bogus=1", 1, "'bogus'", "example"),
    ("gpu_name=RTX 4090", 14, "needs quotes or underscores", "example"),
    ("gpu_ram>=24GB", 10, "a number in GB, not '24GB'", "example"),
    ("gpu_ram=>24", 8, "unknown operator '=>'", "example"),
    ("num_gpus>any", 1, "`any` goes only with `=`", "example"),
    ("num_gpus=1 num_gpus=2", 12, "tested twice", "num_gpus in [A,B]"),
    ("num_gpus=1 num_gpus=any", 12, "be `any` as well", "example"),
    ("gpu_ram>=[1,2]", 10, "a list goes with in", "example"),
    ("geolocation in [SE", 16, "never closed", "example"),
    ("geolocation in [SE,,US]", 16, "empty item", "example"),
    ('gpu_name="RTX', 10, "never closed", "example"),
    ("verified=perhaps", 10, "true or false", "example"),
    ("gpu_name>=RTX_4090", 11, "is text", "example"),
    ("reliability>nan", 13, "a number", "example"),
    ("=1", 1, "expected a field name", "example"),
]


@pytest.mark.parametrize(("text", "filters"), SENT_BY_THE_CLIENT)
def test_a_query_means_what_it_means_to_the_official_client(
    text: str, filters: dict[str, dict[str, object]]
) -> None:
    assert parse(text).filters == filters


@pytest.mark.parametrize(("text", "filters"), BETTER_THAN_THE_CLIENT)
def test_a_query_the_client_misreads_is_understood(
    text: str, filters: dict[str, dict[str, object]]
) -> None:
    assert parse(text).filters == filters


@pytest.mark.parametrize(("text", "position", "message", "hint"), MISTAKES)
def test_a_mistake_is_named_with_its_position_and_a_remedy(
    text: str, position: int, message: str, hint: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(text)

    assert f"at position {position}:" in str(caught.value)
    assert message in str(caught.value)
    assert hint in caught.value.hint


@pytest.mark.req("SRC-10")
def test_memory_is_decimal_and_days_are_seconds() -> None:
    found = parse("gpu_ram>=24 duration>=0.5").filters

    assert found == {"gpu_ram": {"gte": 24_000.0}, "duration": {"gte": 43_200.0}}


def test_vasts_defaults_hold_unless_the_field_is_named() -> None:
    default = {
        "verified": {"eq": True}, "external": {"eq": False}, "rentable": {"eq": True},
    }  # fmt: skip

    assert with_defaults(OfferFilter()) == default
    assert with_defaults(parse("verified=any external=* rentable=?")) == {}
    assert with_defaults(parse("verified=false")) == {**default, "verified": {"eq": False}}


def test_driver_versions_compare_as_numbers() -> None:
    assert driver_number("535.86.05") == 535_086_005
    assert driver_number("570") == 570_000_000
    assert [driver_number(text) for text in ("", "a.b.c", "1.2.3.4", "1234.1")] == [None] * 4


PIECES = st.sampled_from(
    [*sorted(FIELDS)[::5], "id", "=", "==", ">=", "<", "!=", "in", "not in", "[", "]", ",", " ", "'",
     '"', "any", "1", "-2.5", "nan", "1e999", "x_y", "535.86.05", "\u0661", "null", "true"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=12).map("".join)))
def test_no_text_makes_it_fail_in_any_other_way(text: str) -> None:
    try:
        found = parse(text)
    except InvalidRequest as error:
        message = str(error)
    else:
        assert set(found.filters) <= FIELDS
        return

    assert "at position" in message
