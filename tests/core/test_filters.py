"""What is asked of Vast, and what is checked again on every row."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.offer_builders import DAY_S, a_4090, an_offer
from vastd.core import filters, screening
from vastd.core.estimate import estimate
from vastd.core.market import Offer
from vastd.core.money import from_usd
from vastd.core.query import parse
from vastd.core.reasons import flags
from vastd.core.screening import Limits
from vastd.core.sizing import Requirements, SizingDefaults, TaskNeeds, size


def needs(**said: object) -> Requirements:
    return size(TaskNeeds(**said), SizingDefaults())  # type: ignore[arg-type]


def asked(**said: object) -> dict[str, dict[str, object]]:
    return filters.wire(filters.plan_bounds(needs(**said)))


def against(offer: Offer, limits: Limits | None = None, **said: object) -> list[str]:
    """The names of the filters that remove `offer`."""
    req = needs(**said)
    found = screening.check(estimate(offer, req), req, filters.plan_bounds(req), limits or Limits())
    return [str(rejection.name) for rejection in found]


@pytest.mark.req("SRC-03")
@pytest.mark.req("SRC-05")
def test_the_search_asks_for_everything_the_task_needs() -> None:
    assert asked(hours=1, gpu_ram_gb=24, max_dph=from_usd(0.5)) == {
        "verified": {"eq": True},
        "external": {"eq": False},
        "rentable": {"eq": True},
        "num_gpus": {"eq": 1},
        "gpu_ram": {"gte": 24_000},
        "gpu_arch": {"eq": "nvidia"},
        "cuda_max_good": {"gte": 12.6},
        "compute_cap": {"lt": 1200, "gte": 500},
        "disk_space": {"gte": 50.0},
        "reliability": {"gt": 0.95},
        "inet_down": {"gt": 100},
        "dph_total": {"lte": 0.5},
    }


@pytest.mark.req("SRC-06")
def test_the_number_of_gpus_is_always_sent() -> None:
    assert asked()["num_gpus"] == {"eq": 1}
    assert asked(num_gpus=4)["num_gpus"] == {"eq": 4}
    assert against(an_offer(num_gpus=8)) == ["num_gpus"]


@pytest.mark.req("SRC-07")
@pytest.mark.req("ANA-15")
def test_a_model_is_asked_for_only_when_named() -> None:
    assert "gpu_name" not in asked()
    assert asked(gpu_name="A100")["gpu_name"] == {"in": ["A100 PCIE", "A100 SXM4", "A100 SXM"]}


@pytest.mark.req("SRC-12")
@pytest.mark.parametrize(
    ("hours", "floor"),
    [
        (0.5, 0.95), (0.999, 0.95), (1.0, 0.98), (4.99, 0.98), (5.0, 0.995),
        (23.9, 0.995), (24.0, 0.999), (30, 0.999), (None, 0.95),
    ],
)  # fmt: skip
def test_the_reliability_floor_follows_the_hours_the_stricter_at_an_edge(
    hours: float | None, floor: float
) -> None:
    assert filters.reliability_floor(hours) == floor


@pytest.mark.req("SRC-12")
def test_each_offer_is_judged_by_its_own_hours() -> None:
    """1.5 h on a 3090 are less than an hour on a 4090, where 0.96 is enough."""
    assert against(an_offer(reliability=0.96), hours=1.5) == ["reliability"]
    assert against(a_4090(1, reliability=0.96), hours=1.5) == []
    assert against(a_4090(1, reliability=0.96), hours=1.6) == ["reliability"]
    assert against(an_offer(reliability=0.98), hours=1.5) == []  # the band itself is enough


@pytest.mark.req("SRC-13")
def test_the_absolute_floor_is_strict() -> None:
    assert against(an_offer(reliability=0.95)) == ["reliability"]
    assert against(an_offer(reliability=0.951)) == []


def test_the_users_own_floor_replaces_the_bands_but_not_the_absolute_one() -> None:
    assert against(an_offer(reliability=0.97), hours=30) == ["reliability"]
    limits = Limits(min_reliability=0.96)
    assert against(an_offer(reliability=0.97), limits, hours=30, min_reliability=0.96) == []
    assert asked(hours=30, min_reliability=0.96)["reliability"] == {"gt": 0.95, "gte": 0.96}
    limits = Limits(min_reliability=0.9)
    assert against(an_offer(reliability=0.94), limits, min_reliability=0.9) == ["reliability"]


@pytest.mark.req("SRC-08")
def test_the_host_of_a_long_job_must_stay_twice_as_long() -> None:
    assert filters.contract_s(10) == 72_000
    assert filters.contract_s(5.0) is None
    assert against(an_offer(duration_s=71_999.0), hours=10) == ["duration"]
    assert against(an_offer(duration_s=72_000.0), hours=10) == []
    assert against(an_offer(duration_s=71_999.0), Limits(long_contract=False), hours=10) == []


@pytest.mark.req("SRC-08")
def test_of_a_long_job_the_least_any_card_could_need_is_sent() -> None:
    named = asked(hours=10, gpu_name="RTX 3090")["duration"]
    any_card = asked(hours=100)["duration"]

    assert named == {"gte": 72_000}
    assert 0 < cast("float", any_card["gte"]) < 2 * 100 * 3600 / 3  # an H100 needs a third
    assert "duration" not in asked(hours=10)  # on the fastest card less than five hours


@pytest.mark.req("SRC-10")
@pytest.mark.parametrize(
    ("need_gb", "has_mb", "fits"),
    [
        (24, 24_564, True), (24, 24_576, True), (24, 23_000, False), (80, 81_920, True),
        (80, 40_960, False), (60, 48_000, False),
    ],
)  # fmt: skip
def test_memory_is_compared_in_decimal_megabytes(need_gb: float, has_mb: int, fits: bool) -> None:
    assert (against(an_offer(gpu_ram_mb=has_mb), gpu_ram_gb=need_gb) == []) is fits


@given(st.floats(1, 200), st.integers(1_000, 300_000))
def test_a_card_with_more_memory_never_fits_less(need_gb: float, has_mb: int) -> None:
    fits = against(an_offer(gpu_ram_mb=has_mb), gpu_ram_gb=need_gb) == []

    assert fits is (has_mb >= round(need_gb * 1000))


@pytest.mark.req("SRC-04")
def test_a_card_the_image_cannot_run_on_is_removed_and_the_reason_says_so() -> None:
    req = needs()
    offer = an_offer(gpu_name="RTX 5090", compute_cap=1200)

    found = screening.check(estimate(offer, req), req, filters.plan_bounds(req), Limits())

    assert [(str(r.name), r.detail) for r in found] == [
        ("compute_cap", "compute capability 12.0 (below 10.0)")
    ]
    assert against(an_offer(gpu_name="B200", compute_cap=1000)) == ["compute_cap"]
    assert against(an_offer(gpu_name="RX 7900 XTX", compute_cap=None)) == ["gpu_arch"]
    assert against(offer, image="pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel") == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rentable": False}, "not rentable"),
        ({"verified": False}, "unverified"),
        ({"gpu_ram_mb": 12_000}, "gpu_ram"),
        ({"cuda_max_good": 12.4}, "cuda"),
        ({"disk_space_gb": 49.9}, "disk"),
        ({"inet_down_mbps": 100.0}, "inet_down"),
        ({"machine_id": 66}, "blocked machine"),
        ({"offer_id": 77}, "being rented"),
        ({"dph": from_usd(0.51)}, "price"),
    ],
)
@pytest.mark.req("SRC-14")
def test_every_bound_is_checked_again_on_the_row(changes: dict[str, object], name: str) -> None:
    limits = Limits(blocked={66: "stuck"}, taken={77: "lab"}, max_price=from_usd(0.5))
    said = {"gpu_ram_gb": 24, "max_dph": from_usd(0.5)}

    assert against(an_offer(**changes), limits, **said) == [name]


def test_a_value_vast_does_not_report_removes_nothing_and_is_said() -> None:
    bare = an_offer(
        reliability=None, cuda_max_good=None, disk_space_gb=None, inet_down_mbps=None,
        compute_cap=None, duration_s=None, verified=None, direct_port_count=None,
    )  # fmt: skip
    req = needs(hours=30)

    assert against(bare, hours=30) == []
    assert flags(estimate(bare, req), req) == [
        "reliability is not reported",
        "the driver's CUDA is not reported; the image needs 12.6",
    ]


@pytest.mark.req("SEL-06")
def test_a_total_above_the_budget_removes_equal_passes() -> None:
    offer = an_offer(1, 0.50)

    assert against(offer, Limits(budget=from_usd(1.0)), hours=2) == []
    assert against(offer, Limits(budget=from_usd(0.999999)), hours=2) == ["budget"]
    assert against(offer, Limits(budget=from_usd(0.10))) == []  # no hours, no total


@pytest.mark.req("BUD-02")
def test_the_budget_is_compared_with_the_buffered_hours() -> None:
    limits = Limits(budget=from_usd(1.2))

    assert against(an_offer(1, 0.5), limits, hours=2) == []
    assert against(an_offer(1, 0.5), limits, hours=2, hours_source="derived") == ["budget"]


def test_a_bid_below_what_wins_is_removed() -> None:
    offer = an_offer(1, 0.5, min_bid=from_usd(0.2))

    assert against(offer, spot=True, bid=from_usd(0.1)) == ["bid"]
    assert against(offer, spot=True, bid=from_usd(0.2)) == []
    assert against(an_offer(1, 0.5), spot=True) == ["bid"]  # the lowest bid is not known


def test_each_removed_offer_is_counted_once_most_first() -> None:
    req = needs(gpu_ram_gb=24)
    offers = [
        an_offer(1),
        an_offer(2, gpu_ram_mb=12_000, disk_space_gb=10.0),
        an_offer(3, disk_space_gb=10.0),
        an_offer(4, disk_space_gb=40.0),
    ]

    screened = screening.screen(
        [estimate(o, req) for o in offers], req, filters.plan_bounds(req), Limits()
    )

    assert screening.removed(screened) == {"disk": 2, "gpu_ram": 1}
    assert list(screening.removed(screened)) == ["disk", "gpu_ram"]
    assert [c.offer.offer_id for c in screening.fitting(screened)] == [1]
    assert [s.candidate.offer.offer_id for s in screening.near_misses(screened, 3)] == [4, 3]


def test_of_two_bounds_on_one_side_the_tighter_is_sent() -> None:
    bounds = [
        *filters.query_bounds(parse("gpu_ram>=48 dph<0.5")),
        *filters.query_bounds(parse("gpu_ram>=24 dph<0.9")),
    ]

    assert filters.wire(bounds) == {"gpu_ram": {"gte": 48_000.0}, "dph_total": {"lt": 0.5}}


@pytest.mark.req("SEL-12")
def test_an_offer_below_97_percent_is_flagged_with_its_odds() -> None:
    req = needs(hours=0.5)

    def said(reliability: float) -> list[str]:
        return flags(estimate(an_offer(reliability=reliability), req), req)

    assert said(0.97) == []
    assert said(0.969) == [
        "budget pick: reliability 0.969, 1.6 % chance that the host fails meanwhile"
    ]


def test_what_the_user_should_mind_is_flagged() -> None:
    req = needs(hours=10)
    offer = an_offer(
        direct_port_count=0, duration_s=0.5 * DAY_S, inet_up_usd_gb=0.03, gpu_name="RTX 9999",
        dlperf=30.0,
    )  # fmt: skip

    assert flags(estimate(offer, req), req) == [
        "speed is an estimate, from dlperf",
        "no direct port: SSH goes through Vast's proxy",
        "the host's contract ends in 12.0 h",
        "traffic up costs $0.03 per GB",
    ]
