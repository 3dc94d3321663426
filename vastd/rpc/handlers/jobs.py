"""`job.*`: submitted once, carried out whoever is still listening."""

from pathlib import Path
from typing import Final

import trio
from msgspec import structs

from vastd.core import events as ev
from vastd.core.instants import maybe
from vastd.core.job import Job
from vastd.core.rental import Phase, Rental
from vastd.effects.collect import outputs_of
from vastd.errors import InvalidRequest, PolicyRefused, StoreError
from vastd.renting import (
    check_name,
    choose_free,
    free_name,
    live_names,
    planned,
    require_renting,
    task_of,
)
from vastd.rpc.context import Configuration, Context
from vastd.rpc.dispatch import Call, handles
from vastd.rpc.handlers.asked import check_env, check_sendable, needs_of, no_limits, policy_of
from vastd.rpc.handlers.resolve import find_job, find_rental
from vastd.store.retention import pruned
from vastd_protocol.methods import job as wire
from vastd_protocol.methods.task import OptionView

_USABLE: Final = frozenset({Phase.PLANNED, Phase.CREATING, Phase.BOOTING, Phase.VERIFYING, Phase.READY,
                     Phase.BUSY, Phase.COLLECTING})  # fmt: skip


@handles(wire.SUBMIT)
async def submit(ctx: Context, params: wire.JobSubmitParams) -> wire.JobSubmitView:
    """Put a job and, unless it names a rental, the intention to rent its machine on record."""
    if (known := submitted_by(ctx, params.request_id)) is not None:
        return _submitted(ctx, known, None)
    config = ctx.config.of_project(params.project)
    job = _job(ctx, params, config)
    check_env(params.env)
    await check_sendable(job)
    ctx.shell.envs.save(job.job_id, params.env)
    try:
        if params.rental is not None:
            machine = find_rental(ctx.shell.ledger, params.rental, params.project)
            no_limits(params.policy, machine)
            beside = _beside(ctx, job, machine)
            return structs.replace(onto(ctx, job, machine), warnings=beside)
        submitted = await _onto_new(ctx, job)
        return structs.replace(submitted, warnings=list(config.warnings))
    except BaseException:
        if job.job_id not in ctx.shell.ledger.jobs:
            ctx.shell.envs.drop(job.job_id)
        raise


def _beside(ctx: Context, job: Job, machine: Rental) -> list[str]:
    """Return what a job meets on a machine that had others: whom it waits for, what they left."""
    others = [j for j in ctx.shell.ledger.jobs_of(machine.rental_id) if j.setup is None]
    waiting = [j for j in others if not j.finished]
    found = []
    if waiting:
        first, more = waiting[0], len(waiting) - 1
        behind = f" and {more} more" if more else ""
        found.append(
            f"waits on {machine.name!r} until job {first.job_id} ({first.name}), which is "
            f"{first.state},{behind} has ended"
        )
    mine = set(outputs_of(job))
    for earlier in reversed(others):
        if shared := sorted(mine & set(outputs_of(earlier))):
            found.append(
                f"job {earlier.job_id} ({earlier.name}) writes {', '.join(shared)} on "
                f"{machine.name!r} too: what it leaves there comes home with this job again, "
                "unless this one declares another place with --output"
            )
            break
    return found


def submitted_by(ctx: Context, request_id: str | None) -> Job | None:
    """Return the job an earlier call with this id made: its record is the stored answer."""
    if request_id is None:
        return None
    jobs = ctx.shell.ledger.jobs.values()
    return next((j for j in jobs if j.request_id == request_id), None)


