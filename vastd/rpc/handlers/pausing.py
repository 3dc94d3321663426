"""`rental.stop`, `rental.start`: give the GPU back and keep the disk, and have the machine back."""

from vastd.core import events as ev
from vastd.core.rental import Phase, Rental
from vastd.errors import InvalidRequest, JobActive, PolicyRefused
from vastd.renting import require_renting
from vastd.rpc.context import Context
from vastd.rpc.dispatch import Call, handles
from vastd.rpc.handlers.resolve import find_rental
from vastd.spending import admit_start
from vastd_protocol.methods import rental as wire

_NOT_YET = frozenset({Phase.PLANNED, Phase.CREATING, Phase.BOOTING, Phase.VERIFYING})
_ENDED = frozenset({Phase.DESTROYING, Phase.GONE})


@handles(wire.STOP)
async def stop(ctx: Context, params: wire.RentalStopParams, call: Call) -> wire.RentalView:
    """Decide that a machine is stopped; the supervisor collects, asks Vast and watches it happen.

    Asking twice changes nothing.
    """
    ledger = ctx.shell.ledger
    rental = find_rental(ledger, params.rental, params.project)
    _require_stoppable(rental)
    if params.force and not (params.reason or "").strip():
        raise InvalidRequest("a forced stop needs a reason", hint="add --reason TEXT")
    active = [job for job in ledger.jobs_of(rental.rental_id) if job.active]
    if active and not params.force:
        raise JobActive(
            f"job {active[0].job_id!r} runs on rental {rental.name!r}; nothing was stopped",
            hint=f"`vastctl job cancel {active[0].job_id}` ends it first; "
            "`--force --reason TEXT` ends it and stops the machine",
        )
    now = ctx.shell.wall_clock()
    events: list[ev.Event] = [
        ev.CancelAsked(job_id=job.job_id, at=now) for job in active if job.cancel_at is None
    ]
    if rental.pause is None or (active and params.force):
        why = params.reason or "asked by the user"
        asked = ev.StopAsked(rental_id=rental.rental_id, at=now, why=why, collect=params.collect)
        events.append(asked)
    return ctx.commit(call, lambda: ctx.show_rental(ledger.rental(rental.rental_id)), *events)


def _require_stoppable(rental: Rental) -> None:
    if rental.quarantined is not None and rental.phase not in _ENDED:
        raise PolicyRefused(
            f"rental {rental.name!r} met a bug in vastd ({rental.quarantined}): it can only be ended",
            hint=f"`vastctl destroy {rental.name}`",
        )
    if rental.phase in _NOT_YET:
        raise PolicyRefused(
            f"rental {rental.name!r} is {rental.phase}: there is nothing to keep yet",
            hint=f"`vastctl destroy {rental.name}` ends it, or wait until it is ready",
        )
    if rental.phase in _ENDED or (rental.ending is not None and rental.phase is not Phase.STOPPED):
        why = f" ({rental.end_reason})" if rental.end_reason else ""
        raise PolicyRefused(
            f"rental {rental.name!r} is not stopped: its end is decided{why}",
            hint=f"`vastctl explain {rental.name}` tells how it goes on",
        )


@handles(wire.START)
async def start(ctx: Context, params: wire.RentalStartParams, call: Call) -> wire.RentalView:
    """Decide that a stopped machine runs again; it does when Vast has its GPU free.

    A machine whose end was decided while it stood still runs only until its results are home.
    """
    shell = ctx.shell
    rental = find_rental(shell.ledger, params.rental, params.project)
    if rental.phase is not Phase.STOPPED:
        _require_running(rental)
        return ctx.show_rental(rental)
    if rental.start_asked_at is not None:
        return ctx.show_rental(rental)
    require_renting(shell)
    await shell.credit.look(shell.provider, shell.wall_clock)
    # That took time: what it stands on may have changed, and from here on nothing waits (BUD-09).
    rental = shell.ledger.rental(rental.rental_id)
    if rental.phase is not Phase.STOPPED:
        _require_running(rental)
        return ctx.show_rental(rental)
    require_renting(shell)
    admit_start(shell, rental)
    return ctx.commit(
        call,
        lambda: ctx.show_rental(shell.ledger.rental(rental.rental_id)),
        ev.StartAsked(rental_id=rental.rental_id, at=shell.wall_clock()),
    )


def _require_running(rental: Rental) -> None:
    if rental.phase in _ENDED:
        raise PolicyRefused(
            f"rental {rental.name!r} cannot be started: it is {rental.phase}",
            hint="`vastctl up` or `vastctl run` rent another machine",
        )
    if rental.pause is not None:
        raise PolicyRefused(
            f"rental {rental.name!r} is being stopped",
            hint=f"start it when `vastctl show {rental.name}` says that it is stopped",
        )


def uncollected(ctx: Context, rental: Rental) -> str | None:
    """Return a job whose results are only on the disk of `rental`, or None."""
    jobs = ctx.shell.ledger.jobs_of(rental.rental_id)
    return next((job.job_id for job in jobs if job.finished and job.uncollected), None)
