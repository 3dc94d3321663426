"""`reconcile.run`, `rental.adopt`, `rental.release`: what exists beside our rentals, taking it over,
letting it go.

Rules
1. Nothing is concluded from a listing that is not complete (I11).
2. A machine that is not ours is touched only by an order that names it (I9).
3. The label says whose a machine is, also to other tools: it changes before our record does when we
   take over, and when we let go.
"""

import logging
from typing import Final

import trio
from msgspec import structs

from vastd.adoption import record_of
from vastd.core import billing, claims
from vastd.core import events as ev
from vastd.core.claims import Whose
from vastd.core.labels import make_label, read_claim
from vastd.core.market import Instance
from vastd.core.money import to_usd
from vastd.core.rental import Phase, Rental, Trigger
from vastd.effects.verify import target
from vastd.errors import (
    InvalidRequest,
    InventoryUnknown,
    JobActive,
    NotFound,
    PolicyRefused,
    ProviderError,
    SshError,
    StoreDamaged,
)
from vastd.renting import check_name, free_name, live_names
from vastd.rpc.context import Context
from vastd.rpc.dispatch import Call, handles
from vastd.rpc.handlers.asked import policy_of
from vastd.rpc.handlers.rentals import inventory_of
from vastd.rpc.handlers.resolve import find_rental
from vastd.rpc.views.stranger import stranger_view
from vastd.spending import admit
from vastd_protocol.methods import reconcile as wire
from vastd_protocol.methods.rental import (
    ADOPT,
    RELEASE,
    RentalAdoptParams,
    RentalReleaseParams,
    RentalView,
)

_log = logging.getLogger(__name__)

ASK_LIMIT_S: Final = 60.0  # guess: one call, its turn among others, one retry
DISARM_LIMIT_S: Final = 30.0  # guess: one connection and one command


@handles(wire.RUN)
async def reconcile(ctx: Context, params: wire.ReconcileParams, call: Call) -> wire.ReconcileView:
    """List now and tell what is there beside our rentals; end orphans only if told to."""
    complete = await ctx.poller.poll()
    if params.acknowledge:
        if not complete:
            raise StoreDamaged(
                "cannot acknowledge: what exists at Vast is not known right now",
                hint="try again when `vastctl ls` shows a fresh inventory",
            )
        ctx.acknowledge()
    if not params.destroy_orphans:
        return _view(ctx, [])
    if not complete:
        raise _unknown(ctx, "no orphan was ended")
    orphans = ctx.shell.observed.world.inventory.orphans
    ended = [row.instance_id for row in orphans]
    decided = [event for row in orphans for event in _end_orphan(ctx, row)]
    return ctx.commit(call, lambda: _view(ctx, ended), *decided)


def _unknown(ctx: Context, consequence: str) -> InventoryUnknown:
    error = ctx.shell.observed.world.inventory.error or "no complete listing yet"
    return InventoryUnknown(
        f"what exists at Vast is not known right now ({error}); {consequence}",
        hint="try again when `vastctl ls` shows a fresh inventory",
    )


def _end_orphan(ctx: Context, row: Instance) -> list[ev.Event]:
    """Return what puts an orphan on record and decides its end: from then on it is ended for ever,
    and proven gone, like any machine of ours (I3, I4)."""
    shell = ctx.shell
    now = shell.wall_clock()
    claim = read_claim(row.label)
    assert claim is not None  # else it were foreign
    if claim.rental_id in shell.ledger.rentals:
        # It ended long ago by our record, and exists.
        rid = claim.rental_id
        return [ev.Resurfaced(rental_id=rid, at=now, instance_id=row.instance_id)]
    rental = record_of(row, claim.rental_id, ctx.config.policy(), now, began=row.start_at or now)
    why = "an orphan, ended by `reconcile --destroy-orphans`"
    return [
        ev.RentalAdopted(rental_id=rental.rental_id, at=now, rental=rental),
        ev.EndDecided(
            rental_id=rental.rental_id, at=now, trigger=Trigger.USER, why=why, force=True,
            collect=False,
        ),
    ]  # fmt: skip


