"""Watchdogs: exact instants, one second before nothing, gravest first, once, and never blind."""

import math

import pytest
from msgspec import structs

from support.builders import (
    LIMITS,
    RATE,
    T0,
    a_done_job,
    a_job,
    a_rental,
    a_row,
    a_watch,
    a_world,
    an_ending,
    an_inventory,
)
from vastd.core import watchdogs
from vastd.core.alarms import End, Warn, Watch
from vastd.core.boot_watchdogs import boot_overdue
from vastd.core.job import JobState
from vastd.core.money import Micros, from_usd
from vastd.core.observed import Beat, Sighting
from vastd.core.rental import Pause, Phase, Policy, RateSegment, Rental, Trigger

HOUR = 3600.0
BEATING = Policy(heartbeat_path="hb.json", heartbeat_interval_s=300.0)


def busy(**seen: object) -> Watch:
    """A running job with a heartbeat due every 300 s, watched since T0."""
    fields: dict[str, object] = {"looked_at": T0 + 5000, "beat": Beat(at=T0 + 1000)}
    return a_watch(
        a_rental(Phase.BUSY, policy=BEATING), a_job(), seen=Sighting(**{**fields, **seen})
    )  # type: ignore[arg-type]


def idle_watch(listed_at: float | None = None, **policy: object) -> Watch:
    rental = a_rental(ready_at=T0 + 10, policy=Policy(**policy))  # type: ignore[arg-type]
    seen = Sighting(quiet_since=T0 + 100, seen_begun_at=listed_at)
    return a_watch(rental, a_done_job(ended_at=T0 + 50), seen=seen)


def booting(listed_at: float | None = T0 + 601) -> Watch:
    seen = Sighting(instance=a_row("loading", status_msg="pulling"), observed_at=listed_at)
    return a_watch(a_rental(Phase.BOOTING), seen=seen)


def unseen() -> Watch:
    seen = Sighting(instance=a_row("a word of next year"), status_moved_at=T0 + 20)
    return a_watch(a_rental(Phase.BOOTING), seen=seen)


def failing_listing() -> Watch:
    inventory = an_inventory(error="410", failing_since=T0 + 40)
    return a_watch(a_rental(Phase.READY), world=a_world(inventory=inventory))


ENDS = [
    (a_watch(a_rental(Phase.BUSY), a_job()), Trigger.MAX_RUNTIME, T0 + 12 * HOUR),
    (a_watch(a_rental(Phase.CREATING)), Trigger.MAX_RUNTIME, T0 + 12 * HOUR),
    (a_watch(a_rental(Phase.STOPPED)), Trigger.MAX_RUNTIME, T0 + 12 * HOUR),
    (busy(), Trigger.HEARTBEAT_STALE, T0 + 1600),
    (booting(), Trigger.BOOT_OVERDUE, T0 + 600),
    (idle_watch(idle_s=900.0, listed_at=T0 + 1000), Trigger.IDLE, T0 + 1000),
    # 0.36 $ are an hour; the reserve for winding down is 60 + 20 + 30 s of it
    (a_watch(a_rental(Phase.BUSY, policy=Policy(budget=from_usd(0.36)))), Trigger.BUDGET, T0 + 3490),
]  # fmt: skip
WARNS = [
    (a_watch(a_rental(Phase.BUSY, policy=Policy(budget=from_usd(0.36)))), "budget_warn", T0 + 2770),
    (booting(), "boot_warn", T0 + 300),
    (unseen(), "unknown_status", T0 + 20),
    (a_watch(a_rental(), seen=Sighting(unreachable_since=T0 + 7)), "unreachable", T0 + 307),
    (idle_watch(), "idle", T0 + 1300),
    (a_watch(a_rental(Phase.DESTROYING)), "destroy_unconfirmed", T0 + 600),
    (failing_listing(), "listing_stale", T0 + 340),
    (
        a_watch(a_rental(pause=Pause(at=T0 + 9, why="lunch"), stop_tried_at=T0 + 10)),
        "stop_unconfirmed",
        T0 + 609,
    ),
]


