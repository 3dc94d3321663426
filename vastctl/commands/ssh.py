"""`ssh`: a shell on a machine, by the user's own OpenSSH."""

import shlex
from argparse import ArgumentParser
from typing import Final

from vastctl import options
from vastctl.context import Context
from vastctl.openssh import become, endpoint
from vastd_protocol.errors import ExitCode

EXAMPLES: Final = """\
  vastctl ssh r-1
  vastctl ssh r-1 --print      the command, to use elsewhere"""


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)
    parser.add_argument("--print", action="store_true", help="print the command and do not run it")


def run(ctx: Context) -> int:
    body, where = endpoint(ctx)
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    if ctx.args.print:
        ctx.screen.out(shlex.join(where.argv))
        return ExitCode.OK
    return become(ctx, where.argv)
