"""What was merely observed of each rental: kept in memory, replaced, never the truth about money.

Losing all of it (a restart) costs one poll: every rule that acts on an absence or a staleness
counts from observations made *after* the loss, so forgetting can only delay an action.
"""

from msgspec import Struct, field

from vastd.core.lease import LeaseFacts, LeaseTerms
from vastd.core.market import Instance
from vastd.core.stopped import Stop


class Beat(Struct, frozen=True, kw_only=True):
    """The job's newest heartbeat. `at` is our clock: taken at a look, minus its age there."""

    at: float
    epoch: float | None = None
    step: int | None = None
    loss: float | None = None
    timestamp: str | None = None


class LeaseSeen(Struct, frozen=True, kw_only=True):
    """The newest lease a machine was told, and what was read back. `at` is our wall clock."""

    told: LeaseTerms
    at: float
    facts: LeaseFacts
    unarmed: str | None = None  # why it does not bound the bill; None: it does


class Sighting(Struct, frozen=True, kw_only=True):
    """All observations of one rental. Times are our wall clock, epoch seconds."""

    instance: Instance | None = None  # newest row
    seen_begun_at: float | None = None  # begin of the newest listing that showed the row
    observed_at: float | None = None  # begin of the newest complete listing at all
    readings: int = 0  # consecutive listings with the same status
    absences: int = 0  # consecutive complete listings, begun late enough, without it
    absent_since: float | None = None  # begin of the first of them
    # End of the first of the consecutive listings, begun after the last create or destroy, without
    # it. Too early for a proof; once there is one, it bounds the bill.
    missed_at: float | None = None
    # Begin of the newest listing that showed its container down although nobody here wanted that,
    # and why. It may run again before that is believed, but what ran in it is gone.
    down_at: float | None = None
    down: Stop | None = None
    status_moved_at: float | None = None  # `status` or `status_msg` changed last
    reached_at: float | None = None  # SSH answered last
    unreachable_since: float | None = None
    unreachable_why: str = ""
    beat: Beat | None = None
    looked_at: float | None = None  # a job snapshot was taken last
    gpu_util: float | None = None
    quiet_since: float | None = None  # GPU idle in every reading since
    disk_free_bytes: int | None = None
    lease: LeaseSeen | None = None


class Inventory(Struct, frozen=True, kw_only=True):
    """What is known of the whole account. Three-valued: see `state` (I11)."""

    as_of: float | None = None  # begin of the newest complete listing
    error: str | None = None  # why the newest attempt failed; None if it succeeded
    failing_since: float | None = None
    auth_failed: bool = False
    unanswered: bool = False  # the newest attempt got no answer at all, not even a refusal
    foreign: tuple[Instance, ...] = ()
    orphans: tuple[Instance, ...] = ()  # our claim, but no rental on record

    def state(self, now: float, stale_after_s: float) -> str:
        """Return `fresh`, `stale` or `unknown`."""
        if self.as_of is None:
            return "unknown"
        if self.error is not None:
            return "unknown" if now - self.as_of > stale_after_s else "stale"
        return "fresh" if now - self.as_of <= stale_after_s else "stale"


class World(Struct, frozen=True, kw_only=True):
    """Every observation, and since when we observe without a gap."""

    sightings: dict[str, Sighting] = field(default_factory=dict)  # by rental_id
    inventory: Inventory = Inventory()
    # Start of the daemon, or the end of a suspend or clock jump: staleness is judged only from
    # observations made later (I7).
    watching_since: float = 0.0
    network_down_since: float | None = None  # our own network seems down; `core/own_network.py`

    def of(self, rental_id: str) -> Sighting:
        """Return the sighting of a rental; an empty one if it was never observed."""
        return self.sightings.get(rental_id) or Sighting()
