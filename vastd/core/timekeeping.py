"""The time of the record: the wall clock while it can be believed, elapsed time while it cannot.

A deadline is an instant of the wall clock, and a wall clock can be set: by hand, by a time service
that mends a wrong battery clock, by a virtual machine that wakes up. Machines must not end because
of that, nor live longer. Three witnesses tell what happened: the wall clock, the boot clock (it
counts a suspend, and nobody can set it) and the `Date` of Vast's answers.

Rules
1. Record time = boot clock + offset. While the wall clock is within `STEP_S` of it, it is the wall
   clock. So a suspend, which both clocks count, moves it, and a step of the wall clock does not.
2. After a step it goes on by elapsed time for as long as a machine or a job depends on it: what was
   promised to them are durations. Then the wall clock is believed again.
3. Time that the boot clock missed (a paused virtual machine, a system without such a clock) is
   what Vast's `Date` says passed; two answers must agree.
4. After a reboot no elapsed time is known: the wall clock is believed, but never earlier than the
   record. Then, and when the clocks disagree at a start, nothing ends until Vast's `Date` was heard.
5. It never runs backward while anything depends on it.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

STEP_S: Final = 30.0  # guess: time services slew less, and no limit of ours is finer than that
# guess: a second of resolution and a slow answer are far below, what matters to money above
WRONG_S: Final = 300.0


class Reading(Struct, frozen=True):
    """Both clocks of this computer at one moment, in seconds. `boot` counts from any zero."""

    wall: float
    boot: float


class Note(Struct, frozen=True, kw_only=True):
    """What outlives the daemon. `boot_id` tells whether `offset` still means anything."""

    boot_id: str | None
    offset: float
    at: float  # record time when it was noted
    skew: float | None = None  # as in `Timeline`


class Timeline(Struct, frozen=True, kw_only=True):
    """How record time is told from the clocks."""

    offset: float
    skew: float | None = None  # Vast's `Date` minus record time, as last agreed; None: never heard
    doubt: float | None = None  # one answer said otherwise: the skew it showed
    uncertain: bool = False  # since the start, before Vast was heard (rule 4)
    ahead: float = 0.0  # how far the wall clock is ahead while it is not believed, else 0
    rented: bool = True  # at the newest look: machines' limits depended on record time


class Jump(StrEnum):
    """What happened to time between two looks."""

    STEPPED = "stepped"  # the wall clock was set; record time goes on by elapsed time
    BELIEVED = "believed"  # a step is over: the wall clock is record time again
    MISSED = "missed"  # time passed that the boot clock did not count
    CORRECTED = "corrected"  # after a start, by Vast's Date


def begin(reading: Reading, boot_id: str | None, note: Note | None, newest_at: float) -> Timeline:
    """Return the time line of a daemon that starts. `newest_at`: the newest instant on record of
    anything that still depends on time, 0 when nothing does."""
    skew = None if note is None else note.skew
    if newest_at <= 0:
        return Timeline(offset=reading.wall - reading.boot)
    if note is not None and boot_id is not None and note.boot_id == boot_id:
        # What was noted may be older than the record: a disk that refused the newer note.
        now, known = max(reading.boot + note.offset, newest_at), True
    else:
        floor = newest_at if note is None else max(newest_at, note.at)
        now, known = floor if reading.wall < floor - STEP_S else reading.wall, False
    ahead = _beyond(reading.wall - now)
    unsure = not known or ahead != 0.0
    return Timeline(offset=now - reading.boot, skew=skew, uncertain=unsure, ahead=ahead)


def record_time(line: Timeline, reading: Reading) -> float:
    """Return the time of the record at `reading`."""
    return believed(reading.wall, reading.boot + line.offset)


def believed(wall: float, elapsed: float) -> float:
    """Return the wall clock where it agrees with the time that passed, else that (rule 1)."""
    return wall if -STEP_S <= wall - elapsed <= STEP_S else elapsed


def follow(
    line: Timeline, reading: Reading, *, free: bool, rented: bool = True
) -> tuple[Timeline, Jump | None]:
    """Return the time line after a look at the clocks. `free`: nothing depends on record time;
    `rented`: machines do, not only jobs that wait for one."""
    line = structs.replace(line, rented=rented and not free)
    drift = reading.wall - (reading.boot + line.offset)
    if abs(drift) <= STEP_S or free:
        over = line.ahead != 0.0 or abs(drift) > STEP_S
        return _shifted(line, drift, ahead=0.0), Jump.BELIEVED if over else None
    stepped = abs(drift - line.ahead) > STEP_S
    return structs.replace(line, ahead=drift), Jump.STEPPED if stepped else None


def hear(line: Timeline, date: float, reading: Reading) -> tuple[Timeline, Jump | None]:
    """Return the time line after an answer of Vast that was given at `date` (epoch s)."""
    now = record_time(line, reading)
    skew = date - now
    if line.uncertain:
        known = structs.replace(line, uncertain=False, doubt=None)
        if line.skew is None or abs(skew - line.skew) <= STEP_S:
            return structs.replace(known, skew=skew), None
        return _moved(known, skew - line.skew, reading), Jump.CORRECTED
    if not line.rented or line.skew is None or abs(skew - line.skew) <= STEP_S:
        # What passed before a machine was rented is not owed by it.
        return structs.replace(line, skew=skew, doubt=None), None
    if line.doubt is None or abs(skew - line.doubt) > STEP_S:
        return structs.replace(line, doubt=skew), None
    if skew < line.skew:
        # Its clock went back, or ours ahead: either way nothing shortens what was promised.
        return structs.replace(line, skew=skew, doubt=None), None
    return _moved(line, skew - line.skew, reading), Jump.MISSED


def skew_of_wall(line: Timeline, reading: Reading) -> float | None:
    """Return how far the wall clock is behind Vast's `Date`; None: never heard, or not lately."""
    if line.skew is None or line.uncertain:
        return None
    return line.skew + record_time(line, reading) - reading.wall


def noted(line: Timeline, reading: Reading, boot_id: str | None) -> Note:
    """Return what the next start must know."""
    at = record_time(line, reading)
    return Note(boot_id=boot_id, offset=at - reading.boot, at=at, skew=line.skew)


def _shifted(line: Timeline, by: float, *, ahead: float) -> Timeline:
    """Move record time, and with it what Vast's is compared with."""
    skew = None if line.skew is None else line.skew - by
    doubt = None if line.doubt is None else line.doubt - by
    return structs.replace(line, offset=line.offset + by, skew=skew, doubt=doubt, ahead=ahead)


def _moved(line: Timeline, by: float, reading: Reading) -> Timeline:
    """Move record time towards Vast's; the skew stays what it was agreed to be."""
    # From what record time *was*: the wall clock within STEP_S of it counted as well.
    offset = record_time(line, reading) + by - reading.boot
    ahead = _beyond(reading.wall - reading.boot - offset)
    return structs.replace(line, offset=offset, doubt=None, ahead=ahead)


def _beyond(drift: float) -> float:
    return drift if abs(drift) > STEP_S else 0.0
