"""vastd's own log: systemd's journal if the service is meant, else the file of `daemon start`."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from vastctl import manager
from vastctl.context import Context
from vastctl.errors import CliError
from vastctl.spawn import tail
from vastd_protocol import paths
from vastd_protocol.errors import ExitCode

# Without /var/log/journal journald keeps no files that a user may read (journald.conf(5), SplitMode=).
JOURNAL_HINT: Final = (
    "users can read their journal only if it is kept on disk: `sudo mkdir -p /var/log/journal` and "
    "`sudo systemctl restart systemd-journald`; `systemctl --user status vastd` tells the state"
)
LOOK_EVERY_S: Final = 0.3  # guess; a log need not be livelier


def log_path() -> Path:
    """Return the log of a daemon started here."""
    return paths.state_dir() / "logs" / "vastd.log"


def show_log(ctx: Context) -> int:
    """Print the last lines, and what follows if that is asked for.

    Raises:
        CliError: there is no log, or journalctl failed.
    """
    service = manager.here(os.environ, ctx.args.socket)
    # A vastd that was started by hand although the service is there logs to the file.
    if service is not None and manager.holder(paths.state_dir()) in (None, service.service.pid):
        return _show_journal(ctx)
    log = log_path()
    if not log.exists():
        raise CliError(
            f"there is no log at {log}",
            hint="a vastd started by systemd logs to `journalctl --user -u vastd`, "
            "one in a terminal to that terminal",
            exit_code=ExitCode.NOT_FOUND,
        )
    _tell(ctx, str(log), tail(log, ctx.args.lines))
    if ctx.args.follow:
        ctx.screen.flush()
        with suppress(KeyboardInterrupt):
            _follow_file(ctx, log)
    return ExitCode.OK


def _tell(ctx: Context, source: str, lines: list[str]) -> None:
    """Write lines; as one document unless more of them follow."""
    if ctx.json and not ctx.args.follow:
        ctx.emit_own({"source": source, "lines": lines})
        return
    for line in lines:
        if ctx.json:
            ctx.emit_own({"line": line})
        else:
            ctx.screen.out(line)


def _show_journal(ctx: Context) -> int:
    """Print what journalctl says of the service, until its end or Ctrl-C."""
    reader = manager.journal(ctx.args.lines, follow=ctx.args.follow)
    assert reader.stdout is not None
    lines: list[str] = []
    try:
        for raw in reader.stdout:
            lines.append(raw.decode(errors="replace").rstrip("\n"))
            if ctx.args.follow:
                _tell(ctx, "journal", [lines.pop()])
                ctx.screen.flush()
        code = reader.wait()
    except KeyboardInterrupt:
        return ExitCode.OK
    finally:
        reader.stdout.close()
        if reader.poll() is None:
            reader.kill()
            reader.wait()
    if code != 0:
        raise CliError(f"journalctl ended with code {code}", hint=JOURNAL_HINT)
    if not ctx.args.follow:
        _tell(ctx, "journal", lines)
    return ExitCode.OK


def _follow_file(ctx: Context, log: Path) -> None:
    """Print what is appended; a file cut short or replaced is read from its start."""
    file = log.open("rb")
    begun = b""  # a line whose end is not written yet; only JSON needs whole ones
    try:
        position = file.seek(0, os.SEEK_END)
        while True:
            data = file.read()
            position += len(data)
            if ctx.json:
                *lines, begun = (begun + data).split(b"\n")
                _tell(ctx, str(log), [line.decode(errors="replace") for line in lines])
            else:
                ctx.screen.log(data)
            if not data and _replaced(file.fileno(), log):  # vastd began a new one
                file.close()
                file, position = log.open("rb"), 0
            elif os.fstat(file.fileno()).st_size < position:
                position = file.seek(0)
            time.sleep(LOOK_EVERY_S)
    finally:
        file.close()


def _replaced(descriptor: int, log: Path) -> bool:
    try:
        return not os.path.samestat(os.fstat(descriptor), os.stat(log))
    except FileNotFoundError:  # between two files
        return False