def _job(ctx: Context, params: wire.JobSubmitParams, config: Configuration) -> Job:
    if not params.command or not params.command[0].strip():
        raise InvalidRequest("no command: give one after `--`")
    if any("\x00" in word for word in params.command):
        raise InvalidRequest("the command holds a NUL character")
    project = Path(params.project)
    if not project.is_absolute() or not project.is_dir():
        raise InvalidRequest(f"{params.project!r} is not an existing absolute directory")
    return Job(
        job_id=ctx.shell.new_id("j"),
        name=check_name(params.name) if params.name else project.name,
        command=params.command,
        project=str(project),
        submitted_at=ctx.shell.wall_clock(),
        needs=needs_of(params.needs, config),
        policy=policy_of(params.policy, config),
        rents=params.rental is None,
        outputs=params.outputs or config.outputs(),
        include=params.include,
        env_keys=sorted(params.env),
        request_id=params.request_id,
        task_id=params.task_id,
    )


def _named(ctx: Context, job: Job) -> Job:
    """Return the job with a name no other has; only what is committed at once is safe from the
    next client."""
    taken = {j.name for j in ctx.shell.ledger.jobs.values() if not j.finished}
    return structs.replace(job, name=free_name(taken, job.name))


def onto(ctx: Context, job: Job, rental: Rental) -> wire.JobSubmitView:
    """Put a job for a rental that exists on record.

    Raises:
        PolicyRefused: it ends, or has ended.
    """
    if rental.phase not in _USABLE or rental.ending is not None or rental.quarantined:
        raise PolicyRefused(
            f"rental {rental.name!r} takes no jobs: it is {rental.phase}"
            + (f", ending ({rental.end_reason})" if rental.ending else ""),
            hint="leave out --on to rent a machine",
        )
    job = _named(ctx, job)
    at = job.submitted_at
    ctx.shell.ledger.commit(
        ev.JobSubmitted(job_id=job.job_id, at=at, job=job),
        ev.JobPlaced(job_id=job.job_id, at=at, rental_id=rental.rental_id),
    )
    return _submitted(ctx, ctx.shell.ledger.job(job.job_id), None)


async def _onto_new(ctx: Context, job: Job) -> wire.JobSubmitView:
    shell = ctx.shell
    require_renting(shell)
    choice, option = await choose_free(
        shell,
        lambda known: ctx.planner.choose(job.needs, known, job.policy.budget, job.project),
        lambda found: [found],
        lambda found: found[0].offer,
    )
    require_renting(shell)  # the search took time
    job = _named(ctx, job)
    planned_event = planned(
        shell,
        choice,
        job.policy,
        name=free_name(live_names(shell), job.name),
        project=job.project,
        task=task_of(job),
        purpose="job",
        profile=job.needs.profile,
    )
    at = shell.wall_clock()
    placed = ev.JobPlaced(
        job_id=job.job_id, at=at, rental_id=planned_event.rental_id, offer=choice.offer
    )
    shell.ledger.commit(ev.JobSubmitted(job_id=job.job_id, at=at, job=job), planned_event, placed)
    return _submitted(ctx, shell.ledger.job(job.job_id), option)


def _submitted(ctx: Context, job: Job, option: OptionView | None) -> wire.JobSubmitView:
    ledger = ctx.shell.ledger
    if job.rental_id is not None:
        rental = ledger.rental(job.rental_id)
    elif job.attempts:  # a repeat of the request between two machines
        rental = ledger.rental(job.attempts[-1].rental_id)
    else:
        raise StoreError(f"job {job.job_id!r} has no rental on record")
    return wire.JobSubmitView(job=ctx.show_job(job), rental=ctx.show_rental(rental), chosen=option)


@handles(wire.LIST)
async def list_jobs(ctx: Context, params: wire.JobListParams) -> wire.JobListView:
    """List jobs: those that are not settled, or all."""
    found = [
        j
        for j in ctx.shell.ledger.jobs.values()
        if (params.all or not _settled(ctx, j))
        and (params.project is None or j.project == params.project)
    ]
    before = pruned(ctx.shell.ledger.store).records_before if params.all else None
    return wire.JobListView(jobs=[ctx.show_job(j) for j in found], pruned_before=maybe(before))


