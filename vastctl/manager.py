"""The user's service manager (systemd), asked and told by its own programs.

Rules
1. No manager, or one that does not answer, is an ordinary case: then vastd is a plain process.
2. The unit is used only for the state directory it was installed for: another `VASTD_STATE_DIR`
   in the shell means another vastd.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from vastctl.errors import CliError
from vastctl.units import SERVICE, SOCKET

ASK_S: Final = 10.0  # guess; a local question
# The unit allows 300 s for a start and extends a stop to 210 s while a create is under way.
TELL_S: Final = 330.0
LINGER_DIR: Final = Path("/var/lib/systemd/linger")  # systemd-logind keeps a file per user there
_ASKED: Final = (
    "Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "Result",
    "ExecMainStatus", "FragmentPath", "Environment", "StatusText",
)  # fmt: skip
_IDENTITY: Final = ("VASTD_STATE_DIR", "VASTD_SOCKET")


class Unit(Struct, frozen=True, kw_only=True):
    """What the manager says about one unit; its own words."""

    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    enabled: str = ""  # "" when it knows no file
    pid: int = 0
    result: str = "success"
    exit_code: int = 0
    file: str = ""
    environment: str = ""
    status_text: str = ""

    @property
    def up(self) -> bool:
        """Return whether it runs, listens, starts or stops."""
        return self.active not in ("inactive", "failed")


class State(Struct, frozen=True, kw_only=True):
    """The manager answers; what it says about vastd."""

    service: Unit
    socket: Unit

    @property
    def installed(self) -> bool:
        """Return whether the manager knows the service."""
        return self.service.load == "loaded"

    def fits(self, environ: Mapping[str, str]) -> bool:
        """Return whether the installed service is the vastd this shell means."""
        import shlex

        words = shlex.split(self.service.environment)
        has = dict(word.partition("=")[::2] for word in words)
        return all(_absolute(has.get(n, "")) == _absolute(environ.get(n, "")) for n in _IDENTITY)


def state() -> State | None:
    """Return what the user's manager says about vastd; None if there is none."""
    environment = _environment()
    # systemctl itself tries this socket first; without it there is nobody to be asked.
    if not Path(environment["XDG_RUNTIME_DIR"], "systemd", "private").exists():
        return None
    words = ["systemctl", "--user", "show", f"--property={','.join(_ASKED)}", SERVICE, SOCKET]
    done = _call(words, ASK_S)
    if done is None or done.returncode != 0:
        return None
    found = {}
    for block in done.stdout.strip().split("\n\n"):
        facts = dict(line.partition("=")[::2] for line in block.splitlines())
        found[facts.get("Id", "")] = _unit(facts)
    return State(service=found.get(SERVICE, Unit()), socket=found.get(SOCKET, Unit()))


def here(environ: Mapping[str, str], socket: str | None) -> State | None:
    """Return the manager's state if the installed service is the vastd that is meant.

    `socket` is the one named with `--socket`: a service has its own.
    """
    found = state()
    return found if found and found.installed and not socket and found.fits(environ) else None


def tell(*words: str) -> None:
    """Give the manager an order and wait until it is carried out.

    Raises:
        CliError: it was not; with systemctl's own words.
    """
    done = _call(["systemctl", "--user", *words], TELL_S)
    if done is None:
        raise CliError(f"`{command(*words)}` does not answer", hint="is systemd all right?")
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()
        raise CliError(
            f"`{command(*words)}` failed: {why[0] if why else f'exit code {done.returncode}'}",
            hint="see `systemctl --user status vastd` and `vastctl daemon logs`",
        )


def command(*words: str) -> str:
    """Return an order as one types it."""
    return " ".join(("systemctl", "--user", *words))


def linger() -> bool | None:
    """Return whether the user's manager outlives his sessions; None where nobody can tell."""
    done = _call(["loginctl", "show-user", user(), "--property=Linger", "--value"], ASK_S)
    if done is not None and done.stdout.strip() in ("yes", "no"):
        return done.stdout.strip() == "yes"
    # logind does not know a user without a session; its files tell all the same.
    return (LINGER_DIR / user()).exists() if LINGER_DIR.parent.is_dir() else None


def journal(lines: int, *, follow: bool) -> "subprocess.Popen[bytes]":
    """Start reading the service's log; its output is in `stdout`.

    Raises:
        CliError: there is no journalctl.
    """
    words = ["journalctl", "--user", f"--unit={SERVICE}", "--no-pager", f"--lines={lines}"]
    try:
        return subprocess.Popen(
            [*words, *(["--follow"] if follow else [])],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=_environment(),
        )  # fmt: skip
    except OSError as exc:
        raise CliError(f"cannot read the journal: {exc.strerror}") from exc


def holder(state_dir: Path) -> int | None:
    """Return the process that owns a state directory; None if none does.

    Only looked at, never locked: a vastd that starts in that moment would be refused.
    """
    try:
        inode = (state_dir / "vastd.lock").stat().st_ino
        pid = int((state_dir / "vastd.lock").read_text().strip() or 0)
        held = Path("/proc/locks").read_text()
    except (OSError, ValueError):
        return None
    for line in held.splitlines():
        parts = line.split()  # 1: FLOCK ADVISORY WRITE pid major:minor:inode start end (proc(5))
        same = len(parts) > 5 and parts[1] == "FLOCK" and parts[5].rpartition(":")[2] == str(inode)
        if same and parts[4] == str(pid):
            return pid
    return None


def user() -> str:
    """Return the user's name, or number if he has none."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _unit(facts: Mapping[str, str]) -> Unit:
    def number(name: str) -> int:
        text = facts.get(name, "")
        return int(text) if text.isdecimal() else 0

    return Unit(
        load=facts.get("LoadState", ""),
        active=facts.get("ActiveState", ""),
        sub=facts.get("SubState", ""),
        enabled=facts.get("UnitFileState", ""),
        pid=number("MainPID"),
        result=facts.get("Result", ""),
        exit_code=number("ExecMainStatus"),
        file=facts.get("FragmentPath", ""),
        environment=facts.get("Environment", ""),
        status_text=facts.get("StatusText", ""),
    )


def _environment() -> dict[str, str]:
    """Return our environment with the runtime directory `su` and cron jobs lack."""
    environment = {**os.environ, "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
    if not environment.get("XDG_RUNTIME_DIR"):
        environment["XDG_RUNTIME_DIR"] = f"/run/user/{os.getuid()}"
    return environment


def _call(words: Sequence[str], limit_s: float) -> "subprocess.CompletedProcess[str] | None":
    """Return what a program said; None if it is missing or does not end in time."""
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            env=_environment(), timeout=limit_s, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None


def _absolute(path: str) -> str:
    return os.path.abspath(path) if path else ""
