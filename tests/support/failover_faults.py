"""Faults of machines that shall come up, drawn for the seeds, and what failover promises of them."""

import random

from vastd.core import billing
from vastd.core import events as ev
from vastd.core.hosts import Host
from vastd.core.rental import Phase
from vastd.ledger import Ledger
from vastd.simulator.faults import BOOT_SAYS, MachineFault, MachineFaultKind

KINDS = (
    MachineFaultKind.BOOT_ERROR,
    MachineFaultKind.LOW_VRAM,
    MachineFaultKind.SMALL_DISK,
    MachineFaultKind.DIRECT_REFUSED,
    MachineFaultKind.ODD_STATUS,
    MachineFaultKind.VANISH_BOOT,
    MachineFaultKind.HOST_LOSS,
)


def draw_failover(seed: int) -> list[MachineFault]:
    """Return the faults of a seed; drawn apart, so that older seeds keep the rest of their stories."""
    rng = random.Random(f"failover:{seed}")
    if rng.random() < 0.5:
        return []
    return [
        MachineFault(kind=rng.choice(KINDS), message=rng.choice(sorted(BOOT_SAYS.values())))
        for _ in range(1 + rng.randrange(3))
    ]


def chosen_wrongly(event: ev.RentalPlanned, hosts: dict[int, Host]) -> str | None:
    """Return what is wrong with a choice: a machine that is blocked is not chosen."""
    host = hosts.get(event.rental.order.offer.machine_id)
    if host is None or host.block is None or not host.block.holds(event.at):
        return None
    return f"{event.rental_id} was planned on machine {host.machine_id}: {host.block.text}"


def attempts_wrong(ledger: Ledger) -> str | None:
    """Return what is wrong with the records of failed attempts: each has its exact cost, and no
    job has two that go on."""
    for job in ledger.jobs.values():
        if sum(1 for attempt in job.attempts if attempt.ended_at is None) > 1:
            return f"{job.job_id} is on two machines at once"
        for attempt in job.attempts:
            rental = ledger.rentals.get(attempt.rental_id)
            if attempt.ended_at is None or rental is None or rental.ended_at is None:
                continue
            if attempt.phase == "busy" and attempt.wasted is None:
                continue  # it worked there until it was outbid: nothing was wasted
            back = sum(1 for phase, _ in rental.phases if phase is Phase.GONE) > 1
            if not back and attempt.wasted != billing.cost(rental, rental.ended_at):
                return f"{job.job_id} on {rental.rental_id}: {attempt.wasted} is not its cost"
    return None
