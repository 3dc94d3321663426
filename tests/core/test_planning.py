"""Choosing an offer, from what the user said to the three options."""

import pytest

from support.offer_builders import ListedOffers, a_4090, an_h100, an_offer
from support.sim_market import HandClock, a_market
from vastd.core.hosts import Death, Host, Known
from vastd.core.market import Offer
from vastd.core.money import from_usd
from vastd.core.ranking import Role
from vastd.core.sizing import SizingDefaults, TaskNeeds
from vastd.errors import CapLeavesNone, InvalidRequest, NoOffers, RateLimited
from vastd.planning import Found, Plan, PlanRules, plan, search
from vastd.rpc.views.plan import offers_view, option_view, plan_view, task_needs
from vastd.simulator.faults import Faults
from vastd.simulator.provider import SimProvider
from vastd_protocol.methods.task import Needs

RULES = PlanRules()


async def planned(market: ListedOffers, budget: float | None = None, **said: object) -> Plan:
    needs = TaskNeeds(**said)  # type: ignore[arg-type]
    return await plan(market, needs, RULES, budget=None if budget is None else from_usd(budget))


async def found(market: ListedOffers, text: str | None = None, **said: object) -> Found:
    return await search(market, text, TaskNeeds(**said), RULES)  # type: ignore[arg-type]


def ids(chosen: Plan | Found) -> list[int]:
    return [option.offer.offer_id for option in chosen.options]


async def test_a_plan_without_offers_needs_no_network() -> None:
    sized = await plan(None, TaskNeeds(gpu_ram_gb=24), RULES)

    assert sized.options == ()
    assert sized.question is not None
    assert sized.requirements.gpu_ram_mb is not None


async def test_a_plan_shows_three_roles_and_the_order_to_try() -> None:
    market = ListedOffers(an_offer(1, 0.15), a_4090(2, 0.30), an_h100(4, 1.90))

    chosen = await planned(market, hours=1, gpu_ram_gb=24)

    assert [(o.offer.offer_id, o.roles) for o in chosen.options] == [
        (1, (Role.CHEAPEST,)), (2, (Role.BEST_VALUE,)), (4, (Role.FASTEST,)),
    ]  # fmt: skip
    assert [o.offer.offer_id for o in chosen.ranked] == [2, 4, 1]
    assert len(market.queries) == 1
    assert (chosen.considered, chosen.removed, chosen.question) == (3, {}, None)


@pytest.mark.req("SRC-09")
async def test_the_disk_that_will_be_ordered_is_priced() -> None:
    market = ListedOffers(an_offer(1))

    await planned(market, disk_gb=120)
    await planned(market)

    assert [query.disk_gb for query in market.queries] == [120, 50]


@pytest.mark.req("SRC-02")
async def test_cheap_cards_do_not_hide_fast_ones() -> None:
    many = [an_offer(i, 0.10 + i / 1e4, gpu_name="RTX 3060", gpu_ram_mb=12_288) for i in range(90)]
    market = ListedOffers(*many, a_4090(500, 0.40), an_h100(600, 1.90))

    chosen = await planned(market, hours=8)

    assert 600 in ids(chosen)
    assert 500 in [o.offer.offer_id for o in chosen.ranked]
    assert len(market.queries) <= 3
    assert chosen.warnings == ()


@pytest.mark.req("SRC-02")
async def test_a_crowd_of_fast_cards_does_not_hide_the_fastest() -> None:
    slow = [an_offer(i, 0.10, gpu_name="RTX 3060") for i in range(90)]
    fast = [
        an_offer(i, 0.70, gpu_name="A100 PCIE", compute_cap=800, gpu_ram_mb=81_920)
        for i in range(100, 200)
    ]
    quick = [a_4090(i, 0.40) for i in range(200, 270)]
    market = ListedOffers(*slow, *fast, *quick, an_h100(600, 1.90))

    chosen = await planned(market, hours=8)

    assert ids(chosen)[-1] == 600
    assert len(market.queries) == 3


