"""`doctor`: checks before money is spent, each with its remedy."""

import os
import sys
from argparse import ArgumentParser
from typing import Final

from vastctl import words
from vastctl.context import Context
from vastctl.errors import DaemonAbsent
from vastctl.link import candidates
from vastd_protocol import paths
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import doctor
from vastd_protocol.methods.doctor import CheckView

EXAMPLES: Final = """\
  vastctl doctor
  vastctl doctor --json"""

KEY_COMMAND: Final = "(umask 077; mkdir -p ~/.config/vastai; cat > ~/.config/vastai/vast_api_key)"
DOCTOR_S: Final = 120.0  # guess; it asks Vast several things, at Vast's pace


def arguments(parser: ArgumentParser) -> None:
    """There are no options of its own."""


def run(ctx: Context) -> int:
    try:
        body = ctx.client.raw(doctor.RUN, doctor.RUN.params(), limit_s=DOCTOR_S)
    except DaemonAbsent as gone:
        return _without_daemon(ctx, gone)
    found = ctx.client.view(doctor.RUN, body)
    if ctx.json:
        ctx.emit(body)
    else:
        _tell(ctx, found.checks)
        ctx.screen.out(
            f"{words.count(found.warnings, 'warning')}, {words.count(found.blockers, 'blocker')}"
        )
    return ExitCode.AUTH_OR_CONFIG if found.blockers else ExitCode.OK


def _tell(ctx: Context, checks: list[CheckView]) -> None:
    for check in checks:
        level = check.level if check.level == "ok" else check.level.upper()
        ctx.screen.out(f"{level:<8} {check.text}")
        if check.fix and check.level != "ok":
            ctx.screen.out(f"         Fix: {check.fix}")


def _without_daemon(ctx: Context, gone: DaemonAbsent) -> int:
    checks = [
        CheckView(id="daemon", level="blocker", text=str(gone), fix=gone.hint),
        *_local_checks(ctx),
    ]
    blockers = sum(1 for check in checks if check.level == "blocker")
    warnings = sum(1 for check in checks if check.level == "warning")
    if ctx.json:
        ctx.emit_own(doctor.DoctorView(checks=checks, blockers=blockers, warnings=warnings))
    else:
        _tell(ctx, checks)
        ctx.screen.out(
            f"{words.count(warnings, 'warning')}, {words.count(blockers, 'blocker')}; "
            "key, credit and machines are checked by vastd, start it and ask again"
        )
    return ExitCode.UNREACHABLE


def _local_checks(ctx: Context) -> list[CheckView]:
    """Check what can be seen without vastd; never the key itself, only that there is one."""
    from shutil import disk_usage, which

    checks = [_check("python", True, f"Python {sys.version.split()[0]}", "")]
    for tool, level in (("ssh", "blocker"), ("rsync", "warning")):
        found = which(tool)
        checks.append(
            _check(tool, bool(found), f"{tool}: {found or 'not found'}", f"install {tool}", level)
        )
    place = candidates(ctx.args.socket)[0]
    checks.append(
        _check(
            "socket",
            not paths.too_long(place),
            f"socket path {place}",
            "set VASTD_SOCKET to a shorter path",
            "blocker",
        )
    )
    checks.append(_key_check())
    above = paths.state_dir()
    while not above.exists():
        above = above.parent
    free = disk_usage(above).free
    checks.append(
        _check("disk", free > 10**9, f"{words.size(free)} free at {above}", "make room", "warning")
    )
    return checks


def _check(ident: str, good: bool, text: str, fix: str, level: str = "blocker") -> CheckView:
    return CheckView(id=ident, level="ok" if good else level, text=text, fix=None if good else fix)


def _key_check() -> CheckView:
    if os.environ.get("VAST_API_KEY"):
        return _check("key", True, "Vast key: from VAST_API_KEY, if vastd is started here", "")
    config = os.environ.get("XDG_CONFIG_HOME", "")
    base = config if config.startswith("/") else os.path.expanduser("~/.config")
    for place in (
        os.path.join(base, "vastai", "vast_api_key"),
        os.path.expanduser("~/.vast_api_key"),
    ):
        if os.path.isfile(place):
            return _check("key", True, f"Vast key: in {place}", "")
    return _check(
        "key", False, "Vast key: none found",
        f"put it into {os.path.join(base, 'vastai', 'vast_api_key')}: `{KEY_COMMAND}`, paste it, "
        "Ctrl-D; or set VAST_API_KEY; or use `vastd --simulate`",
    )  # fmt: skip
