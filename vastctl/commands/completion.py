"""`completion`: the script that lets a shell complete `vastctl`; and what that script asks for."""

from argparse import ArgumentParser
from typing import Final

from vastctl.context import Context
from vastctl.errors import UsageError
from vastd_protocol.errors import ExitCode

EXAMPLES: Final = """\
  source <(vastctl completion bash)      in ~/.bashrc, for good"""
_SHELLS: Final = ("bash",)


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", help="bash; others may come later")


def run(ctx: Context) -> int:
    from vastctl.completing import BASH

    if ctx.args.shell not in _SHELLS:
        raise UsageError(
            f"there is no completion for {ctx.args.shell!r} yet",
            hint="there is one for bash: `vastctl completion bash`",
        )
    if ctx.json:
        ctx.emit_own({"shell": ctx.args.shell, "script": BASH})
    else:
        ctx.screen.raw(BASH.rstrip("\n").encode())
    return ExitCode.OK
