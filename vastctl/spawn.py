"""Starting `vastd` as a process of its own, waiting until it answers, and seeing it end."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.json import encode

from vastctl.client import Client
from vastctl.errors import CliError, ConnectionLost, DaemonAbsent
from vastctl.link import live_on_record
from vastd_protocol import paths
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import daemon
from vastd_protocol.methods.daemon import DaemonStatusView

START_S: Final = 30.0  # guess; it replays its store and asks Vast once
STOP_S: Final = 30.0  # guess; transfers under way are cut short, nothing is destroyed
LOOK_EVERY_S: Final = 0.05  # guess
TAIL_BYTES: Final = 4096
TAIL_LINES: Final = 12


def vastd_command() -> list[str]:
    """Return how to run `vastd`: beside this interpreter, from PATH, or as a module."""
    beside = os.path.join(os.path.dirname(sys.executable), "vastd")
    if os.access(beside, os.X_OK):
        return [beside]
    from shutil import which

    found = which("vastd")
    return [found] if found else [sys.executable, "-m", "vastd"]


def spawn(
    options: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start vastd in a session of its own, so that no terminal's end ends it; log to `log`."""
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as exc:
        state = paths.state_dir()
        live = live_on_record(state)
        noun = "rental is" if live == 1 else "rentals are"
        raise CliError(
            f"cannot start vastd: its log {log} cannot be written: {exc.strerror}",
            hint=(
                f"{live} {noun} on record and may bill, watched by nobody: make {state} writable, "
                f"or watch them from a copy: `cp -a {state} COPY`, then "
                "`VASTD_STATE_DIR=COPY vastctl daemon start`; an empty directory would know none"
                if live
                else f"make {state} writable; no live rental is on record there"
            ),
            exit_code=ExitCode.AUTH_OR_CONFIG,
        ) from exc
    try:
        return subprocess.Popen(
            # vastd begins a new log file when this one has grown large.
            [*vastd_command(), *options, "--log-file", str(log)],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd="/",
            env=None if environment is None else dict(environment),
            start_new_session=True,
        )
    except OSError as exc:
        raise CliError(
            f"cannot start vastd: {exc.strerror}", hint="is it installed? `pip install vastd`"
        ) from exc
    finally:
        os.close(descriptor)


def await_answer(
    client: Client,
    ended: Callable[[], int | None],
    log: Path,
    *,
    since: int = 0,
    limit_s: float = START_S,
    pause: Callable[[float], None] = time.sleep,
) -> DaemonStatusView:
    """Return the status of a daemon that was just started, as soon as it answers.

    `ended` gives the exit code of the process once it has one; what it logged begins at byte
    `since`.

    Raises:
        CliError: it ended, or does not answer in time; the end of its log is told.
    """
    deadline = time.monotonic() + limit_s
    while True:
        try:
            body = client.once(daemon.STATUS.name, encode(daemon.STATUS.params()))
            return client.view(daemon.STATUS, body)
        except (DaemonAbsent, ConnectionLost):
            # Lost: its socket was open already when what it needs failed.
            code = ended()
            if code is not None:
                # Nothing will listen any more; what it wrote last says why.
                raise CliError(
                    f"vastd ended at once with code {code}{tail_text(log, since)}",
                    hint=f"its whole log: {log}",
                    exit_code=code if 0 < code < 125 else 1,
                ) from None
            if time.monotonic() >= deadline:
                raise CliError(
                    f"vastd was started and does not answer within {limit_s:g} s{tail_text(log, since)}",
                    hint=f"its whole log: {log}",
                ) from None
        pause(LOOK_EVERY_S)


def log_size(log: Path) -> int:
    """Return how many bytes a log holds; 0 when there is none."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def tail(log: Path, lines: int = TAIL_LINES, since: int = 0) -> list[str]:
    """Return the last lines of a log from byte `since` on; none if it cannot be read."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            first = since if since <= size else 0  # it was begun anew meanwhile
            file.seek(max(first, size - max(TAIL_BYTES, 400 * lines)))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-lines:]


def tail_text(log: Path, since: int = 0) -> str:
    """Return the end of a log as part of a message, or nothing."""
    found = tail(log, since=since)
    return ":\n  " + "\n  ".join(found) if found else ""


def await_end(pid: int, *, limit_s: float = STOP_S) -> bool:
    """Return whether process `pid` ended within `limit_s`."""
    deadline = time.monotonic() + limit_s
    while alive(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def alive(pid: int) -> bool:
    """Return whether process `pid` exists, a zombie of ours excepted."""
    try:
        done, _ = os.waitpid(pid, os.WNOHANG)  # a child of ours would stay a zombie
        if done == pid:
            return False
    except ChildProcessError:
        pass  # not our child: the usual case
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
