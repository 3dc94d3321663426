"""The account's credit carried on: exact instants, who is warned, who is ended, and who never is."""

import pytest
from msgspec import structs

from support.builders import RATE, T0, a_job, a_rental, a_row, a_watch
from vastd.core.alarms import Alarm, End, Warn, Watch
from vastd.core.credit import CreditLook, foreign_rate, look, read_again_at
from vastd.core.credit_watchdogs import CREDIT_DOGS
from vastd.core.limits import Limits
from vastd.core.money import Micros, for_seconds, from_usd
from vastd.core.rental import Phase, RateSegment, Rental, StopCause, Trigger

HOUR = 3600.0
LIMITS = Limits()
BUSY = a_rental(Phase.BUSY, phase_since=T0)  # 100 micro-dollars a second, until T0 + 12 h
WIND_DOWN_S = 110.0  # grace 60, one poll 20, settle 30
NOW = T0 + HOUR


def seen(credit: Micros, *rentals: Rental, now: float = NOW, read_at: float = NOW) -> CreditLook:
    return look(read_at, credit, rentals or (BUSY,), (), LIMITS, now)


def alarm(name: str, watch: Watch) -> Alarm | None:
    return next(dog for dog in CREDIT_DOGS if dog.name == name).look(watch)


def watching(found: CreditLook | None, rental: Rental = BUSY, limits: Limits = LIMITS) -> Watch:
    return structs.replace(a_watch(rental, a_job(), limits=limits), credit=found)


@pytest.mark.req("BUD-13")
def test_credit_is_used_up_when_the_burn_has_eaten_it_to_the_second() -> None:
    found = seen(Micros(1_000_000))

    assert found.zero_at == NOW + 10_000
    assert found.act_at == NOW + 10_000 - WIND_DOWN_S
    assert (found.left, found.burn, found.stops) == (1_000_000, RATE, 1)


def test_what_was_billed_since_the_reading_is_gone_already() -> None:
    found = seen(Micros(1_000_000), now=NOW + 100)

    assert (found.left, found.zero_at) == (990_000, NOW + 10_000)


def test_instances_of_others_spend_it_too() -> None:
    stranger = a_row(instance_id=9)

    found = look(NOW - 50, Micros(1_000_000), (BUSY,), (stranger,), LIMITS, NOW)

    assert found.left == 1_000_000 - 2 * 5_000
    assert found.burn == 2 * RATE
    assert found.zero_at == NOW + 4_950


@pytest.mark.parametrize(
    ("status", "rate"),
    [
        ("running", RATE),
        ("exited", from_usd(0.0036)),
        ("loading", from_usd(0.0036)),
        ("offline", 0),
    ],
)
def test_a_foreign_instance_costs_what_its_status_bills(status: str, rate: int) -> None:
    assert foreign_rate(a_row(status)) == rate


def test_enough_credit_lasts_and_warns_nobody() -> None:
    until_the_end = for_seconds(RATE, 11 * HOUR + WIND_DOWN_S)
    enough, short = Micros(until_the_end + 1), Micros(until_the_end - RATE)

    assert seen(enough).zero_at is None
    for name in ("credit", "credit_warn"):
        assert alarm(name, watching(seen(enough))) is None
        assert alarm(name, watching(seen(short))) is not None


def test_a_machine_that_overran_its_estimate_may_run_until_its_deadline() -> None:
    short = structs.replace(BUSY, estimated_hours=1.0, ready_at=T0)
    credit = Micros(for_seconds(RATE, 2 * HOUR))

    assert seen(credit, short).zero_at is None  # another 0.3 hours are expected
    assert seen(credit, short, now=T0 + 1.3 * HOUR).zero_at == NOW + 2 * HOUR
    assert alarm("credit_warn", watching(seen(credit, short), short)) is None
    late = seen(credit, short, now=T0 + 1.3 * HOUR)
    assert alarm("credit_warn", watching(late, short)) is not None


@pytest.mark.req("BUD-13")
def test_a_job_whose_end_the_credit_does_not_reach_is_warned_about_once_a_day() -> None:
    """CASES A28: credit < burn x time to the job's end."""
    found = alarm("credit_warn", watching(seen(Micros(1_000_000))))

    assert found is not None
    assert isinstance(found.action, Warn)
    assert found.at <= NOW
    assert found.action.watchdog == "credit_warn-2027-01-15"
    assert "($1.00) is used up by" in found.action.why
    assert "add credit" in found.action.why
    told = structs.replace(BUSY, warned=frozenset({"credit_warn-2027-01-15"}))
    assert alarm("credit_warn", watching(seen(Micros(1_000_000)), told)) is None


@pytest.mark.req("BUD-13")
def test_a_job_is_ended_while_its_end_can_still_be_paid() -> None:
    found = alarm("credit", watching(seen(Micros(1_000_000))))

    assert found is not None
    assert isinstance(found.action, End)
    assert found.action.trigger is Trigger.BUDGET
    assert found.at == NOW + 10_000 - WIND_DOWN_S


@pytest.mark.parametrize(
    ("rental", "limits", "credit"),
    [
        (BUSY, structs.replace(LIMITS, end_at_zero_credit=False), 1_000_000),
        (structs.replace(BUSY, purpose="interactive"), LIMITS, 1_000_000),
        (structs.replace(BUSY, phase=Phase.STOPPED), LIMITS, 1_000_000),
        (BUSY, LIMITS, 0),  # it runs all the same: nothing stops at zero there
        (BUSY, LIMITS, -5_000_000),
    ],
)
def test_who_is_never_ended_for_credit(rental: Rental, limits: Limits, credit: int) -> None:
    found = seen(Micros(credit), rental)

    assert alarm("credit", watching(found, rental, limits)) is None


def test_nothing_is_ended_on_an_old_reading_or_without_one() -> None:
    def proven(age_s: float) -> bool:
        old = seen(Micros(1), read_at=NOW - age_s)
        found = alarm("credit", watching(structs.replace(old, read=Micros(1))))
        assert found is not None
        return found.proven

    assert (proven(90), proven(91)) == (True, False)
    assert alarm("credit", watching(None)) is None
    assert alarm("credit_warn", watching(None)) is None


def test_a_machine_without_credit_is_told_of_every_day() -> None:
    still = a_rental(
        Phase.STOPPED,
        stopped_by=StopCause.CREDIT,
        stop_detail="the account is out of credit ($0.00)",
        rates=(RateSegment(T0, from_usd(0.0036)),),
    )

    first = alarm("credit_out", watching(None, still))
    assert first is not None
    assert isinstance(first.action, Warn)
    assert (first.at, first.action.watchdog) == (T0, "credit_out-1")
    assert "a top-up does not start it" in first.action.why
    told = structs.replace(still, warned=frozenset({"credit_out-1"}))
    second = alarm("credit_out", watching(None, told))
    assert second is not None
    assert second.at == T0 + 86_400
    assert alarm("credit_out", watching(None, structs.replace(still, stopped_by=None))) is None


def test_the_account_is_asked_more_often_when_its_credit_is_nearly_gone() -> None:
    assert read_again_at(NOW, None) == NOW + 300
    assert read_again_at(NOW, NOW + 900) == NOW + 300
    assert read_again_at(NOW, NOW + 899) == NOW + 60
