"""`exec`: a command on a machine, by the user's own OpenSSH: streams and exit code are its own."""

import shlex
from argparse import ArgumentParser
from typing import Final

from vastctl import options
from vastctl.client import LONG_S, new_request_id
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.openssh import become, endpoint
from vastd_protocol.methods import access

TAKES_COMMAND: Final = True
EXAMPLES: Final = """\
  vastctl exec r-1 -- nvidia-smi
  vastctl exec r-1 -- 'tail -n 3 /workspace/project/*.log'
  tar c data | vastctl exec r-1 -- tar x -C /workspace"""


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)


def run(ctx: Context) -> int:
    remote: list[str] = ctx.args.remote
    if not remote:
        raise UsageError(
            "the command to run is missing",
            hint="put it behind `--`: `vastctl exec RENTAL -- nvidia-smi`",
        )
    # One word is taken as a line for the machine's shell, as ssh does; more are quoted.
    line = remote[0] if len(remote) == 1 else shlex.join(remote)
    if ctx.json:
        return _captured(ctx, line)
    _, where = endpoint(ctx)
    return become(ctx, [*where.argv, "--", line])


def _captured(ctx: Context, line: str) -> int:
    """Run it through vastd, whose result is the JSON document (capped output, no stdin)."""
    seconds = ctx.args.timeout or access.ExecParams(command=line).timeout_s
    wish = access.ExecParams(
        rental=ctx.args.rental,
        project=ctx.project,
        command=line,
        timeout_s=seconds,
        request_id=new_request_id(),
    )
    ctx.client.timeout_s = None
    body = ctx.client.raw(access.EXEC, wish, limit_s=min(seconds + 60.0, LONG_S))
    ctx.emit(body)
    return ctx.client.view(access.EXEC, body).exit_code
