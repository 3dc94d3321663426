"""`destroy`, `destroy-all`: collect, destroy, and wait until Vast proves that billing ended."""

from argparse import ArgumentParser
from typing import Final

from msgspec import Raw

from vastctl import values, words
from vastctl.client import DaemonError, new_request_id
from vastctl.context import Context
from vastctl.errors import CliError, UsageError
from vastctl.phases import PhaseWatch
from vastctl.story import tell_billing
from vastd_protocol.errors import ErrorCode, ExitCode
from vastd_protocol.methods import job as jobs
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.rental import RentalView

EXAMPLES: Final = """\
  vastctl destroy r-1
  vastctl destroy --all -y
  vastctl destroy r-1 --force --reason "wrong data set" --no-collect"""

PROOF_WAIT_S: Final = 600.0  # CONTRACT 5, destroy_shout_s: after that vastd itself calls it late
_ON_MACHINE: Final = frozenset({"starting", "running", "unknown"})  # vastd calls these active
_ENDING: Final = frozenset({"collecting", "destroying"})


def arguments(parser: ArgumentParser) -> None:
    if parser.prog.endswith("destroy-all"):
        parser.set_defaults(rentals=[], all=True)
    else:
        parser.add_argument(
            "rentals",
            metavar="RENTAL",
            nargs="*",
            type=values.path,
            help="which; nothing if the project has only one",
        )
        parser.add_argument("--all", action="store_true", help="every machine vastd knows")
    add_how(parser)


