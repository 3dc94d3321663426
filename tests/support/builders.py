"""Builders of rentals, jobs, rows and worlds: a test states only what matters to it.

Every instant is in seconds after `T0`, so that exact times are readable.
"""

from msgspec import structs

from support.offer_builders import an_offer
from vastd.core import events as ev
from vastd.core.alarms import Watch
from vastd.core.job import Job, JobState
from vastd.core.limits import Limits
from vastd.core.market import Instance
from vastd.core.money import Micros, from_usd
from vastd.core.observed import Inventory, Sighting, World
from vastd.core.rental import Ending, Order, Phase, Policy, RateSegment, Rental, Trigger

T0 = 1_800_000_000.0
OWNER = "own00001"
OTHER = "oth00002"
RENTAL_ID = "r1"
JOB_ID = "j1"
INSTANCE_ID = 42
LIMITS = Limits()
RATE = from_usd(0.36)  # 100 micro-dollars a second

# Phases in which the create has left, and those in which the instance's id is known.
SENT = frozenset(Phase) - {Phase.PLANNED}
KNOWN = SENT - {Phase.CREATING}


def a_rental(phase: Phase = Phase.READY, **changes: object) -> Rental:
    """A rental in `phase` since T0, with what a life up to there has left on it."""
    fields: dict[str, object] = {
        "rental_id": RENTAL_ID,
        "name": "lab",
        "label": f"lab/train vastd-{OWNER}-{RENTAL_ID}",
        "order": Order(offer=an_offer(7, dph=RATE), image="sim/image", disk_gb=50.0),
        "policy": Policy(),
        "created_at": T0,
        "phase": phase,
        "phase_since": T0,
        "phases": ((phase, T0),),
    }
    if phase in SENT:
        fields |= {"create_sent_at": T0, "deadline_at": T0 + 43_200.0}
    if phase in KNOWN:
        fields |= {"instance_id": INSTANCE_ID, "rates": (RateSegment(T0, RATE),)}
    if phase in (Phase.DESTROYING, Phase.GONE):
        fields["ending"] = an_ending()
    if phase is Phase.GONE:
        fields |= {"ended_at": T0, "rates": (RateSegment(T0, Micros(0)),)}
    return Rental(**{**fields, **changes})  # type: ignore[arg-type]


def an_ending(trigger: Trigger = Trigger.USER, **changes: object) -> Ending:
    return Ending(**{"trigger": trigger, "at": T0, "why": "told to", **changes})  # type: ignore[arg-type]


def a_job(state: JobState = JobState.RUNNING, **changes: object) -> Job:
    """A job in `state`, on the rental of `a_rental`."""
    fields: dict[str, object] = {
        "job_id": JOB_ID,
        "name": "train",
        "command": ["python", "train.py"],
        "project": "/home/me/lab",
        "submitted_at": T0,
        "state": state,
        "rental_id": RENTAL_ID,
    }
    if state not in (JobState.QUEUED, JobState.PLACING, JobState.STARTING):
        fields["started_at"] = T0
    return Job(**{**fields, **changes})  # type: ignore[arg-type]


def a_done_job(**changes: object) -> Job:
    """A job that succeeded and whose results are home."""
    return a_job(JobState.SUCCEEDED, **{"ended_at": T0, "collected": True, **changes})


def a_row(status: str | None = "running", **changes: object) -> Instance:
    """The row of the instance of `a_rental`, as a listing shows it."""
    fields: dict[str, object] = {
        "instance_id": INSTANCE_ID,
        "label": f"lab/train vastd-{OWNER}-{RENTAL_ID}",
        "status": status,
        "intended_status": "running",
        "dph": RATE,
        "storage_dph": from_usd(0.0036),
        "is_bid": False,
    }
    return Instance(**{**fields, **changes})  # type: ignore[arg-type]


def a_world(seen: Sighting | None = None, **changes: object) -> World:
    """A world watched since T0, with one sighting."""
    sightings = {RENTAL_ID: seen} if seen is not None else {}
    return World(**{"sightings": sightings, "watching_since": T0, **changes})  # type: ignore[arg-type]


def a_watch(
    rental: Rental,
    *jobs: Job,
    seen: Sighting | None = None,
    world: World | None = None,
    limits: Limits = LIMITS,
) -> Watch:
    shown = seen or Sighting()
    return Watch(rental=rental, jobs=jobs, seen=shown, world=world or a_world(shown), limits=limits)


