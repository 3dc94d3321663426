"""What can happen to time in a seeded story: suspends, clocks set both ways, a reboot's bad clock.

Drawn from a stream of its own, so that the other draws of a seed stay what they were.
"""

import random
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from support.daemon_in_memory import Lab
from vastd.core import events as ev
from vastd.core.rental import Rental, Trigger
from vastd.core.timekeeping import STEP_S

YEAR_S = 365 * 86_400.0


class TimeFault(Struct, frozen=True, kw_only=True):
    """At `at` (virtual seconds) `kind` happens, by `by_s` seconds."""

    at: float
    kind: str  # suspend, pause (a suspend that no clock of ours counts), step, reboot
    by_s: float


class Story(Protocol):
    """What a story lends to its time faults."""

    lab: Lab
    trace: list[str]

    def _kill(self) -> None: ...


def draw_time(seed: int, within_s: float) -> list[TimeFault]:
    """Return the time faults of a seed: none in every other one."""
    rng = random.Random(f"time:{seed}")
    if rng.random() < 0.5:
        return []
    found = []
    for _ in range(1 + rng.randrange(3)):
        kind = rng.choice(("suspend", "suspend", "pause", "step", "step", "reboot"))
        by_s = {
            "suspend": (40.0, 600.0, 2400.0),
            "pause": (40.0, 600.0, 2400.0),
            "step": (-YEAR_S, -3600.0, -45.0, 20.0, 45.0, 3600.0, YEAR_S),
            "reboot": (-YEAR_S, -3600.0, 0.0, 3600.0, YEAR_S),
        }[kind]
        fault = TimeFault(at=round(rng.uniform(0, within_s), 3), kind=kind, by_s=rng.choice(by_s))
        found.append(fault)
    return sorted(found, key=lambda fault: fault.at)


class Deadlines:
    """Holds every max-runtime to true time: what a rental was promised, whatever the clocks said."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._sent: dict[str, float] = {}  # by rental: true time of its create

    def heard(self, event: object, rental: Rental | None, late_s: float) -> str | None:
        """Return what is wrong with a decision: it came early, or later than by `late_s`."""
        now = self._lab.true_time()
        if isinstance(event, ev.CreateSent):
            self._sent[event.rental_id] = now
        if not isinstance(event, ev.EndDecided) or event.trigger is not Trigger.MAX_RUNTIME:
            return None
        assert rental is not None
        due = self._sent[event.rental_id] + rental.policy.max_runtime_s
        sent, deadline = rental.create_sent_at, rental.deadline_at
        moved = sent is None or deadline != sent + rental.policy.max_runtime_s
        if moved or due - 2 * STEP_S <= now <= due + late_s:
            return None  # it stood still as asked, or is in time: small steps are believed
        return f"{event.rental_id} was ended for its run time {now - due:+.0f} s from its deadline"


def lost_s(faults: list[TimeFault]) -> float:
    """Return for how long nobody could act because of them. A clock that was set is no excuse."""
    return sum(fault.by_s + 90 for fault in faults if fault.kind in ("suspend", "pause"))


def plan(story: Story, faults: list[TimeFault]) -> list[tuple[float, Callable[[], None]]]:
    """Return what is to be done when."""
    return [(fault.at, lambda f=fault: _happen(story, f)) for fault in faults]  # type: ignore[misc]


def _happen(story: Story, fault: TimeFault) -> None:
    story.trace.append(f"{fault.at:9.1f} TIME {fault.kind} {fault.by_s:+.0f}")
    lab = story.lab
    match fault.kind:
        case "suspend" | "pause":
            lab.suspend(fault.by_s, counted=fault.kind == "suspend")
        case "step":
            lab.step_s += fault.by_s
        case "reboot":
            lab.reboot(wrong_s=fault.by_s)
            story._kill()
