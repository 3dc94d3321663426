"""`reconcile.run`: what exists at Vast beside what we know, and whose it is."""

from msgspec import field

from vastd_protocol.method import Method, Mutation, View
from vastd_protocol.methods.rental import InventoryView


class ReconcileParams(Mutation, frozen=True, kw_only=True):
    """Compare with Vast now. Changes nothing unless told: `destroy_orphans` ends what carries our
    claim without a rental; `acknowledge` unlocks renting after a damaged store (I8)."""

    acknowledge: bool = False
    destroy_orphans: bool = False


class StrangerView(View, frozen=True, kw_only=True):
    """An instance of the account that no rental of ours holds. `whose`: `orphan`, `other_vastd`,
    `foreign` or `released`."""

    instance_id: int
    label: str | None = None
    status: str | None = None
    dph_usd: float | None = None
    whose: str | None = None
    owner: str | None = None  # the word of the vastd that claims it
    started_at: str | None = None
    gpu_name: str | None = None
    num_gpus: int | None = None


class ReconcileView(View, frozen=True, kw_only=True):
    """The account as it is now. `ours`: rentals that hold an instance; `ended`: instance ids of
    orphans whose end was decided by this call."""

    inventory: InventoryView
    foreign: list[StrangerView] = field(default_factory=list)
    orphans: list[StrangerView] = field(default_factory=list)
    renting_locked: str | None = None
    ours: int = 0
    ours_dph_usd: float = 0.0
    ended: list[int] = field(default_factory=list)


RUN = Method("reconcile.run", ReconcileParams, ReconcileView, "Compare with Vast now", mutates=True)

METHODS = (RUN,)
