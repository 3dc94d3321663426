"""`daemon start|stop|status|logs|acknowledge`: vastd itself."""

import os
import time
from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.json import encode

from vastctl import values, words
from vastctl.client import new_request_id
from vastctl.commands.ls import inventory_lines
from vastctl.context import Context
from vastctl.errors import CliError, ConnectionLost, DaemonAbsent
from vastctl.link import candidates
from vastctl.spawn import await_answer, await_end, spawn, tail
from vastctl.table import pairs, table
from vastd_protocol import paths
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import daemon
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.daemon import DaemonStatusView

ACTIONS: Final = {
    "start": "start vastd in the background and wait until it answers",
    "stop": "stop it; machines and jobs go on, nothing is destroyed",
    "status": "print how it is",
    "logs": "print or follow the log of a vastd that `daemon start` started",
    "acknowledge": "compare with Vast and allow renting again after a damaged store",
}
EXAMPLES: Final = """\
  vastctl daemon start
  vastctl daemon start --simulate        everything at no cost, on the simulated Vast
  vastctl daemon logs -f"""

LOOK_EVERY_S: Final = 0.3  # guess; a log need not be livelier
FIRST_LINES: Final = 100


def arguments(parser: ArgumentParser) -> None:
    action = parser.get_default("action")
    if action == "start":
        parser.add_argument(
            "--simulate", action="store_true", help="use the simulated Vast; nothing costs anything"
        )
    elif action == "logs":
        parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
        parser.add_argument(
            "-n", "--lines", metavar="N", type=values.lines, default=FIRST_LINES,
            help="the last N lines (100)",
        )  # fmt: skip


def run(ctx: Context) -> int:
    actions = {
        "start": _start,
        "stop": _stop,
        "status": _status,
        "logs": _logs,
        "acknowledge": _acknowledge,
    }
    return actions[ctx.args.action](ctx)


def log_path() -> Path:
    """Return the log of a daemon started here."""
    return paths.state_dir() / "logs" / "vastd.log"


def _start(ctx: Context) -> int:
    try:
        body = ctx.client.raw(daemon.STATUS, daemon.STATUS.params())
    except DaemonAbsent:
        return _start_now(ctx)
    status = ctx.client.view(daemon.STATUS, body)
    if ctx.args.simulate and not status.daemon.simulated:
        raise CliError(
            f"vastd runs already (pid {status.daemon.pid}), and not on the simulated Vast",
            hint="stop it first, or give the simulated one its own VASTD_STATE_DIR",
        )
    return _tell_started(ctx, body, status, "vastd runs already")


def _start_now(ctx: Context) -> int:
    environment = dict(os.environ)
    if ctx.args.socket:
        environment["VASTD_SOCKET"] = os.path.abspath(ctx.args.socket)
    place = candidates(ctx.args.socket)[0]
    if paths.too_long(place):
        raise CliError(
            f"socket path {str(place)!r} is longer than the system allows",
            hint="set VASTD_SOCKET to a shorter path",
            exit_code=ExitCode.AUTH_OR_CONFIG,
        )
    process = spawn(["--simulate"] if ctx.args.simulate else [], log_path(), environment)
    limit_s = ctx.args.timeout
    status = (
        await_answer(ctx.client, process.poll, log_path(), limit_s=limit_s)
        if limit_s
        else await_answer(ctx.client, process.poll, log_path())
    )
    body = ctx.client.raw(daemon.STATUS, daemon.STATUS.params())
    # It goes on without us on purpose; without this the interpreter would warn of it.
    process.returncode = 0
    return _tell_started(ctx, body, status, "vastd started")


def _tell_started(ctx: Context, body: bytes, status: DaemonStatusView, what: str) -> int:
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    simulated = " on the simulated Vast" if status.daemon.simulated else ""
    ctx.screen.out(f"{what}{simulated}: pid {status.daemon.pid}, socket {status.socket}")
    _warn(ctx, status)
    return ExitCode.OK


def _warn(ctx: Context, status: DaemonStatusView) -> None:
    if status.key_origin is None and not status.daemon.simulated:
        ctx.screen.step("warning", "there is no Vast key; `vastctl doctor` says how to give one")
    if status.renting_locked:
        ctx.screen.step("warning", f"nothing new is rented: {status.renting_locked}")
        ctx.screen.note("  when you have looked: `vastctl daemon acknowledge`")
    for warning in status.warnings:
        ctx.screen.step("warning", warning)


