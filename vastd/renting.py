"""From a choice to a planned rental: names, labels, and what forbids renting now."""

import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from vastd.core import billing
from vastd.core import events as ev
from vastd.core.hosts import Known
from vastd.core.job import Job
from vastd.core.labels import make_label
from vastd.core.market import Offer
from vastd.core.money import show_rate, show_two_rates
from vastd.core.placement import being_rented, known
from vastd.core.rental import Order, Phase, Policy, Rental
from vastd.errors import (
    AuthRejected,
    InvalidRequest,
    InventoryUnknown,
    NoOffers,
    PolicyRefused,
    StoreDamaged,
)
from vastd.shell import Choice, Shell
from vastd.spending import admit

CHOICES: Final = 5  # guess: that many runs in the same second
_T = TypeVar("_T")
_NAME: Final = re.compile(r"^[a-z0-9][a-z0-9-]{0,40}$")  # CONTRACT 2


def check_name(name: str) -> str:
    """Return `name`.

    Raises:
        InvalidRequest: it is not a name.
    """
    if not _NAME.match(name):
        raise InvalidRequest(
            f"{name!r} is not a name: lower-case letters, digits and hyphens, at most 41, "
            "beginning with a letter or digit"
        )
    return name


def free_name(taken: set[str], wanted: str) -> str:
    """Return `wanted` made a name, with a number when it is taken."""
    # A name the user chose stays as it is; a directory's or a card's is made into one.
    made = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-")[:36] or "run"
    base = wanted[:36] if _NAME.match(wanted) else made
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name


def require_renting(shell: Shell) -> None:
    """Return if a machine may be rented now.

    Raises:
        AuthRejected: Vast takes no key of ours, so the inventory is unknown, too.
        InventoryUnknown: what exists at Vast is not known (I11).
        PolicyRefused: the store cannot be written, or renting is locked (I6, I8).
    """
    if why := shell.locked():
        raise StoreDamaged(
            f"renting is locked: {why}",
            hint="check `vastctl ls`, then `vastctl daemon acknowledge`",
        )
    if shell.ledger.write_error is not None:
        raise PolicyRefused(
            f"nothing new is rented while the disk refuses: {shell.ledger.write_error}",
            hint="free some space; endings go on meanwhile",
        )
    inventory = shell.observed.world.inventory
    if inventory.error is not None and inventory.auth_failed:
        raise AuthRejected(
            f"nothing is rented without a key that Vast accepts: {inventory.error}",
            hint="`vastctl doctor` says which key is used and how to give another",
        )
    if inventory.as_of is None or inventory.error is not None:
        raise InventoryUnknown(
            f"nothing new is rented while the inventory is unknown: {inventory.error or 'no listing yet'}",
            hint="`vastctl doctor` checks key and network; renting resumes by itself",
        )


def task_of(job: Job) -> str:
    """Return what a machine's label names besides the project (CFG-09): in the ARF workflow the
    task, else the experiment."""
    is_task = job.needs.profile == "arf" and job.task_id is not None
    return job.task_id if is_task and job.task_id else job.name


def known_now(shell: Shell, job: Job | None = None) -> Known:
    """Return what is to be avoided, and what is known of machines, when one is chosen for `job`."""
    return known(job, shell.ledger.rentals, shell.ledger.hosts, shell.wall_clock())


async def choose_free(
    shell: Shell,
    choose: Callable[[Known], Awaitable[_T]],
    choices_of: Callable[[_T], Sequence[_T]],
    offer_of: Callable[[_T], Offer],
    job: Job | None = None,
) -> _T:
    """Choose until the offer is one that nobody else took while the market was asked: two who
    choose at once must not rent the same. `choices_of` are the next best of one search: searches
    are rationed.

    Raises:
        NoOffers: nothing fits, or others were always faster.
    """
    for _ in range(CHOICES):
        found = await choose(known_now(shell, job))
        taken = being_rented(shell.ledger.rentals)
        for one in choices_of(found):
            if offer_of(one).offer_id not in taken:
                return one
    raise NoOffers(
        f"{CHOICES} choices in a row were rented by other runs meanwhile",
        hint="try again in a moment",
    )


def planned(
    shell: Shell,
    choice: Choice,
    policy: Policy,
    *,
    name: str,
    project: str | None,
    task: str,
    purpose: str,
    request_id: str | None = None,
    profile: str | None = None,
    job: Job | None = None,
) -> ev.RentalPlanned:
    """Return the event that records the intention to rent `choice`. It is the only way to one, and
    nothing passes it without the gate (BUD-01): commit it before anything else happens, or
    somebody else passes on the same dollars.

    `job` waits for it between two machines: those that wait longer come first.

    Raises:
        PolicyRefused: its price is over the hourly cap.
        CapReached: a cap that machines share has no room for it.
    """
    order = Order(offer=choice.offer, image=choice.image, disk_gb=choice.disk_gb, bid=choice.bid)
    _check_within(policy, order)
    now = shell.wall_clock()
    rental_id = shell.new_id("r")
    prefix = f"{Path(project).name}/{task}" if project else task
    rental = Rental(
        rental_id=rental_id,
        name=name,
        label=make_label(shell.owner8, rental_id, prefix),
        order=order,
        policy=policy,
        created_at=now,
        phase_since=now,
        project=project,
        profile=profile,
        purpose=purpose,
        estimated_hours=choice.hours,
        request_id=request_id,
    )
    gate, note = admit(shell, rental, choice.others, job=job)
    why = "; ".join(filter(None, (choice.why, note)))
    return ev.RentalPlanned(rental_id=rental_id, at=now, rental=rental, why=why, gate=gate)


def _check_within(policy: Policy, order: Order) -> None:
    cap, offer = policy.max_dph, order.offer
    price = billing.order_rate(order)
    if order.bid is not None and offer.min_bid is not None and order.bid < offer.min_bid:
        # Vast would make an instance all the same: one that is stopped, and bills (CASES 6).
        raise PolicyRefused(
            f"a bid of {show_rate(order.bid)} does not win offer {offer.offer_id}: the lowest that "
            f"does is {show_rate(offer.min_bid)}; nothing was rented",
            hint=f"bid at least {show_rate(offer.min_bid)}, or leave the bid to vastd (`--spot`)",
        )
    if cap is not None and price > cap:
        asked, allowed = show_two_rates(price, cap)
        raise PolicyRefused(
            f"offer {offer.offer_id} costs {asked}, over the cap of {allowed}",
            hint="raise it with `vastctl budget max_dph_usd=N`, or choose another offer",
        )


def live_names(shell: Shell) -> set[str]:
    """Return the names of rentals that are not gone."""
    return {r.name for r in shell.ledger.rentals.values() if r.phase is not Phase.GONE}
