"""`push`: files to a machine, never to `/` or `/root`."""

import os
import posixpath
from argparse import ArgumentParser
from typing import Final

from vastctl import values, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import CliError, UsageError
from vastctl.transfer import call_with_progress, resolve
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import file

EXAMPLES: Final = """\
  vastctl push r-1 data.tar                      to /workspace/project
  vastctl push r-1 a.bin b.bin /workspace/data   the last one is the destination"""


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
    destination = last if sources else file.FilePushParams(sources=[]).destination
    sources = [os.path.abspath(path) for path in sources or [last]]
    check_destination(destination)
    for source in sources:
        if not os.path.lexists(source):
            raise UsageError(f"there is no {source!r} to push")
    rental = resolve(ctx, ctx.args.rental)
    wish = file.FilePushParams(
        rental=rental.rental_id,
        sources=sources,
        destination=destination,
        request_id=new_request_id(),
    )
    body = call_with_progress(ctx, file.PUSH, wish, rental.rental_id)
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    done = ctx.client.view(file.PUSH, body)
    ctx.screen.step("info", f"{words.size(done.bytes)} to {rental.name}:{done.destination}")
    return ExitCode.OK


def check_destination(destination: str) -> None:
    """Refuse places on the machine that a copy would break; vastd refuses them as well.

    A copy onto `/root` changes the rights of `.ssh`, after which nobody can log in.
    """
    place = posixpath.normpath(posixpath.join("/workspace/project", destination))
    # A leading `//` survives `normpath`.
    if "/" + place.lstrip("/") in ("/", "/root") or destination.strip() == "~":
        raise CliError(
            f"refusing to copy to {destination!r} on the machine",
            hint="use a directory below /workspace",
            exit_code=ExitCode.REFUSED,
        )
