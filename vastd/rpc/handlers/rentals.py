"""`rental.*` and `reconcile.run`."""

from collections.abc import Sequence
from pathlib import Path

from vastd.core import billing, costs
from vastd.core import events as ev
from vastd.core.job import Needs
from vastd.core.money import to_usd
from vastd.core.rental import Phase, Policy, Rental, Trigger
from vastd.effects.collect import bring_home, outputs_of
from vastd.errors import InvalidRequest, JobActive, TransferFailed
from vastd.renting import check_name, choose_free, free_name, live_names, planned, require_renting
from vastd.rpc.context import Context
from vastd.rpc.dispatch import Call, handles
from vastd.rpc.handlers.access import reachable
from vastd.rpc.handlers.asked import needs_of, policy_of
from vastd.rpc.handlers.pausing import uncollected
from vastd.rpc.handlers.resolve import find_rental
from vastd.rpc.views.explain import explain_view
from vastd.rpc.views.rental import inventory_view
from vastd.store.store import StoredEvent
from vastd_protocol.methods import rental as wire


@handles(wire.CREATE)
async def create(ctx: Context, params: wire.RentalCreateParams) -> wire.RentalView:
    """Rent one machine to work on; the intention is on record when this answers."""
    shell = ctx.shell
    if (known := _made_by(ctx, params.request_id)) is not None:
        return ctx.show_rental(known)
    if params.env:
        raise InvalidRequest("environment values belong to a job: use `vastctl run --env`")
    require_renting(shell)
    config = ctx.config.of_project(params.project)
    needs: Needs = needs_of(params.needs, config)
    policy: Policy = policy_of(params.policy, config)
    if params.name is not None:
        check_name(params.name)
    choice, _ = await choose_free(
        shell,
        lambda known: ctx.planner.choose(needs, known, policy.budget, params.project),
        lambda found: [found],
        lambda found: found[0].offer,
    )
    require_renting(shell)  # the search took time
    name = free_name(live_names(shell), params.name or choice.offer.gpu_name)
    event = planned(
        shell,
        choice,
        policy,
        name=name,
        project=params.project,
        task=name,
        purpose="interactive",
        request_id=params.request_id,
        profile=needs.profile,
    )
    shell.ledger.commit(event)
    return ctx.show_rental(shell.ledger.rental(event.rental_id))


def _made_by(ctx: Context, request_id: str | None) -> Rental | None:
    """Return the rental an earlier call with this id made: its record is the stored answer."""
    if request_id is None:
        return None
    rentals = ctx.shell.ledger.rentals.values()
    return next((r for r in rentals if r.request_id == request_id), None)


@handles(wire.LIST)
async def list_rentals(ctx: Context, params: wire.RentalListParams) -> wire.RentalListView:
    """List rentals from memory: works, and says how old its truth is, when Vast is away."""
    shell = ctx.shell
    found = [
        r
        for r in shell.ledger.rentals.values()
        if (params.all or r.phase is not Phase.GONE)
        and (params.project is None or r.project == params.project)
    ]
    now = shell.wall_clock()
    total = sum(billing.cost(r, now) for r in found)
    return wire.RentalListView(
        rentals=[ctx.show_rental(r) for r in found],
        inventory=inventory_of(ctx),
        totals=wire.TotalsView(dph_usd=to_usd(billing.burn(found)), cost_usd=to_usd(total)),
    )


def inventory_of(ctx: Context) -> wire.InventoryView:
    """Return how far the list can be trusted now."""
    shell = ctx.shell
    limits = shell.limits
    busy = any(r.may_have_instance for r in shell.ledger.rentals.values())
    interval = limits.list_interval_busy_s if busy else limits.list_interval_idle_s
    return inventory_view(shell.observed.world, shell.wall_clock(), interval)


@handles(wire.GET)
async def get(ctx: Context, params: wire.RentalRef) -> wire.RentalView:
    """Return one rental."""
    return ctx.show_rental(find_rental(ctx.shell.ledger, params.rental, params.project))


@handles(wire.EXPLAIN)
async def explain(ctx: Context, params: wire.RentalRef) -> wire.ExplainView:
    """Return timeline, the bill by what it was spent on, and what every watchdog would do."""
    ledger, now = ctx.shell.ledger, ctx.shell.wall_clock()
    rental = find_rental(ledger, params.rental, params.project)
    failed = {lost for job in ledger.jobs.values() for lost in costs.failed_on(job)}
    watch, trail = ctx.supervisor.watch(rental), _trail(ctx, rental, now)
    return explain_view(ctx.show_rental(rental), trail, watch, failed, now)