@pytest.mark.parametrize(("watch", "trigger", "at"), ENDS)
def test_an_end_is_due_at_its_instant_and_not_a_second_before(
    watch: Watch, trigger: Trigger, at: float
) -> None:
    before, wake_at = watchdogs.check([watch], at - 1)
    due, _ = watchdogs.check([watch], at)

    assert trigger not in [a.trigger for a in before if isinstance(a, End)]
    assert wake_at <= at
    assert trigger in [a.trigger for a in due if isinstance(a, End)]


@pytest.mark.parametrize(("watch", "name", "at"), WARNS)
def test_a_warning_is_due_at_its_instant_and_once(watch: Watch, name: str, at: float) -> None:
    def warned(w: Watch, now: float) -> list[str]:
        return [a.watchdog for a in watchdogs.check([w], now)[0] if isinstance(a, Warn)]

    told = structs.replace(watch, rental=structs.replace(watch.rental, warned=frozenset({name})))

    assert name not in warned(watch, at - 1)
    assert name in warned(watch, at)
    assert name not in warned(told, at + 9 * HOUR)


def test_every_watchdog_has_a_row_above() -> None:
    ends = {"max_runtime", "heartbeat", "boot_overdue", "idle", "budget"}
    # `held` has tests of its own: its warning returns every day.
    assert {dog.name for dog in watchdogs.ALL} == ends | {"held"} | {name for _, name, _ in WARNS}


@pytest.mark.parametrize(
    "rental",
    [
        a_rental(Phase.STOPPED),
        a_rental(Phase.READY, collect_failures=5, collect_failed_at=T0),
    ],
)
def test_a_machine_kept_for_results_is_told_of_every_day(rental: Rental) -> None:
    job = a_job(JobState.FAILED, started_at=T0 - 100, ended_at=T0 - 50)

    def told(warned: set[str], now: float) -> list[str]:
        again = structs.replace(rental, rates=(), warned=frozenset(warned))
        due, _ = watchdogs.check([a_watch(again, job)], now)
        return [a.watchdog for a in due if isinstance(a, Warn) and a.watchdog.startswith("held")]

    assert told(set(), T0 - 1) == []
    assert told(set(), T0) == ["held-1"]
    assert told({"held-1"}, T0 + 24 * HOUR - 1) == []
    assert told({"held-1"}, T0 + 24 * HOUR) == ["held-2"]
    assert watchdogs.held(a_watch(rental, a_done_job())) is None


def test_all_due_alarms_come_back_gravest_first() -> None:
    watch = a_watch(
        a_rental(Phase.BUSY, policy=Policy(budget=from_usd(0.36))), a_job(),
        seen=Sighting(unreachable_since=T0),
    )  # fmt: skip

    due, wake_at = watchdogs.check([watch], T0 + 12 * HOUR)

    assert [action.gravity for action in due] == [1, 1, 0, 0]
    assert {a.trigger for a in due if isinstance(a, End)} == {Trigger.MAX_RUNTIME, Trigger.BUDGET}
    assert wake_at == math.inf


def test_the_next_look_is_at_the_earliest_alarm_to_come() -> None:
    _, wake_at = watchdogs.check([booting(), busy()], T0 + 10)

    assert wake_at == T0 + 300


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.DESTROYING, Phase.GONE])
def test_nothing_ends_what_was_not_sent_or_is_ending(phase: Phase) -> None:
    rental = a_rental(phase, policy=Policy(budget=Micros(1)), deadline_at=T0)

    due, _ = watchdogs.check([a_watch(rental)], T0 + 100 * HOUR)

    assert [action for action in due if isinstance(action, End)] == []


def test_an_end_under_way_is_not_decided_again_but_waiting_for_a_copy_is_no_excuse() -> None:
    under_way = a_rental(ending=an_ending(Trigger.USER))
    waiting = a_rental(ending=an_ending(Trigger.JOB_DONE))

    assert watchdogs.max_runtime(a_watch(under_way)) is None
    assert watchdogs.max_runtime(a_watch(waiting)) is not None


