"""`job.*`: commands that run on a rented machine and outlive their client."""

from msgspec import field

from vastd_protocol.method import Method, Mutation, Params, View
from vastd_protocol.methods.rental import PolicyParams, RentalView
from vastd_protocol.methods.task import Needs, OptionView


class HeartbeatView(View, frozen=True, kw_only=True):
    """The newest heartbeat the job wrote."""

    epoch: float | None = None
    step: int | None = None
    loss: float | None = None
    timestamp: str | None = None


class AttemptView(View, frozen=True, kw_only=True):
    """One machine the job was placed on, and how that ended."""

    rental_id: str
    offer_id: int | None = None
    machine_id: int | None = None
    phase: str | None = None  # where it failed; null while it goes on
    reason: str | None = None
    seconds: float = 0.0
    wasted_usd: float = 0.0
    blame: str | None = None  # host, run (image or account: no other is tried) or nobody
    counts: bool = True  # false: its offer was gone, which is no failed machine


class JobView(View, frozen=True, kw_only=True):
    """What a client may see of a job. Null means unknown or not yet."""

    job_id: str
    name: str
    command: list[str]
    state: str
    rental_id: str | None = None
    project: str | None = None
    profile: str | None = None
    exit_code: int | None = None
    submitted_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    last_heartbeat_at: str | None = None
    heartbeat: HeartbeatView | None = None
    checkpoint_path: str | None = None
    outputs: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    results_dir: str | None = None
    collected: bool | None = None  # null: not tried yet; false: the copy failed
    results_lost: bool = False  # what was not collected is gone with its machine
    collected_files: int | None = None
    collected_bytes: int | None = None
    collected_earlier: int = 0  # of the files: there before the job began, so not its own work
    log_path: str | None = None  # the local copy
    log_bytes: int = 0
    reason: str | None = None  # why it ended so, in a sentence
    failure: str | None = None  # provisioning, no_offers, budget, collection, …; null otherwise
    cost_usd: float | None = None  # of all its machines so far
    attempts: list[AttemptView] = field(default_factory=list)
    setup: bool = False  # it sets its machine up: see `setup.get`


class JobSubmitParams(Mutation, frozen=True, kw_only=True):
    """Run `command` on a machine that fits. `project` is an absolute path whose content is sent.

    With `rental` the job runs there and nothing is rented.
    """

    command: list[str]
    project: str
    name: str | None = None
    needs: Needs = field(default_factory=Needs)
    policy: PolicyParams = field(default_factory=PolicyParams)
    outputs: list[str] = field(default_factory=list)  # empty: `results/` and `*.log`
    include: list[str] = field(default_factory=list)  # files sent although they look secret
    env: dict[str, str] = field(default_factory=dict)  # kept in a private file until the job ends
    rental: str | None = None
    task_id: str | None = None


class JobSubmitView(View, frozen=True, kw_only=True):
    """The job is on record and will go on without the client."""

    job: JobView
    rental: RentalView
    chosen: OptionView | None = None  # null when it runs on an existing rental
    warnings: list[str] = field(default_factory=list)


class JobListParams(Params, frozen=True, kw_only=True):
    """`all` includes ended jobs; `project` narrows to one project directory."""

    all: bool = False
    project: str | None = None


class JobListView(View, frozen=True, kw_only=True):
    """Jobs by submission time, oldest first."""

    jobs: list[JobView] = field(default_factory=list)
    pruned_before: str | None = None  # with `all`: ended jobs older than this were dropped


class JobRef(Params, frozen=True, kw_only=True):
    """`job` is a job id, a name or a unique prefix; null means the newest of `project`."""

    job: str | None = None
    project: str | None = None


class JobCancelParams(Mutation, frozen=True, kw_only=True):
    """TERM, grace, KILL; what it wrote is collected."""

    job: str | None = None
    project: str | None = None


class JobRetryParams(Mutation, frozen=True, kw_only=True):
    """Submit an ended job again with the same settings."""

    job: str | None = None
    project: str | None = None


class JobWaitParams(Params, frozen=True, kw_only=True):
    """Hold the answer until the job ended and its machine is settled, or `timeout_s` is over."""

    job: str | None = None
    project: str | None = None
    timeout_s: float | None = None


class JobWaitView(View, frozen=True, kw_only=True):
    """`settled` is true when the job ended, its results are home or known to be missing, and its
    machine is proven gone or deliberately kept."""

    job: JobView
    rental: RentalView | None = None
    settled: bool = False


SUBMIT = Method(
    "job.submit", JobSubmitParams, JobSubmitView, "Rent, run, collect, destroy", mutates=True
)
LIST = Method("job.list", JobListParams, JobListView, "List jobs")
GET = Method("job.get", JobRef, JobView, "Return one job")
CANCEL = Method("job.cancel", JobCancelParams, JobView, "End a job early", mutates=True)
RETRY = Method("job.retry", JobRetryParams, JobSubmitView, "Run an ended job again", mutates=True)
WAIT = Method("job.wait", JobWaitParams, JobWaitView, "Wait until a job is settled")

METHODS = (SUBMIT, LIST, GET, CANCEL, RETRY, WAIT)
