"""`policy.*`: what one rental is allowed, and what the watchdogs make of it."""

from msgspec import field

from vastd_protocol.method import Method, Mutation, Params, View
from vastd_protocol.methods.rental import RentalRef, WatchdogView

Value = float | bool | str | None
"""What a limit can be."""


class PolicyView(View, frozen=True, kw_only=True):
    """The limits of one rental. Durations in seconds; null: no such limit."""

    rental_id: str
    name: str
    phase: str
    budget_usd: float | None = None
    max_runtime_s: float | None = None
    idle_s: float | None = None  # null: idleness is only warned about
    grace_s: float | None = None
    keep: bool = False  # keep the machine when its jobs are done
    unreachable_end_s: float | None = None  # null: a machine out of reach is only warned about
    on_outbid: str | None = None  # `resume`, `rerent` or `end`; null: on demand
    outbid_wait_s: float | None = None  # how long `resume` waits
    bid_usd: float | None = None  # per hour for the GPUs; null: on demand
    max_dph_usd: float | None = None
    heartbeat_path: str | None = None
    heartbeat_interval_s: float | None = None
    checkpoint_path: str | None = None
    deadline_at: str | None = None  # null: not rented yet, or it stands still as asked
    cost_usd: float = 0.0
    budget_left_usd: float | None = None
    watchdogs: list[WatchdogView] = field(default_factory=list)


class PolicySetParams(Mutation, frozen=True, kw_only=True):
    """`changes`: by key (`budget_usd`, `max_runtime_s`, `idle_s`, `grace_s`, `keep`, `on_outbid`,
    `outbid_wait_s`, `unreachable_end_s`, `bid_usd`) the new value. A limit that is over already, or a bid that does not
    win, is refused unless `even_if_it_ends`. A new bid is told to Vast before the answer."""

    rental: str | None = None
    project: str | None = None
    changes: dict[str, Value] = field(default_factory=dict)
    even_if_it_ends: bool = False


class EndingsParams(Params, frozen=True, kw_only=True):
    """Nothing to say: there is one table for all machines."""


class RulingView(View, frozen=True, kw_only=True):
    """What is done in one situation, and why. `outcome` is `term`, `collect`, `destroy`, `stop` or
    `hold`."""

    situation: str
    outcome: str
    why: str


class EndingView(View, frozen=True, kw_only=True):
    """One reason to end a machine. `trigger` is what its `end_reason` says then."""

    trigger: str
    when: str
    rulings: list[RulingView] = field(default_factory=list)


class EndingsView(View, frozen=True, kw_only=True):
    """The table that decides every ending. `situations` are in the order in which they are asked:
    the first that holds counts. `outcomes`: by word, what it means."""

    situations: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    endings: list[EndingView] = field(default_factory=list)


GET = Method("policy.get", RentalRef, PolicyView, "Return the limits of one rental")
SET = Method(
    "policy.set", PolicySetParams, PolicyView, "Change the limits of one rental", mutates=True
)

ENDINGS = Method(
    "policy.endings", EndingsParams, EndingsView, "Return how every reason to end a machine ends it"
)

METHODS = (GET, SET, ENDINGS)
