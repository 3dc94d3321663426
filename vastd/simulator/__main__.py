"""Command line of the simulated Vast: `python -m vastd.simulator --state-dir DIR`."""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Final

import trio

from vastd.errors import StoreLocked, VastdError
from vastd.journal import PLAIN_FORMAT
from vastd.log_file import log_to_file
from vastd.simulator.announcement import DEMO_SCALE, IDLE_S
from vastd.simulator.facade.fault_names import fault_names
from vastd.simulator.service import ServiceSettings, serve

EXIT_FAILED: Final = 1
EXIT_TAKEN: Final = 75  # sysexits.h EX_TEMPFAIL: another service has the directory


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m vastd.simulator",
        description="A simulated Vast on loopback: its REST interface, and machines to SSH into.",
        epilog="example: python -m vastd.simulator --state-dir /tmp/vast --fault create:lose_answer",
    )
    result.add_argument("--state-dir", type=Path, required=True, help="where service.json goes")
    result.add_argument("--port", type=int, default=0, help="of the REST interface; 0 picks one")
    result.add_argument("--seed", type=int, default=1, help="which market (default 1)")
    result.add_argument(
        "--scale", type=float, default=DEMO_SCALE,
        help=f"factor on boot, pull and destroy times; 1 is as live (default {DEMO_SCALE})",
    )  # fmt: skip
    result.add_argument(
        "--fault", action="append", default=[], metavar="NAME",
        help=f"may be repeated: POINT:KIND, or one of {', '.join(fault_names())}",
    )  # fmt: skip
    result.add_argument(
        "--rate-limits", action="store_true",
        help="enforce the live minimum intervals (off by default: they would slow a demo down)",
    )  # fmt: skip
    result.add_argument(
        "--idle", type=float, default=IDLE_S, metavar="SECONDS",
        help=f"end after so long without contract and request (default {IDLE_S:.0f})",
    )  # fmt: skip
    result.add_argument(
        "--log-file", type=Path, metavar="FILE",
        help="log to FILE instead of stderr; a new one is begun every 10 MB, five old ones stay",
    )  # fmt: skip
    result.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    result.add_argument("--debug", action="store_true", help="log every request")
    return result


def main(argv: list[str] | None = None) -> int:
    """Run the service; return the exit code."""
    args = parser().parse_args(argv)
    if args.ready_fd is not None and os.fork():
        # Detached for good: who started us must neither keep a zombie nor be our parent.
        os._exit(0)
    level = logging.DEBUG if args.debug else logging.INFO
    if args.log_file is None:
        logging.basicConfig(level=level, format=PLAIN_FORMAT, stream=sys.stderr)
    else:
        log_to_file(args.log_file, level)
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    settings = ServiceSettings(
        state_dir=args.state_dir.resolve(),
        port=args.port,
        seed=args.seed,
        scale=args.scale,
        faults=args.fault,
        rate_limits=args.rate_limits,
        idle_s=args.idle,
        ready_fd=args.ready_fd,
    )
    try:
        trio.run(serve, settings)
    except VastdError as exc:
        hint = f" ({exc.hint})" if exc.hint else ""
        sys.stderr.write(f"error: {exc}{hint}\n")
        return EXIT_TAKEN if isinstance(exc, StoreLocked) else EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
