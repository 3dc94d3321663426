"""Making a rental of an instance that exists already: after a lost store, or by order of the user."""

from typing import Final

from msgspec import structs

from vastd.core.market import Instance, InstanceStatus, Offer
from vastd.core.money import Micros
from vastd.core.rental import Order, Phase, Policy, RateSegment, Rental

LOOK_S: Final = 3600.0  # guess: time to fetch what is on a machine whose limits are lost


def record_of(row: Instance, rental_id: str, policy: Policy, now: float, *, began: float) -> Rental:
    """Return a rental made of what the row tells, whose deadline and bill count from `began`.

    What was run on it is not known (`taken_over`): its disk is kept unless the user says otherwise.
    """
    rate = row.dph if row.dph is not None else Micros(0)
    offer = Offer(
        offer_id=0,
        machine_id=row.machine_id or 0,
        gpu_name=row.gpu_name or "unknown",
        num_gpus=row.num_gpus or 1,
        gpu_ram_mb=row.gpu_ram_mb or 0,
        dph=rate,
    )
    return Rental(
        rental_id=rental_id,
        name=f"adopted-{row.instance_id}",
        label=row.label or "",
        order=Order(
            offer=offer,
            image=row.image or "unknown",
            disk_gb=row.disk_space_gb or 0.0,
            bid=(row.min_bid or rate) if row.is_bid else None,
        ),
        policy=structs.replace(policy, max_dph=None),
        created_at=now,
        # Not BOOTING: a boot that fails is destroyed, and this machine may hold results.
        phase=Phase.READY if row.status == InstanceStatus.RUNNING else Phase.STOPPED,
        phase_since=now,
        purpose="interactive",
        taken_over=True,
        instance_id=row.instance_id,
        create_sent_at=began,
        # Whoever has to look at it first gets the time for that.
        deadline_at=max(began + policy.max_runtime_s, now + LOOK_S),
        rates=(RateSegment(began, rate),),
    )
