"""Everything that can happen, as stored facts in the past tense.

Rules
1. A tag is the wire and disk name of an event and is never renamed.
2. Fields are only added, with defaults: an old event must always decode.
3. An event says what happened and when; what follows from it is decided elsewhere.
"""

from typing import Any

import msgspec
from msgspec import Struct

from vastd.core.job import Job
from vastd.core.market import Offer
from vastd.core.money import Micros
from vastd.core.rental import Blame

# One name for all events, `ev.…`, wherever they are defined.
from vastd.core.rental_events import *  # noqa: F403
from vastd.core.rental_events import RentalEvent


class JobEvent(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Something that happened to a job."""

    job_id: str
    at: float


# -- jobs --------------------------------------------------------------------------------


class JobSubmitted(JobEvent, frozen=True, kw_only=True, tag="job_submitted"):
    """A client handed over a job."""

    job: Job


class MachineAwaited(JobEvent, frozen=True, kw_only=True, tag="machine_awaited"):
    """The job needs another machine, and no money may be spent on one now: it waits."""

    why: str


class JobPlaced(JobEvent, frozen=True, kw_only=True, tag="job_placed"):
    """The job got a rental to run on."""

    rental_id: str
    offer: Offer | None = None  # None on an existing rental


class AttemptFailed(JobEvent, frozen=True, kw_only=True, tag="attempt_failed"):
    """The rental could not serve the job; another may follow."""

    rental_id: str
    phase: str
    why: str
    machine_id: int | None = None  # None on old records, like what follows
    seconds: float | None = None  # from the choice to the proven end
    wasted: Micros | None = None  # what its machine cost
    blame: Blame | None = None
    counts: bool = True  # False: the offer was gone, which is no failed machine


class JobInterrupted(JobEvent, frozen=True, kw_only=True, tag="job_interrupted"):
    """Its machine was taken away under it. It starts again from its checkpoint: on the same machine
    when that runs again, or (`moves`) on another one."""

    rental_id: str
    why: str
    moves: bool = False


class SyncBegan(JobEvent, frozen=True, kw_only=True, tag="sync_began"):
    """The code is being sent."""

    rental_id: str


class Synced(JobEvent, frozen=True, kw_only=True, tag="synced"):
    """The project is on the machine."""

    rental_id: str
    files: int
    bytes: int
    method: str = "rsync"
    secrets_kept: int = 0
    log_base: int = 0  # bytes of its log at home that earlier runs wrote
    seconds: float | None = None  # None also when little of it had to be sent


class JobStarted(JobEvent, frozen=True, kw_only=True, tag="job_started"):
    """The runner has recorded the job's process."""

    rental_id: str
    pid: int | None = None


class JobUnreachable(JobEvent, frozen=True, kw_only=True, tag="job_unreachable"):
    """The machine cannot be asked: the job's state is unknown, not failed."""

    why: str


class JobReachable(JobEvent, frozen=True, kw_only=True, tag="job_reachable"):
    """The machine answers again and the job still runs."""


class CancelAsked(JobEvent, frozen=True, kw_only=True, tag="cancel_asked"):
    """The user wants the job ended."""


class TermSent(JobEvent, frozen=True, kw_only=True, tag="term_sent"):
    """The job was asked to save and exit; KILL follows after the grace time."""

    why: str


class JobFinished(JobEvent, frozen=True, kw_only=True, tag="job_finished"):
    """The job's process ended, or it never will run. `state` is one of the finished states."""

    state: str
    why: str
    exit_code: int | None = None
    failure: str | None = None


class Collected(JobEvent, frozen=True, kw_only=True, tag="collected"):
    """The job's outputs are home and verified; `missing` were declared and do not exist."""

    rental_id: str
    files: int
    bytes: int
    missing: list[str]
    seconds: float | None = None  # of the copy
    earlier: int = 0  # of the files: they were there before the job began


class NotCollected(JobEvent, frozen=True, kw_only=True, tag="not_collected"):
    """The job's outputs could not be brought home. `final`: nobody tries again."""

    rental_id: str
    why: str
    final: bool = False


# -- the daemon itself -------------------------------------------------------------------


class DaemonEvent(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Something that is neither of a rental nor of a job. `at` as above."""

    at: float


class CapsChanged(DaemonEvent, frozen=True, kw_only=True, tag="caps_changed"):
    """Who may spend how much was changed: by the key of each cap its value before and after, in
    dollars; None: no cap."""

    changes: dict[str, tuple[float | None, float | None]]


class HostBlocked(DaemonEvent, frozen=True, kw_only=True, tag="host_blocked"):
    """The user wants no rental on a machine. `until` None: until he says otherwise."""

    machine_id: int
    why: str
    until: float | None = None


class HostUnblocked(DaemonEvent, frozen=True, kw_only=True, tag="host_unblocked"):
    """The user allows rentals on a machine again."""

    machine_id: int


class ClockJumped(DaemonEvent, frozen=True, kw_only=True, tag="clock_jumped"):
    """Time did not go on evenly. `jump`: one of `timekeeping.Jump`, or `slept`: vastd did not run
    for `by_s` seconds."""

    jump: str
    by_s: float


class NetworkLost(DaemonEvent, frozen=True, kw_only=True, tag="network_lost"):
    """Vast and every machine have been silent together since `since`: it is our own network."""

    since: float


class NetworkBack(DaemonEvent, frozen=True, kw_only=True, tag="network_back"):
    """Somebody answers again."""

    since: float


RENTAL_EVENTS: tuple[type[RentalEvent], ...] = tuple(RentalEvent.__subclasses__())
JOB_EVENTS: tuple[type[JobEvent], ...] = tuple(JobEvent.__subclasses__())
DAEMON_EVENTS: tuple[type[DaemonEvent], ...] = tuple(DaemonEvent.__subclasses__())
Event = RentalEvent | JobEvent | DaemonEvent

_encoder = msgspec.json.Encoder()
# The union is made from the subclasses above, so a new event cannot be forgotten here.
_union: Any = RENTAL_EVENTS[0]
for _type in (*RENTAL_EVENTS[1:], *JOB_EVENTS, *DAEMON_EVENTS):
    _union = _union | _type
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(_union)


def kind(event: Event) -> str:
    """Return the tag of `event`."""
    tag = event.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def to_bytes(event: Event) -> bytes:
    """Return `event` as stored."""
    return _encoder.encode(event)


def from_bytes(body: bytes) -> Event:
    """Return a stored event.

    Raises:
        msgspec.ValidationError: not one of ours.
    """
    return _decoder.decode(body)
