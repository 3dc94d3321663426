"""The gate before money is spent: nothing is rented or started again without passing it (BUD-01).

Rules
1. The look at the record, the verdict and the commit that follows have no `await` between them:
   two clients cannot pass on the same dollars (BUD-09).
2. What is not known (the account's credit) refuses nothing, and is said.
3. The gate decides by estimates; that a cap holds is the watchdogs' work (`core.cap_watchdogs`).
"""

import logging
from collections.abc import Sequence

from msgspec import structs

from vastd.config.settings import BudgetTable
from vastd.core import credit
from vastd.core import events as ev
from vastd.core.budget_floor import too_small
from vastd.core.credit import CreditLook
from vastd.core.job import Job
from vastd.core.money import Micros
from vastd.core.pace import paces
from vastd.core.placement import awaited
from vastd.core.refusal import Cheaper, refusal
from vastd.core.rental import Order, Phase, Rental
from vastd.core.spending import (
    Admission,
    Book,
    Use,
    Window,
    admission,
    credit_use,
    promise,
    spent,
    tightest,
    uses,
    worst,
)
from vastd.errors import BudgetExceeded, CapReached, StoreError
from vastd.shell import Choice, Shell

_log = logging.getLogger(__name__)


def admit(
    shell: Shell, planned: Rental, others: Sequence[Choice] = (), *, job: Job | None = None
) -> tuple[tuple[Admission, ...], str]:
    """Return what the gate saw when it let `planned` through, and what it could not see.

    `job` waits for it between two machines: only those that wait longer come before it.

    Raises:
        BudgetExceeded: its own budget would end it as soon as it is there.
        CapReached: a cap has no room for it; the error says what would help.
    """
    if (small := too_small(planned, shell.limits, shell.wall_clock())) is not None:
        why, hint = small
        raise BudgetExceeded(f"nothing was rented: {why}", hint=hint)
    found = verdict(shell, planned, job)
    use = worst([use for use in found if not use.fits])
    if use is not None:
        told = refusal(use, planned, shell.limits, _cheaper(shell, planned, use, others))
        raise CapReached(told.message, refusal=told, hint=told.hint)
    return tuple(admission(use) for use in tightest(found)), _unseen(shell)


def admit_start(shell: Shell, stopped: Rental) -> None:
    """Return if a stopped machine may run, and bill its GPU, again: until its deadline, because the
    estimate it was rented with is used up.

    Raises:
        BudgetExceeded, CapReached: as `admit`.
    """
    admit(shell, structs.replace(stopped, phase=Phase.READY, estimated_hours=None, ending=None))


def verdict(shell: Shell, planned: Rental, job: Job | None = None) -> list[Use]:
    """Return every cap that `planned` needs something of."""
    book = _book(shell, job)
    found = uses(book, planned.project, planned)
    if (left := credit_now(shell)) is not None:
        found.append(credit_use(book, left, planned))
    return found


def in_use(shell: Shell, project: str | None) -> list[Use]:
    """Return how far each cap in force is used now."""
    return uses(_book(shell, None), project)


def used_up(shell: Shell, rental: Rental) -> str | None:
    """Return which cap is used up already, in words; None when none is. An intention may be older
    than what was spent meanwhile, or than a lowered cap."""
    for pace in paces(shell.ledger.live(), shell.past, shell.limits, shell.wall_clock()):
        if pace.covers(rental) and pace.spent + pace.kept_back >= pace.limit:
            return pace.used_up
    return None


def credit_now(shell: Shell) -> Micros | None:
    """Return the account's credit: as read last, less what was billed since; None if not known."""
    read = shell.credit.reading
    if read is None or read.credit is None:
        return None
    since, now = Window(read.at), shell.wall_clock()
    gone = [r for r in shell.ledger.rentals.values() if r.phase is Phase.GONE]
    found = credit_look(shell, now)
    assert found is not None
    return Micros(found.left - sum(spent(rental, since, now) for rental in gone))


def credit_look(shell: Shell, now: float) -> CreditLook | None:
    """Return the account's credit and how long it lasts; None if it is not known."""
    read = shell.credit.reading
    if read is None or read.credit is None:
        return None
    foreign = shell.observed.world.inventory.foreign
    return credit.look(read.at, read.credit, shell.ledger.live(), foreign, shell.limits, now)


def note_caps(shell: Shell, before: BudgetTable, after: BudgetTable) -> None:
    """Put a change of who may spend how much on the trail, whoever made it and how."""
    old, new = structs.asdict(before), structs.asdict(after)
    changes = {key: (old[key], new[key]) for key in new if old[key] != new[key]}
    if not changes:
        return
    try:
        shell.ledger.commit(ev.CapsChanged(at=shell.wall_clock(), changes=changes))
    except StoreError as exc:
        # The settings are in force already; that the trail lacks this must not undo them.
        _log.error("caps changed, not on the trail: %s: %s", changes, exc)


def _unseen(shell: Shell) -> str:
    read = shell.credit.reading
    if read is not None and read.credit is None:
        return f"the account's credit is not known ({read.error})"
    return ""


def _book(shell: Shell, job: Job | None) -> Book:
    ledger, now = shell.ledger, shell.wall_clock()
    return Book(
        rentals=ledger.live(),
        past=shell.past,
        waiting=awaited(list(ledger.jobs.values()), ledger.rentals, now, by=job),
        limits=shell.limits,
        now=now,
    )


def _cheaper(shell: Shell, planned: Rental, use: Use, others: Sequence[Choice]) -> list[Cheaper]:
    """Return the other offers with what each would need of the same cap, the least first."""
    found = []
    for other in others:
        order = Order(offer=other.offer, image=other.image, disk_gb=other.disk_gb, bid=other.bid)
        wish = structs.replace(planned, order=order, estimated_hours=other.hours)
        made = promise(wish, shell.limits, shell.wall_clock())
        if made is not None:
            offer = other.offer
            found.append(
                Cheaper(
                    offer_id=offer.offer_id,
                    gpu_name=offer.gpu_name,
                    num_gpus=offer.num_gpus,
                    needs=made.within(use.window),
                )
            )
    return sorted(found, key=lambda one: one.needs)