def _stop(ctx: Context) -> int:
    try:
        pid = ctx.client.call(daemon.STATUS, daemon.STATUS.params()).daemon.pid
    except DaemonAbsent as gone:
        ctx.screen.note(f"{gone}: nothing to stop")
        return ExitCode.OK
    try:
        wish = daemon.StopParams(request_id=new_request_id())
        # Sent once: a lost answer means that it is stopping, and a repeat would wait for nobody.
        body = ctx.client.once(daemon.STOP.name, encode(wish))
    except ConnectionLost:
        body = b""
    if not await_end(pid):
        raise CliError(
            f"vastd (pid {pid}) was asked to stop and still runs",
            hint="see `vastctl daemon logs`; ending it hard loses nothing that is on record",
            exit_code=ExitCode.TIMED_OUT,
        )
    if ctx.json and body:
        ctx.emit(body)
    elif not ctx.json:
        _tell_stopped(ctx, pid, body)
    return ExitCode.OK


def _tell_stopped(ctx: Context, pid: int, body: bytes) -> None:
    ctx.screen.out(f"vastd stopped (pid {pid})")
    if not body:
        return
    left = ctx.client.view(daemon.STOP, body)
    if left.rentals_live:
        machines = words.count(left.rentals_live, "machine")
        ctx.screen.step(
            "warning",
            f"{machines} on record, {words.rate(left.dph_usd)}: billing goes on without it",
        )


def _status(ctx: Context) -> int:
    body = ctx.client.raw(daemon.STATUS, daemon.STATUS.params())
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    status = ctx.client.view(daemon.STATUS, body)
    info = status.daemon
    age = words.age(info.started_at, ctx.now())
    inventory = status.inventory_state
    if status.inventory_as_of:
        inventory += f", {words.age(status.inventory_as_of, ctx.now())} old"
    if status.inventory_error:
        inventory += f": {status.inventory_error}"
    simulated = " (simulated)" if info.simulated else ""
    rows = [
        ("vastd", f"{info.version}, pid {info.pid}, up {age}"),
        ("socket", status.socket),
        ("state", status.state_dir),
        ("Vast", status.vast_url + simulated),
        ("key", status.key_origin or "none"),
        ("machines", f"{status.rentals_live}, {words.rate(status.dph_usd)}"),
        ("jobs", f"{status.jobs_active} active"),
        ("inventory", inventory),
    ]
    for line in pairs(rows):
        ctx.screen.out(line)
    _warn(ctx, status)
    return ExitCode.OK


def _logs(ctx: Context) -> int:
    log = log_path()
    if not log.exists():
        raise CliError(
            f"there is no log at {log}",
            hint="a vastd started by systemd logs to `journalctl --user -u vastd`, "
            "one in a terminal to that terminal",
            exit_code=ExitCode.NOT_FOUND,
        )
    for line in tail(log, ctx.args.lines):
        ctx.screen.out(line)
    if not ctx.args.follow:
        return ExitCode.OK
    ctx.screen.flush()
    with suppress(KeyboardInterrupt):
        _follow_file(ctx, log)
    return ExitCode.OK


def _follow_file(ctx: Context, log: Path) -> None:
    """Print what is appended; a file cut short or replaced is read from its start."""
    with log.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        while True:
            if os.stat(log).st_size < position:
                position = file.seek(0)
            data = file.read()
            position += len(data)
            ctx.screen.log(data)
            time.sleep(LOOK_EVERY_S)


def _acknowledge(ctx: Context) -> int:
    wish = rentals.ReconcileParams(acknowledge=True, request_id=new_request_id())
    body = ctx.client.raw(rentals.RECONCILE, wish)
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    view = ctx.client.view(rentals.RECONCILE, body)
    for line in inventory_lines(view.inventory):
        ctx.screen.out(line)
    strangers = [("orphan", one) for one in view.orphans] + [
        ("foreign", one) for one in view.foreign
    ]
    if strangers:
        rows = [
            (
                kind,
                str(one.instance_id),
                one.label or "-",
                one.status or "-",
                words.rate(one.dph_usd),
            )
            for kind, one in strangers
        ]
        for line in table(("KIND", "INSTANCE", "LABEL", "STATUS", "PRICE"), rows):
            ctx.screen.out(line)
    if view.renting_locked:
        ctx.screen.step("warning", f"renting stays locked: {view.renting_locked}")
        return ExitCode.REFUSED
    ctx.screen.step("info", "acknowledged: vastd may rent")
    return ExitCode.OK
