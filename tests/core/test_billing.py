"""The bill: exact sums over segments, and never below what the market charges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from support.builders import OWNER, RATE, T0, a_rental, a_row
from support.offer_builders import an_offer
from support.sim_market import HandClock, a_market, an_offer_id, an_order
from vastd.core import billing, reconcile
from vastd.core.lifecycle import evolve
from vastd.core.limits import Limits
from vastd.core.money import Micros, for_seconds, from_usd
from vastd.core.observed import World
from vastd.core.rental import Order, Phase, RateSegment
from vastd.simulator.faults import MachineFault, MachineFaultKind

SEGMENTS = st.lists(
    st.tuples(st.floats(0.001, 100_000), st.integers(0, 10_000_000)), min_size=1, max_size=8
)


@given(SEGMENTS, st.floats(0, 100_000))
def test_the_cost_is_the_sum_of_its_parts(parts: list[tuple[float, int]], tail: float) -> None:
    since, segments, expected = T0, [], 0
    for length, rate in parts:
        segments.append(RateSegment(since, Micros(rate)))
        expected += for_seconds(rate, (since + length) - since)
        since += length
    rental = a_rental(rates=(*segments, RateSegment(since, Micros(7_200))))

    assert billing.cost(rental, since + tail) == expected + for_seconds(7_200, since + tail - since)


@given(SEGMENTS, st.floats(0, 200_000), st.floats(0, 200_000))
def test_the_cost_never_falls_as_time_goes_on(
    parts: list[tuple[float, int]], first: float, more: float
) -> None:
    since, segments = T0, []
    for length, rate in parts:
        segments.append(RateSegment(since, Micros(rate)))
        since += length
    rental = a_rental(rates=tuple(segments))

    # Asked again later; before the last segment began the question makes no sense.
    now = max(since, T0 + first)
    assert billing.cost(rental, now + more) >= billing.cost(rental, now)


def test_nothing_bills_before_the_first_rate_is_known() -> None:
    rental = a_rental(Phase.CREATING)

    assert (billing.cost(rental, T0 + 1000), billing.rate(rental)) == (0, 0)


def test_a_machine_that_is_gone_costs_nothing_more() -> None:
    rental = a_rental(rates=(RateSegment(T0, RATE), RateSegment(T0 + 100, Micros(0))))

    assert billing.cost(rental, T0 + 100) == billing.cost(rental, T0 + 9999) == 100 * 100


def test_the_expected_rate_is_the_dearest_seen_or_the_bid_or_the_offer() -> None:
    bid = Order(offer=an_offer(7, dph=RATE), image="i", disk_gb=50.0, bid=Micros(RATE // 2))

    assert billing.expected_rate(a_rental(rates=())) == RATE
    assert billing.expected_rate(a_rental(rates=(), order=bid)) == RATE // 2
    seen = (RateSegment(T0, Micros(RATE * 2)), RateSegment(T0 + 1, Micros(3)))
    assert billing.expected_rate(a_rental(rates=seen)) == RATE * 2


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, "storage"), ("created", "storage"), ("loading", "storage"), ("exited", "storage"),
        ("stopped", "storage"), ("scheduling", "storage"), ("offline", "nothing"),
        ("running", "whole"), ("frozen", "whole"), ("rebooting", "whole"), ("recycling", "whole"),
        ("unknown", "whole"), ("a word of next year", "whole"),
    ],
)  # fmt: skip
def test_only_statuses_known_to_bill_storage_are_billed_so(
    status: str | None, expected: str
) -> None:
    rate = billing.rate_of(a_rental(), a_row(status))

    assert rate == {"storage": from_usd(0.0036), "nothing": 0, "whole": RATE}[expected]


def test_an_unknown_storage_price_is_bounded_by_the_offer_and_never_by_zero() -> None:
    order = Order(offer=an_offer(7, dph=RATE, storage_usd_gb_month=0.072), image="i", disk_gb=50.0)

    assert billing.storage_rate(a_rental(order=order)) == from_usd(0.072 * 50 / 720)
    assert billing.storage_rate(a_rental()) == RATE
    blind = a_row("loading", storage_dph=None, dph=Micros(5))
    assert billing.rate_of(a_rental(), blind) == 5  # storage is part of the whole rate


def test_the_burn_leaves_out_what_is_gone() -> None:
    gone = a_rental(Phase.GONE, rates=(RateSegment(T0, RATE),))

    assert billing.burn([a_rental(), a_rental(), gone]) == 2 * RATE


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("poll_s", [7.3, 20.0, 60.0])
def test_the_bill_is_never_below_the_truth_of_the_market(seed: int, poll_s: float) -> None:
    """A life with boot, host loss, stop and end, seen only every `poll_s` and each listing a
    second long: the rows are as they were half-way through it."""
    clock = HandClock(T0)
    market = a_market(clock, seed)
    contract = market.create(an_offer_id(market), an_order(label=f"vastd-{OWNER}-r1"))
    market.afflict(
        MachineFault(kind=MachineFaultKind.HOST_LOSS, after_s=900.0 + seed, for_s=333.0),
        instance_id=contract.instance_id,
    )
    offer = an_offer(7, dph=contract.gpu_micros_h, storage_usd_gb_month=None)
    rental = a_rental(
        Phase.CREATING, order=Order(offer=offer, image="i", disk_gb=40.0), create_sent_at=T0
    )
    world, held = World(watching_since=T0), {"r1": rental}
    while clock.now < T0 + 4000:
        begun = clock.now
        rows = _rows_of_a_slow_listing(market, clock)
        if begun > T0 + 2500 and contract.intended == "running":
            market.stop(contract.instance_id)
        found = reconcile.diff(
            held, world, rows, owner8=OWNER, begun_at=begun, now=clock.now, limits=Limits()
        )
        world = found.world
        for event in found.events:
            held["r1"] = evolve(held["r1"], event)
        truth = market.billed(contract.instance_id)
        rounding = len(market.segments(contract.instance_id))  # each is rounded up by itself
        assert billing.cost(held["r1"], clock.now) + rounding >= truth
        clock.tick(poll_s)

    assert len(held["r1"].rates) >= 4
    assert structs.replace(held["r1"], rates=()).instance_id == contract.instance_id


def _rows_of_a_slow_listing(market, clock):
    clock.tick(0.5)
    rows = market.instances()
    clock.tick(0.5)
    return rows