def samples() -> list[ev.Event]:
    """One event of every kind, about `RENTAL_ID` and `JOB_ID`, at T0."""
    told: dict[type[ev.Event], dict[str, object]] = {
        ev.RentalPlanned: {"rental": a_rental(Phase.PLANNED), "why": "cheapest"},
        ev.RentalAdopted: {"rental": a_rental()},
        ev.CreateSent: {"deadline_at": T0 + 43_200.0},
        ev.CreateConfirmed: {"instance_id": INSTANCE_ID},
        ev.CreateUnresolved: {"why": "no answer"},
        ev.CreateRefused: {"why": "gone", "stop_all": True},
        ev.InstanceFound: {"instance_id": INSTANCE_ID},
        ev.Released: {"why": "released by the user"},
        ev.InstanceRunning: {},
        ev.KeyAttached: {},
        ev.BecameReady: {"host": "192.0.2.1", "port": 22, "route": "direct", "gpu": "1x RTX 3090"},
        ev.LeaseRenewed: {"until": T0 + 3600.0},
        ev.LeaseAsked: {"until": T0 + 18_000.0},
        ev.JobBegan: {"job_id": JOB_ID},
        ev.JobLeft: {"job_id": JOB_ID},
        ev.CollectVerified: {},
        ev.CollectFailed: {"why": "disk full"},
        ev.InstanceStopped: {"why": "outbid"},
        ev.InstanceResumed: {},
        ev.EndDecided: {"trigger": Trigger.BUDGET, "why": "used up"},
        ev.DestroyDecided: {"why": "nothing to lose"},
        ev.DestroyTried: {"accepted": True},
        ev.StopAsked: {"why": "lunch"},
        ev.StartAsked: {},
        ev.JobWentOn: {"job_id": JOB_ID},
        ev.LeftOver: {"job_id": JOB_ID},
        ev.BidChanged: {"bid": RATE, "before": Micros(1), "lowest": Micros(2)},
        ev.StartTried: {"accepted": False, "error": "the GPU is taken"},
        ev.PolicyChanged: {
            "policy": Policy(budget=from_usd(5.0)),
            "deadline_at": T0 + 7200.0,
            "changes": {"budget": ("$2.00", "$5.00")},
        },
        ev.StopTried: {"accepted": False, "error": "no answer"},
        ev.FoundAbsent: {"proof": "2 listings"},
        ev.Resurfaced: {"instance_id": INSTANCE_ID},
        ev.BillingChanged: {"since": T0, "rate": RATE, "status": "running"},
        ev.Warned: {"watchdog": "idle", "why": "idle"},
        ev.Quarantined: {"why": "KeyError"},
        ev.JobSubmitted: {"job": a_job(JobState.QUEUED, rental_id=None)},
        ev.JobPlaced: {"rental_id": RENTAL_ID, "offer": an_offer(7)},
        ev.MachineAwaited: {"why": "the cap of one day has $0.00 left"},
        ev.CapsChanged: {"changes": {"per_day_usd": (25.0, 40.0)}},
        ev.HostBlocked: {"machine_id": 1007, "why": "slow disk", "until": T0 + 3600.0},
        ev.HostUnblocked: {"machine_id": 1007},
        ev.ClockJumped: {"jump": "stepped", "by_s": -3600.0},
        ev.NetworkLost: {"since": T0},
        ev.NetworkBack: {"since": T0},
        ev.JobInterrupted: {"rental_id": RENTAL_ID, "why": "outbid", "moves": True},
        ev.AttemptFailed: {"rental_id": RENTAL_ID, "phase": "booting", "why": "stuck"},
        ev.SyncBegan: {"rental_id": RENTAL_ID},
        ev.Synced: {"rental_id": RENTAL_ID, "files": 3, "bytes": 300, "secrets_kept": 1},
        ev.JobStarted: {"rental_id": RENTAL_ID, "pid": 1001},
        ev.JobUnreachable: {"why": "time-out"},
        ev.JobReachable: {},
        ev.CancelAsked: {},
        ev.TermSent: {"why": "budget"},
        ev.JobFinished: {"state": "failed", "why": "exit code 3", "exit_code": 3},
        ev.Collected: {"rental_id": RENTAL_ID, "files": 2, "bytes": 20, "missing": ["x.log"]},
        ev.NotCollected: {"rental_id": RENTAL_ID, "why": "disk full", "final": True},
    }
    return [_sample(kind, fields) for kind, fields in told.items()]


def _sample(kind: type[ev.Event], fields: dict[str, object]) -> ev.Event:
    about = {"rental_id": RENTAL_ID} if issubclass(kind, ev.RentalEvent) else {"job_id": JOB_ID}
    if issubclass(kind, ev.DaemonEvent):
        about = {}
    return kind(**{**about, "at": T0, **fields})  # type: ignore[arg-type]


def sample(kind: type[ev.Event], **changes: object) -> ev.Event:
    """The sample of one kind, changed."""
    found = next(event for event in samples() if type(event) is kind)
    return structs.replace(found, **changes)


def an_inventory(**changes: object) -> Inventory:
    return Inventory(**{"as_of": T0, **changes})  # type: ignore[arg-type]
