"""Run benchmarks by name, or all: one table to stdout, JSON for programs into a file."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import json

ROOT = Path(__file__).resolve().parents[1]
LATEST = ROOT / "bench" / "results" / "latest.json"
NAMES = ("startup", "round_trip", "watch_cycle", "at_rest", "restart", "sync", "run_overhead")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and report; 1 if a limit is missed in a full run."""
    args = _arguments(argv)
    # The rigs the tests use: the installed programs, a real sshd, builders.
    sys.path.insert(0, str(ROOT / "tests"))
    from bench import report

    rows = []
    for name in args.names or NAMES:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"bench.{name}").measure(quick=args.quick)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_bytes(json.format(json.encode(report.document(rows, quick=args.quick))))
    print(report.machine())
    print(report.table(rows))
    missed = [row for row in rows if row.met is False]
    return 1 if missed and not args.quick else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {' '.join(NAMES)}")
    parser.add_argument("--json", type=Path, default=LATEST, metavar="FILE")
    parser.add_argument(
        "--quick", action="store_true", help="small and once: shows that everything still runs"
    )
    args = parser.parse_args(argv)
    for name in args.names:
        if name not in NAMES:
            parser.error(f"no benchmark {name!r}; there are {' '.join(NAMES)}")
    return args


if __name__ == "__main__":
    sys.exit(main())
