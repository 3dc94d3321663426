"""Shared caps: one warning, then every machine ends in time, stopped disks excepted."""

import math

import pytest
from msgspec import structs

from support.builders import T0, a_rental, a_watch, an_ending
from vastd.core import alarms, every_watchdog, watchdogs
from vastd.core.credit import zero_at
from vastd.core.limits import Caps, Limits
from vastd.core.money import Micros, from_usd
from vastd.core.pace import paces
from vastd.core.rental import Phase, Policy, RateSegment, Rental, Trigger
from vastd.core.spending import Past, day_of

WIND_DOWN_S = 110.0  # grace 60, one poll 20, settling 30
DISK = Micros(3600)  # a micro-dollar a second


def limits(**caps: float) -> Limits:
    return Limits(caps=Caps(**{name: from_usd(usd) for name, usd in caps.items()}))


def look(rentals: list[Rental], now: float, **caps: float):  # type: ignore[no-untyped-def]
    """Return what is due of shared caps, and when to look again."""
    held = limits(**caps)
    live = [rental for rental in rentals if rental.phase is not Phase.GONE]
    shared = paces(live, Past(rentals), held, now)
    watches = [structs.replace(a_watch(r, limits=held), paces=shared) for r in live]
    dogs = [dog for dog in every_watchdog.ALL if dog.name.startswith("cap")]
    return watchdogs.check(watches, now, dogs)


def warned(rental: Rental, action: object) -> Rental:
    return structs.replace(rental, warned=rental.warned | {action.watchdog})  # type: ignore[attr-defined]


@pytest.mark.req("BUD-11")
def test_the_day_cap_warns_once_then_ends_every_machine_before_it_is_overrun() -> None:
    first, second = a_rental(rental_id="r1"), a_rental(rental_id="r2")
    kept = 2 * WIND_DOWN_S * 100
    warn_at = T0 + (800_000 - kept) / 200
    end_at = T0 + (1_000_000 - kept) / 200

    due, wake_at = look([first, second], T0, per_day=1.0)
    assert (due, wake_at) == ([], pytest.approx(warn_at, abs=1e-3))
    due, _ = look([first, second], warn_at + 0.01, per_day=1.0)
    assert [(a.rental_id, a.watchdog) for a in due] == [("r2", "per_day_warn-2027-01-15")]
    second = warned(second, due[0])
    due, wake_at = look([first, second], warn_at + 0.01, per_day=1.0)
    assert (due, wake_at) == ([], pytest.approx(end_at, abs=1e-3))
    due, _ = look([first, second], end_at + 0.01, per_day=1.0)
    assert [(a.rental_id, a.trigger) for a in due] == [
        ("r1", Trigger.BUDGET),
        ("r2", Trigger.BUDGET),
    ]
    assert (
        "the cap of one day is used up: $0.98 of $1.00 spent (per_day_usd), and $0.0220 is kept "
        "for what still bills" in due[0].why
    )


def test_the_storage_of_a_stopped_machine_is_kept_back_and_it_is_not_ended() -> None:
    stopped = a_rental(Phase.STOPPED, rental_id="r1", rates=(RateSegment(T0, DISK),))
    running = a_rental(rental_id="r2")
    until_midnight = round(day_of(T0).until - T0)
    end_at = T0 + (1_000_000 - until_midnight - WIND_DOWN_S * 100) / 100

    _, wake_at = look([stopped, running], T0, per_day=1.0)
    due, _ = look([stopped, running], end_at + 0.1, per_day=1.0)

    ended = [a for a in due if isinstance(a, alarms.End)]
    assert wake_at < end_at
    assert [a.rental_id for a in ended] == ["r2"]
    assert look([stopped], T0, per_day=0.0) == ([], math.inf)


def test_a_new_day_begins_with_nothing_spent() -> None:
    rental = a_rental()
    midnight = day_of(T0).until

    before, _ = look([rental], midnight - 200, per_day=1.0)
    after, wake_at = look([rental], midnight + 1, per_day=1.0)

    assert any(isinstance(action, alarms.End) for action in before)
    assert after == []
    assert wake_at > midnight + 1


def test_what_is_not_reached_before_the_day_ends_is_no_alarm() -> None:
    assert look([a_rental()], T0, per_day=25.0) == ([], math.inf)
    assert look([a_rental()], T0) == ([], math.inf)


def test_a_projects_cap_ends_its_own_machines_only() -> None:
    mine = a_rental(rental_id="r1", project="/a")
    other = a_rental(rental_id="r2", project="/b")

    due, _ = look([mine, other], T0 + 4000, per_project=0.4)

    ended = [a.rental_id for a in due if isinstance(a, alarms.End)]
    # Both projects have spent it: each by its own.
    assert ended == ["r1", "r2"]
    due, _ = look([mine, structs.replace(other, rates=())], T0 + 4000, per_project=0.4)
    assert [a.rental_id for a in due if isinstance(a, alarms.End)] == ["r1"]


def test_money_of_machines_that_are_gone_is_spent_all_the_same() -> None:
    gone = a_rental(
        Phase.GONE, rental_id="r0",
        rates=(RateSegment(T0, from_usd(1)), RateSegment(T0 + 3600, Micros(0))),
    )  # fmt: skip

    due, _ = look([gone, a_rental()], T0 + 3600, per_day=1.0)

    assert [type(action) for action in due] == [alarms.End, alarms.Warn]


@pytest.mark.parametrize(
    ("ending", "ends"),
    [(None, True), (an_ending(Trigger.JOB_DONE), True), (an_ending(Trigger.USER), False)],
)
def test_an_end_that_is_under_way_is_left_alone(ending: object, ends: bool) -> None:
    due, _ = look([a_rental(ending=ending)], T0 + 4000, per_day=0.1)

    assert any(isinstance(action, alarms.End) for action in due) is ends


def test_a_raised_project_cap_warns_again() -> None:
    rental = a_rental(project="/a")
    due, _ = look([rental], T0 + 4000, per_project=0.45)
    rental = warned(rental, due[0])

    assert look([rental], T0 + 4000, per_project=0.45)[0] == []
    assert [a.watchdog for a in look([rental], T0 + 5000, per_project=0.55)[0]] == [
        "per_project_warn-$0.55"
    ]


def test_explain_says_which_caps_count() -> None:
    held = limits(per_day=25.0, per_month=100.0)
    rental = a_rental()
    watch = structs.replace(a_watch(rental, limits=held), paces=paces([rental], Past(), held, T0))
    dog = next(dog for dog in every_watchdog.ALL if dog.name == "cap")

    assert dog.limit(watch) == "per_day_usd $25.00, per_month_usd $100.00"
    assert dog.limit(a_watch(rental)) == "no shared cap"


# -- the account


@pytest.mark.req("BUD-13")
def test_credit_ends_when_the_machines_have_used_it_up_each_until_its_own_end() -> None:
    short = a_rental(rental_id="r1", policy=Policy(max_runtime_s=1000.0), deadline_at=T0 + 1000)
    long = a_rental(rental_id="r2")
    both_s = 1000 + WIND_DOWN_S

    assert zero_at(from_usd(0.1), [short, long], Limits(), T0) == T0 + 500
    later = zero_at(from_usd(0.3), [short, long], Limits(), T0)
    assert later == pytest.approx(T0 + both_s + (300_000 - 2 * both_s * 100) / 100)
    assert zero_at(from_usd(50), [short, long], Limits(), T0) is None
    assert zero_at(from_usd(1), [], Limits(), T0) is None
    assert zero_at(Micros(-5), [long], Limits(), T0) == T0
