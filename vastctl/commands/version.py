"""`version`: both versions, and whether they fit."""

from argparse import ArgumentParser
from typing import Final

from msgspec.json import encode

from vastctl.client import DaemonError
from vastctl.context import Context
from vastctl.errors import CliError
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import daemon
from vastd_protocol.version import PROTOCOL_VERSION, VASTD_VERSION

EXAMPLES: Final = ""


def arguments(parser: ArgumentParser) -> None:
    """There are no options of its own."""


def run(ctx: Context) -> int:
    me = daemon.ClientInfo(name="vastctl", version=VASTD_VERSION)
    wish = daemon.InitializeParams(protocol_version=PROTOCOL_VERSION, client=me)
    answer: daemon.InitializeView | None = None
    trouble = ""
    ctx.client.greeting = None  # what it would say is what is printed here
    try:
        body = ctx.client.once(daemon.INITIALIZE.name, encode(wish))
        answer = ctx.client.view(daemon.INITIALIZE, body)
    except DaemonError as exc:
        trouble = f"vastd refuses this vastctl: {exc}"
    except CliError as exc:
        trouble = str(exc)
    if ctx.json:
        ctx.emit_own(
            {
                "vastctl": VASTD_VERSION,
                "protocol": PROTOCOL_VERSION,
                "daemon": answer and answer.daemon,
            }
        )
        return ExitCode.OK
    ctx.screen.out(f"vastctl {VASTD_VERSION} (protocol {PROTOCOL_VERSION})")
    if answer is None:
        ctx.screen.out(f"vastd: {trouble}")
        return ExitCode.OK
    info = answer.daemon
    simulated = ", on the simulated Vast" if info.simulated else ""
    ctx.screen.out(
        f"vastd {info.version} (protocol {answer.protocol_version}, pid {info.pid}, since {info.started_at}{simulated})"
    )
    for warning in answer.warnings:
        ctx.screen.step("warning", warning)
    if info.version != VASTD_VERSION:
        ctx.screen.step(
            "warning", "the versions differ: restart vastd, machines and jobs go on meanwhile"
        )
    return ExitCode.OK
