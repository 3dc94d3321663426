"""`vastd`: the daemon's command line. Foreground, logs to stderr, ends on SIGTERM or SIGINT."""

import argparse
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vastd.errors import ConfigError, StateUnusable, StoreLocked, StoreTooNew, VastdError
from vastd.journal import PLAIN_FORMAT, JournalFormatter, to_journal
from vastd.log_calm import Calm
from vastd.log_file import log_to_file
from vastd.service_manager import ServiceManager
from vastd_protocol.errors import ExitCode
from vastd_protocol.version import VASTD_VERSION

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code (CONTRACT 2)."""
    args = _parser().parse_args(argv)
    try:
        _start_log(args.log_file, verbose=args.verbose)
    except VastdError as exc:
        return _fail(exc)
    # Where it hangs, when systemd's watchdog ends it by SIGABRT; also for crashes in C code.
    faulthandler.enable()
    manager = ServiceManager.from_environment(os.environ)
    import trio

    try:
        trio.run(_run, args.config, args.simulate, manager)
    except VastdError as exc:
        return _fail(exc, manager)
    except KeyboardInterrupt:
        return 130
    except BaseExceptionGroup as group:
        return _crash(group, manager)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vastd",
        allow_abbrev=False,
        description="Own every GPU instance you rent on Vast.ai: watch, collect, destroy.",
        epilog="Talk to it with vastctl. Stopping it destroys nothing.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file to use")
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="rent on a simulated Vast on this machine; costs nothing",
    )
    parser.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="log to FILE instead of stderr; a new one is begun every 10 MB, five old ones stay",
    )
    parser.add_argument("--verbose", action="store_true", help="log every request")
    parser.add_argument("--version", action="version", version=f"vastd {VASTD_VERSION}")
    return parser


def _start_log(path: Path | None, *, verbose: bool) -> None:
    level = logging.DEBUG if verbose else logging.INFO
    if path is None:
        _log_to_stderr(level)
    else:
        log_to_file(path, level)
    _quiet_libraries()


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    in_journal = to_journal(os.environ, sys.stderr.fileno())
    handler.setFormatter(JournalFormatter() if in_journal else logging.Formatter(PLAIN_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])


def _quiet_libraries() -> None:
    """Third parties log every connection at INFO; our log tells the story of rentals."""
    for name in ("asyncssh", "httpx2", "httpcore2", "trio-websocket"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Without free descriptors trio logs a traceback ten times a second until there are some.
    logging.getLogger("trio.serve_listeners").addFilter(Calm())


async def _run(config: Path | None, simulate: bool, manager: ServiceManager) -> None:
    import trio

    from vastd.daemon import Options, run

    stop = trio.Event()

    async def signals(task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(*_STOPS) as received:
            task_status.started()
            async for _ in received:
                stop.set()
                break
        # Once asked twice it ends at once, whatever it waits for: a kill loses nothing on record.
        for number in _STOPS:
            signal.signal(number, signal.SIG_DFL)

    async with trio.open_nursery() as nursery:
        await nursery.start(signals)
        await run(Options(config=config, simulate=simulate), stop, manager)
        nursery.cancel_scope.cancel()


def _fail(exc: VastdError, manager: ServiceManager | None = None) -> int:
    if manager is not None:
        manager.status(f"ended: {exc}")  # `systemctl status` shows it after the end too
    sys.stderr.write(f"vastd: {exc}\n")
    if exc.hint:
        sys.stderr.write(f"hint: {exc.hint}\n")
    if isinstance(exc, StateUnusable) and manager is not None and manager.present:
        return ExitCode.FAILED  # tried again: a disk may come back, and machines bill meanwhile
    if isinstance(exc, (ConfigError, StoreTooNew, StateUnusable)):
        return ExitCode.AUTH_OR_CONFIG  # systemd does not try these again: no restart heals them
    if isinstance(exc, StoreLocked):
        return ExitCode.REFUSED
    return ExitCode.FAILED


def _crash(group: BaseExceptionGroup[BaseException], manager: ServiceManager) -> int:
    """Tell a known cause plainly; anything else is a bug and must be seen whole."""
    known, rest = group.split(VastdError)
    if rest is None and known is not None:
        first: BaseException = known
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        assert isinstance(first, VastdError)
        return _fail(first, manager)
    manager.status(f"ended because of a bug: {group.exceptions[0]!r}")
    logging.getLogger("vastd").critical("vastd ends because of a bug", exc_info=group)
    return ExitCode.FAILED


if __name__ == "__main__":
    raise SystemExit(main())
