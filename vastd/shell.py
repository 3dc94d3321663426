"""What every effect works with: the ledger, the ports, the observations and the clock.

Made once by the composition root (`daemon.py`) or a test; holds no logic of its own.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct, structs

from vastd.clocks import Clock
from vastd.core.hosts import Known
from vastd.core.job import Needs
from vastd.core.limits import Limits
from vastd.core.market import Offer
from vastd.core.money import Micros
from vastd.core.observed import Sighting, World
from vastd.core.spending import Past
from vastd.credit import Credit
from vastd.env_files import EnvFiles
from vastd.jobs.port import Boxes
from vastd.ledger import Change, Ledger
from vastd.local_logs import LocalLogs
from vastd.provider.port import Provider
from vastd.store.retention import kept_costs

ProgressSink = Callable[[str, int, int | None, str, str | None, str | None], None]
"""`(step, done, total, unit, rental_id, job_id)`."""


class Choice(Struct, frozen=True, kw_only=True):
    """An offer that was chosen, with everything a rental of it needs."""

    offer: Offer
    image: str
    disk_gb: float
    hours: float | None = None  # expected on this machine; None when unknown
    bid: Micros | None = None
    why: str = ""
    others: tuple["Choice", ...] = ()  # what else would do, in the order to try


Chooser = Callable[[Needs, Known, Micros | None], Awaitable[Choice]]
"""`(needs, what is known of machines and offers, budget)` -> the best choice now, or `NoOffers`."""


def _no_progress(
    step: str, done: int, total: int | None, unit: str, rental_id: str | None, job_id: str | None
) -> None:
    return None


class Observations:
    """The newest `World`. Replaced as a whole; observers wake the supervisor through the ledger."""

    def __init__(self, watching_since: float) -> None:
        self.world = World(watching_since=watching_since)

    def note(self, rental_id: str, **fields: object) -> None:
        """Replace fields of one rental's sighting."""
        before = self.world.of(rental_id)
        after: Sighting = structs.replace(before, **fields)
        sightings = {**self.world.sightings, rental_id: after}
        self.world = structs.replace(self.world, sightings=sightings)

    def restart_watch(self, now: float) -> None:
        """Judge staleness only from observations made after `now` (I7): a silence that lasted
        over the gap begins anew."""
        sightings = {
            rental_id: structs.replace(seen, unreachable_since=now)
            if seen.unreachable_since is not None
            else seen
            for rental_id, seen in self.world.sightings.items()
        }
        self.world = structs.replace(self.world, sightings=sightings, watching_since=now)


@dataclass(slots=True)
class Shell:
    """The tools of the effects. Not frozen: `limits` is replaced on a reload."""

    ledger: Ledger
    provider: Provider
    boxes: Boxes
    observed: Observations
    wall_clock: Callable[[], float]  # the time of the record: `clock`'s
    limits: Limits
    owner8: str
    new_id: Callable[[str], str]  # prefix -> fresh id
    choose: Chooser
    logs: LocalLogs
    envs: EnvFiles
    state_dir: Path
    onstart: Callable[[], str] = field(default=lambda: "")
    progress: ProgressSink = _no_progress
    past: Past = field(init=False)  # what the machines that are gone cost; follows the ledger
    credit: Credit = field(default_factory=Credit)
    locked: Callable[[], str | None] = field(default=lambda: None)  # why nothing may be rented
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.past = Past(self.ledger.rentals.values())
        self.past.carry(kept_costs(self.ledger.store))
        self.ledger.listen(self._heard)

    def _heard(self, change: Change) -> None:
        if change.rental is not None:
            self.past.count(change.rental)