async def test_what_could_not_be_seen_is_said() -> None:
    crowd = [
        an_h100(i, 1.0, gpu_name=name)
        for i, name in enumerate(["RTX 3060"] * 70 + ["A100 PCIE"] * 70 + ["H100 SXM"] * 70)
    ]

    chosen = await planned(ListedOffers(*crowd), hours=8)

    assert "64 offers at a time" in chosen.warnings[0]


@pytest.mark.req("SRC-14")
async def test_leaking_filters_do_not_reach_the_options() -> None:
    offers = (
        an_offer(1, 0.15), an_offer(2, 0.05, gpu_ram_mb=8_000),
        an_offer(3, 0.05, disk_space_gb=10.0), an_offer(4, 0.05, disk_space_gb=20.0),
    )  # fmt: skip

    chosen = await planned(ListedOffers(*offers, leaky=True), hours=1, gpu_ram_gb=24)

    assert [o.offer.offer_id for o in chosen.ranked] == [1]
    assert (chosen.considered, chosen.removed) == (4, {"disk": 2, "gpu_ram": 1})


async def test_of_one_machine_only_one_chunk_is_tried() -> None:
    market = ListedOffers(
        an_offer(1, 0.15, machine_id=7), an_offer(2, 0.15, machine_id=7), an_offer(3, 0.15)
    )

    assert [o.offer.offer_id for o in (await planned(market, hours=1)).ranked] == [1, 3]


@pytest.mark.req("FAI-07")
async def test_a_blocked_machine_is_never_proposed() -> None:
    market = ListedOffers(an_offer(1, 0.10, machine_id=7), an_offer(2, 0.20))

    known = Known(blocked={7: "stuck (blocked by vastd until noon)"})
    chosen = await plan(market, TaskNeeds(hours=1), RULES, known=known)

    assert [o.offer.offer_id for o in chosen.ranked] == [2]
    assert chosen.removed == {"blocked machine": 1}
    with pytest.raises(NoOffers, match="machine 7: stuck") as caught:
        await plan(market, TaskNeeds(hours=1, offer_id=1), RULES, known=known)
    assert "vastctl hosts unblock" in (caught.value.hint or "")


async def test_an_offer_another_run_is_renting_is_never_proposed() -> None:
    market = ListedOffers(an_offer(1, 0.10), an_offer(2, 0.20))
    known = Known(taken={1: "lab"})

    chosen = await plan(market, TaskNeeds(hours=1), RULES, known=known)

    assert [o.offer.offer_id for o in chosen.ranked] == [2]
    with pytest.raises(NoOffers, match="it is being rented for lab"):
        await plan(market, TaskNeeds(hours=1, offer_id=1), RULES, known=known)


async def test_a_machine_with_a_bad_history_is_dearer_by_it_and_says_so() -> None:
    """Two failures of three are as if half of the price came on top."""
    market = ListedOffers(an_offer(1, 0.10), an_offer(2, 0.14), an_offer(3, 0.16))
    failure = Death(at=0.0, rental_id="r1", trigger="boot_overdue", why="stuck")
    bad = Host(machine_id=1001, rented=3, failed=2, failure=failure)

    chosen = await plan(market, TaskNeeds(hours=1), RULES, known=Known(hosts={1001: bad}))
    without = await plan(market, TaskNeeds(hours=1), RULES)

    assert [o.offer.offer_id for o in chosen.ranked] == [2, 1, 3]
    assert [o.offer.offer_id for o in without.ranked] == [1, 2, 3]
    (shown,) = (o for o in chosen.ranked if o.offer.offer_id == 1)
    assert "machine 1001: failed 2 of 3 times here: stuck" in shown.flags


async def test_the_configured_price_cap_holds_unless_the_user_names_one() -> None:
    market = ListedOffers(an_offer(1, 0.50), an_offer(2, 0.90))
    rules = PlanRules(sizing=SizingDefaults(max_dph=from_usd(0.60)))

    capped = await plan(market, TaskNeeds(hours=1), rules)
    named = await plan(market, TaskNeeds(hours=1, max_dph=from_usd(1)), rules)

    assert [o.offer.offer_id for o in capped.ranked] == [1]
    assert [o.offer.offer_id for o in named.ranked] == [1, 2]


