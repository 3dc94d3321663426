"""A rental: our durable record of one intention to hold one machine, until its proven end.

What we merely observe (Vast's status, reachability, GPU use, heartbeat) is not here but in
`core.observed`: losing it costs a poll, losing a rental costs money.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from vastd.core.market import Offer
from vastd.core.money import Micros


class Phase(StrEnum):
    """Where a rental is in its life (DESIGN 4.1). Failure is a reason, not a phase."""

    PLANNED = "planned"
    CREATING = "creating"
    BOOTING = "booting"
    VERIFYING = "verifying"
    READY = "ready"
    BUSY = "busy"
    COLLECTING = "collecting"
    STOPPED = "stopped"
    DESTROYING = "destroying"
    GONE = "gone"


class Trigger(StrEnum):
    """Why a rental ends. The same words are shown as its `end_reason`."""

    USER = "user"
    JOB_DONE = "job_done"
    MAX_RUNTIME = "max_runtime"
    BUDGET = "budget"
    IDLE = "idle"
    HEARTBEAT_STALE = "heartbeat_stale"
    UNREACHABLE = "unreachable"
    LEASE = "lease"
    OUTBID = "outbid"
    BOOT_OVERDUE = "boot_overdue"
    BOOT_FAILED = "boot_failed"
    SSH_FAILED = "ssh_failed"
    HARDWARE_MISMATCH = "hardware_mismatch"
    WRONG_ORDER = "wrong_order"  # not what was ordered: a bid instead of on-demand, too dear
    CREATE_REFUSED = "create_refused"
    CREATE_LOST = "create_lost"  # no answer, and no instance with our label appeared
    VANISHED = "vanished"  # it disappeared without our doing
    CANCELLED = "cancelled"  # ended before any request was sent
    BUG = "bug"


BOOT_FAILURES = frozenset(
    {
        Trigger.BOOT_OVERDUE,
        Trigger.BOOT_FAILED,
        Trigger.SSH_FAILED,
        Trigger.HARDWARE_MISMATCH,
        Trigger.WRONG_ORDER,
        Trigger.CREATE_REFUSED,
        Trigger.CREATE_LOST,
    }
)


class StopCause(StrEnum):
    """Why a machine stands still. On the wire as `stopped_by`."""

    ASKED = "asked"  # the user, or an end that keeps the disk
    OUTBID = "outbid"
    CREDIT = "credit"  # the account has none left: every machine stands still
    LEASE = "lease"  # the guard on the machine, which heard nothing of us
    CONTRACT = "contract"  # the host's contract is over: it never starts again
    EXITED = "exited"  # its main process ended, and Vast still means it to run
    UNKNOWN = "unknown"


class OnOutbid(StrEnum):
    """What follows when somebody bid more. A machine on demand is never taken instead."""

    RESUME = "resume"  # wait until the bid wins again, for `outbid_wait_s` at most
    RERENT = "rerent"  # a job with a checkpoint goes on on another machine
    END = "end"


class Blame(StrEnum):
    """Whose fault it is that a machine could not serve, and so what follows."""

    HOST = "host"  # the machine is not rented again for a day
    RUN = "run"  # the image's or the account's: every other machine would fail, too
    NOBODY = "nobody"  # the next offer may do better


_BLAME: Final = {
    Trigger.BOOT_OVERDUE: Blame.HOST,
    Trigger.BOOT_FAILED: Blame.HOST,
    Trigger.SSH_FAILED: Blame.HOST,
    Trigger.HARDWARE_MISMATCH: Blame.HOST,
}


def blame_of(trigger: Trigger) -> Blame:
    """Return whose fault an end is where whoever decided it did not say."""
    return _BLAME.get(trigger, Blame.NOBODY)


class Policy(Struct, frozen=True, kw_only=True):
    """What the user allowed this rental. Durations in seconds, money in micro-dollars."""

    max_runtime_s: float = 43_200.0
    budget: Micros | None = None  # of this rental; None: only the daemon's caps
    max_dph: Micros | None = None
    idle_s: float | None = None  # None: idleness is only warned about
    idle_warn_s: float | None = None  # None: after what the configuration says
    heartbeat_path: str | None = None
    heartbeat_interval_s: float = 300.0  # REQUIREMENTS CKP-04
    checkpoint_path: str | None = None
    grace_s: float = 60.0
    keep: bool = False  # keep the machine when its jobs are done
    unreachable_end_s: float | None = None  # None: a machine out of reach is only warned about
    on_outbid: OnOutbid = OnOutbid.RESUME
    outbid_wait_s: float = 21_600.0  # `settings.outbid_wait_s`


class Order(Struct, frozen=True, kw_only=True):
    """What to create. `offer` is as it looked when it was chosen."""

    offer: Offer
    image: str
    disk_gb: float
    bid: Micros | None = None


class Ending(Struct, frozen=True, kw_only=True):
    """A decided end that is being carried out."""

    trigger: Trigger
    at: float
    why: str
    force: bool = False  # the user gave an order that overrides job and failed copy
    collect: bool = True
    blame: Blame | None = None  # None: what follows from the trigger

    @property
    def fault(self) -> Blame:
        """Whose fault it is."""
        return self.blame or blame_of(self.trigger)


class Pause(Struct, frozen=True, kw_only=True):
    """The user wants the machine stopped: no GPU, the disk kept, until it is started or ended."""

    at: float
    why: str
    collect: bool = True  # bring results home first; a copy that fails does not keep the GPU


class RateSegment(Struct, frozen=True):
    """From `since` (epoch s) on, the instance costs `rate` micro-dollars per hour."""

    since: float
    rate: Micros


class Rental(Struct, frozen=True, kw_only=True):
    """The record. Changed only by `lifecycle.evolve`."""

    rental_id: str
    name: str
    label: str
    order: Order
    policy: Policy
    created_at: float
    phase: Phase = Phase.PLANNED
    phase_since: float
    project: str | None = None  # absolute directory
    profile: str | None = None  # aris or arf; None: taken over, or older than profiles
    request_id: str | None = None  # of the call that made it: a repeat finds it again
    purpose: str = "job"  # job: ends when its jobs are done; interactive: the user ends it
    adopted_label: str | None = None  # what was adopted was called so; None: we rented it
    released: str | None = None  # why we let go of it: the instance may exist, and bill
    taken_over: bool = False  # after a lost store: what its jobs left on it is not on record
    # After a lost store: what its jobs declared, as far as a file still told. Nothing on it is lost
    # or ended for that; it is what `collect` brings home.
    hinted_outputs: tuple[str, ...] = ()
    estimated_hours: float | None = None
    instance_id: int | None = None  # None until Vast gave one or a listing showed it
    create_sent_at: float | None = None  # I1: on disk before the request leaves
    create_unknown: bool = False  # sent, and no answer that can be trusted
    destroy_tried_at: float | None = None
    destroy_tries: int = 0
    destroy_accepted: bool = False  # the newest attempt was accepted
    stop_tried_at: float | None = None
    stop_accepted: bool = False
    pause: Pause | None = None  # it shall be stopped, or is because somebody asked for it
    stopped_by: StopCause | None = None  # while it stands still; None: before causes were kept
    stop_detail: str | None = None  # the same in words
    # Jobs that went on on another machine: what they left here is kept until they succeeded there.
    left_jobs: tuple[str, ...] = ()
    paused_at: float | None = None  # since when it stands still because the user wanted it
    start_asked_at: float | None = None  # it shall run again; None once it does
    start_tried_at: float | None = None
    start_accepted: bool = False
    running_at: float | None = None
    ready_at: float | None = None
    ended_at: float | None = None
    deadline_at: float | None = None  # wall clock; None until the create was sent
    lease_until: float | None = None  # when its guard would end it; None: never armed
    lease_asked_until: float | None = None  # the user wants it to last that long without vastd
    ending: Ending | None = None
    end_detail: str | None = None
    rates: tuple[RateSegment, ...] = ()
    warned: frozenset[str] = frozenset()  # watchdogs whose warning was given
    route: str | None = None  # which way SSH was proven: direct or proxy
    key_attached: bool = False
    key_attached_at: float | None = None  # None also on records of an older vastd
    refused_for_all: bool = False  # every other offer would be refused for the same reason
    offer_gone: bool = False  # its offer was not on the market any more
    collect_failures: int = 0
    collect_failed_at: float | None = None
    quarantined: str | None = None  # a bug: only ending is allowed
    phases: tuple[tuple[Phase, float], ...] = ()  # every phase entered, with its instant

    @property
    def end_reason(self) -> Trigger | None:
        """Why it ends or ended; None while no end was decided."""
        return self.ending.trigger if self.ending else None

    @property
    def last_touch_at(self) -> float | None:
        """The last create or destroy attempt: a proof of absence must begin later (I3)."""
        times = [t for t in (self.create_sent_at, self.destroy_tried_at) if t is not None]
        return max(times, default=None)

    @property
    def may_have_instance(self) -> bool:
        """Whether something may bill: a create left the machine and no absence was proven."""
        return self.create_sent_at is not None and self.phase is not Phase.GONE
