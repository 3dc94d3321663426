"""After a damaged store: our machines are found by their labels and taken over again (I8).

Nothing is rented until the user has acknowledged, because what the lost store knew (jobs,
budgets, deadlines) is not known any more. Names, projects, limits and declared outputs come back
from the state file where it still lies there: as hints, for machines that their labels prove.
"""

import logging

from msgspec import structs

from vastd.adoption import record_of
from vastd.core import events as ev
from vastd.core.labels import read_claim
from vastd.core.money import from_usd
from vastd.core.rental import Policy, Rental
from vastd.projects import hints
from vastd.projects.hints import Hint
from vastd.shell import Shell

_log = logging.getLogger(__name__)


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
        now = shell.wall_clock()
        # Limits that are lost become those of the configuration, not none.
        began = row.start_at if row.start_at is not None else now
        limits = _limits(policy, hint)
        rental = _as_it_was(record_of(row, claim.rental_id, limits, now, began=began), hint)
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


def _as_it_was(rental: Rental, hint: Hint) -> Rental:
    """Return `rental` with its name and place back, as far as a file still tells them."""
    return structs.replace(
        rental,
        name=hint.name or rental.name,
        project=hint.project,
        profile=hint.profile,
        hinted_outputs=hint.outputs,
    )