@pytest.mark.req("SEL-06")
async def test_offers_over_the_budget_are_dropped_before_choosing() -> None:
    market = ListedOffers(an_offer(1, 0.15), an_h100(4, 1.90))

    chosen = await planned(market, budget=2.0, hours=8)

    assert ids(chosen) == [1]
    assert chosen.removed == {"budget": 1}


@pytest.mark.req("SRC-17")
async def test_no_offer_says_what_each_filter_removed_the_nearest_miss_and_what_to_relax() -> None:
    offers = [an_offer(i, 0.41 + i / 100) for i in range(3)]
    market = ListedOffers(*offers, an_offer(9, 0.1, disk_space_gb=20.0))

    with pytest.raises(NoOffers) as caught:
        await planned(market, hours=1, gpu_ram_gb=24, max_dph=from_usd(0.40))

    assert str(caught.value) == (
        "0 of 4 offers seen fit; removed by: price 3, disk 1; nearest miss: RTX 3090 (offer 0),"
        " $0.41/h (limit $0.40/h)"
    )
    assert caught.value.hint == ("raise the price cap (--max-price); or ask for less disk (--disk)")
    assert len(market.queries) == 2


@pytest.mark.req("SRC-17")
async def test_a_machine_nobody_has_is_explained_by_what_there_is() -> None:
    market = ListedOffers(an_offer(1), an_h100(2))

    with pytest.raises(NoOffers) as caught:
        await planned(market, gpu_ram_gb=500)

    assert "gpu_ram 2" in str(caught.value)
    assert "nearest miss: H100 SXM (offer 2), GPU memory 81.6 GB" in str(caught.value)
    assert "quantized" in caught.value.hint


async def test_an_empty_market_is_said_to_be_empty() -> None:
    with pytest.raises(NoOffers, match="listed none at all"):
        await planned(ListedOffers())


@pytest.mark.req("SRC-08")
async def test_when_no_host_promises_to_stay_the_demand_is_dropped_with_a_warning() -> None:
    market = ListedOffers(an_offer(1, 0.15, duration_s=12 * 3600.0))

    chosen = await planned(market, hours=10, gpu_name="RTX 3090")

    assert ids(chosen) == [1]
    assert "no host promises to stay" in chosen.warnings[0]
    assert "the host's contract ends in 12.0 h" in chosen.options[0].flags


@pytest.mark.req("CRE-01")
async def test_an_offer_chosen_by_id_is_the_only_one() -> None:
    market = ListedOffers(an_offer(1, 0.10), an_offer(2, 0.50, reliability=0.9, num_gpus=4))

    chosen = await planned(market, offer_id=2, hours=2)

    assert [o.offer.offer_id for o in chosen.ranked] == [2]
    assert market.queries[0].filters == {"ask_contract_id": {"eq": 2}}
    assert "reliability 0.9 (at least" in " ".join(chosen.options[0].flags)


async def test_a_chosen_offer_that_breaks_what_was_stated_is_refused() -> None:
    market = ListedOffers(an_offer(2, 0.50, gpu_ram_mb=12_288))

    with pytest.raises(NoOffers) as caught:
        await planned(market, budget=0.10, offer_id=2, hours=1, gpu_ram_gb=24)

    assert "GPU memory 12.3 GB (at least 24.0 GB)" in str(caught.value)
    assert "$0.50 in all (budget $0.10)" in str(caught.value)


PROJECT = {"max_dph": "project (vastd.toml:3)"}


