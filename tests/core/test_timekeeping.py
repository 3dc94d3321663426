"""The time of the record against three witnesses; `Node` is a computer whose clocks can fail."""

import random

import pytest

from vastd.core.timekeeping import (
    STEP_S,
    Jump,
    Note,
    Reading,
    begin,
    follow,
    hear,
    noted,
    record_time,
    skew_of_wall,
)

T0 = 1_800_000_000.0
HOUR = 3600.0
YEAR = 365 * 86_400.0


class Node:
    """A computer: true time, and how far its clocks are from it."""

    def __init__(self, wrong_s: float = 0.0) -> None:
        self.true = T0
        self.wrong_s = wrong_s  # wall clock minus true time
        self.missed_s = 0.0  # what the boot clock did not count
        self.boot_id = "boot-1"
        self.zero = T0 - 500.0
        self.line = begin(self.read(), self.boot_id, None, 0.0)
        self.jumps: list[Jump] = []

    def read(self) -> Reading:
        return Reading(self.true + self.wrong_s, self.true - self.missed_s - self.zero)

    @property
    def now(self) -> float:
        return record_time(self.line, self.read())

    def look(self, *, free: bool = False, rented: bool = True) -> None:
        self.line, jump = follow(self.line, self.read(), free=free, rented=rented)
        self.jumps += [jump] if jump else []

    def hear(self, wrong_s: float = 0.0) -> None:
        self.line, jump = hear(self.line, self.true + wrong_s, self.read())
        self.jumps += [jump] if jump else []

    def restart(self, *, reboot: bool = False, newest_at: float | None = None) -> None:
        note = noted(self.line, self.read(), self.boot_id)
        at = self.now if newest_at is None else newest_at
        if reboot:
            self.boot_id, self.zero = "boot-2", self.true + 77.0
        self.line = begin(self.read(), self.boot_id, note, at)


def test_a_suspend_and_a_quiet_hour_pass_as_they_are() -> None:
    node = Node()
    node.true += 9 * HOUR

    node.look()

    assert node.now == T0 + 9 * HOUR
    assert node.jumps == []


@pytest.mark.parametrize("step_s", [400 * 86_400.0, HOUR, 31.0, -31.0, -HOUR, -T0])
def test_a_clock_that_was_set_moves_no_time_of_the_record(step_s: float) -> None:
    node = Node()
    node.wrong_s = step_s
    node.true += 60
    node.look()
    node.true += 60
    node.look()

    assert node.now == T0 + 120
    assert node.jumps == [Jump.STEPPED]
    assert node.line.ahead == step_s


@pytest.mark.parametrize("step_s", [STEP_S, 1.5, -STEP_S])
def test_a_small_correction_is_believed_and_told_nobody(step_s: float) -> None:
    node = Node()
    node.wrong_s = step_s
    node.true += 60

    node.look()

    assert node.now == T0 + 60 + step_s
    assert node.jumps == []


def test_a_step_is_believed_when_nothing_depends_on_the_record_any_more() -> None:
    node = Node()
    node.wrong_s = HOUR
    node.look()
    node.true += 600

    node.look(free=True)

    assert node.now == T0 + 600 + HOUR
    assert node.jumps == [Jump.STEPPED, Jump.BELIEVED]
    assert node.line.ahead == 0.0


def test_a_step_that_is_taken_back_is_over() -> None:
    node = Node()
    node.wrong_s = -HOUR
    node.look()
    node.wrong_s = 0.0

    node.look()

    assert node.now == T0
    assert node.jumps == [Jump.STEPPED, Jump.BELIEVED]


def test_two_steps_are_told_twice() -> None:
    node = Node()
    for step_s in (HOUR, 2 * HOUR, 2 * HOUR):
        node.wrong_s = step_s
        node.look()

    assert node.jumps == [Jump.STEPPED, Jump.STEPPED]


@pytest.mark.parametrize("mended", [True, False])
def test_what_a_paused_computer_missed_counts_when_two_answers_of_vast_say_so(mended: bool) -> None:
    node = Node()
    node.hear()
    node.true += HOUR
    node.missed_s = HOUR
    node.wrong_s = 0.0 if mended else -HOUR  # a time service may have set the wall clock
    node.look()
    node.hear()

    assert node.now == T0
    node.look()
    node.hear()
    node.look()
    assert node.now == T0 + HOUR
    assert node.jumps[-1] is Jump.MISSED


def test_time_missed_while_nothing_depended_on_it_is_not_counted_later() -> None:
    node = Node()
    node.hear()
    node.look(rented=False)  # a job waits for a machine
    node.true += HOUR
    node.missed_s, node.wrong_s = HOUR, -HOUR  # a pause that nobody mends
    node.hear()
    node.look()  # now a machine is rented
    node.hear()
    node.hear()

    assert node.now == T0
    assert node.jumps == []