def _trail(ctx: Context, rental: Rental, now: float) -> Sequence[StoredEvent]:
    """Return the events of a rental, of the jobs on it, and of vastd itself meanwhile, each once,
    oldest first."""
    store = ctx.shell.ledger.store
    ended = now if rental.ended_at is None else rental.ended_at
    own = (e for e in store.events_of() if rental.created_at <= e.event.at <= ended)
    found = {e.cursor: e for e in (*own, *store.events_of(rental_id=rental.rental_id))}
    for job in ctx.shell.ledger.jobs.values():
        if job.rental_id == rental.rental_id:
            found.update({e.cursor: e for e in store.events_of(job_id=job.job_id)})
    return [found[cursor] for cursor in sorted(found)]


@handles(wire.DESTROY)
async def destroy(ctx: Context, params: wire.RentalDestroyParams, call: Call) -> wire.RentalView:
    """Decide the end of a rental; answer at once, the supervisor carries it out and proves it.

    Asking twice is normal (a client that lost the answer) and changes nothing.
    """
    ledger = ctx.shell.ledger
    rental = find_rental(ledger, params.rental, params.project)
    if params.force and not (params.reason or "").strip():
        raise InvalidRequest("a forced destroy needs a reason", hint="add --reason TEXT")
    if rental.phase is Phase.GONE or (rental.phase is Phase.DESTROYING and not params.force):
        return ctx.show_rental(rental)
    active = [job for job in ledger.jobs_of(rental.rental_id) if job.active]
    if active and not params.force:
        raise JobActive(
            f"job {active[0].job_id!r} runs on rental {rental.name!r}; nothing was destroyed",
            hint=f"`vastctl job cancel {active[0].job_id}` ends it first; "
            "`--force --reason TEXT` ends both",
        )
    if rental.taken_over and params.collect and not params.force:
        raise TransferFailed(
            f"rental {rental.name!r} was taken over after the store was lost: what its jobs left on "
            "it is not on record; nothing was destroyed",
            hint=f"fetch what you need with `vastctl pull {rental.name} PATH…` (jobs lie in "
            "/workspace), then destroy it with `--no-collect`",
        )
    left = uncollected(ctx, rental) if rental.phase is Phase.STOPPED else None
    if left is not None and params.collect and not params.force:
        raise TransferFailed(
            f"rental {rental.name!r} is stopped, and the results of job {left!r} are only on its "
            "disk; nothing was destroyed",
            hint=f"`vastctl start {rental.name}` and then destroy it brings them home; "
            "`--no-collect` gives them up",
        )
    return ctx.commit(
        call,
        lambda: ctx.show_rental(ledger.rental(rental.rental_id)),
        ev.EndDecided(
            rental_id=rental.rental_id,
            at=ctx.shell.wall_clock(),
            trigger=Trigger.USER,
            why=params.reason or "asked by the user",
            force=params.force,
            collect=params.collect,
        ),
    )


@handles(wire.COLLECT)
async def collect(ctx: Context, params: wire.RentalCollectParams) -> wire.CollectedView:
    """Bring results home now, also while the job runs."""
    ledger = ctx.shell.ledger
    rental = reachable(ctx, params.rental, params.project)
    jobs = [j for j in ledger.jobs_of(rental.rental_id) if j.setup is None]
    job = jobs[-1] if jobs else None
    if params.outputs is not None:
        outputs = params.outputs
    elif job is not None:
        outputs = outputs_of(job)
    elif rental.hinted_outputs:
        outputs = list(rental.hinted_outputs)
    else:
        raise InvalidRequest(
            f"rental {rental.name!r} ran no job: nothing is declared to be collected",
            hint="name what you want: `vastctl pull RENTAL PATH…`",
        )
    destination = params.destination or rental.project or (job.project if job else None)
    if destination is None or not Path(destination).is_absolute():
        raise InvalidRequest("the destination must be an absolute directory")
    report = await bring_home(ctx.shell, rental.rental_id, job, outputs, Path(destination))
    if job is not None and job.finished and params.outputs is None and job.uncollected:
        ledger.commit(
            ev.Collected(
                job_id=job.job_id,
                rental_id=rental.rental_id,
                at=ctx.shell.wall_clock(),
                files=len(report.files),
                bytes=report.bytes,
                missing=report.missing,
            )
        )
    return wire.CollectedView(
        rental_id=rental.rental_id,
        destination=destination,
        files=len(report.files),
        bytes=report.bytes,
        missing=report.missing,
    )
