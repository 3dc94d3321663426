"""`daemon install` and `uninstall`: vastd as a service of the user's systemd, and the way back."""

import os
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

from vastctl import manager, words
from vastctl.context import Context
from vastctl.errors import CliError
from vastctl.link import live_on_record
from vastctl.spawn import vastd_command
from vastctl.units import SERVICE, SOCKET, UnitFile, unit_dir, unit_files
from vastd_protocol import paths
from vastd_protocol.errors import ExitCode

ENDED: Final = "ended: "  # how vastd begins its last status (vastd/__main__.py)
SHOWN: Final = ("ExecStart=", "Environment=", "ListenStream=")  # what differs between users


class UnitResult(Struct, frozen=True, kw_only=True):
    """One unit file and what became of it."""

    path: str
    state: str  # new, changed, unchanged, removed, absent


class InstallResult(Struct, frozen=True, kw_only=True):
    """What `--json` prints. `todo` are the commands that could not be run here."""

    units: list[UnitResult]
    manager: bool  # a systemd user manager answered
    running: bool  # vastd runs by it now
    linger: bool | None  # None: cannot be told
    todo: list[str]
    warnings: list[str]


def install(ctx: Context) -> int:
    """Write the units, enable them and start vastd by them; say what could not be done."""
    if sys.platform != "linux":
        raise CliError(
            "systemd exists only on Linux", hint="`vastctl daemon start` works without it"
        )
    files = unit_files(vastd_command(), os.environ)
    _confirm(ctx, files)
    for file in files:
        if file.state != "unchanged":
            file.write()
    if not ctx.json:
        _tell_files(ctx, files)
    found = manager.state()
    todo: list[str] = []
    warnings = _key_warnings()
    running = False
    if found is None:
        todo = _orders()
    else:
        running = _take_into_force(ctx, files, todo, warnings)
    lingers = manager.linger()
    if not lingers:
        todo.append(f"loginctl enable-linger {manager.user()}")
    _report(
        ctx,
        InstallResult(
            units=[UnitResult(path=str(f.path), state=f.state) for f in files],
            manager=found is not None,
            running=running,
            linger=lingers,
            todo=todo,
            warnings=warnings,
        ),
    )
    return ExitCode.OK


def uninstall(ctx: Context) -> int:
    """Stop vastd if systemd runs it, disable and remove the units. Destroys no machine."""
    there = [unit_dir() / name for name in (SERVICE, SOCKET)]
    present = [path for path in there if path.exists()]
    found = manager.state()
    if found is not None and found.service.up and (live := live_on_record(paths.state_dir())):
        ctx.confirm(
            "stop vastd and remove its service",
            [f"{words.count(live, 'machine')} on record: billing goes on, and nobody watches"],
        )
    if present and found is not None:
        manager.tell("disable", "--now", SOCKET, SERVICE)
    for path in present:
        try:
            path.unlink()
        except OSError as exc:
            raise CliError(f"cannot remove {path}: {exc.strerror}") from exc
    if present and found is not None:
        manager.tell("daemon-reload")
    elif present:
        _unlink_wants()
    units = [
        UnitResult(path=str(path), state="removed" if path in present else "absent")
        for path in there
    ]
    result = InstallResult(
        units=units, manager=found is not None, running=False, linger=manager.linger(),
        todo=[], warnings=[],
    )  # fmt: skip
    if ctx.json:
        ctx.emit_own(result)
        return ExitCode.OK
    if not present:
        ctx.screen.note(f"there is no unit of vastd in {unit_dir()}: nothing to remove")
    for path in present:
        ctx.screen.out(f"removed    {path}")
    return ExitCode.OK


def _confirm(ctx: Context, files: list[UnitFile]) -> None:
    """Ask before a file that differs is replaced: somebody may have edited it."""
    changed = [file for file in files if file.state == "changed"]
    if not changed:
        return
    from difflib import unified_diff

    lines: list[str] = []
    for file in changed:
        before, after = (file.before or "").splitlines(), file.text.splitlines()
        lines.append(str(file.path))
        lines += list(unified_diff(before, after, "there now", "to be written", "", "", 0, ""))
    ctx.confirm(f"replace {' and '.join(file.path.name for file in changed)}", lines)