def test_one_answer_with_a_wrong_date_changes_nothing() -> None:
    node = Node()
    node.hear()
    for wrong_s in (HOUR, 0.0, -HOUR, 0.0, HOUR, 2 * HOUR, 0.0):
        node.true += 20
        node.hear(wrong_s)

    assert node.now == node.true
    assert node.jumps == []


def test_a_vast_whose_clock_went_back_makes_nobody_live_longer() -> None:
    node = Node()
    node.hear()
    node.hear(-HOUR)
    node.hear(-HOUR)

    assert node.now == T0
    node.hear()  # and when it is right again one answer proves nothing
    assert node.now == T0


@pytest.mark.parametrize("step_s", [YEAR, -YEAR, 0.0])
def test_a_restart_goes_on_where_the_record_was(step_s: float) -> None:
    node = Node()
    node.look()
    node.true += 50
    node.wrong_s = step_s  # while vastd was not running

    node.restart(newest_at=T0)

    assert node.now == T0 + 50
    assert node.line.ahead == step_s
    assert node.line.uncertain == (step_s != 0.0)


def test_a_boot_clock_that_leapt_between_two_starts_is_seen_through_by_vast() -> None:
    node = Node()
    node.hear()
    node.zero -= 86_400.0  # another time namespace: it says that a day has passed

    node.restart(newest_at=T0)

    assert node.line.uncertain
    node.hear()
    assert node.now == T0
    assert node.jumps == [Jump.CORRECTED]


def test_a_step_survives_a_restart_and_a_reboot() -> None:
    node = Node()
    node.hear()
    node.wrong_s = 2 * HOUR
    node.look()
    node.hear()
    node.restart()
    assert node.now == T0

    node.restart(reboot=True)
    assert node.line.uncertain
    node.hear()

    assert node.now == T0
    assert node.jumps[-1] is Jump.CORRECTED


@pytest.mark.parametrize("rtc_s", [-T0, -YEAR, YEAR, -31.0, 31.0])
def test_after_a_reboot_with_a_wrong_battery_clock_vast_tells_the_time(rtc_s: float) -> None:
    node = Node()
    node.hear()
    node.true += HOUR
    node.wrong_s = rtc_s

    node.restart(reboot=True, newest_at=T0 + 10)

    assert node.line.uncertain
    assert node.now >= T0 + 10  # never earlier than the record
    node.hear()
    assert node.now == T0 + HOUR
    assert not node.line.uncertain
    node.wrong_s = 0.0  # the time service mends it
    node.look()
    assert node.now == T0 + HOUR


def test_with_an_empty_record_the_wall_clock_is_believed_whatever_was_noted() -> None:
    note = Note(boot_id="boot-1", offset=99.0, at=T0 + YEAR, skew=5.0)

    line = begin(Reading(T0, 10.0), "boot-1", note, 0.0)

    assert record_time(line, Reading(T0, 10.0)) == T0
    assert not line.uncertain


def test_without_a_note_the_record_is_the_least_that_can_be_true() -> None:
    line = begin(Reading(T0 - YEAR, 10.0), "boot-1", None, T0)

    assert record_time(line, Reading(T0 - YEAR + 5, 15.0)) == T0 + 5
    assert line.uncertain


def test_a_note_older_than_the_record_does_not_turn_it_back() -> None:
    note = Note(boot_id="boot-1", offset=T0 - HOUR, at=T0 - HOUR)

    line = begin(Reading(T0, 0.0), "boot-1", note, T0 - 1)

    assert record_time(line, Reading(T0, 0.0)) == T0


@pytest.mark.parametrize("wrong_s", [-400.0, 0.0, 400.0])
def test_how_wrong_the_wall_clock_is_shows_beside_vast(wrong_s: float) -> None:
    node = Node(wrong_s)
    assert skew_of_wall(node.line, node.read()) is None

    node.hear()

    assert skew_of_wall(node.line, node.read()) == -wrong_s


@pytest.mark.parametrize("seed", range(200))
def test_elapsed_time_is_never_lost_or_won_by_more_than_a_step(seed: int) -> None:
    """Whatever the clocks do: with a machine on record and Vast answering, the time of the record
    advances as true time does. A wall clock that comes near it is believed: at most one step each."""
    rng = random.Random(seed)
    node = Node(rng.choice((0.0, -YEAR, HOUR)))
    node.hear()
    began, allowed = node.now, 1e-3
    for _ in range(40):
        node.true += rng.uniform(0, 600)
        kind = rng.randrange(6)
        allowed += STEP_S if kind < 4 else 0.0
        match kind:
            case 0:
                node.wrong_s += rng.choice((-YEAR, -HOUR, -31, 31, HOUR, YEAR))
            case 1:
                node.wrong_s += rng.uniform(-5, 5)
            case 2:
                paused = rng.choice((40.0, HOUR))
                node.missed_s += paused
                node.true += paused
                node.wrong_s -= paused if rng.random() < 0.5 else 0.0
            case 3:
                node.look()
                node.restart(reboot=rng.random() < 0.3)
        node.look()
        node.hear()
        node.hear()

    assert abs((node.now - began) - (node.true - T0)) <= allowed