@pytest.mark.parametrize("offer_id", [None, 2])
@pytest.mark.parametrize(
    ("said", "cap", "error", "hint"),
    [
        ({"max_dph": from_usd(0.2), "said_by": PROJECT}, None, CapLeavesNone,
         "your project's vastd.toml:3 caps the price"),
        ({"max_dph": from_usd(0.2)}, None, NoOffers, ""),
        ({}, from_usd(0.2), CapLeavesNone, "vastctl budget max_dph_usd=N"),
    ],
)  # fmt: skip
async def test_who_set_the_price_cap_decides_how_its_refusal_is_told(
    said: dict[str, object], cap: int | None, error: type, hint: str, offer_id: int | None
) -> None:
    """A cap that refuses is a refusal by budget (6); what was asked for and is not there is 9."""
    rules = PlanRules(sizing=SizingDefaults(max_dph=cap))  # type: ignore[arg-type]
    needs = TaskNeeds(hours=1, gpu_ram_gb=24, offer_id=offer_id, **said)  # type: ignore[arg-type]

    with pytest.raises(NoOffers) as caught:
        await plan(ListedOffers(a_4090(2, 0.30)), needs, rules)

    assert type(caught.value) is error
    assert hint in caught.value.hint
    assert ("--max-price" in caught.value.hint) <= (error is NoOffers)


async def test_an_offer_that_fails_elsewhere_too_is_not_refused_by_a_cap() -> None:
    needs = TaskNeeds(hours=1, gpu_ram_gb=80, max_dph=from_usd(0.2), said_by=PROJECT)

    with pytest.raises(NoOffers) as caught:
        await plan(ListedOffers(a_4090(2, 0.30)), needs, RULES)

    assert type(caught.value) is NoOffers


async def test_a_chosen_offer_that_is_gone_is_told_as_one_that_does_not_fit() -> None:
    """Exit 9, as when it is taken a moment later, at the create."""
    with pytest.raises(NoOffers) as caught:
        await planned(ListedOffers(an_offer(1)), offer_id=999)

    assert "offer 999 is not on the market" in str(caught.value)
    assert "vastctl offers" in caught.value.hint


async def test_a_budget_without_hours_is_said_to_bound_nothing_here() -> None:
    chosen = await planned(ListedOffers(an_offer(1)), budget=2.0, gpu_ram_gb=24)

    assert "without hours the budget" in chosen.warnings[0]
    assert chosen.options[0].candidate.total is None


async def test_a_failed_search_is_not_an_empty_market() -> None:
    class Limited:
        async def search_offers(self, query: object) -> list[Offer]:
            raise RateLimited("too many searches", retry_after_s=6.0)

    with pytest.raises(RateLimited):
        await plan(Limited(), TaskNeeds(), RULES)


@pytest.mark.req("SEL-15")
async def test_interruptible_offers_are_priced_and_ordered_by_bid() -> None:
    market = ListedOffers(
        an_offer(1, 0.30, dph_base=from_usd(0.28), min_bid=from_usd(0.20)),
        an_offer(2, 0.40, dph_base=from_usd(0.38), min_bid=from_usd(0.10)),
    )

    chosen = await planned(market, hours=1, spot=True, max_dph=from_usd(0.20))

    assert [(o.offer.offer_id, o.candidate.price) for o in chosen.ranked] == [(2, 130_000)]
    assert market.queries[0].interruptible
    assert market.queries[0].order == [("min_bid", "asc")]
    assert "dph_total" not in market.queries[0].filters
    assert "interruptible: any higher bid stops it" in chosen.options[0].flags[0]


# -- offers ------------------------------------------------------------------------------


async def test_a_query_is_answered_by_total_and_counts_what_it_removed() -> None:
    market = ListedOffers(
        an_offer(1, 0.15), a_4090(2, 0.20), an_offer(3, 0.05, reliability=0.96), an_h100(4)
    )

    answer = await found(market, "gpu_ram>=24 reliability>0.99", hours=2)

    assert ids(answer) == [2, 1, 4]
    assert (answer.considered, answer.removed) == (4, {"reliability": 1})
    assert [o.offer.offer_id for o in answer.near_misses] == [3]
    assert answer.near_misses[0].flags[0] == "reliability 0.96 (above 0.99)"


async def test_defaults_of_a_task_only_flag_what_a_query_finds() -> None:
    market = ListedOffers(
        an_offer(1, 0.50, gpu_name="RTX 5090", compute_cap=1200, num_gpus=2, inet_down_mbps=50.0)
    )

    answer = await found(market, "gpu_name=5090")

    assert ids(answer) == [1]
    assert answer.options[0].flags == (
        "compute capability 12.0 (below 10.0)", "download 50 Mb/s (above 100 Mb/s)",
    )  # fmt: skip


