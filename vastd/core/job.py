"""A job: one command to run on a rented machine, and what became of it."""

from enum import StrEnum

from msgspec import Struct, field

from vastd.core.money import Micros
from vastd.core.rental import Blame, Policy
from vastd.core.setup import Setup


class JobState(StrEnum):
    """Where a job is (CONTRACT 3). `UNKNOWN`: the machine cannot be asked; not failed."""

    QUEUED = "queued"  # waits for its turn on a machine
    PLACING = "placing"  # its machine is being rented, booted and verified
    STARTING = "starting"  # code is sent, the runner started
    RUNNING = "running"
    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"  # ended by max-runtime, budget, idleness or a stale heartbeat


FINISHED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT})
ON_MACHINE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.UNKNOWN})


class Attempt(Struct, frozen=True, kw_only=True):
    """One machine the job was placed on. `reason` is None while it goes on."""

    rental_id: str
    offer_id: int
    machine_id: int
    began_at: float
    phase: str | None = None
    reason: str | None = None
    ended_at: float | None = None
    seconds: float | None = None  # None while it goes on, and on old records
    wasted: Micros | None = None  # what its machine cost; None as above
    blame: Blame | None = None
    counts: bool = True  # False: the offer was gone before anything was made


class Needs(Struct, frozen=True, kw_only=True):
    """What the user asked for; kept so that a next attempt can search again."""

    task: str | None = None
    hours: float | None = None
    gpu_ram_gb: float | None = None
    num_gpus: int | None = None
    gpu_name: str | None = None
    disk_gb: float | None = None
    image: str | None = None
    max_dph_usd: float | None = None
    min_reliability: float | None = None
    spot: bool = False
    bid_usd_h: float | None = None
    offer_id: int | None = None
    profile: str | None = None  # None: on record before profiles were


class Job(Struct, frozen=True, kw_only=True):
    """The record. Changed only by `job_lifecycle.evolve_job`."""

    job_id: str
    name: str
    command: list[str]
    project: str  # absolute directory whose content is sent
    submitted_at: float
    state: JobState = JobState.QUEUED
    rental_id: str | None = None
    needs: Needs = field(default_factory=Needs)
    policy: Policy = field(default_factory=Policy)  # of every machine rented for it
    rents: bool = True  # False: it was submitted onto an existing rental
    outputs: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    env_keys: list[str] = field(default_factory=list)
    request_id: str | None = None
    task_id: str | None = None
    run: int = 1  # counts its starts: a machine that was taken away makes another one necessary
    log_base: int = 0  # bytes of its log at home that earlier runs wrote
    sync_at: float | None = None  # its code began to be sent to the present machine
    synced_files: int | None = None
    synced_bytes: int | None = None
    started_at: float | None = None  # our clock
    ended_at: float | None = None
    exit_code: int | None = None
    reason: str | None = None
    failure: str | None = None  # provisioning, no_offers, budget, machine, collection, sync
    cancel_at: float | None = None  # the user asked to end it
    term_at: float | None = None  # TERM was sent; grace counts from here
    collected: bool | None = None
    collect_final: bool = False  # nobody tries again by himself
    collected_at: float | None = None
    collected_files: int | None = None
    collected_bytes: int | None = None
    collected_earlier: int = 0  # files that were there before it began: not its own work
    missing: list[str] = field(default_factory=list)
    attempts: tuple[Attempt, ...] = ()
    setup: Setup | None = None  # it sets its machine up: nothing of it is an output

    @property
    def run_id(self) -> str:
        """What the runner on its machine knows this start of it by: it starts every id once."""
        return self.run_ids[-1]

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The same of every start so far, oldest first."""
        return (self.job_id, *(f"{self.job_id}-{run}" for run in range(2, self.run + 1)))

    @property
    def finished(self) -> bool:
        """Whether its process is known to have ended, or never will run."""
        return self.state in FINISHED

    @property
    def active(self) -> bool:
        """Whether a process of it may run on its machine."""
        return self.state in ON_MACHINE

    @property
    def may_have_started(self) -> bool:
        """Whether its start was perhaps sent: its code is there, and no answer is on record."""
        return self.state is JobState.STARTING and self.synced_files is not None

    @property
    def uncollected(self) -> bool:
        """Whether it left something on a machine that is not home yet."""
        return self.started_at is not None and self.collected is not True