# -- heartbeat


def test_a_silence_is_not_judged_before_a_look_later_than_its_limit() -> None:
    watch = busy(looked_at=T0 + 1599)

    alarm = watchdogs.heartbeat(watch)

    assert alarm is not None
    assert (alarm.at, alarm.proven) == (T0 + 1600, False)
    assert watchdogs.check([watch], T0 + 9999) == ([], T0 + 43_200)


def test_a_fresh_beat_moves_the_limit() -> None:
    alarm = watchdogs.heartbeat(busy(beat=Beat(at=T0 + 4999)))

    assert alarm is not None
    assert alarm.at == T0 + 5599


def test_a_job_that_never_beat_counts_from_its_start() -> None:
    watch = a_watch(
        a_rental(Phase.BUSY, policy=BEATING), a_job(started_at=T0 + 200),
        seen=Sighting(looked_at=T0 + 9000),
    )  # fmt: skip

    alarm = watchdogs.heartbeat(watch)

    assert alarm is not None
    assert alarm.at == T0 + 800


@pytest.mark.parametrize(
    "seen",
    [{"looked_at": None}, {"looked_at": T0 - 1}, {"unreachable_since": T0 + 4990}],
)
def test_a_job_we_cannot_look_at_is_not_called_silent(seen: dict[str, object]) -> None:
    assert watchdogs.heartbeat(busy(**seen)) is None


def test_nothing_is_silent_from_before_we_watched() -> None:
    seen = Sighting(looked_at=T0 + 5000, beat=Beat(at=T0 + 1000))
    watch = a_watch(
        a_rental(Phase.BUSY, policy=BEATING), a_job(), seen=seen,
        world=a_world(seen, watching_since=T0 + 4500),
    )  # fmt: skip

    alarm = watchdogs.heartbeat(watch)

    assert alarm is not None
    assert (alarm.at, alarm.proven) == (T0 + 5100, False)


def test_no_heartbeat_declared_means_none_is_missed() -> None:
    watch = a_watch(a_rental(Phase.BUSY), a_job(), seen=Sighting(looked_at=T0 + HOUR))

    assert watchdogs.heartbeat(watch) is None


# -- boot


@pytest.mark.parametrize("listed_at", [None, T0 + 599.9])
def test_a_boot_is_not_overdue_before_a_listing_later_than_its_limit(
    listed_at: float | None,
) -> None:
    """It may have come up while the lid was closed, or while Vast did not answer."""
    due, _ = watchdogs.check([booting(listed_at)], T0 + 3000)

    assert [action for action in due if isinstance(action, End)] == []


def test_the_reason_shows_what_vast_said_last() -> None:
    alarm = boot_overdue(booting())

    assert alarm is not None
    said = "not running after 600 s: loading pulling (the size of sim/image is not known)"
    assert alarm.action.why == said


# -- budget


def test_the_budget_counts_at_the_instance_s_rate_not_the_offer_s() -> None:
    dear = a_rental(
        Phase.BUSY, policy=Policy(budget=from_usd(0.36)),
        rates=(RateSegment(T0, Micros(2 * RATE)),),
    )  # fmt: skip

    alarm = watchdogs.budget(a_watch(dear))

    assert alarm is not None
    assert alarm.at == T0 + 1800 - 110


def test_while_loading_the_reserve_is_already_that_of_a_running_machine() -> None:
    loading = a_rental(
        Phase.BOOTING, policy=Policy(budget=Micros(11_000 + 100)),  # 110 s of reserve and 100 more
        rates=(RateSegment(T0, Micros(3_600)),),  # one micro-dollar a second
    )  # fmt: skip

    alarm = watchdogs.budget(a_watch(loading))

    assert alarm is not None
    assert alarm.at == pytest.approx(T0 + 100)


