"""After a damaged store: our machines are found by their labels and taken over again (I8).

Nothing is rented until the user has acknowledged, because what the lost store knew (jobs,
budgets, deadlines) is not known any more. Names, projects, limits and declared outputs come back
from the state file where it still lies there: as hints, for machines that their labels prove.
"""

import logging
from typing import Final

from msgspec import structs

from vastd.core import events as ev
from vastd.core.labels import read_claim
from vastd.core.market import Instance, InstanceStatus, Offer
from vastd.core.money import Micros, from_usd
from vastd.core.rental import Order, Phase, Policy, RateSegment, Rental
from vastd.projects import hints
from vastd.projects.hints import Hint
from vastd.shell import Shell

_log = logging.getLogger(__name__)

LOOK_S: Final = 3600.0  # guess: time to fetch what is on a machine whose limits are lost


def adopt_orphans(shell: Shell, policy: Policy) -> int:
    """Put every instance with our claim that the store does not know on record; return how many."""
    adopted = 0
    told = hints.read(shell.state_dir) if shell.observed.world.inventory.orphans else {}
    for row in shell.observed.world.inventory.orphans:
        claim = read_claim(row.label)
        if claim is None or claim.rental_id in shell.ledger.rentals:
            continue
        hint = told.get((row.instance_id, row.label or ""), Hint())
        taken = {r.name for r in shell.ledger.live()}
        hint = structs.replace(hint, name=None) if hint.name in taken else hint
        rental = _record(row, claim.rental_id, _limits(policy, hint), hint, shell.wall_clock())
        shell.ledger.commit(
            ev.RentalAdopted(rental_id=rental.rental_id, at=rental.created_at, rental=rental)
        )
        _log.warning("rental=%s instance=%s taken over", rental.rental_id, row.instance_id)
        adopted += 1
    return adopted


def _limits(policy: Policy, hint: Hint) -> Policy:
    """Return the configured limits with those the rental had, as far as a file still tells."""
    return structs.replace(
        policy,
        max_runtime_s=hint.max_runtime_s or policy.max_runtime_s,
        budget=policy.budget if hint.budget_usd is None else from_usd(hint.budget_usd),
        idle_s=hint.idle_s or policy.idle_s,
    )


def _record(row: Instance, rental_id: str, policy: Policy, hint: Hint, now: float) -> Rental:
    """Return a rental made of what the row tells; `hint` gives it its name and place back. Its
    deadline and its bill count from the instance's start: limits that are lost become those of the
    configuration, not none."""
    began = row.start_at if row.start_at is not None else now
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
        name=hint.name or f"adopted-{row.instance_id}",
        project=hint.project,
        profile=hint.profile,
        hinted_outputs=hint.outputs,
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
