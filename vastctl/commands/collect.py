"""`collect`: declared results home now, verified on both sides."""

import os
from argparse import ArgumentParser
from typing import Final

from vastctl import options, values, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.transfer import call_with_progress, resolve
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import rental as rentals

EXAMPLES: Final = """\
  vastctl collect r-1
  vastctl collect r-1 --output checkpoints results --to ~/runs/7"""


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)
    parser.add_argument(
        "--output",
        metavar="PATH",
        nargs="+",
        action="extend",
        type=values.path,
        help="this instead of what was declared",
    )
    parser.add_argument("--to", metavar="DIR", type=values.path, help="where to (the project)")


def run(ctx: Context) -> int:
    args = ctx.args
    rental = resolve(ctx, args.rental)
    wish = rentals.RentalCollectParams(
        rental=rental.rental_id,
        outputs=args.output,
        destination=os.path.abspath(os.path.expanduser(args.to)) if args.to else None,
        request_id=new_request_id(),
    )
    body = call_with_progress(ctx, rentals.COLLECT, wish, rental.rental_id)
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    home = ctx.client.view(rentals.COLLECT, body)
    files = words.count(home.files, "file")
    ctx.screen.step("info", f"{files}, {words.size(home.bytes)} in {home.destination}")
    if home.missing:
        ctx.screen.step("warning", f"declared but not found: {', '.join(home.missing)}")
    ctx.screen.out(home.destination)
    return ExitCode.OK
