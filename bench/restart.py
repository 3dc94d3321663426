"""Restart with many rentals on record, until the first listing is applied and looked at."""

import os
import sys
import tempfile
import time
from pathlib import Path

import trio

from bench import in_memory
from bench.report import Row
from bench.timing import in_turn, whole_process

LIMIT_S = 2.0  # DESIGN 5
ROOT = Path(__file__).resolve().parents[1]


def measure(*, quick: bool) -> list[Row]:
    """Return the seconds of a whole process; the listing itself costs next to nothing here."""
    count, runs = (50, 1) if quick else (1000, 5)
    with tempfile.TemporaryDirectory(prefix="vastd-bench-") as made:
        in_memory.fill(Path(made), count, time.time())
        argv = [sys.executable, "-m", "bench.restart", made]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
        (ours,) = in_turn(lambda: whole_process(argv, env, ROOT) / 1e3, runs=runs)
    what = f"restart to reconciled, {count} rentals on record, whole process"
    return [Row(what=what, ours=ours, unit="s", limit=LIMIT_S)]


async def reconcile(state_dir: Path) -> None:
    """Start on `state_dir`; return when every rental was seen in a listing and looked at."""
    import vastd.daemon  # noqa: F401 - a daemon loads all of it before it opens its store

    async with (
        in_memory.daemon(state_dir, lambda held: in_memory.Pages(held, time.time()), time.time) as (
            shell,
            poller,
            supervisor,
            _,
        ),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(poller.run)
        await poller.attempted.wait()
        begun = supervisor.looked_at
        nursery.start_soon(supervisor.run)
        while supervisor.looked_at == begun or shell.observed.world.inventory.as_of is None:
            await trio.lowlevel.checkpoint()
        assert all(shell.observed.world.of(r).instance is not None for r in shell.ledger.rentals)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(reconcile, Path(sys.argv[1]))
