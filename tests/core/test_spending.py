"""Windows add up to bills, reservations to what they reserve, and no dollar is promised twice."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from support.builders import OWNER, RATE, T0, a_job, a_rental, an_ending
from support.offer_builders import an_offer
from vastd.core import billing
from vastd.core.job import Attempt, JobState
from vastd.core.limits import Caps, Limits
from vastd.core.money import Micros, from_usd
from vastd.core.placement import awaited
from vastd.core.rental import Order, Phase, Policy, RateSegment, Rental, Trigger
from vastd.core.spending import (
    EVER,
    Book,
    Cap,
    Past,
    Window,
    credit_use,
    day_of,
    month_of,
    promise,
    promised,
    spent,
    tightest,
    uses,
    worst,
)

DAY_S = 86_400.0
WIND_DOWN_S = 60.0 + 20.0 + 30.0  # grace, one poll, settling
SEGMENTS = st.lists(
    st.tuples(st.floats(1, 200_000), st.integers(0, 4_000_000)), min_size=1, max_size=6
)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def a_plan(name: str = "new", *, usd_h: float = 0.36, **changes: object) -> Rental:
    order = Order(offer=an_offer(7, dph=from_usd(usd_h)), image="sim/image", disk_gb=50.0)
    fields = {"rental_id": f"r-{name}", "name": name, "order": order, **changes}
    return a_rental(Phase.PLANNED, **fields)


def a_book(
    *rentals: Rental, now: float = T0, waiting: tuple[Rental, ...] = (), **caps: float
) -> Book:
    limits = Limits(caps=Caps(**{name: from_usd(usd) for name, usd in caps.items()}))
    return a_look(rentals, limits, now, waiting)


def a_look(
    rentals: tuple[Rental, ...], limits: Limits, now: float = T0, waiting: tuple[Rental, ...] = ()
) -> Book:
    live = [rental for rental in rentals if rental.phase is not Phase.GONE]
    return Book(rentals=live, past=Past(rentals), waiting=waiting, limits=limits, now=now)


# -- windows


def test_days_and_months_are_those_of_utc() -> None:
    last = at("2026-12-31T23:59:59")

    assert day_of(last) == Window(at("2026-12-31"), at("2027-01-01"))
    assert month_of(last) == Window(at("2026-12-01"), at("2027-01-01"))
    assert month_of(at("2028-02-29T12:00:00")) == Window(at("2028-02-01"), at("2028-03-01"))
    assert day_of(at("2027-01-01")).start == at("2027-01-01")
    assert EVER.until == math.inf


@given(SEGMENTS, st.integers(0, 5))
def test_the_days_of_a_bill_add_up_to_it_exactly(
    parts: list[tuple[float, int]], more_days: int
) -> None:
    since, segments = T0, []
    for length, rate in parts:
        segments.append(RateSegment(since, Micros(rate)))
        since += length
    rental, now = a_rental(rates=tuple(segments)), since + more_days * DAY_S

    windows = [day_of(T0)]
    while windows[-1].until < now:
        windows.append(day_of(windows[-1].until))

    assert sum(spent(rental, window, now) for window in windows) == billing.cost(rental, now)


def test_what_ended_before_a_window_costs_nothing_in_it() -> None:
    rental = a_rental(rates=(RateSegment(T0, RATE), RateSegment(T0 + 100, Micros(0))))

    assert spent(rental, Window(T0 + 100, T0 + 200), T0 + 999) == 0
    assert spent(rental, Window(T0 + 50, T0 + 200), T0 + 999) == 50 * 100
    assert spent(a_plan(), EVER, T0) == 0


# -- what is reserved


def whole(rental: Rental, now: float = T0, limits: Limits | None = None) -> Micros:
    return promised([rental], limits or Limits(), now)


def test_a_machine_reserves_its_estimate_with_a_buffer_and_its_wind_down() -> None:
    plan = a_plan(estimated_hours=1.0)

    assert whole(plan) == round((3600 * 1.3 + WIND_DOWN_S) * 100)


def test_without_an_estimate_it_reserves_until_its_deadline() -> None:
    plan = a_plan(policy=Policy(max_runtime_s=7200.0))

    assert whole(plan) == round((7200 + WIND_DOWN_S) * 100)


def test_a_machine_that_is_kept_outlives_its_estimate() -> None:
    plan = a_plan(estimated_hours=1.0, policy=Policy(max_runtime_s=7200.0, keep=True))

    assert whole(plan) == round((7200 + WIND_DOWN_S) * 100)


def test_it_never_reserves_more_than_its_own_budget_has_left() -> None:
    plan = a_plan(policy=Policy(budget=from_usd(1)))
    running = a_rental(policy=Policy(budget=from_usd(1)))

    assert whole(plan) == from_usd(1)
    assert whole(running, T0 + 1000) == from_usd(1) - 1000 * 100


def test_an_estimate_that_was_too_low_leaves_the_wind_down_reserved() -> None:
    late = a_rental(estimated_hours=1.0, ready_at=T0)

    assert whole(late, T0 + 9000) == round(WIND_DOWN_S * 100)


def test_a_machine_that_ends_reserves_its_wind_down_and_one_that_is_gone_nothing() -> None:
    assert whole(a_rental(ending=an_ending(Trigger.JOB_DONE))) == round(WIND_DOWN_S * 100)
    assert whole(a_rental(Phase.DESTROYING)) == round(WIND_DOWN_S * 100)
    assert promise(a_rental(Phase.GONE), Limits(), T0) is None


def test_a_stopped_machine_reserves_its_storage_to_the_end_of_the_day() -> None:
    stopped = a_rental(Phase.STOPPED, rates=(RateSegment(T0, Micros(3600)),))
    made = promise(stopped, Limits(), T0)
    assert made is not None

    left_s = day_of(T0).until - T0
    assert made.within(day_of(T0)) == left_s
    assert made.within(EVER) == DAY_S  # it has no end of its own: a day is assumed


def test_the_dearest_rate_seen_is_reserved_not_the_offers() -> None:
    dearer = a_rental(rates=(RateSegment(T0, Micros(2 * RATE)),), ending=an_ending())

    assert whole(dearer) == round(WIND_DOWN_S * 200)


@given(
    st.floats(0.01, 4.0), st.floats(60, 10 * DAY_S), st.one_of(st.none(), st.floats(0.01, 50)),
    st.floats(0, DAY_S),
)  # fmt: skip
def test_the_days_of_a_reservation_add_up_to_it_exactly(
    usd_h: float, runtime_s: float, budget: float | None, later_s: float
) -> None:
    policy = Policy(max_runtime_s=runtime_s, budget=None if budget is None else from_usd(budget))
    made = promise(a_plan(usd_h=usd_h, policy=policy), Limits(), T0 + later_s)
    assert made is not None

    window, total = day_of(made.now), 0
    while window.start < made.until:
        total += made.within(window)
        window = day_of(window.until)

    assert total == made.within(EVER)


# -- the verdict


def need_of(plan: Rental) -> Micros:
    return whole(plan)


@pytest.mark.req("BUD-02")
def test_what_is_exactly_enough_passes_and_a_millionth_less_does_not() -> None:
    plan = a_plan(estimated_hours=1.0)
    need = need_of(plan)

    def left(cap: int) -> bool:
        limits = Limits(caps=Caps(per_day=Micros(cap)))
        book = a_look((), limits)
        return all(use.fits for use in uses(book, None, plan))

    assert left(need)
    assert not left(need - 1)


def test_spent_and_reserved_money_is_counted_and_named() -> None:
    old = a_rental(rental_id="r-old", name="old", estimated_hours=1.0, ready_at=T0)
    (use,) = uses(a_book(old, now=T0 + 600, per_day=5.0), None, a_plan(estimated_hours=2.0))

    assert (use.cap, use.limit) == (Cap.PER_DAY, from_usd(5))
    assert use.spent == 600 * 100
    assert [(claim.name, claim.amount) for claim in use.claims] == [
        ("old", round((3600 * 1.3 - 600 + WIND_DOWN_S) * 100))
    ]
    assert use.needs == round((7200 * 1.3 + WIND_DOWN_S) * 100)
    assert use.left == use.limit - use.spent - use.reserved


def test_a_plan_on_record_is_not_counted_twice() -> None:
    plan = a_plan(estimated_hours=1.0)

    (use,) = uses(a_book(plan, per_day=5.0), None, plan)

    assert (use.reserved, use.needs) == (0, need_of(plan))


def test_every_later_day_it_reaches_into_is_judged_too() -> None:
    # Begins 16 h before midnight; another machine has promised nearly all of tomorrow.
    other = a_plan("other", usd_h=1.0, policy=Policy(max_runtime_s=36 * 3600.0))
    plan = a_plan(usd_h=1.0, policy=Policy(max_runtime_s=24 * 3600.0))

    found = uses(a_book(other, per_day=33.0, per_month=900.0), None, plan)

    days = [use for use in found if use.cap is Cap.PER_DAY]
    assert [use.window for use in days] == [day_of(T0), day_of(T0 + DAY_S)]
    assert [use.fits for use in days] == [True, True]
    bad = worst(uses(a_book(other, per_day=27.0), None, plan))
    assert bad is not None
    assert (bad.fits, bad.window) == (False, day_of(T0))
    assert [use.cap for use in tightest(found)] == [Cap.PER_DAY, Cap.PER_MONTH]


def test_tomorrow_alone_may_refuse() -> None:
    late = at("2027-01-15T23:00:00")
    other = a_plan("other", usd_h=1.0, policy=Policy(max_runtime_s=20 * 3600.0))
    plan = a_plan(usd_h=1.0, policy=Policy(max_runtime_s=8 * 3600.0))

    found = uses(a_book(other, now=late, per_day=20.0), None, plan)

    assert [use.fits for use in found] == [True, False]


def test_a_projects_cap_counts_its_own_machines_for_all_time() -> None:
    mine = a_rental(rental_id="r-1", project="/a", rates=(RateSegment(T0 - 90 * DAY_S, RATE),))
    other = a_rental(rental_id="r-2", project="/b")

    (use,) = uses(a_book(mine, other, per_project=5000.0), "/a", a_plan(project="/a"))

    assert use.spent == billing.cost(mine, T0)
    assert [claim.rental_id for claim in use.claims] == ["r-1"]
    assert uses(a_book(mine, per_project=5.0), None) == []


@pytest.mark.req("BUD-13")
def test_credit_must_last_for_everything_that_is_promised() -> None:
    old = a_rental(rental_id="r-old", name="old", estimated_hours=1.0)
    plan = a_plan(estimated_hours=1.0)
    book = a_book(old)
    need = need_of(plan) + whole(old)

    assert credit_use(book, need, plan).fits
    assert not credit_use(book, Micros(need - 1), plan).fits


@pytest.mark.req("BUD-09")
@given(
    st.lists(st.tuples(st.floats(0.05, 2.0), st.floats(0.1, 20.0)), min_size=1, max_size=8),
    st.floats(0.1, 10.0),
    st.floats(0, DAY_S),
)
def test_however_many_ask_at_once_what_is_let_through_fits_into_every_cap(
    asked: list[tuple[float, float]], cap: float, later_s: float
) -> None:
    now = T0 + later_s
    book = a_book(now=now, per_day=cap, per_project=2 * cap)
    passed: list[Rental] = []
    for number, (usd_h, hours) in enumerate(asked):
        plan = a_plan(str(number), usd_h=usd_h, estimated_hours=hours, project="/a")
        if all(u.fits for u in uses(structs.replace(book, rentals=tuple(passed)), "/a", plan)):
            passed.append(plan)

    made = [promise(plan, book.limits, now) for plan in passed]
    window = day_of(now)
    for _ in range(3):
        assert sum(p.within(window) for p in made if p) <= from_usd(cap)
        window = day_of(window.until)
    assert promised(passed, book.limits, now) <= from_usd(2 * cap)


def test_a_gone_machine_counts_until_it_comes_back_and_is_counted_anew_then() -> None:
    rates = (RateSegment(T0, RATE), RateSegment(T0 + 100, Micros(0)))
    gone = a_rental(Phase.GONE, project="/a", rates=rates, warned=frozenset({"w"}))
    past = Past([gone])
    day, month = day_of(T0), month_of(T0)

    def sums() -> list[int]:
        return [
            past.spent(Cap.PER_DAY, day, None),
            past.spent(Cap.PER_MONTH, month, None),
            past.spent(Cap.PER_PROJECT, EVER, "/a"),
        ]

    assert sums() == [10_000] * 3
    assert (past.warned("w", None), past.warned("w", "/a"), past.warned("w", "/b")) == (
        True, True, False,
    )  # fmt: skip
    past.count(gone)
    assert sums() == [10_000] * 3
    past.count(structs.replace(gone, phase=Phase.DESTROYING))
    assert sums() == [0] * 3
    assert not past.warned("w", None)
    past.count(structs.replace(gone, rates=(*rates[:1], RateSegment(T0 + 200, Micros(0)))))
    assert sums() == [20_000] * 3


@given(st.lists(SEGMENTS, max_size=4), st.floats(0, 3 * DAY_S))
def test_what_is_gone_counts_as_if_its_bills_were_summed_up_anew(
    bills: list[list[tuple[float, int]]], more: float
) -> None:
    rentals, latest = [], T0
    for number, parts in enumerate(bills):
        since, segments = T0, []
        for length, rate in parts:
            segments.append(RateSegment(since, Micros(rate)))
            since += length
        segments.append(RateSegment(since, Micros(0)))
        latest = max(latest, since)
        rentals.append(a_rental(Phase.GONE, rental_id=f"r{number}", project="/a",
                                rates=tuple(segments)))  # fmt: skip
    past, now = Past(rentals), latest + more

    for cap, window in (
        (Cap.PER_DAY, day_of(now)), (Cap.PER_DAY, day_of(T0)), (Cap.PER_MONTH, month_of(now)),
        (Cap.PER_PROJECT, EVER),
    ):  # fmt: skip
        anew = sum(spent(rental, window, now) for rental in rentals)
        assert past.spent(cap, window, "/a") == anew


# -- jobs between two machines


def a_waiting_job(number: int, rental: Rental, **changes: object):  # type: ignore[no-untyped-def]
    tried = Attempt(
        rental_id=rental.rental_id, offer_id=1, machine_id=1, began_at=T0, reason="boot_failed"
    )
    fields = {"job_id": f"j{number}", "submitted_at": T0 + number, "rental_id": None,
              "attempts": (tried,), "policy": Policy(budget=from_usd(2)), **changes}  # fmt: skip
    return a_job(JobState.QUEUED, **fields)


def test_a_job_between_machines_reserves_against_newer_ones_and_never_against_older() -> None:
    rates = (RateSegment(T0, from_usd(0.5)), RateSegment(T0 + 3600, Micros(0)))
    failed = a_rental(Phase.GONE, rates=rates)
    rentals = {failed.rental_id: failed}
    first, second = a_waiting_job(1, failed), a_waiting_job(2, failed)

    seen = awaited([second, first], rentals, T0 + 7200)

    assert {one.rental_id for one in seen} == {"j1", "j2"}
    assert {promised([one], Limits(), T0 + 7200) for one in seen} == {from_usd(1.5)}
    assert [r.rental_id for r in awaited([second, first], rentals, T0, by=second)] == ["j1"]
    assert awaited([second, first], rentals, T0, by=first) == []


@pytest.mark.parametrize(
    "changes",
    [{"rental_id": "r1"}, {"cancel_at": T0}, {"rents": False}, {"attempts": ()}],
    ids=str,
)
def test_a_job_that_waits_for_no_machine_reserves_nothing(changes: dict[str, object]) -> None:
    failed = a_rental(Phase.GONE)

    assert awaited([a_waiting_job(1, failed, **changes)], {"r1": failed}, T0) == []


def test_the_owner_of_a_label_is_not_what_counts() -> None:
    """Machines taken over after a lost store count like all others."""
    adopted = a_rental(
        label=f"vastd-{OWNER}-x", order=Order(offer=an_offer(1, dph=RATE), image="", disk_gb=0.0)
    )

    (use,) = uses(a_book(adopted, now=T0 + 10, per_day=1.0), None)

    assert use.spent == 10 * 100
    assert use.reserved > 0
