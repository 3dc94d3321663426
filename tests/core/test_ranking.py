"""The score that picks an offer, against the worked vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.offer_builders import a_4090, an_h100, an_offer
from vastd.core.estimate import Candidate, estimate
from vastd.core.market import Offer
from vastd.core.ranking import RankRules, Role, by_total, one_per_machine, picks, rank
from vastd.core.reasons import rationale
from vastd.core.sizing import Requirements, SizingDefaults, TaskNeeds, size

RULES = RankRules()
RTX_3090 = an_offer(1, 0.15)
RTX_4090 = a_4090(2, 0.30)
A100 = an_offer(3, 0.80, gpu_name="A100 SXM4", gpu_ram_mb=81_920, compute_cap=800)
H100 = an_h100(4, 1.90)
FOUR = (RTX_3090, RTX_4090, A100, H100)


def needs(**said: object) -> Requirements:
    return size(TaskNeeds(**said), SizingDefaults())  # type: ignore[arg-type]


def estimated(offers: tuple[Offer, ...], **said: object) -> list[Candidate]:
    req = needs(**said)
    return [estimate(offer, req) for offer in offers]


def best(offers: tuple[Offer, ...], **said: object) -> str:
    return rank(estimated(offers, **said), RULES)[0].offer.gpu_name


@pytest.mark.req("SEL-09")
@pytest.mark.parametrize(
    ("hours", "choice", "hours_and_totals"),
    [
        (0.5, "RTX 3090", "0.17/0.32 0.25/0.20 0.31/0.09 0.50/0.08"),
        (1, "RTX 4090", "0.33/0.63 0.50/0.40 0.62/0.19 1.00/0.15"),
        (2, "A100 SXM4", "0.67/1.27 1.00/0.80 1.25/0.38 2.00/0.30"),
        (3, "A100 SXM4", "1.00/1.90 1.50/1.20 1.88/0.56 3.00/0.45"),
        (8, "H100 SXM", "2.67/5.07 4.00/3.20 5.00/1.50 8.00/1.20"),
        (24, "H100 SXM", "8.00/15.20 12.00/9.60 15.00/4.50 24.00/3.60"),
    ],
)
def test_the_sweet_spot_is_that_of_the_worked_examples(
    hours: float, choice: str, hours_and_totals: str
) -> None:
    found = estimated((H100, A100, RTX_4090, RTX_3090), hours=hours)

    assert best(FOUR, hours=hours) == choice
    worked = [tuple(map(float, pair.split("/"))) for pair in hours_and_totals.split()]
    # The table is rounded to hundredths.
    assert [c.hours for c in found] == pytest.approx([h for h, _ in worked], abs=0.0051)
    assert [(c.total or 0) / 1e6 for c in found] == pytest.approx(
        [t for _, t in worked], abs=0.0051
    )


@pytest.mark.req("SEL-01")
def test_a_total_is_price_times_hours() -> None:
    (one,) = estimated((an_offer(1, 0.312),), hours=3.25)

    assert one.total == 1_014_000


@pytest.mark.req("ANA-13")
def test_eight_hours_on_a_named_4090_are_12_8_on_an_rtx_3090() -> None:
    named = needs(hours=8, gpu_name="RTX 4090")

    assert estimate(RTX_4090, named).hours == 8
    assert estimate(RTX_3090, named).hours == pytest.approx(12.8)


def test_on_the_very_gpu_that_was_named_the_hours_are_the_hours() -> None:
    small = an_offer(1, gpu_name="A100 SXM4", gpu_ram_mb=40_960)
    unknown = an_offer(2, gpu_name="RTX 9999")

    assert estimate(small, needs(hours=3, gpu_name="A100 SXM4")).hours == 3
    assert estimate(unknown, needs(hours=3, gpu_name="RTX_9999")).hours == 3
    assert estimate(RTX_3090, needs(hours=3, gpu_name="RTX_9999")).hours is None


@pytest.mark.req("SEL-07")
def test_within_20_percent_the_cheaper_counts_as_equally_fast() -> None:
    pcie = an_h100(5, 1.80, gpu_name="H100 PCIE")

    assert rank(estimated((H100, pcie), hours=9), RULES)[0].offer is pcie
    assert picks(rank(estimated((H100, pcie), hours=9), RULES), RULES)[0].roles == tuple(Role)


def a_card(number: int, hours: float, usd: float, reference_hours: float) -> Offer:
    """An unknown card that needs `hours` and costs `usd` in all.

    Its speed is set through dlperf: 30 x r^2 makes it r times an RTX 3090.
    """
    ratio = reference_hours / hours
    return an_offer(number, usd / hours, gpu_name=f"card {number}", dlperf=30 * ratio**2)


@pytest.mark.req("SEL-07")
@pytest.mark.parametrize(("slower_h", "choice"), [(5.8, 2), (6.0, 2), (6.2, 1)])
def test_no_wait_is_counted_within_20_percent(slower_h: float, choice: int) -> None:
    """Speeds are rounded to hundredths, so hours are near to what is written here."""
    fast, slow = a_card(1, 5.0, 3.0, 6.0), a_card(2, slower_h, 2.0, 6.0)

    assert rank(estimated((fast, slow), hours=6), RULES)[0].offer.offer_id == choice


@pytest.mark.req("SEL-07")
def test_a_group_of_equal_speed_waits_as_long_as_its_cheapest() -> None:
    """Alone the middle card would win with 6 + 5; as equally fast as the last it costs 6 + 9.5."""
    fastest, middle, last = (
        a_card(1, 4.0, 12.0, 10.0), a_card(2, 5.0, 6.0, 10.0), a_card(3, 5.9, 5.0, 10.0),
    )  # fmt: skip

    ranked = rank(estimated((middle, last, fastest), hours=10), RULES)

    assert [c.offer.offer_id for c in ranked] == [1, 3, 2]


@pytest.mark.req("SEL-08")
@pytest.mark.parametrize(
    ("slow", "fast", "wanted"),
    [
        # Three dollars for five hours: yes. ($1.20 and 8 h against $4.20 and 3 h.)
        ((8.0, 1.20), (3.0, 4.20), "fast"),
        # Fifty dollars for 10 %: no.
        ((10.0, 10.0), (9.0, 60.0), "slow"),
        # Three times the price for twice the speed: yes, unless the job is very short.
        ((8.0, 0.20 * 8), (4.0, 0.60 * 4), "fast"),
        # Twenty times the price for 10 %: no.
        ((10.0, 1.0), (9.0, 20.0), "slow"),
    ],
)
def test_the_rules_of_thumb_of_the_source_hold(
    slow: tuple[float, float], fast: tuple[float, float], wanted: str
) -> None:
    cards = tuple(
        a_card(number, hours, usd, slow[0]) for number, (hours, usd) in enumerate((slow, fast))
    )

    assert best(cards, hours=slow[0]) == {"slow": "card 0", "fast": "card 1"}[wanted]


@given(order=st.permutations(range(8)), hours=st.sampled_from([0.4, 1, 2, 3, 8, 30]))
@pytest.mark.req("SEL-09")
def test_the_order_of_the_input_never_matters(order: list[int], hours: float) -> None:
    twins = (an_offer(5, 0.15), an_offer(6, 0.15, reliability=0.98), a_4090(7, 0.30), an_h100(8))
    offers = (*FOUR, *twins)
    shuffled = tuple(offers[i] for i in order)

    straight = rank(estimated(offers, hours=hours), RULES)
    mixed = rank(estimated(shuffled, hours=hours), RULES)

    assert [c.offer.offer_id for c in straight] == [c.offer.offer_id for c in mixed]
    assert picks(straight, RULES) == picks(mixed, RULES)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["RTX 3060", "RTX 3090", "RTX 4090", "A100 PCIE", "H100 SXM"]),
            st.floats(0.03, 4.0),
        ),
        min_size=1,
        max_size=12,
    ),
    st.floats(0.1, 100),
)
def test_the_best_value_has_the_lowest_score_of_the_survivors(
    market: list[tuple[str, float]], hours: float
) -> None:
    """The score written down once more, the slow way."""
    offers = [an_offer(i, usd, gpu_name=name) for i, (name, usd) in enumerate(market)]
    every = estimated(tuple(offers), hours=hours)
    survivors: list[Candidate] = []
    left = sorted(every, key=lambda c: c.hours or 0)
    while left:
        limit = (left[0].hours or 0) * 1.2 + 1e-9
        group = [c for c in left if (c.hours or 0) <= limit]
        survivors.append(min(group, key=lambda c: (c.total or 0, c.hours or 0)))
        left = [c for c in left if (c.hours or 0) > limit]
    fastest = survivors[0].hours or 0
    scores = []
    for c in survivors:
        wait = (c.hours or 0) - fastest
        scores.append((c.total or 0) / 1e6 + (0 if wait <= 0.5 + 1e-9 else 5 * wait))

    found = rank(every, RULES)[0]

    own = next(i for i, c in enumerate(survivors) if c.total == found.total)
    assert scores[own] == pytest.approx(min(scores))


@pytest.mark.req("SEL-09")
def test_ties_go_to_fewer_hours_then_reliability_then_a_direct_port_then_the_lower_id() -> None:
    worse = an_offer(1, 0.15, reliability=0.99)
    proxied = an_offer(2, 0.15, direct_port_count=0)
    late = an_offer(4, 0.15)
    first = an_offer(3, 0.15)

    ranked = rank(estimated((worse, proxied, late, first), hours=1), RULES)

    assert [c.offer.offer_id for c in ranked] == [3, 4, 2, 1]


@pytest.mark.req("SEL-10")
def test_three_roles_cheapest_first_and_an_offer_may_play_several() -> None:
    one_hour = picks(rank(estimated(FOUR, hours=1), RULES), RULES)
    long_job = picks(rank(estimated(FOUR, hours=8), RULES), RULES)

    assert [(p.candidate.offer.gpu_name, p.roles) for p in one_hour] == [
        ("RTX 3090", (Role.CHEAPEST,)),
        ("RTX 4090", (Role.BEST_VALUE,)),
        ("H100 SXM", (Role.FASTEST,)),
    ]
    assert [p.roles for p in long_job] == [
        (Role.CHEAPEST,), (Role.BEST_VALUE, Role.FASTEST),
    ]  # fmt: skip
    assert picks([], RULES) == []


def test_without_hours_the_price_of_a_unit_of_work_decides() -> None:
    slow = an_offer(5, 0.10, gpu_name="RTX 3060")  # 0.25 $ per hour of work of an RTX 3090

    found = picks(rank(estimated((*FOUR, slow)), RULES), RULES)

    assert [(p.candidate.offer.gpu_name, p.roles) for p in found] == [
        ("RTX 3060", (Role.CHEAPEST,)),  # of the price per hour
        ("RTX 3090", (Role.BEST_VALUE,)),
        ("H100 SXM", (Role.FASTEST,)),
    ]


def test_a_card_of_unknown_speed_comes_last_and_has_no_total() -> None:
    unknown = an_offer(9, 0.01, gpu_name="RTX 9999")

    ranked = rank(estimated((unknown, RTX_3090), hours=1), RULES)

    assert [c.offer.offer_id for c in ranked] == [1, 9]
    assert (ranked[1].hours, ranked[1].total) == (None, None)
    assert [c.offer.offer_id for c in by_total(ranked)] == [1, 9]


def test_a_machine_is_tried_once() -> None:
    chunks = (an_offer(1, 0.15, machine_id=7), an_offer(2, 0.15, machine_id=7), an_offer(3, 0.16))

    kept = one_per_machine(rank(estimated(chunks, hours=1), RULES))

    assert [c.offer.offer_id for c in kept] == [1, 3]


@pytest.mark.req("SEL-16")
def test_the_rationale_names_hours_cost_the_faster_and_the_cheaper() -> None:
    req = needs(hours=1)
    ranked = rank([estimate(offer, req) for offer in FOUR], RULES)
    shown = picks(ranked, RULES)

    text = rationale(ranked[0], shown, req, RULES)

    assert "0.6 h at $0.30/h: $0.19 in all" in text
    assert "the cheapest, RTX 3090 (offer 1), is done 0.4 h later and costs $0.0375 less" in text
    assert "the fastest, H100 SXM (offer 4), is done 0.3 h sooner and costs $0.45 more" in text
    assert "$5/h once it exceeds 30 min" in text


@pytest.mark.req("SEL-05")
def test_several_gpus_are_compared_with_as_many_of_the_reference() -> None:
    pair = a_4090(1, 0.60, num_gpus=2)

    assert estimate(pair, needs(hours=8, num_gpus=2)).hours == pytest.approx(5.0)
    assert estimate(pair, needs(hours=8)).hours == pytest.approx(8 / (1.6 * 2 * 0.9))


def test_traffic_counts_where_gigabytes_and_price_are_known() -> None:
    priced = an_offer(1, 0.10, inet_down_usd_gb=0.01, inet_up_usd_gb=0.02)

    assert estimate(priced, needs(hours=1, download_gb=10, upload_gb=5)).total == 300_000
    assert estimate(priced, needs(hours=1)).total == 100_000


@pytest.mark.req("SEL-15")
def test_an_interruptible_offer_costs_its_bid_and_its_disk() -> None:
    offer = an_offer(1, 0.50, dph_base=450_000, min_bid=100_000)

    own = estimate(offer, needs(hours=1, spot=True, bid=200_000))
    ours = estimate(offer, needs(hours=1, spot=True))

    assert (own.bid, own.price) == (200_000, 250_000)
    assert (ours.bid, ours.price) == (110_000, 160_000)
    assert estimate(offer, needs(hours=1)).bid is None


@pytest.mark.req("SEL-13")
def test_the_chance_of_an_interruption_is_one_minus_r_to_the_hours() -> None:
    safe = estimate(an_offer(1, reliability=0.999), needs(hours=24)).interruption_chance
    less = estimate(an_offer(1, reliability=0.995), needs(hours=24)).interruption_chance

    assert safe == pytest.approx(0.0237, abs=5e-5)
    assert less == pytest.approx(0.1133, abs=5e-5)
    assert estimate(an_offer(1, reliability=None), needs(hours=24)).interruption_chance is None
