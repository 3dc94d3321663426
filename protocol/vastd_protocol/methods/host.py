"""`host.*`: what is known of the machines that were rented or blocked, by Vast's `machine_id`."""

from msgspec import field

from vastd_protocol.method import Method, Mutation, Params, View


class BlockView(View, frozen=True, kw_only=True):
    """Why a machine is not chosen, by whom (`vastd` or `user`) and until when (null: for ever)."""

    why: str
    by: str
    since: str
    until: str | None = None


class SpeedView(View, frozen=True, kw_only=True):
    """A bandwidth that was seen, in megabit per second. `source` says of what."""

    mbps: float
    source: str
    at: str


class DeathView(View, frozen=True, kw_only=True):
    """How a rental of the machine ended."""

    rental_id: str
    end_reason: str
    why: str
    at: str


class HostView(View, frozen=True, kw_only=True):
    """One machine. Null: not known."""

    machine_id: int
    host_id: int | None = None
    gpu_name: str | None = None
    rented: int = 0
    served: int = 0  # of these, were what was ordered
    failed: int = 0  # of these, could not serve by the machine's own fault
    rented_at: str | None = None  # last
    boot_s: float | None = None  # of the newest boot
    route: str | None = None  # direct or proxy: which SSH takes first
    listed_down_mbps: float | None = None
    listed_up_mbps: float | None = None
    down: SpeedView | None = None
    up: SpeedView | None = None
    last_failure: DeathView | None = None
    last_end: DeathView | None = None
    block: BlockView | None = None  # null also when it is over
    risk_percent: float = 0.0  # what its history adds to its price in the ranking


class HostListParams(Params, frozen=True, kw_only=True):
    """`blocked`: only machines that are blocked now."""

    blocked: bool = False


class HostListView(View, frozen=True, kw_only=True):
    """Blocked machines first, then those rented last."""

    hosts: list[HostView] = field(default_factory=list)


class HostBlockParams(Mutation, frozen=True, kw_only=True):
    """Rent nothing on a machine. `until`: RFC 3339; null: until it is unblocked."""

    machine_id: int
    reason: str
    until: str | None = None


class HostUnblockParams(Mutation, frozen=True, kw_only=True):
    """Lift a block, whoever made it; what is known of the machine stays."""

    machine_id: int


LIST = Method("host.list", HostListParams, HostListView, "List what is known of machines")
BLOCK = Method("host.block", HostBlockParams, HostView, "Rent nothing on a machine", mutates=True)
UNBLOCK = Method("host.unblock", HostUnblockParams, HostView, "Lift a block", mutates=True)

METHODS = (LIST, BLOCK, UNBLOCK)
