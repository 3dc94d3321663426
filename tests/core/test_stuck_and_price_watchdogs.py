"""Machines out of reach, met by a bug, waiting at Vast, or dearer than agreed: who ends, and when."""

import pytest
from msgspec import structs

from support.builders import RATE, T0, a_done_job, a_job, a_rental, a_row, a_watch, a_world
from vastd.core.alarms import Alarm, End, Warn, Watch
from vastd.core.every_watchdog import ALL
from vastd.core.job import Job, JobState
from vastd.core.money import Micros, from_usd
from vastd.core.observed import Sighting
from vastd.core.rental import Phase, Policy, RateSegment, Rental, Trigger

HOUR = 3600.0
SILENT = Sighting(unreachable_since=T0 + 100, unreachable_why="refused", seen_begun_at=T0 + 9e9)


def alarm(name: str, watch: Watch) -> Alarm | None:
    return next(dog for dog in ALL if dog.name == name).look(watch)


def ends(name: str, watch: Watch) -> tuple[Trigger, float] | None:
    found = alarm(name, watch)
    if found is None:
        return None
    assert isinstance(found.action, End)
    return found.action.trigger, found.at


def test_a_machine_out_of_reach_is_ended_only_if_the_user_said_so() -> None:
    patient, strict = Policy(), Policy(unreachable_end_s=2 * HOUR)

    assert ends("unreachable_end", a_watch(a_rental(policy=patient), seen=SILENT)) is None
    assert ends("unreachable_end", a_watch(a_rental(policy=strict), seen=SILENT)) == (
        Trigger.UNREACHABLE, T0 + 100 + 2 * HOUR,
    )  # fmt: skip
    still = a_rental(Phase.STOPPED, policy=strict)
    assert ends("unreachable_end", a_watch(still, seen=SILENT)) is None


def test_out_of_reach_waits_for_a_listing_and_for_our_own_network() -> None:
    rental = a_rental(Phase.BUSY, policy=Policy(unreachable_end_s=HOUR))
    at = T0 + 100 + HOUR

    def proven(listed: float) -> bool:
        seen = structs.replace(SILENT, seen_begun_at=listed)
        found = alarm("unreachable_end", a_watch(rental, a_job(), seen=seen))
        assert found is not None
        return found.proven

    assert (proven(at - 1), proven(at)) == (False, True)
    offline = a_world(SILENT, network_down_since=T0)
    assert alarm("unreachable_end", a_watch(rental, a_job(), seen=SILENT, world=offline)) is None
    later = a_world(SILENT, watching_since=T0 + 500)  # e.g. after a suspend (I7)
    found = alarm("unreachable_end", a_watch(rental, a_job(), seen=SILENT, world=later))
    assert found is not None
    assert found.at == T0 + 500 + HOUR


BROKEN = "a bug in vastd met this rental: KeyError: 'x'"


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.BOOTING, Phase.READY, Phase.STOPPED])
def test_a_bug_ends_a_machine_with_nothing_to_lose(phase: Phase) -> None:
    assert ends("bug", a_watch(a_rental(phase, quarantined=BROKEN), a_done_job())) == (
        Trigger.BUG, T0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rental", "job"),
    [
        (a_rental(), None),  # no bug
        (a_rental(Phase.BUSY, quarantined=BROKEN), a_job()),
        (a_rental(quarantined=BROKEN), a_job(JobState.FAILED, ended_at=T0)),
        (a_rental(quarantined=BROKEN, purpose="interactive"), None),
        (a_rental(quarantined=BROKEN, policy=Policy(keep=True)), None),
        (a_rental(quarantined=BROKEN, taken_over=True), None),
        (a_rental(Phase.STOPPED, quarantined=BROKEN, left_jobs=("j9",)), None),
    ],
)
def test_a_bug_never_ends_what_may_hold_something(rental: Rental, job: Job | None) -> None:
    assert ends("bug", a_watch(rental, *([job] if job else []))) is None


@pytest.mark.parametrize("name", ["max_runtime", "budget"])
def test_a_machine_a_bug_met_is_still_ended_by_its_limits(name: str) -> None:
    rental = a_rental(Phase.BUSY, quarantined=BROKEN, policy=Policy(budget=from_usd(1)))

    assert ends(name, a_watch(rental, a_job())) is not None


@pytest.mark.req("BUD-11")
def test_a_price_over_the_hourly_cap_ends_a_job_once_it_stands() -> None:
    dearer = Micros(RATE * 2)
    rental = a_rental(
        Phase.BUSY,
        policy=Policy(max_dph=Micros(RATE + 1)),
        rates=(RateSegment(T0, RATE), RateSegment(T0 + 500, dearer)),
    )

    def looking(listed: float, held: Rental = rental) -> Watch:
        seen = Sighting(instance=a_row(dph=dearer), seen_begun_at=listed)
        return a_watch(held, a_job(), seen=seen)

    assert ends("price", looking(T0 + 590)) == (Trigger.BUDGET, T0 + 590)
    found = alarm("price", looking(T0 + 589))
    assert found is not None
    assert not found.proven
    assert found.action.why == (
        "it bills $0.720/h, over its cap of $0.360/h; it was rented for $0.360/h"
    )
    his = structs.replace(rental, purpose="interactive")
    assert ends("price", looking(T0 + 590, his)) is None
    allowed = structs.replace(rental, policy=Policy(max_dph=dearer))
    assert ends("price", looking(T0 + 590, allowed)) is None


def test_another_price_is_told_once_with_the_old_one() -> None:
    def told(rate: Micros, *warned: str, status: str = "running") -> str | None:
        rental = a_rental(rates=(RateSegment(T0, rate),), warned=frozenset(warned))
        seen = Sighting(instance=a_row(status, dph=rate), seen_begun_at=T0)
        found = alarm("price_warn", a_watch(rental, seen=seen))
        if found is None:
            return None
        assert isinstance(found.action, Warn)
        return found.action.why

    assert told(Micros(RATE * 2)) == "it bills $0.720/h now; it was rented for $0.360/h"
    assert told(Micros(RATE // 2)) == "it bills $0.180/h now; it was rented for $0.360/h"
    assert told(Micros(RATE * 102 // 100)) is None
    assert told(Micros(RATE * 2), f"price_warn-{RATE * 2}") is None
    assert told(Micros(RATE * 3), f"price_warn-{RATE * 2}") is not None
    assert told(from_usd(0.0036), status="exited") is None  # it stands still: storage only


def test_a_start_that_waits_is_told_of_with_what_can_be_done() -> None:
    """CASES A17: it is never swapped silently."""
    rental = a_rental(Phase.STOPPED, start_asked_at=T0 + 50, start_accepted=False)

    found = alarm("start_waits", a_watch(rental))

    assert found is not None
    assert found.at == T0 + 650
    assert "`vastctl stop lab` takes it back" in found.action.why
    assert "No other machine is taken for it" in found.action.why
    assert alarm("start_waits", a_watch(a_rental(Phase.STOPPED))) is None
