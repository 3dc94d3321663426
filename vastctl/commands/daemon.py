"""`daemon start|stop|status|logs|install|uninstall|acknowledge`: vastd itself."""

import os
from argparse import ArgumentParser
from typing import Final

from msgspec.json import encode

from vastctl import manager, strangers, values, words
from vastctl.client import new_request_id
from vastctl.commands.ls import inventory_lines
from vastctl.context import Context
from vastctl.daemon_log import log_path, show_log
from vastctl.errors import AnswerLate, CliError, ConnectionLost, DaemonAbsent
from vastctl.link import candidates
from vastctl.spawn import START_S, await_answer, await_end, log_size, spawn
from vastctl.table import pairs
from vastctl.units import SERVICE, SOCKET
from vastd_protocol import paths
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import daemon, reconcile
from vastd_protocol.methods.daemon import DaemonStatusView

ASK_S: Final = 10.0  # guess: a status is answered from memory, at once
ACTIONS: Final = {
    "start": "start vastd in the background and wait until it answers",
    "stop": "stop it; machines and jobs go on, nothing is destroyed",
    "status": "print how it is",
    "logs": "print or follow its log: systemd's journal, or the file of `daemon start`",
    "install": "make it a service of your systemd: started at boot, restarted after a crash",
    "uninstall": "stop and remove that service; machines go on, nothing is destroyed",
    "acknowledge": "compare with Vast and allow renting again after a damaged store",
}
EXAMPLES: Final = """\
  vastctl daemon start
  vastctl daemon start --simulate        everything at no cost, on the simulated Vast
  vastctl daemon install                 as a service that outlives crashes and reboots
  vastctl daemon logs -f"""

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
    elif action == "install":
        parser.add_argument(
            "--remove", action="store_true", help="take the service back, as `uninstall` does"
        )


def run(ctx: Context) -> int:
    actions = {
        "start": _start,
        "stop": _stop,
        "status": _status,
        "logs": show_log,
        "install": _install,
        "uninstall": _uninstall,
        "acknowledge": _acknowledge,
    }
    return actions[ctx.args.action](ctx)


def _install(ctx: Context) -> int:
    from vastctl import install

    return install.uninstall(ctx) if ctx.args.remove else install.install(ctx)


def _uninstall(ctx: Context) -> int:
    from vastctl import install

    return install.uninstall(ctx)


def _start(ctx: Context) -> int:
    service = manager.here(os.environ, ctx.args.socket)
    # To ask would start it: systemd listens for it.
    if service is not None and not service.service.up and not ctx.args.simulate:
        return _start_service(ctx)
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


def _start_service(ctx: Context) -> int:
    """Start the installed service, unless another vastd holds its state."""
    from vastctl.install import start_service

    holder = manager.holder(paths.state_dir())
    if holder is not None:
        raise CliError(
            f"a vastd that systemd did not start runs already (pid {holder})",
            hint="`vastctl daemon stop` ends it, then start it again: machines and jobs go on",
        )
    start_service()
    body = ctx.client.raw(daemon.STATUS, daemon.STATUS.params())
    status = ctx.client.view(daemon.STATUS, body)
    return _tell_started(ctx, body, status, "vastd started by systemd")


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
    log = log_path()
    since = log_size(log)
    process = spawn(["--simulate"] if ctx.args.simulate else [], log, environment)
    limit_s = ctx.args.timeout or START_S
    status = await_answer(ctx.client, process.poll, log, since=since, limit_s=limit_s)
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
    service = manager.here(os.environ, ctx.args.socket)
    # A socket that stays open would start vastd again at the next command.
    if service is not None and (service.service.up or service.socket.up):
        holder = manager.holder(paths.state_dir())
        if holder in (None, service.service.pid):
            return _stop_service(ctx, service)
    try:
        left = ctx.client.view(daemon.STATUS, _ask(ctx))
        pid = left.daemon.pid
    except DaemonAbsent as gone:
        ctx.screen.note(f"{gone}: nothing to stop")
        if ctx.json:
            ctx.emit_own(daemon.StopView(rentals_live=0, dph_usd=0.0))
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
    if ctx.json:
        # A lost answer means that it stopped; what it leaves is what it said just before.
        ctx.emit(
            body or encode(daemon.StopView(rentals_live=left.rentals_live, dph_usd=left.dph_usd))
        )
    elif not ctx.json:
        _tell_stopped(ctx, pid, body)
    return ExitCode.OK