def _tell_files(ctx: Context, files: list[UnitFile]) -> None:
    for file in files:
        ctx.screen.out(f"{file.state:<10} {file.path}")
        for line in file.text.splitlines():
            if line.startswith(SHOWN):
                ctx.screen.out(f"           {line}")


def _orders() -> list[str]:
    return [manager.command("daemon-reload"), manager.command("enable", "--now", SERVICE)]


def _take_into_force(
    ctx: Context, files: list[UnitFile], todo: list[str], warnings: list[str]
) -> bool:
    """Load and enable the units and start vastd by them; return whether it runs that way."""
    manager.tell("daemon-reload")
    found = manager.state()
    if found is None or not found.installed:
        warnings.append(
            f"the user manager does not look into {unit_dir()}: XDG_CONFIG_HOME is set here and not there"
        )
        todo += _orders()
        return False
    manager.tell("enable", SERVICE)
    holder = manager.holder(paths.state_dir())
    if holder is not None and holder != found.service.pid:
        warnings.append(
            f"a vastd that systemd did not start runs (pid {holder}); it goes on for now"
        )
        todo += ["vastctl daemon stop", "vastctl daemon start"]
        return False
    if found.service.up and any(file.state != "unchanged" for file in files):
        # The socket cannot be opened anew under a running service. A stop destroys nothing.
        manager.tell("stop", SOCKET, SERVICE)
    start_service()
    return True


def start_service() -> None:
    """Start vastd by the manager; returns when it is ready.

    Raises:
        CliError: it did not start; the exit code is vastd's.
    """
    found = manager.state()
    if found is not None and "failed" in (found.service.active, found.socket.active):
        manager.tell("reset-failed", SERVICE, SOCKET)
    try:
        manager.tell("start", SERVICE)
    except CliError as exc:
        after = manager.state()
        code = after.service.exit_code if after is not None else 0
        last = after.service.status_text if after is not None else ""
        # What vastd said last is the cause; systemctl only says that there is one.
        raise CliError(
            f"vastd did not start: {last.removeprefix(ENDED)}"
            if last.startswith(ENDED)
            else str(exc),
            hint=exc.hint,
            exit_code=code if 0 < code < 125 else ExitCode.FAILED,
        ) from None


def _key_warnings() -> list[str]:
    """A key in the shell's environment is not seen by a service, and never written into a unit."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    base = config if config.startswith("/") else os.path.expanduser("~/.config")
    official = Path(base, "vastai", "vast_api_key")
    if not os.environ.get("VAST_API_KEY") or official.exists():
        return []
    return [
        f"VAST_API_KEY of this shell is not seen by the service: put the key into {official} (mode 600)"
    ]


def _unlink_wants() -> None:
    """Take back what `enable` made, where no manager can be told to."""
    for wants in ("default.target.wants", "sockets.target.wants"):
        for name in (SERVICE, SOCKET):
            (unit_dir() / wants / name).unlink(missing_ok=True)


def _report(ctx: Context, result: InstallResult) -> None:
    if ctx.json:
        ctx.emit_own(result)
        return
    if result.running:
        ctx.screen.out(f"vastd is run by systemd now: {SERVICE}, enabled")
    elif not result.manager:
        ctx.screen.note("no systemd user manager answers here, so nothing was enabled or started")
    for warning in result.warnings:
        ctx.screen.step("warning", warning)
    if result.linger is False:
        ctx.screen.step(
            "warning",
            "linger is off: systemd ends vastd when you log out, and nobody watches your machines",
        )
    if result.todo:
        ctx.screen.note("still to be done:")
    for command in result.todo:
        ctx.screen.note(f"  {command}")