async def test_totals_are_compared_for_as_many_gpus_as_the_task_uses() -> None:
    market = ListedOffers(an_offer(1, 0.30), an_offer(2, 0.32, num_gpus=4))

    assert ids(await found(market)) == [1, 2]  # nothing to compare: every machine is shown
    assert ids(await found(market, hours=2)) == [1]
    assert ids(await found(market, "num_gpus>=1", hours=2)) == [2, 1]
    assert ids(await found(market, hours=2, num_gpus=4)) == [2]


async def test_what_the_user_states_narrows_a_query() -> None:
    market = ListedOffers(an_offer(1, 0.15), an_offer(2, 0.10, gpu_ram_mb=12_000), a_4090(3, 0.90))

    answer = await found(market, None, gpu_ram_gb=24, max_dph=from_usd(0.5))

    assert ids(answer) == [1]


async def test_a_query_can_drop_vasts_defaults() -> None:
    market = ListedOffers(an_offer(1, 0.15, verified=False))

    assert ids(await found(market, "verified=any")) == [1]
    assert ids(await found(market, "num_gpus=1")) == []


async def test_a_bare_search_asks_once() -> None:
    market = ListedOffers(an_offer(1))

    answer = await found(market)

    assert ids(answer) == [1]
    assert len(market.queries) == 1


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_that_shows_nothing_is_refused(limit: int) -> None:
    with pytest.raises(InvalidRequest, match="limit must be at least 1"):
        await search(ListedOffers(), None, TaskNeeds(), RULES, limit=limit)


# -- what clients see, and the simulated market ------------------------------------------


async def test_a_plan_reaches_the_client_with_the_source_of_each_number() -> None:
    said = Needs(hours=1.0, gpu_ram_gb=24.0, gpu_name="4090", max_dph_usd=0.5)
    market = ListedOffers(a_4090(2, 0.30))

    view = plan_view(await plan(market, task_needs(said), RULES))

    assert view.requirements.vram_gb is not None
    assert (view.requirements.vram_gb.low, view.requirements.vram_gb.high) == (24.0, 24.0)
    assert view.requirements.num_gpus.confidence == "default"
    assert view.requirements.cuda is not None
    assert (view.requirements.cuda.value, view.requirements.cuda.confidence) == (12.6, "default")
    assert view.requirements.hours is not None
    assert view.requirements.hours.mid == 1.0
    assert view.task.model is None
    assert view.task.gpu_hint is not None
    (option,) = view.options
    assert option.roles == ["cheapest", "best_value", "fastest"]
    assert (option.dph_usd, option.hours, option.total_usd) == (0.3, 1.0, 0.3)


async def test_unknown_stays_null_for_the_client() -> None:
    view = plan_view(await plan(ListedOffers(an_offer(1)), TaskNeeds(), RULES))

    assert (view.requirements.vram_gb, view.requirements.hours) == (None, None)
    assert (view.options[0].hours, view.options[0].total_usd) == (None, None)
    assert view.question is not None


async def test_found_offers_reach_the_client() -> None:
    answer = await found(ListedOffers(an_offer(1), an_offer(2, verified=False)), None, hours=1)

    view = offers_view(answer, "2026-12-01T00:00:00Z")

    assert view.as_of == "2026-12-01T00:00:00Z"
    assert view.offers == [option_view(answer.options[0])]


async def test_the_main_job_finds_its_machine_on_the_simulated_market() -> None:
    clock = HandClock()
    provider = SimProvider(a_market(clock), Faults(clock), latency_s=0.0)

    chosen = await plan(
        provider,
        TaskNeeds(hours=1, gpu_ram_gb=24),
        PlanRules(sizing=SizingDefaults(max_dph=from_usd(4))),
        budget=from_usd(2),
    )

    assert chosen.options
    for option in chosen.ranked:
        assert option.offer.gpu_ram_mb >= 24_000
        assert (option.candidate.total or 0) <= 2_000_000
        assert (option.offer.reliability or 0) >= 0.95
        assert len(option.rationale) >= 20