def add_how(parser: ArgumentParser) -> None:
    """Add the options that say what may be lost, and what is waited for."""
    parser.add_argument(
        "--force", action="store_true", help="although a job runs or the copy failed"
    )
    parser.add_argument(
        "--reason", metavar="TEXT", help="why; needed with --force, kept in the audit trail"
    )
    parser.add_argument(
        "--no-collect", action="store_true", help="leave results behind: they are lost"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the proof")


def run(ctx: Context) -> int:
    args = ctx.args
    everything = args.all
    if everything and args.rentals:
        raise UsageError("either machines by name, or all of them", hint="leave out one of both")
    if args.force and not (args.reason or "").strip():
        raise UsageError("--force needs a reason", hint='add `--reason "why"`')
    doomed = _named(ctx, everything)
    if not doomed:
        return _nothing(ctx)
    doomed, code = _refuse_busy(ctx, doomed)
    if not doomed:
        return code
    ctx.confirm(f"destroy {words.count(len(doomed), 'machine')}", _consequences(ctx, doomed))
    watch = PhaseWatch(ctx)
    bodies: dict[str, bytes] = {}
    for rental in doomed:
        try:
            bodies[rental.rental_id] = _destroy(ctx, rental)
        except DaemonError as exc:
            if len(doomed) == 1:
                raise
            ctx.screen.error(f"{rental.name}: {exc}", exc.hint)
            code = code or exc.exit_code
    if bodies and not args.no_wait:
        code = _wait(ctx, watch, bodies) or code
    elif bodies:
        ctx.screen.say("the end is decided; vastd carries it out: see `vastctl ls`")
    if ctx.json and bodies:
        _emit(ctx, list(bodies.values()))
    return code


def _emit(ctx: Context, bodies: list[bytes]) -> None:
    """Write one document: the machine that was meant, or the list of those that were."""
    if ctx.args.all or len(ctx.args.rentals) > 1:
        ctx.emit_own({"rentals": [Raw(body) for body in bodies]})
    elif bodies:
        ctx.emit(bodies[0])


def _named(ctx: Context, everything: bool) -> list[RentalView]:
    if everything:
        listed = ctx.client.call(rentals.LIST, rentals.RentalListParams()).rentals
        return [rental for rental in listed if rental.phase != "gone"]
    refs: list[str | None] = list(dict.fromkeys(ctx.args.rentals)) or [None]
    found = [
        ctx.client.call(rentals.GET, rentals.RentalRef(rental=ref, project=ctx.project))
        for ref in refs
    ]
    return list({rental.rental_id: rental for rental in found}.values())


def _refuse_busy(ctx: Context, doomed: list[RentalView]) -> tuple[list[RentalView], int]:
    """Take out machines on which a job runs, before anything is asked; return the exit code.

    vastd refuses them as well: with `-y`, where nobody is asked, that is enough.

    Raises:
        CliError: it was the only machine.
    """
    candidates = [r for r in doomed if r.jobs and r.phase not in ("destroying", "gone")]
    if ctx.args.force or not ctx.interactive or ctx.args.yes or not candidates:
        return doomed, 0
    listed = ctx.client.call(jobs.LIST, jobs.JobListParams()).jobs
    running = {job.rental_id: job.job_id for job in listed if job.state in _ON_MACHINE}
    busy = [rental for rental in candidates if rental.rental_id in running]
    for rental in busy:
        job_id = running[rental.rental_id]
        refusal = CliError(
            f"job {job_id!r} runs on machine {rental.name!r}; nothing was destroyed",
            hint=f"`vastctl job cancel {job_id}` ends it first; `--force --reason TEXT` ends both",
            exit_code=ExitCode.JOB_ACTIVE,
        )
        if len(doomed) == 1:
            raise refusal
        ctx.screen.error(str(refusal), refusal.hint)
    return [r for r in doomed if r not in busy], ExitCode.JOB_ACTIVE if busy else 0


def _nothing(ctx: Context) -> int:
    if ctx.json:
        ctx.emit_own({"rentals": []})
    ctx.screen.note("there is no machine to destroy")
    return ExitCode.OK


def _consequences(ctx: Context, doomed: list[RentalView]) -> list[str]:
    lines = [
        f"  {rental.name}: {words.gpu(rental.gpu_name, rental.num_gpus)}, "
        f"{words.rate(rental.dph_usd)}, {words.phase(rental.phase)}"
        + (f", job {', '.join(rental.jobs)}" if rental.jobs else "")
        for rental in doomed
    ]
    if ctx.args.no_collect:
        lines.append("nothing is collected: whatever is on these machines is lost")
    else:
        lines.append("declared outputs are collected first; everything else on them is lost")
    return lines


def _destroy(ctx: Context, rental: RentalView) -> bytes:
    params = rentals.RentalDestroyParams(
        rental=rental.rental_id,
        force=ctx.args.force,
        reason=ctx.args.reason,
        collect=not ctx.args.no_collect,
        request_id=new_request_id(),
    )
    try:
        return ctx.client.raw(rentals.DESTROY, params)
    except DaemonError as exc:
        if exc.code == ErrorCode.JOB_ACTIVE and not exc.hint:
            exc.hint = "cancel the job first, or add `--force --reason TEXT`"
        raise


def _wait(ctx: Context, watch: PhaseWatch, bodies: dict[str, bytes]) -> int:
    def settled(rental: RentalView) -> bool:
        held = rental.rental_id in watch.story.failed_copies and rental.phase not in _ENDING
        return rental.phase == "gone" or held

    limit_s = ctx.args.timeout or PROOF_WAIT_S
    late = watch.follow(list(bodies), settled, limit_s=limit_s)
    code = 0
    for rental_id in bodies:
        if rental_id in late:
            continue
        body, rental = watch.last(rental_id)
        bodies[rental_id] = body
        tell_billing(ctx.screen, rental)
        if rental.phase != "gone":
            ctx.screen.error(
                f"machine {rental.name} is kept because its results could not be copied",
                f"try `vastctl collect {rental.name}`; to let them go, destroy it with "
                "`--force --reason TEXT`",
            )
            code = ExitCode.COLLECTION_FAILED
    if late:
        raise CliError(
            f"no proof within {limit_s:g} s that {', '.join(late)} ended: it may still bill",
            hint="vastd goes on trying; see `vastctl ls`, and Vast's console if it lasts",
            exit_code=ExitCode.UNCONFIRMED,
        )
    return code
