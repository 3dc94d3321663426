"""`lease.*`: the lease of one machine, shown and made to last longer."""

import math
from typing import Final

from vastd.core import billing, lease
from vastd.core import events as ev
from vastd.core.instants import maybe, shown
from vastd.core.money import to_usd
from vastd.core.observed import LeaseSeen
from vastd.core.rental import Phase, Rental
from vastd.errors import InvalidRequest, PolicyRefused
from vastd.rpc.context import Context
from vastd.rpc.dispatch import Call, handles
from vastd.rpc.handlers.resolve import find_rental
from vastd_protocol.methods import lease as wire
from vastd_protocol.methods.rental import RentalRef

_WORKS: Final = frozenset({Phase.READY, Phase.BUSY, Phase.COLLECTING})


@handles(wire.GET)
async def get(ctx: Context, params: RentalRef) -> wire.LeaseView:
    """Return what the machine's guard would do and when, as it was read back."""
    return _view(ctx, find_rental(ctx.shell.ledger, params.rental, params.project))


@handles(wire.RENEW)
async def renew(ctx: Context, params: wire.LeaseRenewParams, call: Call) -> wire.LeaseView:
    """Put on record how long the lease shall last; the keeper tells the machine at once."""
    shell = ctx.shell
    rental = find_rental(shell.ledger, params.rental, params.project)
    if not math.isfinite(params.for_s) or params.for_s <= 0:
        raise InvalidRequest(f"a lease of {params.for_s:g} s is none", hint="for example 2h")
    if rental.phase not in _WORKS:
        raise PolicyRefused(
            f"rental {rental.name!r} is {rental.phase}: there is no lease to renew",
            hint=f"`vastctl show {rental.name}` tells how it goes on",
        )
    now = shell.wall_clock()
    until = now + params.for_s
    limit = lease.hard_at(rental, shell.limits.lease.lease_s, now)
    if until > limit:
        raise PolicyRefused(
            f"a lease of rental {rental.name!r} cannot reach to {shown(until)}: its deadline of "
            f"max-runtime and {lease.HARD_SLACK_S / 60:.0f} minutes end at {shown(limit)}",
            hint=f"`vastctl policy {rental.name} max_runtime=DUR` moves the deadline first",
        )
    asked = ev.LeaseAsked(rental_id=rental.rental_id, at=now, until=until)
    return ctx.commit(call, lambda: _view(ctx, shell.ledger.rental(rental.rental_id)), asked)


def _view(ctx: Context, rental: Rental) -> wire.LeaseView:
    now, live = ctx.shell.wall_clock(), rental.phase is not Phase.GONE
    sighting = ctx.shell.observed.world.of(rental.rental_id)
    seen = sighting.lease
    return wire.LeaseView(
        rental_id=rental.rental_id,
        name=rental.name,
        phase=rental.phase,
        armed=lease.armed(rental, now),
        expires_at=maybe(rental.lease_until) if live else None,
        then=_then(seen),
        uncollected=list(seen.facts.uncollected) if seen else [],
        renewed_at=maybe(seen.at if seen else None),
        why_not=seen.unarmed if seen else None,
        failing=sighting.unreachable_why if sighting.unreachable_since is not None else None,
        asked_until=maybe(rental.lease_asked_until),
        tool=seen.facts.tool if seen else None,
        deadline_at=None if rental.paused_at is not None else maybe(rental.deadline_at),
        budget_usd=None if rental.policy.budget is None else to_usd(rental.policy.budget),
        dph_usd=to_usd(billing.rate(rental)) if live else None,
        storage_dph_usd=to_usd(billing.storage_rate(rental, sighting.instance)) if live else None,
    )


def _then(seen: LeaseSeen | None) -> str | None:
    if seen is None:
        return None
    keeps = seen.facts.uncollected and seen.facts.on_expiry != lease.OnExpiry.DESTROY
    return "stop" if keeps else "destroy"
