"""Instances that no rental of ours holds, as the wire shows them."""

from collections.abc import Mapping

from vastd.core import claims
from vastd.core.instants import maybe
from vastd.core.labels import read_claim
from vastd.core.market import Instance, InstanceStatus
from vastd.core.money import Micros, to_usd
from vastd.core.rental import Rental
from vastd_protocol.methods.reconcile import StrangerView


def rate_now(row: Instance) -> Micros | None:
    """Return what an instance costs per hour as it stands; None when Vast does not say."""
    still = row.status in (InstanceStatus.EXITED, InstanceStatus.STOPPED)
    return row.storage_dph if still and row.storage_dph is not None else row.dph


def stranger_view(row: Instance, rentals: Mapping[str, Rental], owner8: str) -> StrangerView:
    """Return an instance with whose it is."""
    whose, _ = claims.whose(rentals, row, owner8)
    claim, rate = read_claim(row.label), rate_now(row)
    return StrangerView(
        instance_id=row.instance_id,
        label=row.label,
        status=row.status,
        dph_usd=None if rate is None else to_usd(rate),
        whose=whose,
        owner=None if claim is None else claim.owner8,
        started_at=maybe(row.start_at),
        gpu_name=row.gpu_name,
        num_gpus=row.num_gpus,
    )