def _view(ctx: Context, ended: list[int]) -> wire.ReconcileView:
    shell = ctx.shell
    inventory = shell.observed.world.inventory
    rentals, owner8 = shell.ledger.rentals, shell.owner8
    held = [r for r in shell.ledger.live() if r.instance_id is not None]
    return wire.ReconcileView(
        inventory=inventory_of(ctx),
        foreign=[stranger_view(row, rentals, owner8) for row in inventory.foreign],
        orphans=[stranger_view(row, rentals, owner8) for row in inventory.orphans],
        renting_locked=shell.locked(),
        ours=len(held),
        ours_dph_usd=to_usd(billing.burn(held)),
        ended=ended,
    )


@handles(ADOPT)
async def adopt(ctx: Context, params: RentalAdoptParams, call: Call) -> RentalView:
    """Take an instance over: our label and key go there first, then it is on record with limits."""
    shell = ctx.shell
    config = ctx.config.of_project(params.project)
    policy = policy_of(params.policy, config)
    if params.name is not None:
        check_name(params.name)
    if not await ctx.poller.poll():
        raise _unknown(ctx, f"instance {params.instance_id} was not taken over")
    row, whose, holder = _row(ctx, params.instance_id)
    if whose is Whose.OURS:
        assert holder is not None
        return ctx.show_rental(holder)
    _require_owner(row, whose, params.from_owner)
    claim = read_claim(row.label)
    known = claim is not None and claim.rental_id in shell.ledger.rentals
    rental_id = (
        claim.rental_id if claim and whose is Whose.ORPHAN and not known else shell.new_id("r")
    )
    now = shell.wall_clock()
    rental = structs.replace(
        record_of(row, rental_id, policy, now, began=now),
        name=free_name(live_names(shell), params.name or f"adopted-{row.instance_id}"),
        project=params.project,
        adopted_label=row.label or "",
        label=make_label(shell.owner8, rental_id, _words(row.label)),
        taken_over=True,
    )
    admit(shell, rental)
    await _put_our_marks(ctx, rental)
    if _row(ctx, params.instance_id)[1] is Whose.OURS:
        raise PolicyRefused(f"instance {row.instance_id} was taken over by another call meanwhile")
    adopted = ev.RentalAdopted(rental_id=rental_id, at=shell.wall_clock(), rental=rental)
    ctx.poller.hurry()  # until a listing shows it as ours nobody knows where it answers
    return ctx.commit(call, lambda: ctx.show_rental(shell.ledger.rental(rental_id)), adopted)


def _row(ctx: Context, instance_id: int) -> tuple[Instance, Whose, Rental | None]:
    shell = ctx.shell
    world = shell.observed.world
    held = (seen.instance for seen in world.sightings.values() if seen.instance is not None)
    everything = (*world.inventory.foreign, *world.inventory.orphans, *held)
    row = next((row for row in everything if row.instance_id == instance_id), None)
    if row is None:
        raise NotFound(
            f"the account has no instance {instance_id}", hint="`vastctl reconcile` lists all"
        )
    whose, holder = claims.whose(shell.ledger.rentals, row, shell.owner8)
    return row, whose, holder


def _require_owner(row: Instance, whose: Whose, from_owner: str | None) -> None:
    claim = read_claim(row.label)
    owner = claim.owner8 if claim is not None and whose is Whose.OTHER_VASTD else None
    if owner == from_owner:
        return
    if owner is None:
        raise InvalidRequest(
            f"instance {row.instance_id} carries no claim of another vastd",
            hint="leave --from out",
        )
    raise PolicyRefused(
        f"instance {row.instance_id} belongs to another vastd ({owner}), which watches it and would "
        "end it by its own rules",
        hint=f"if that vastd is gone for good: `vastctl adopt {row.instance_id} --from {owner}`",
    )


def _words(label: str | None) -> str:
    """Return a label without its claim."""
    words = (label or "").split()
    return " ".join(words[:-1] if read_claim(label) is not None else words)


