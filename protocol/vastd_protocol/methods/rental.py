"""`rental.*`: machines we rent, from the intention to the proven end."""

from msgspec import field

from vastd_protocol.method import Method, Mutation, Params, View
from vastd_protocol.methods.task import Needs


class SshView(View, frozen=True, kw_only=True):
    """Where the machine's sshd answered."""

    host: str
    port: int
    user: str
    route: str  # direct or proxy


class RentalView(View, frozen=True, kw_only=True):
    """What a client may see of a rental. Null means unknown or not yet."""

    rental_id: str
    name: str
    phase: str
    end_reason: str | None = None
    end_detail: str | None = None
    instance_id: int | None = None
    offer_id: int | None = None
    machine_id: int | None = None
    label: str | None = None
    project: str | None = None
    purpose: str | None = None  # job: ends with its jobs; interactive: to work on
    profile: str | None = None
    image: str | None = None
    gpu_name: str | None = None
    num_gpus: int | None = None
    gpu_ram_mb: int | None = None
    dph_usd: float | None = None
    cost_usd: float = 0.0
    estimated_hours: float | None = None
    estimated_cost_usd: float | None = None
    created_at: str | None = None
    ready_at: str | None = None
    ended_at: str | None = None
    deadline_at: str | None = None
    wanted: str | None = None  # `stopped` or `running`: asked for by the user, and not so yet
    stopped_at: str | None = None  # while it is stopped: since when
    # While it is stopped: `asked`, `outbid`, `lease`, `credit` (the account has none), `contract` (the
    # host's is over), `exited` or `unknown`; and the same in words.
    stopped_by: str | None = None
    stop_detail: str | None = None
    bid_usd: float | None = None  # per hour, disk not included; null: on demand
    min_bid_usd: float | None = None  # the lowest that wins, as listed last; of a bid only
    storage_dph_usd: float | None = None  # what its disk costs per hour, also while stopped
    lease_expires_at: str | None = None
    lease_armed: bool | None = None
    budget_usd: float | None = None
    ssh: SshView | None = None
    status: str | None = None
    status_msg: str | None = None
    jobs: list[str] = field(default_factory=list)
    unfinished_jobs: list[str] = field(default_factory=list)  # of `jobs`
    last_heartbeat_at: str | None = None
    gpu_util: float | None = None
    waiting: str | None = None  # why it ends, and what holds that up; null while it does not end
    warnings: list[str] = field(default_factory=list)


class InventoryView(View, frozen=True, kw_only=True):
    """How far the list can be trusted: `fresh`, `stale` or `unknown`, and why."""

    state: str
    as_of: str | None = None
    age_s: float | None = None
    error: str | None = None
    network_down_since: str | None = None  # our own: Vast and all machines are silent
    foreign: int = 0
    orphans: int = 0
    foreign_dph_usd: float = 0.0  # what they cost per hour, as far as Vast says
    orphans_dph_usd: float = 0.0


class TotalsView(View, frozen=True, kw_only=True):
    """Sums over the rentals listed."""

    dph_usd: float = 0.0
    cost_usd: float = 0.0


class RentalListParams(Params, frozen=True, kw_only=True):
    """`all` includes ended rentals; `project` narrows to one project directory."""

    all: bool = False
    project: str | None = None


class RentalListView(View, frozen=True, kw_only=True):
    """Rentals by creation time, oldest first."""

    rentals: list[RentalView] = field(default_factory=list)
    inventory: InventoryView
    totals: TotalsView = field(default_factory=TotalsView)


class RentalRef(Params, frozen=True, kw_only=True):
    """`rental` is a name, rental id, Vast instance id or unique prefix; null means the only
    one of `project`."""

    rental: str | None = None
    project: str | None = None


class PolicyParams(Params, frozen=True, kw_only=True):
    """Watchdog settings; null takes the configured default. Durations in seconds."""

    budget_usd: float | None = None
    max_runtime_s: float | None = None
    idle_s: float | None = None
    heartbeat_path: str | None = None
    heartbeat_interval_s: float | None = None
    checkpoint_path: str | None = None
    grace_s: float | None = None
    keep: bool = False
    # Of an interruptible machine: `resume` (wait for its bid to win again), `rerent` or `end`.
    on_outbid: str | None = None
    outbid_wait_s: float | None = None


class RentalCreateParams(Mutation, frozen=True, kw_only=True):
    """Rent one machine for interactive use: `needs.offer_id`, or the best offer that fits."""

    needs: Needs = field(default_factory=Needs)
    policy: PolicyParams = field(default_factory=PolicyParams)
    name: str | None = None
    project: str | None = None
    env: dict[str, str] = field(default_factory=dict)


class RentalDestroyParams(Mutation, frozen=True, kw_only=True):
    """Collect, destroy, prove. `force` needs `reason` and overrides an active job and a failed
    copy."""

    rental: str | None = None
    project: str | None = None
    force: bool = False
    reason: str | None = None
    collect: bool = True


class RentalStopParams(Mutation, frozen=True, kw_only=True):
    """Collect, then give the GPU back and keep the disk. `force` needs `reason` and ends an active
    job first (TERM, grace, KILL)."""

    rental: str | None = None
    project: str | None = None
    force: bool = False
    reason: str | None = None
    collect: bool = True


