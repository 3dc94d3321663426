"""Every decision vastd makes by itself says its rule and what it looked at."""

import pytest

from support.builders import T0, a_job, a_rental, a_row, a_watch, an_inventory, sample
from vastd.core import decisions, every_watchdog, watchdog_words, watchdogs
from vastd.core import events as ev
from vastd.core.alarms import End, Warn, Watch
from vastd.core.decisions import reason_of
from vastd.core.money import from_usd
from vastd.core.observed import Beat, Sighting, World
from vastd.core.rental import Phase, Policy, Trigger

HOUR = 3600.0
DECIDED = (
    ev.RentalPlanned, ev.DestroyDecided, ev.FoundAbsent, ev.Resurfaced, ev.CreateUnresolved,
    ev.Quarantined, ev.AttemptFailed, ev.MachineAwaited, ev.TermSent, ev.JobUnreachable,
    ev.JobFinished,
)  # fmt: skip


@pytest.mark.parametrize("kind", DECIDED)
def test_what_vastd_decides_by_itself_has_a_rule(kind: type[ev.Event]) -> None:
    reason = reason_of(sample(kind))

    assert reason is not None
    assert reason.rule


@pytest.mark.parametrize("trigger", list(Trigger))
def test_every_end_has_a_rule_also_one_recorded_before_rules_were(trigger: Trigger) -> None:
    reason = reason_of(sample(ev.EndDecided, trigger=trigger))

    assert (reason is None) == (trigger is Trigger.USER)


@pytest.mark.parametrize(
    ("why", "rule"),
    [
        ("max_runtime: nothing to lose", "the table of endings: destroy, because only destroying"),
        ("it was forced", "the table of endings (`vastctl explain --endings`)"),
    ],
)
def test_a_destroy_names_the_cell_of_the_table(why: str, rule: str) -> None:
    reason = reason_of(sample(ev.DestroyDecided, why=why))

    assert reason is not None
    assert reason.rule.startswith(rule)


def test_a_warning_tells_its_rule_and_facts() -> None:
    event = sample(ev.Warned, rule="SSH: silent; limit 300 s", inputs={"error": "refused"})

    assert reason_of(event) == decisions.Reason(
        rule="SSH: silent; limit 300 s", inputs={"error": "refused"}
    )


def a_watch_of(name: str) -> tuple[Watch, float]:
    """Something the watchdog `name` decides about, and when."""
    policy = Policy(heartbeat_path="hb.json", budget=from_usd(0.36))
    match name:
        case "heartbeat":
            seen = Sighting(looked_at=T0 + 5000, beat=Beat(at=T0 + 10))
            return a_watch(a_rental(Phase.BUSY, policy=policy), a_job(), seen=seen), T0 + HOUR
        case "budget":
            return a_watch(a_rental(Phase.BUSY, policy=policy), a_job()), T0 + HOUR
        case "unreachable":
            seen = Sighting(unreachable_since=T0 + 7, unreachable_why="refused")
            return a_watch(a_rental(), seen=seen), T0 + 400
        case "boot_overdue":
            seen = Sighting(instance=a_row("loading", status_msg="pulling"), observed_at=T0 + 700)
            return a_watch(a_rental(Phase.BOOTING), seen=seen), T0 + 700
        case "listing_stale":
            world = World(inventory=an_inventory(error="410", failing_since=T0))
            return a_watch(a_rental(), world=world), T0 + 400
        case _:
            return a_watch(a_rental(Phase.READY)), T0 + 13 * HOUR


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("max_runtime", ("deadline_at", "2027-01-15T20:00:00.000Z")),
        ("budget", ("budget", "$0.36")),
        ("heartbeat", ("last_beat_at", "2027-01-15T08:00:10.000Z")),
        ("unreachable", ("error", "refused")),
        ("boot_overdue", ("status_msg", "pulling")),
        ("listing_stale", ("error", "410")),
    ],
)
def test_what_a_watchdog_looked_at_goes_on_record_with_its_decision(
    name: str, fact: tuple[str, str]
) -> None:
    watch, now = a_watch_of(name)

    due, _ = watchdogs.check([watch], now)

    [action] = [
        a for a in due
        if (isinstance(a, Warn) and a.watchdog == name)
        or (isinstance(a, End) and a.rule.startswith(watchdog_words.title(name) + ":"))
    ]  # fmt: skip
    assert action.rule.startswith(f"{watchdog_words.title(name)}: ")
    assert "limit" in action.rule
    assert fact in action.inputs.items()
    assert None not in action.inputs.values()


def test_every_watchdog_has_a_name_for_people() -> None:
    assert {dog.name for dog in every_watchdog.ALL} <= set(watchdog_words.TITLES)


UNKNOWN = [
    ("idle", a_watch(a_rental()), "has not shown"),
    ("idle", a_watch(a_rental(), seen=Sighting(instance=a_row(), gpu_util=90.0)), "was busy"),
    ("idle", a_watch(a_rental(), seen=Sighting(instance=a_row(), gpu_util=0.0, quiet_since=T0)), None),
    ("heartbeat", a_watch(a_rental(Phase.BUSY, policy=Policy(heartbeat_path="h")), a_job()), "not looked"),
    ("heartbeat", a_watch(a_rental(Phase.BUSY, policy=Policy(heartbeat_path="h")), a_job(),
                          seen=Sighting(unreachable_since=T0)), "does not answer"),
    ("heartbeat", a_watch(a_rental(Phase.BUSY), a_job()), None),
    ("budget", a_watch(a_rental(policy=Policy(budget=from_usd(1)), rates=())), "nothing is billed"),
    ("max_runtime", a_watch(a_rental()), None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "watch", "said"), UNKNOWN)
def test_a_watchdog_that_cannot_name_its_instant_says_what_it_lacks(
    name: str, watch: Watch, said: str | None
) -> None:
    missing = watchdog_words.unknown(name, watch)

    assert (missing is None) == (said is None)
    assert said is None or said in (missing or "")
