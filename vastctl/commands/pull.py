"""`pull`: files from a machine; nothing is ever deleted here."""

import os
from argparse import ArgumentParser
from typing import Final

from vastctl import values, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.transfer import call_with_progress, resolve
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import file

EXAMPLES: Final = """\
  vastctl pull r-1 results                    into the current directory
  vastctl pull r-1 results logs ./from-r-1    the last one is the destination"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rental", metavar="RENTAL", type=values.path, help="which machine")
    parser.add_argument(
        "paths",
        metavar="SRC",
        nargs="+",
        type=values.path,
        help="what; with more than one, the last is the destination",
    )


def run(ctx: Context) -> int:
    *sources, last = ctx.args.paths
    destination = os.path.abspath(last if sources else ".")
    if os.path.lexists(destination) and not os.path.isdir(destination):
        raise UsageError(f"{destination!r} is no directory", hint="name one, or a new one")
    rental = resolve(ctx, ctx.args.rental)
    wish = file.FilePullParams(
        rental=rental.rental_id,
        sources=sources or [last],
        destination=destination,
        request_id=new_request_id(),
    )
    body = call_with_progress(ctx, file.PULL, wish, rental.rental_id)
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    done = ctx.client.view(file.PULL, body)
    ctx.screen.step("info", f"{words.size(done.bytes)} from {rental.name} to {done.destination}")
    return ExitCode.OK
