"""`vastd`: the daemon's command line. Foreground, logs to stderr, ends on SIGTERM or SIGINT."""

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from vastd.errors import ConfigError, StoreLocked, VastdError
from vastd_protocol.errors import ExitCode
from vastd_protocol.version import VASTD_VERSION


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code (CONTRACT 2)."""
    args = _parser().parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if args.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    _quiet_libraries()
    import trio

    try:
        trio.run(_run, args.config, args.simulate)
    except VastdError as exc:
        return _fail(exc)
    except KeyboardInterrupt:
        return 130
    except BaseExceptionGroup as group:
        return _crash(group)
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
    parser.add_argument("--verbose", action="store_true", help="log every request")
    parser.add_argument("--version", action="version", version=f"vastd {VASTD_VERSION}")
    return parser


def _quiet_libraries() -> None:
    """Third parties log every connection at INFO; our log tells the story of rentals."""
    for name in ("asyncssh", "httpx2", "httpcore2", "trio-websocket"):
        logging.getLogger(name).setLevel(logging.WARNING)


async def _run(config: Path | None, simulate: bool) -> None:
    import trio

    from vastd.daemon import Options, run

    stop = trio.Event()

    async def signals(task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            task_status.started()
            async for _ in received:
                stop.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(signals)
        await run(Options(config=config, simulate=simulate), stop)
        nursery.cancel_scope.cancel()


def _fail(exc: VastdError) -> int:
    sys.stderr.write(f"vastd: {exc}\n")
    if exc.hint:
        sys.stderr.write(f"hint: {exc.hint}\n")
    if isinstance(exc, ConfigError):
        return ExitCode.AUTH_OR_CONFIG
    if isinstance(exc, StoreLocked):
        return ExitCode.REFUSED
    return ExitCode.FAILED


def _crash(group: BaseExceptionGroup[BaseException]) -> int:
    """Tell a known cause plainly; anything else is a bug and must be seen whole."""
    known, rest = group.split(VastdError)
    if rest is None and known is not None:
        first: BaseException = known
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        assert isinstance(first, VastdError)
        return _fail(first)
    logging.getLogger("vastd").critical("vastd ends because of a bug", exc_info=group)
    return ExitCode.FAILED


if __name__ == "__main__":
    raise SystemExit(main())