def _stop_service(ctx: Context, service: manager.State) -> int:
    pid = service.service.pid
    body = b""
    if pid:
        status = ctx.client.call(daemon.STATUS, daemon.STATUS.params())
        left = daemon.StopView(rentals_live=status.rentals_live, dph_usd=status.dph_usd)
        body = encode(left)
    manager.tell("stop", SOCKET, SERVICE)
    if ctx.json:
        ctx.emit(body or encode(daemon.StopView(rentals_live=0, dph_usd=0.0)))
    elif pid:
        _tell_stopped(ctx, pid, body)
    else:
        ctx.screen.note("vastd did not run; its socket is closed now")
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


def _ask(ctx: Context) -> bytes:
    """Return the daemon's status.

    Raises:
        CliError: it does not answer: it hangs, or systemd listens for one that does not start.
    """
    try:
        return ctx.client.raw(daemon.STATUS, daemon.STATUS.params(), limit_s=ASK_S)
    except AnswerLate as exc:
        holder = manager.holder(paths.state_dir())
        service = manager.here(os.environ, ctx.args.socket)
        if holder is None and service is not None:
            what = f"vastd does not start: {SERVICE} is {service.service.active}"
            raise CliError(what, hint="`vastctl daemon logs` says why") from exc
        who = "whoever listens at its socket" if holder is None else f"vastd (pid {holder})"
        raise CliError(
            f"{who} accepts connections and does not answer",
            hint="`vastctl daemon logs` may say why; ending it hard loses nothing on record: "
            f"`kill -9 {holder or 'PID'}`, then `vastctl daemon start`",
            exit_code=ExitCode.TIMED_OUT,
        ) from exc


def _status(ctx: Context) -> int:
    try:
        body = _ask(ctx)
    except (ConnectionLost, DaemonAbsent) as gone:
        service = manager.here(os.environ, ctx.args.socket)
        if service is not None and service.service.active == "failed":
            gone.hint = (
                f"{SERVICE} failed ({service.service.result}, exit code"
                f" {service.service.exit_code}): `vastctl daemon logs` says why"
            )
        raise
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
        ("run by", _run_by(info.pid, manager.state())),
    ]
    for line in pairs(rows, columns=ctx.screen.out_columns):
        ctx.screen.out(line)
    _warn(ctx, status)
    return ExitCode.OK


def _run_by(pid: int, found: manager.State | None) -> str:
    """Say which of the two ways this vastd runs, and what becomes of it at a logout."""
    if found is None:
        return "itself; no systemd user manager answers here"
    service = found.service
    if service.pid != pid:
        installed = f"; {SERVICE} is installed and {service.active}" if found.installed else ""
        return f"itself, not systemd{installed}"
    lingers = {True: "on", False: "off: it ends when you log out", None: "unknown"}
    return (
        f"systemd: {SERVICE} {service.active} ({service.sub}), {service.enabled or 'unknown'}; "
        f"linger {lingers[manager.linger()]}"
    )


def _acknowledge(ctx: Context) -> int:
    wish = reconcile.ReconcileParams(acknowledge=True, request_id=new_request_id())
    body = ctx.client.raw(reconcile.RUN, wish)
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    view = ctx.client.view(reconcile.RUN, body)
    for line in inventory_lines(view.inventory):
        ctx.screen.out(line)
    for line in strangers.lines_of([*view.orphans, *view.foreign], ctx.now()):
        ctx.screen.out(line)
    if view.renting_locked:
        ctx.screen.step("warning", f"renting stays locked: {view.renting_locked}")
        return ExitCode.REFUSED
    ctx.screen.step("info", "acknowledged: vastd may rent")
    return ExitCode.OK
