"""Tell a machine's guard its lease, and record what was read back (DESIGN D8)."""

import logging

from vastd.core import events as ev
from vastd.core import lease
from vastd.core.lease import LeaseTerms
from vastd.core.observed import LeaseSeen
from vastd.core.rental import Rental
from vastd.errors import GuardNotArmed, StoreError
from vastd.jobs.port import Box
from vastd.shell import Shell

_log = logging.getLogger(__name__)


def terms(shell: Shell, rental: Rental) -> LeaseTerms:
    """Return the lease `rental` should have from now on."""
    jobs = shell.ledger.jobs_of(rental.rental_id)
    return lease.terms(rental, jobs, shell.limits, shell.wall_clock())


async def hold(shell: Shell, rental: Rental, box: Box) -> None:
    """Renew the lease of `rental` on its machine.

    Raises:
        GuardNotArmed: what was read back does not bound the bill.
        SshError: unknown whether it was renewed.
    """
    assert rental.instance_id is not None
    wanted = terms(shell, rental)
    facts = await box.hold_lease(wanted)
    if shell.ledger.rental(rental.rental_id).released is not None:
        await box.drop_lease()  # it was let go of meanwhile, and must not be ended by us
        return
    now = shell.wall_clock()
    why = facts.unarmed(rental.instance_id, wanted)
    seen = LeaseSeen(told=wanted, at=now, facts=facts, unarmed=why)
    shell.observed.note(rental.rental_id, lease=seen)
    if why is not None:
        raise GuardNotArmed(
            f"the guard on instance {rental.instance_id} is not armed: {why}",
            hint="take another image or host, or set timing.lease_required to false",
        )
    assert facts.left_s is not None  # else it were not armed
    _record(shell, rental.rental_id, now, now + facts.left_s)


def _record(shell: Shell, rental_id: str, now: float, until: float) -> None:
    before = shell.ledger.rental(rental_id).lease_until
    if before is not None and abs(until - before) < lease.RECORD_S:
        return
    try:
        shell.ledger.commit(ev.LeaseRenewed(rental_id=rental_id, at=now, until=until))
    except StoreError as exc:
        # The machine has its lease; only that it has is not on record (I6).
        _log.error("rental=%s lease not recorded: %s", rental_id, exc)