def test_a_stopped_machine_may_spend_its_budget_on_storage() -> None:
    """300 s at full rate, then the rest of the budget at a hundredth of it."""
    stopped = a_rental(
        Phase.STOPPED, policy=Policy(budget=Micros(40_000)),
        rates=(RateSegment(T0, RATE), RateSegment(T0 + 300, Micros(RATE // 100))),
    )  # fmt: skip

    alarm = watchdogs.budget(a_watch(stopped))

    assert alarm is not None
    assert alarm.at == pytest.approx(T0 + 300 + 10_000 - 110)


def test_a_budget_below_its_own_wind_down_ends_at_once() -> None:
    alarm = watchdogs.budget(a_watch(a_rental(policy=Policy(budget=Micros(5)))))

    assert alarm is not None
    assert alarm.at == T0


def test_without_a_budget_or_a_bill_there_is_no_alarm() -> None:
    free = a_rental(policy=Policy(budget=Micros(10**9)), rates=(RateSegment(T0, Micros(0)),))

    assert watchdogs.budget(a_watch(a_rental())) is None
    assert watchdogs.budget(a_watch(free)) is None
    assert (
        watchdogs.budget(a_watch(a_rental(Phase.CREATING, policy=Policy(budget=Micros(5))))) is None
    )


# -- idle, unreachable, deadlines


def test_a_machine_with_a_job_to_come_or_without_a_reading_is_not_idle() -> None:
    waiting = a_watch(a_rental(), a_job(JobState.QUEUED), seen=Sighting(quiet_since=T0))

    assert watchdogs.idle(waiting) is None
    assert watchdogs.idle(a_watch(a_rental(), a_done_job())) is None


@pytest.mark.parametrize("listed_at", [None, T0 + 999])
def test_idleness_is_not_judged_before_a_listing_later_than_its_limit(
    listed_at: float | None,
) -> None:
    due, _ = watchdogs.check([idle_watch(listed_at=listed_at, idle_s=900.0)], T0 + HOUR)

    assert Trigger.IDLE not in [a.trigger for a in due if isinstance(a, End)]


def test_while_our_network_is_down_nobody_s_silence_counts_and_limits_do() -> None:
    watches = [
        busy(),
        booting(),
        idle_watch(listed_at=T0 + 1000, idle_s=900.0),
        idle_watch(),
        failing_listing(),
        a_watch(a_rental(), seen=Sighting(unreachable_since=T0 + 7)),
    ]
    down = [
        structs.replace(w, world=structs.replace(w.world, network_down_since=T0)) for w in watches
    ]

    silent, _ = watchdogs.check(down, T0 + 2 * HOUR)
    late, _ = watchdogs.check(down, T0 + 13 * HOUR)

    assert [a for a in silent if isinstance(a, End)] == []
    assert {a.watchdog for a in silent if isinstance(a, Warn)} <= {"boot_warn"}
    assert {a.trigger for a in late if isinstance(a, End)} == {Trigger.MAX_RUNTIME}


def test_idleness_and_silence_count_from_when_we_watched() -> None:
    world = a_world(watching_since=T0 + 500)
    quiet = a_watch(a_rental(), seen=Sighting(quiet_since=T0), world=world)
    deaf = a_watch(a_rental(), seen=Sighting(unreachable_since=T0), world=world)

    for alarm, expected in (
        (watchdogs.idle(quiet), T0 + 500 + LIMITS.idle_warn_s),
        (watchdogs.unreachable(deaf), T0 + 500 + LIMITS.ssh_budget_s),
    ):
        assert alarm is not None
        assert alarm.at == expected


def test_a_deadline_is_the_persisted_one_whenever_we_started() -> None:
    rental = a_rental(Phase.BUSY, deadline_at=T0 + 77)
    watch = a_watch(rental, a_job(), world=a_world(watching_since=T0 + 10_000))

    alarm = watchdogs.max_runtime(watch)

    assert alarm is not None
    assert (alarm.at, alarm.proven) == (T0 + 77, True)


def test_every_watchdog_says_its_limit_in_words() -> None:
    for dog in watchdogs.ALL:
        for watch in (busy(), idle_watch(), booting()):
            assert dog.limit(watch)
