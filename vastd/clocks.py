"""The clocks of this computer, and the time that the record is kept in (`core/timekeeping.py`).

The note of it (`clock` in the state directory) is advice for the next start: one that cannot be
read or written costs what the boot clock knew, never a start.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from vastd.core import timekeeping
from vastd.core.job import Job
from vastd.core.rental import Phase, Rental
from vastd.core.timekeeping import Jump, Note, Reading
from vastd.files import write_atomic

_log = logging.getLogger(__name__)

NAME: Final = "clock"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")  # random(4)
NOTE_EVERY_S: Final = 3600.0  # guess: how old the record may look after a reboot with a bad clock
NOTE_STEP_S: Final = 1.0  # guess: smaller moves of the wall clock are not worth a write
AGREES_S: Final = 3600.0  # guess: nothing is called old that is younger than a day
MAX_NOTE_BYTES: Final = 4096  # guess: twenty times a note
# An answer that took longer tells too little: it was given at some moment of that span.
SLOW_ANSWER_S: Final = 15.0  # guess


def boot_clock() -> float:
    """Return seconds since some start that also count while the computer is suspended, where the
    system has such a clock; elsewhere Vast's `Date` makes up for it (rule 3 of timekeeping)."""
    if hasattr(time, "CLOCK_BOOTTIME"):  # Linux
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return time.clock_gettime(
            time.CLOCK_MONOTONIC
        )  # there it goes on in sleep, clock_gettime(3)
    return time.monotonic()


def boot_id() -> str | None:
    """Return what tells this boot from any other; None where the system does not say."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


class Clock:
    """Call it for the time of the record (epoch s); `look` and `heard` move it on.

    `path` None keeps no note.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        boot: Callable[[], float] = boot_clock,
        boot_id: str | None = None,
        path: Path | None = None,
        newest_at: float = 0.0,
    ) -> None:
        self._wall = wall
        self._boot = boot
        self._boot_id = boot_id
        self._path = path
        note = None if path is None else _read(path)
        self._line = timekeeping.begin(self.read(), boot_id, note, newest_at)
        self._noted = note
        self._jumps: list[tuple[Jump, float]] = []
        self._latest = self._now()
        if self._line.ahead:
            self._jumps.append((Jump.STEPPED, self._line.ahead))

    def read(self) -> Reading:
        """Return both clocks as they are."""
        return Reading(self._wall(), self._boot())

    def _now(self) -> float:
        # Asked some times per machine and look: without a `Reading`.
        return timekeeping.believed(self._wall(), self._boot() + self._line.offset)

    def __call__(self) -> float:
        # Two readings may lie around a small step back of the wall clock: rule 5.
        self._latest = max(self._latest, self._now())
        return self._latest

    @property
    def uncertain(self) -> bool:
        """Whether nothing may end for its time yet (rule 4)."""
        return self._line.uncertain

    @property
    def ahead(self) -> float:
        """How many seconds the wall clock is ahead while it is not believed; 0 while it is."""
        return self._line.ahead

    @property
    def agrees(self) -> bool:
        """Whether Vast has confirmed the time of the record, as well as it takes to call things old."""
        skew = self._line.skew
        return not self._line.uncertain and skew is not None and abs(skew) <= AGREES_S

    @property
    def behind_vast(self) -> float | None:
        """How many seconds the wall clock is behind Vast's; None when that is not known."""
        return timekeeping.skew_of_wall(self._line, self.read())

    def look(self, *, free: bool, rented: bool = True) -> list[tuple[Jump, float]]:
        """Look at the clocks; return what happened to time since the last look, each with its
        seconds. `free`, `rented`: as in `timekeeping.follow`."""
        before = self()
        self._line, jump = timekeeping.follow(self._line, self.read(), free=free, rented=rented)
        if jump is Jump.BELIEVED:
            self._moved(jump, before)
        elif jump is Jump.STEPPED:
            self._jumps.append((jump, self._line.ahead))
        told, self._jumps = self._jumps, []
        self._keep()
        return told

    def heard(self, date: float, took_s: float) -> None:
        """Take the `Date` of an answer that came `took_s` seconds (of the boot clock) after its
        request was sent."""
        if not 0 <= took_s <= SLOW_ANSWER_S:
            return
        before = self()
        self._line, jump = timekeeping.hear(self._line, date, self.read())
        if jump is not None:
            self._moved(jump, before)
        self._keep()  # what is rented next must find it, also after a kill

    def asked(self) -> float:
        """Return what `heard` needs the difference of."""
        return self._boot()

    def _moved(self, jump: Jump, before: float) -> None:
        self._latest = self._now()
        self._jumps.append((jump, self._latest - before))

    def _keep(self) -> None:
        """Note what the next start must know, when that has changed."""
        if self._path is None or self._line.uncertain:
            return  # what nobody confirmed must not be what the next start believes
        note, old = timekeeping.noted(self._line, self.read(), self._boot_id), self._noted
        if old is not None and old.boot_id == note.boot_id and not _differs(old, note):
            return
        self._noted = note  # also if the disk refuses: not again at every look
        try:
            write_atomic(self._path, msgspec.json.encode(note), mode=0o600)
        except OSError as exc:
            _log.debug("%s is not written: %s", self._path, exc.strerror)


def _differs(old: Note, new: Note) -> bool:
    if abs(old.offset - new.offset) > NOTE_STEP_S or abs(old.at - new.at) > NOTE_EVERY_S:
        return True
    if old.skew is None or new.skew is None:
        return old.skew is not new.skew
    return abs(old.skew - new.skew) > timekeeping.STEP_S / 2


def _read(path: Path) -> Note | None:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MAX_NOTE_BYTES), type=Note)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as exc:
        _log.warning("%s cannot be read and is made anew: %s", path, exc)
        return None


def process_clock(state_dir: Path, newest_at: float) -> Clock:
    """Return the clock of this computer for the record in `state_dir`."""
    return Clock(boot_id=boot_id(), path=state_dir / NAME, newest_at=newest_at)


def newest_instant(rentals: Iterable[Rental], jobs: Iterable[Job]) -> float:
    """Return the newest instant on record of what still depends on time; 0 when nothing does."""
    live = [r.phase_since for r in rentals if r.phase is not Phase.GONE]
    return max([0.0, *live, *(j.submitted_at for j in jobs if not j.finished)])
