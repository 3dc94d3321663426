"""`release`: let a machine go: it stays and bills, and vastd neither watches nor ends it any more."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.transfer import resolve
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import rental as rentals

EXAMPLES: Final = """\
  vastctl release box
  vastctl release box --force --reason "moved to the team's account tool\""""


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)
    parser.add_argument(
        "--force", action="store_true", help="although a job runs or its guard cannot be called off"
    )
    parser.add_argument(
        "--reason", metavar="TEXT", help="why; needed with --force, kept in the audit trail"
    )


def run(ctx: Context) -> int:
    args = ctx.args
    if args.force and not (args.reason or "").strip():
        raise UsageError("--force needs a reason", hint='add `--reason "why"`')
    rental = resolve(ctx, args.rental)
    bills = f"instance {rental.instance_id} goes on billing {words.rate(rental.dph_usd)}"
    ctx.confirm(f"let go of {rental.name}", [f"{bills}, and nothing of vastd ends it any more"])
    wish = rentals.RentalReleaseParams(
        rental=rental.rental_id, force=args.force, reason=args.reason, request_id=new_request_id()
    )
    body = ctx.client.raw(rentals.RELEASE, wish)
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    view = ctx.client.view(rentals.RELEASE, body)
    ctx.screen.out(f"{view.name} was let go: instance {view.instance_id} bills on, unwatched")
    ctx.screen.note(f"`vastctl adopt {view.instance_id}` takes it back")
    return ExitCode.OK
