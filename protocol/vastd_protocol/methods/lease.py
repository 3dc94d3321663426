"""`lease.*`: until when a machine's own guard lets it be, whether vastd runs or not."""

from msgspec import field

from vastd_protocol.method import Method, Mutation, View
from vastd_protocol.methods.rental import RentalRef


class LeaseView(View, frozen=True, kw_only=True):
    """What bounds the bill of one machine. `armed`: its guard was told a lease that still holds,
    and what it would do was read back from the machine. Null: unknown or not yet."""

    rental_id: str
    name: str
    phase: str
    armed: bool = False
    expires_at: str | None = None  # on our clock; the machine counts on its own
    then: str | None = None  # `stop` or `destroy`: what the guard would do
    uncollected: list[str] = field(default_factory=list)  # jobs for which it would rather stop
    renewed_at: str | None = None  # the newest renewal that was read back
    why_not: str | None = None  # why it is not armed
    failing: str | None = None  # why it cannot be renewed now
    asked_until: str | None = None  # as long as the user wants it to last without vastd
    tool: str | None = None  # what the machine would call Vast with
    deadline_at: str | None = None  # vastd's own limit
    budget_usd: float | None = None
    dph_usd: float | None = None
    storage_dph_usd: float | None = None


class LeaseRenewParams(Mutation, frozen=True, kw_only=True):
    """Let the lease last at least `for_s` seconds from now, also if vastd ends meanwhile."""

    rental: str | None = None
    project: str | None = None
    for_s: float


GET = Method("lease.get", RentalRef, LeaseView, "Return what bounds the bill of one machine")
RENEW = Method(
    "lease.renew",
    LeaseRenewParams,
    LeaseView,
    "Let a machine's lease last longer; vastd tells the machine at once",
    mutates=True,
)

METHODS = (GET, RENEW)
