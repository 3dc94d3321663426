"""`stop`: collect, give the GPU back, keep the disk; and say what that goes on costing."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import CliError, UsageError
from vastctl.phases import PhaseWatch
from vastctl.transfer import resolve
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.rental import RentalView

EXAMPLES: Final = """\
  vastctl stop r-1
  vastctl stop r-1 --force --reason "lunch" --no-collect"""

STOP_WAIT_S: Final = 600.0  # CONTRACT 5, destroy_shout_s: after that vastd itself calls it late
HOURS_PER_DAY: Final = 24.0


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)
    parser.add_argument("--force", action="store_true", help="although a job runs: it is ended")
    parser.add_argument(
        "--reason", metavar="TEXT", help="why; needed with --force, kept in the audit trail"
    )
    parser.add_argument(
        "--no-collect", action="store_true", help="leave results on the disk for now"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is stopped")


def run(ctx: Context) -> int:
    args = ctx.args
    if args.force and not (args.reason or "").strip():
        raise UsageError("--force needs a reason", hint='add `--reason "why"`')
    rental = resolve(ctx, args.rental)
    watch = PhaseWatch(ctx)
    wish = rentals.RentalStopParams(
        rental=rental.rental_id,
        force=args.force,
        reason=args.reason,
        collect=not args.no_collect,
        request_id=new_request_id(),
    )
    body = ctx.client.raw(rentals.STOP, wish)
    if args.no_wait:
        ctx.screen.say("the stop is decided; vastd carries it out: see `vastctl ls`")
    else:
        body = _wait(ctx, watch, rental)
    view = ctx.client.view(rentals.STOP, body)
    if ctx.json:
        ctx.emit(body)
    if view.phase == "stopped":
        _tell(ctx, view)
    return ExitCode.OK


def _wait(ctx: Context, watch: PhaseWatch, rental: RentalView) -> bytes:
    limit_s = ctx.args.timeout or STOP_WAIT_S
    if watch.follow([rental.rental_id], _settled, limit_s=limit_s):
        raise CliError(
            f"machine {rental.name} was not seen stopped within {limit_s:g} s: it may still bill "
            f"{words.rate(rental.dph_usd)}",
            hint=f"vastd goes on trying; see `vastctl explain {rental.name}`",
            exit_code=ExitCode.UNCONFIRMED,
        )
    body, seen = watch.last(rental.rental_id)
    if seen.phase != "stopped":
        raise CliError(
            f"machine {rental.name} ends instead: {seen.end_detail or seen.end_reason}",
            hint=f"see `vastctl explain {rental.name}`",
        )
    return body


def _settled(seen: RentalView) -> bool:
    stands_still = seen.phase == "stopped" and seen.wanted is None
    return stands_still or seen.phase in ("destroying", "gone")


def _tell(ctx: Context, rental: RentalView) -> None:
    storage = rental.storage_dph_usd
    price = "" if storage is None else f": {words.money(storage * HOURS_PER_DAY)} a day"
    ctx.screen.step("info", f"machine {rental.name} is stopped; its disk goes on billing{price}")
    ctx.screen.note(f"  have it back: `vastctl start {rental.name}`, if its GPU is free then")
    ctx.screen.note(f"  end it, with everything on its disk: `vastctl destroy {rental.name}`")
    if rental.budget_usd is not None and storage:
        left_s = max(0.0, rental.budget_usd - rental.cost_usd) / storage * 3600
        ctx.screen.note(
            f"  its budget of {words.money(rental.budget_usd)} pays for {words.span(left_s)} of "
            "that; then it is destroyed (`vastctl policy` changes it)"
        )
