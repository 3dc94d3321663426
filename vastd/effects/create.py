"""Send one create, once, and record what came of it (I1, I2)."""

import logging
from typing import Final

import trio

from vastd.core import billing
from vastd.core import events as ev
from vastd.core.market import CreateSpec
from vastd.core.rental import Blame, Phase, Rental, Trigger
from vastd.errors import (
    AuthRejected,
    BadSpec,
    CreatedButFailed,
    NoCredit,
    NotPermitted,
    OfferGone,
    ProviderError,
    RateLimited,
    Refused,
    SpendRateLimit,
    Unreachable,
)
from vastd.shell import Shell
from vastd.spending import used_up

_log = logging.getLogger(__name__)

# The request itself is bounded at 60 s; the rest is for its turn among other creates, which
# Vast takes 4.5 s apart (VAST_API 1.2).
CREATE_TIMEOUT_S: Final = 180.0
# When the daemon stops: long enough for an answer that is on its way (a guess),
# short enough that nobody thinks vastd hangs. What stays open is looked for by its
# label at the next start, as after a kill.
STOP_GRACE_S: Final = 3.0
TRIES: Final = 5  # of a request that provably did nothing (rate limit, no connection)
# Every other offer would be refused for the same reason (REQUIREMENTS FAI-06).
_HOPELESS: Final = (BadSpec, NoCredit, SpendRateLimit, NotPermitted, AuthRejected)


async def create(shell: Shell, rental_id: str) -> None:
    """Rent the planned offer. The intent is on disk before the request leaves (I1).

    Not cancelled half-way: the outcome of a request that left should be learnt. A stop of the
    daemon gives it `STOP_GRACE_S` and leaves it unresolved on record; a kill leaves `CREATING`,
    which a restart turns into the same search for the label.
    """
    rental = shell.ledger.rental(rental_id)
    if rental.phase is not Phase.PLANNED:
        return  # ended by the user before this began
    now = shell.wall_clock()
    if (why := used_up(shell, rental)) is not None:
        why = f"not rented: {why}"
        end = ev.EndDecided(rental_id=rental_id, at=now, trigger=Trigger.BUDGET, why=why)
        shell.ledger.commit(end)
        return
    deadline = now + rental.policy.max_runtime_s
    shell.ledger.commit(ev.CreateSent(rental_id=rental_id, at=now, deadline_at=deadline))
    try:
        await _send_shielded(shell, rental)
    finally:
        # Also after a bug in between: a create nobody looks for would bill unseen.
        _unresolved(shell, rental_id, "the answer could not be understood")


async def _send_shielded(shell: Shell, rental: Rental) -> None:
    """Send the create and record its answer, or why there is none if time was short."""
    limit = trio.current_time() + CREATE_TIMEOUT_S
    crashed: Exception | None = None
    async with trio.open_nursery() as nursery:
        with trio.CancelScope(shield=True, deadline=limit) as scope:
            nursery.start_soon(_hurry_when_stopped, scope)
            try:
                await _send(shell, rental)
            except Exception as exc:  # noqa: BLE001  raised below: a nursery would make it a group
                crashed = exc
        if scope.cancelled_caught:
            late = f"no answer within {CREATE_TIMEOUT_S:.0f} s"
            why = "vastd was stopped first" if scope.deadline < limit else late
            _unresolved(shell, rental.rental_id, why)
        nursery.cancel_scope.cancel()
    if crashed is not None:
        raise crashed


async def _hurry_when_stopped(scope: trio.CancelScope) -> None:
    """Leave a shielded create only a short time once the effect is cancelled around it."""
    try:
        await trio.sleep_forever()
    finally:
        scope.deadline = min(scope.deadline, trio.current_time() + STOP_GRACE_S)


async def _send(shell: Shell, rental: Rental) -> None:
    for attempt in range(1, TRIES + 1):
        try:
            created = await shell.provider.create_instance(_spec(shell, rental))
        except (RateLimited, Unreachable) as exc:
            # Certainly nothing was made, so the same request may be sent again.
            wait_s = exc.retry_after_s if isinstance(exc, RateLimited) else 5.0
            if attempt == TRIES or shell.ledger.rental(rental.rental_id).ending is not None:
                _refused(shell, rental.rental_id, exc)
                return
            await trio.sleep(min(wait_s, 15.0))
        except CreatedButFailed as exc:
            _created_but_failed(shell, rental.rental_id, exc)
            return
        except (Refused, AuthRejected) as exc:
            _refused(shell, rental.rental_id, exc)
            return
        except ProviderError as exc:
            _unresolved(shell, rental.rental_id, str(exc))
            return
        else:
            _confirmed(shell, rental.rental_id, created.instance_id)
            return


def _spec(shell: Shell, rental: Rental) -> CreateSpec:
    return CreateSpec(
        offer_id=rental.order.offer.offer_id,
        image=rental.order.image,
        disk_gb=rental.order.disk_gb,
        label=rental.label,
        onstart=shell.onstart(),
        bid=rental.order.bid,
    )


def _confirmed(shell: Shell, rental_id: str, instance_id: int, *more: ev.RentalEvent) -> None:
    now = shell.wall_clock()
    rental = shell.ledger.rental(rental_id)
    if rental.instance_id == instance_id:  # a listing was faster
        if more and rental.phase is Phase.BOOTING:
            shell.ledger.commit(*more)
        return
    sent = rental.create_sent_at
    events: list[ev.RentalEvent] = [
        ev.CreateConfirmed(rental_id=rental_id, at=now, instance_id=instance_id)
    ]
    if not rental.rates:
        # Storage bills from the creation on (VAST_API 7.1), seen in a listing or not.
        rate = billing.storage_rate(rental)
        since = sent if sent is not None else now
        events.append(ev.BillingChanged(rental_id=rental_id, at=now, since=since, rate=rate))
    shell.ledger.commit(*events, *more)


def _created_but_failed(shell: Shell, rental_id: str, exc: CreatedButFailed) -> None:
    """Vast refused and yet made an instance, which bills until it is destroyed (CASES 6)."""
    end = ev.EndDecided(
        rental_id=rental_id,
        at=shell.wall_clock(),
        trigger=Trigger.BOOT_FAILED,
        why=str(exc),
        blame=Blame.NOBODY,  # a bid too low, mostly
    )
    _confirmed(shell, rental_id, exc.instance_id, end)


def _refused(shell: Shell, rental_id: str, exc: ProviderError) -> None:
    if shell.ledger.rental(rental_id).phase not in (Phase.CREATING, Phase.DESTROYING):
        return  # a listing showed the instance: the refusal was not the truth
    shell.ledger.commit(
        ev.CreateRefused(
            rental_id=rental_id,
            at=shell.wall_clock(),
            why=str(exc),
            stop_all=isinstance(exc, _HOPELESS),
            offer_gone=isinstance(exc, OfferGone),
        )
    )


def _unresolved(shell: Shell, rental_id: str, why: str) -> None:
    rental = shell.ledger.rental(rental_id)
    if rental.instance_id is not None or rental.create_unknown or rental.phase is Phase.GONE:
        return
    _log.warning("rental=%s create has no answer: %s; looking for its label", rental_id, why)
    shell.ledger.commit(ev.CreateUnresolved(rental_id=rental_id, at=shell.wall_clock(), why=why))