async def _put_our_marks(ctx: Context, rental: Rental) -> None:
    """Give the instance our label and our key.

    Raises:
        ProviderError: it does not have our label: others would take it for theirs.
    """
    provider, instance_id = ctx.shell.provider, rental.instance_id
    assert instance_id is not None
    await _relabel(ctx, instance_id, rental.label)
    try:
        with trio.fail_after(ASK_LIMIT_S):
            await provider.attach_ssh_key(instance_id, ctx.shell.boxes.public_key())
    except (ProviderError, trio.TooSlowError) as exc:
        # It is ours and bounded all the same; who cannot log in is told so by `ls`.
        _log.warning("rental=%s our key was not attached: %s", rental.rental_id, exc)


async def _relabel(ctx: Context, instance_id: int, label: str) -> None:
    try:
        with trio.fail_after(ASK_LIMIT_S):
            await ctx.shell.provider.set_label(instance_id, label)
    except trio.TooSlowError:
        raise InventoryUnknown(
            f"Vast did not answer for {ASK_LIMIT_S:.0f} s when instance {instance_id} was to be "
            "labelled; nothing else was changed",
            hint="try again",
        ) from None


@handles(RELEASE)
async def release(ctx: Context, params: RentalReleaseParams, call: Call) -> RentalView:
    """Take our claim from the label, call the guard off, and put on record that it is let go."""
    shell = ctx.shell
    rental = find_rental(shell.ledger, params.rental, params.project)
    reason = (params.reason or "").strip()
    _require_releasable(ctx, rental, force=params.force, reason=reason)
    assert rental.instance_id is not None
    back = rental.adopted_label if rental.adopted_label is not None else _words(rental.label)
    await _relabel(ctx, rental.instance_id, back)
    if rental.phase in (Phase.READY, Phase.BUSY, Phase.COLLECTING):
        try:
            # Last, so that no renewal comes between it and the record; one under way sees to itself.
            await _disarm(ctx, rental, force=params.force)
        except PolicyRefused:
            await _relabel(ctx, rental.instance_id, rental.label)
            raise
    rental = shell.ledger.rental(rental.rental_id)
    if rental.phase in (Phase.DESTROYING, Phase.GONE):
        raise PolicyRefused(f"rental {rental.name!r} ended meanwhile; it was not released")
    why = f"released by the user{f': {reason}' if reason else ''}"
    let_go = ev.Released(rental_id=rental.rental_id, at=shell.wall_clock(), why=why)
    return ctx.commit(call, lambda: ctx.show_rental(shell.ledger.rental(rental.rental_id)), let_go)


def _require_releasable(ctx: Context, rental: Rental, *, force: bool, reason: str) -> None:
    if force and not reason:
        raise InvalidRequest("a forced release needs a reason", hint="add --reason TEXT")
    early = rental.phase in (Phase.PLANNED, Phase.CREATING) or rental.instance_id is None
    if early or rental.phase in (Phase.DESTROYING, Phase.GONE):
        raise PolicyRefused(
            f"rental {rental.name!r} is {rental.phase}: there is no machine to let go of",
            hint=f"`vastctl show {rental.name}` tells how it goes on",
        )
    active = [job for job in ctx.shell.ledger.jobs_of(rental.rental_id) if job.active]
    if active and not force:
        raise JobActive(
            f"job {active[0].job_id!r} runs on rental {rental.name!r}; nothing was released",
            hint="`--force --reason TEXT` lets go of it too: its results stay on the machine",
        )


async def _disarm(ctx: Context, rental: Rental, *, force: bool) -> None:
    """Call the machine's guard off, or it would end what nobody renews."""
    shell = ctx.shell
    try:
        with trio.fail_after(DISARM_LIMIT_S):
            async with shell.boxes.open(target(shell, rental)) as box:
                await box.drop_lease()
    except (SshError, trio.TooSlowError) as exc:
        if force:
            _log.warning("rental=%s released with its guard armed: %s", rental.rental_id, exc)
            return
        raise PolicyRefused(
            f"the guard on rental {rental.name!r} cannot be called off ({str(exc) or 'no answer'}): it "
            "would end the machine when its lease runs out; nothing was released",
            hint="try again when it answers, or `--force --reason TEXT`",
        ) from exc
