"""How fast money is used up that several machines spend together, and when it will be gone.

A stopped machine is not ended for the others' spending, because it may hold the only copy of
something: its storage until the end of the window is kept back from them instead.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, structs

from vastd.core import billing
from vastd.core.instants import rfc3339
from vastd.core.limits import Limits
from vastd.core.money import SECONDS_PER_HOUR, Micros, for_seconds, show
from vastd.core.rental import Phase, Rental
from vastd.core.spending import (
    EVER,
    OPEN_END_S,
    Cap,
    Past,
    Window,
    day_of,
    month_of,
    spent,
    wind_down_s,
)

WORDS: Final = {
    Cap.PER_DAY: "the cap of one day",
    Cap.PER_MONTH: "the cap of one month",
    Cap.PER_PROJECT: "the cap of this project",
    Cap.CREDIT: "the credit of the account",
}


class Pace(Struct, frozen=True, kw_only=True):
    """How fast one cap is used up."""

    cap: Cap
    limit: Micros
    window: Window
    now: float
    spent: Micros
    burn: Micros  # per hour, of everything that could be ended
    kept_back: Micros  # to wind that down, and for the storage of stopped machines
    project: str | None = None  # whose cap it is; None: of all machines
    dearest: str | None = None  # rental id of the machine that costs most now
    told: bool = False  # the warning for this window was given

    def covers(self, rental: Rental) -> bool:
        """Whether `rental` spends of this cap."""
        return self.project is None or rental.project == self.project

    def reaches(self, share: float = 1.0) -> float | None:
        """Return when `share` of the cap is spent or needed to end what bills (epoch s), not
        before `now`; None when that is not before the window ends."""
        left = self.limit * share - self.spent - self.kept_back
        if self.burn <= 0:
            return None
        at = self.now + max(0.0, left) / self.burn * SECONDS_PER_HOUR
        return at if at < self.window.until else None

    @property
    def warning(self) -> str:
        """The name under which the warning is on record: one per cap, window and project."""
        name = self.cap.removesuffix("_usd")
        if self.window.end is None:
            return f"{name}_warn-{show(self.limit)}"  # a raised cap may warn again
        return f"{name}_warn-{rfc3339(self.window.start)[:10]}"

    @property
    def text(self) -> str:
        """What was spent of what, for a sentence."""
        return f"{show(self.spent)} of {show(self.limit)} spent ({self.cap})"

    @property
    def used_up(self) -> str:
        """Why nothing more may be spent."""
        rest = (
            f", and {show(self.kept_back)} is kept for what still bills" if self.kept_back else ""
        )
        return f"{WORDS[self.cap]} is used up: {self.text}{rest}"


def paces(rentals: Sequence[Rental], past: Past, limits: Limits, now: float) -> tuple[Pace, ...]:
    """Return the pace of every cap in force. `rentals`: those that are not gone; `past`: the others."""
    look = _Look(past=past, limits=limits, now=now)
    caps, found = limits.caps, list[Pace]()
    if caps.per_day is not None:
        found.append(_pace(rentals, look, Cap.PER_DAY, caps.per_day, day_of(now)))
    if caps.per_month is not None:
        found.append(_pace(rentals, look, Cap.PER_MONTH, caps.per_month, month_of(now)))
    if caps.per_project is not None:
        projects: dict[str, list[Rental]] = {}
        for rental in rentals:
            if rental.project is not None:
                projects.setdefault(rental.project, []).append(rental)
        for name, mine in projects.items():
            found.append(_pace(mine, look, Cap.PER_PROJECT, caps.per_project, EVER, name))
    return tuple(found)


class _Look(Struct, frozen=True, kw_only=True):
    past: Past
    limits: Limits
    now: float


def _pace(
    rentals: Sequence[Rental],
    look: _Look,
    cap: Cap,
    limit: Micros,
    window: Window,
    project: str | None = None,
) -> Pace:
    now = look.now
    live = [rental for rental in rentals if rental.rates]
    running = [rental for rental in live if rental.phase is not Phase.STOPPED]
    stopped = [rental for rental in live if rental.phase is Phase.STOPPED]
    rest_s = OPEN_END_S if window.end is None else window.end - now
    kept = [for_seconds(billing.rate(rental), rest_s) for rental in stopped]
    kept += [
        for_seconds(billing.expected_rate(rental), wind_down_s(rental, look.limits))
        for rental in running
    ]
    dearest = max(running, key=lambda r: (billing.rate(r), r.rental_id), default=None)
    spent_live = sum(spent(rental, window, now) for rental in live)
    pace = Pace(
        cap=cap,
        limit=limit,
        window=window,
        now=now,
        spent=Micros(spent_live + look.past.spent(cap, window, project)),
        burn=Micros(sum(billing.rate(rental) for rental in running)),
        kept_back=Micros(sum(kept)),
        project=project,
        dearest=None if dearest is None else dearest.rental_id,
    )
    told = look.past.warned(pace.warning, project) or any(
        pace.warning in rental.warned for rental in rentals
    )
    return structs.replace(pace, told=told)
