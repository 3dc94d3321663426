"""`hosts ls|block|unblock`: what is known of machines, and which are not to be rented."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Final

from vastctl import values, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.table import table
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import host
from vastd_protocol.methods.host import HostView

ACTIONS: Final = {
    "ls": "list the machines that were rented or blocked, and what is known of each",
    "block": "rent nothing on a machine, for a time or until it is unblocked",
    "unblock": "lift a block, whoever made it",
}
EXAMPLES: Final = """\
  vastctl hosts ls --blocked
  vastctl hosts block 31337 --reason "disk too slow" --for 7d
  vastctl hosts unblock 31337"""

_RIGHT: Final = ("MACHINE", "RENTED", "FAILED", "BOOT", "DOWN", "UP")


def arguments(parser: ArgumentParser) -> None:
    action = parser.get_default("action")
    if action == "ls":
        parser.add_argument("--blocked", action="store_true", help="only those blocked now")
        return
    parser.add_argument(
        "machine", metavar="MACHINE_ID", type=int, help="Vast's machine id, as `hosts ls` shows it"
    )
    if action == "block":
        parser.add_argument("--reason", metavar="TEXT", required=True, help="why; shown with it")
        parser.add_argument(
            "--for",
            dest="for_s",
            metavar="DUR",
            type=values.duration,
            help="how long, as 12h or 7d (until it is unblocked)",
        )


def run(ctx: Context) -> int:
    return {"ls": _ls, "block": _block, "unblock": _unblock}[ctx.args.action](ctx)


def _ls(ctx: Context) -> int:
    body = ctx.client.raw(host.LIST, host.HostListParams(blocked=ctx.args.blocked))
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    found = ctx.client.view(host.LIST, body).hosts
    if not found:
        what = "no machine is blocked" if ctx.args.blocked else "no machine was rented yet"
        ctx.screen.note(what)
        return ExitCode.OK
    header = ("MACHINE", "GPU", "RENTED", "FAILED", "BOOT", "DOWN", "UP", "SSH", "WHY NOT")
    for line in table(header, [_row(one, ctx.now()) for one in found], right=_RIGHT):
        ctx.screen.out(line)
    return ExitCode.OK


def _row(one: HostView, now: float) -> tuple[str, ...]:
    return (
        str(one.machine_id),
        one.gpu_name or "-",
        str(one.rented),
        str(one.failed),
        "-" if one.boot_s is None else words.span(one.boot_s),
        "-" if one.down is None else f"{one.down.mbps:.0f} Mb/s",
        "-" if one.up is None else f"{one.up.mbps:.0f} Mb/s",
        one.route or "-",
        _why_not(one, now),
    )


def _why_not(one: HostView, now: float) -> str:
    if one.block is not None:
        by = "you" if one.block.by == "user" else one.block.by
        until = "" if one.block.until is None else f", {words.span_left(one.block.until, now)} left"
        return f"blocked by {by}{until}: {one.block.why}"
    if one.last_failure is not None:
        return f"{words.age(one.last_failure.at, now)} ago: {one.last_failure.why}"
    return ""


def _block(ctx: Context) -> int:
    until = None
    if ctx.args.for_s is not None:
        at = datetime.fromtimestamp(ctx.now() + ctx.args.for_s, UTC)
        until = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    wish = host.HostBlockParams(
        machine_id=ctx.args.machine,
        reason=ctx.args.reason,
        until=until,
        request_id=new_request_id(),
    )
    body = ctx.client.raw(host.BLOCK, wish)
    if ctx.json:
        ctx.emit(body)
    span = "until it is unblocked" if until is None else f"for {words.span(ctx.args.for_s)}"
    ctx.screen.step("info", f"nothing is rented on machine {ctx.args.machine} {span}")
    return ExitCode.OK


def _unblock(ctx: Context) -> int:
    wish = host.HostUnblockParams(machine_id=ctx.args.machine, request_id=new_request_id())
    body = ctx.client.raw(host.UNBLOCK, wish)
    if ctx.json:
        ctx.emit(body)
    ctx.screen.step("info", f"machine {ctx.args.machine} may be rented")
    return ExitCode.OK
