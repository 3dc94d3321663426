"""A budget that would end its machine at once is refused, with the smallest one that would not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from support.builders import LIMITS, RATE, T0, a_rental, a_watch
from support.offer_builders import an_offer
from vastd.core import every_watchdog, watchdogs
from vastd.core.alarms import End, Warn
from vastd.core.budget_floor import smallest, too_small
from vastd.core.money import Micros, from_usd
from vastd.core.rental import Order, Phase, Policy, RateSegment, Rental

# 60 s of grace, a poll of 20 s, 30 s of settling, and 300 s to do something: 410 s at $0.36/h.
LEAST = Micros(41_000)


def planned(budget: int | None, *, dph: Micros = RATE, grace_s: float = 60.0) -> Rental:
    order = Order(offer=an_offer(7, dph=dph), image="sim/image", disk_gb=50.0)
    kept = None if budget is None else Micros(budget)
    return a_rental(Phase.PLANNED, order=order, policy=Policy(budget=kept, grace_s=grace_s))


@pytest.mark.parametrize(
    ("budget", "refused"), [(None, False), (LEAST, False), (LEAST - 1, True), (1, True), (0, True)]
)
def test_a_budget_is_refused_exactly_when_nothing_could_be_done_with_it(
    budget: int | None, refused: bool
) -> None:
    assert (too_small(planned(budget), LIMITS, T0) is not None) == refused


def test_the_refusal_says_what_it_is_made_of_and_what_would_do() -> None:
    why, hint = too_small(planned(10_000), LIMITS, T0) or ("", "")

    assert why == (
        "a budget of $0.0100 would end it at once: winding down a machine of $0.360/h takes 110 s "
        "and $0.0110, and in less than 5 min it can do nothing"
    )
    assert hint == (
        "the smallest budget that would do is $0.05 (`--budget 0.05`); or take a cheaper machine"
    )


def test_what_a_stopped_machine_has_cost_counts_when_it_is_started_again() -> None:
    policy = Policy(budget=from_usd(0.40))
    stopped = a_rental(Phase.READY, policy=policy)  # ran for an hour at $0.36/h

    told = too_small(stopped, LIMITS, T0 + 3600)

    assert told is not None
    assert "$0.36 of it is spent" in told[0]
    assert "`vastctl policy lab budget=0.41`" in told[1]
    assert too_small(stopped, LIMITS, T0 + 100) is None


@given(st.integers(1_000, 20_000_000), st.floats(0, 3600))
def test_the_budget_it_names_is_accepted_and_does_not_end_the_machine_for_minutes(
    dph: int, grace_s: float
) -> None:
    poor = planned(0, dph=Micros(dph), grace_s=grace_s)
    told = too_small(poor, LIMITS, T0)
    assert told is not None
    named = re.search(r"--budget ([0-9.]+)", told[1])
    assert named is not None
    rich = structs.replace(
        poor, policy=structs.replace(poor.policy, budget=from_usd(float(named[1])))
    )

    assert too_small(rich, LIMITS, T0) is None
    assert rich.policy.budget is not None
    assert 0 <= rich.policy.budget - smallest(poor, LIMITS, T0) < 10_000
    runs = structs.replace(
        rich, phase=Phase.READY, instance_id=1, rates=(RateSegment(T0, Micros(dph)),)
    )
    alarm = watchdogs.budget(a_watch(runs))
    assert alarm is not None
    assert alarm.at >= T0 + 299.9


def test_what_a_budget_warning_and_its_end_say_is_what_is_measured() -> None:
    rental = a_rental(Phase.BUSY, policy=Policy(budget=from_usd(0.1)))
    ends = [
        action
        for at in (T0 + 700, T0 + 900)
        for action in watchdogs.check([a_watch(rental)], at, every_watchdog.ALL)[0]
    ]

    assert [(type(a), a.why) for a in ends if isinstance(a, Warn | End)] == [
        (Warn, "what it cost and its winding down ($0.0110) reach 80 % of its budget"),
        (End, "its budget is used up: $0.0110 of $0.10 pays for its end"),
        (Warn, "what it cost and its winding down ($0.0110) reach 80 % of its budget"),
    ]