@handles(wire.GET)
async def get(ctx: Context, params: wire.JobRef) -> wire.JobView:
    """Return one job."""
    return ctx.show_job(find_job(ctx.shell.ledger, params.job, params.project))


@handles(wire.CANCEL)
async def cancel(ctx: Context, params: wire.JobCancelParams, call: Call) -> wire.JobView:
    """Ask a job to end: TERM, grace, KILL; what it wrote is collected."""
    ledger = ctx.shell.ledger
    job = find_job(ledger, params.job, params.project)
    if job.finished or job.cancel_at is not None:
        return ctx.show_job(job)
    asked = ev.CancelAsked(job_id=job.job_id, at=ctx.shell.wall_clock())
    return ctx.commit(call, lambda: ctx.show_job(ledger.job(job.job_id)), asked)


@handles(wire.RETRY)
async def retry(ctx: Context, params: wire.JobRetryParams) -> wire.JobSubmitView:
    """Submit an ended job again, as a new job on a new machine."""
    if (known := submitted_by(ctx, params.request_id)) is not None:
        return _submitted(ctx, known, None)
    before = find_job(ctx.shell.ledger, params.job, params.project)
    if not before.finished:
        raise InvalidRequest(f"job {before.job_id!r} has not ended: it is {before.state}")
    if before.setup is not None:
        raise InvalidRequest(
            f"job {before.job_id!r} was the set-up of a machine, which rents none",
            hint="`vastctl setup` sets up a machine you have",
        )
    if before.env_keys:
        raise InvalidRequest(
            f"job {before.job_id!r} had environment values ({', '.join(before.env_keys)}), which "
            "are forgotten when a job ends",
            hint="submit it again with `vastctl run --env …`",
        )
    again = Job(
        job_id=ctx.shell.new_id("j"),
        name=before.name,
        command=before.command,
        project=before.project,
        submitted_at=ctx.shell.wall_clock(),
        needs=structs.replace(before.needs, offer_id=None),
        policy=before.policy,
        outputs=before.outputs,
        include=before.include,
        request_id=params.request_id,
        task_id=before.task_id,
    )
    await check_sendable(again)
    return await _onto_new(ctx, again)


@handles(wire.WAIT)
async def wait(ctx: Context, params: wire.JobWaitParams) -> wire.JobWaitView:
    """Hold the answer until the job is settled or the time is over."""
    ledger = ctx.shell.ledger
    job_id = find_job(ledger, params.job, params.project).job_id
    limit = float("inf") if params.timeout_s is None else max(0.0, params.timeout_s)
    with trio.move_on_after(limit):
        while not _settled(ctx, ledger.job(job_id)):
            await ledger.wait_changed()
    job = ledger.job(job_id)
    rental = _machine_of(ctx, job)
    return wire.JobWaitView(
        job=ctx.show_job(job),
        rental=None if rental is None else ctx.show_rental(rental),
        settled=_settled(ctx, job),
    )


def _machine_of(ctx: Context, job: Job) -> Rental | None:
    rental_id = job.rental_id or (job.attempts[-1].rental_id if job.attempts else None)
    return None if rental_id is None else ctx.shell.ledger.rentals.get(rental_id)


def _settled(ctx: Context, job: Job) -> bool:
    """Return whether nothing is going to happen any more without an order of the user."""
    if not job.finished:
        return False
    rental = _machine_of(ctx, job)
    if rental is None or rental.phase is Phase.GONE:
        return not job.uncollected or job.collect_final
    if job.uncollected and not job.collect_final:
        return False
    if job.collect_final:
        return rental.phase in (Phase.READY, Phase.STOPPED)  # held for the user
    if rental.policy.keep or rental.purpose != "job":
        return True
    # It ends when its last job is done: whoever only used it need not wait for the others.
    others = ctx.shell.ledger.jobs_of(rental.rental_id)
    return not job.rents and any(not other.finished for other in others)