class RentalStartParams(Mutation, frozen=True, kw_only=True):
    """Have a stopped machine back: it bills its GPU again as soon as Vast has it free."""

    rental: str | None = None
    project: str | None = None


class RentalCollectParams(Mutation, frozen=True, kw_only=True):
    """Bring outputs home now. `outputs` replaces the declared ones."""

    rental: str | None = None
    project: str | None = None
    outputs: list[str] | None = None
    destination: str | None = None  # absolute; null: the project


class CollectedView(View, frozen=True, kw_only=True):
    """A verified collection."""

    rental_id: str
    destination: str
    files: int
    bytes: int
    missing: list[str] = field(default_factory=list)


class StepView(View, frozen=True, kw_only=True):
    """One line of the timeline."""

    at: str
    kind: str
    text: str
    severity: str = "info"
    job_id: str | None = None
    cost_usd: float | None = None  # what the machine had cost by then
    rule: str | None = None  # of a decision vastd made by itself, and the facts it was made by
    inputs: dict[str, str | int | float | bool | None] = field(default_factory=dict)


class PhaseCostView(View, frozen=True, kw_only=True):
    """What one phase took and cost."""

    phase: str
    seconds: float
    cost_usd: float


class CostPieceView(View, frozen=True, kw_only=True):
    """What one kind of time took, cost and wasted. `kind`: as in `cost.report`."""

    kind: str
    seconds: float
    cost_usd: float
    waste_usd: float = 0.0


class SpanView(View, frozen=True, kw_only=True):
    """One span of a machine's life."""

    kind: str
    since: str
    until: str
    cost_usd: float


class BillView(View, frozen=True, kw_only=True):
    """What the money was spent on. `pieces` and `spans` add up to `cost_usd` to the micro-dollar.

    It is a bound: since the newest listing (`seen_at`) it counts on at the rate seen last, and a
    machine that is gone is counted until that was proven. Vast's invoice is never above it.
    """

    cost_usd: float = 0.0
    waste_usd: float = 0.0
    waste_why: str | None = None  # why all of it bought nothing; null: see `pieces`
    seen_at: str | None = None  # null: not listed since vastd started
    pieces: list[CostPieceView] = field(default_factory=list)
    spans: list[SpanView] = field(default_factory=list)


class WatchdogView(View, frozen=True, kw_only=True):
    """What a watchdog looks at, its limit, when it would fire and what it would do."""

    name: str
    watches: str
    limit: str
    fires_at: str | None = None  # null: not armed now
    action: str
    why: str
    title: str | None = None  # its name in words
    # armed: fires at `fires_at`; waiting: due, and it waits for evidence; warned; unknown: `why` says
    # what it would have to know; frozen: our own network is down; off: nothing for it to do now.
    state: str | None = None
    inputs: dict[str, str | int | float | bool | None] = field(default_factory=dict)


class ExplainView(View, frozen=True, kw_only=True):
    """The whole story of one rental."""

    rental: RentalView
    timeline: list[StepView] = field(default_factory=list)
    phases: list[PhaseCostView] = field(default_factory=list)
    watchdogs: list[WatchdogView] = field(default_factory=list)
    bill: BillView | None = None


class RentalAdoptParams(Mutation, frozen=True, kw_only=True):
    """Take an instance over as a rental. `from_owner` names the other vastd whose claim it carries,
    and must be its word. `policy` as for a rental; its deadline counts from now on."""

    instance_id: int
    name: str | None = None
    project: str | None = None
    from_owner: str | None = None
    policy: PolicyParams = field(default_factory=PolicyParams)


class RentalReleaseParams(Mutation, frozen=True, kw_only=True):
    """Let a machine go: it stays and bills, and vastd watches and ends it no more. `force` needs
    `reason`, and lets go of one whose job is active or whose guard cannot be called off."""

    rental: str | None = None
    project: str | None = None
    force: bool = False
    reason: str | None = None


CREATE = Method(
    "rental.create", RentalCreateParams, RentalView, "Rent a machine to work on", mutates=True
)
LIST = Method("rental.list", RentalListParams, RentalListView, "List rentals")
GET = Method("rental.get", RentalRef, RentalView, "Return one rental")
EXPLAIN = Method(
    "rental.explain", RentalRef, ExplainView, "Return timeline, costs and what watchdogs would do"
)
DESTROY = Method(
    "rental.destroy",
    RentalDestroyParams,
    RentalView,
    "Decide the end of a rental; the daemon carries it out and proves it",
    mutates=True,
)
STOP = Method(
    "rental.stop",
    RentalStopParams,
    RentalView,
    "Decide that a machine is stopped; its disk is kept and billed",
    mutates=True,
)
START = Method(
    "rental.start", RentalStartParams, RentalView, "Start a stopped machine again", mutates=True
)
COLLECT = Method(
    "rental.collect", RentalCollectParams, CollectedView, "Bring results home now", mutates=True
)
ADOPT = Method("rental.adopt", RentalAdoptParams, RentalView, "Take an instance over", mutates=True)
RELEASE = Method(
    "rental.release", RentalReleaseParams, RentalView, "Let a machine go; it bills on", mutates=True
)

METHODS = (CREATE, LIST, GET, EXPLAIN, DESTROY, STOP, START, COLLECT, ADOPT, RELEASE)
