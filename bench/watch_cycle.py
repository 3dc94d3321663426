"""One watch cycle: a listing judged and applied, and the look at every rental that follows from it.

Fetching and decoding the listing is a row of its own: it grows with Vast's rows, not with our work.
"""

import tempfile
import time
from pathlib import Path

import trio
from msgspec import Struct
from trio.testing import MockClock

from bench import in_memory
from bench.report import Row
from vastd.core.market import Instance
from vastd.provider.vast.client import VastProvider

LIMITS_MS = {10: None, 100: 5.0, 1000: 30.0}  # DESIGN 5
CYCLES = {10: 50, 100: 50, 1000: 15}
BETWEEN_S = (
    20.0  # of virtual time, as for busy machines; 50 cycles end before a machine counts as idle
)
EPOCH = 1_800_000_000.0
LIST = "GET /api/v1/instances/"


class Cycle(Struct, frozen=True, kw_only=True):
    """What one cycle took, on average."""

    ours_ms: float
    listing_ms: float
    other_calls: float  # that were no page of the list
    pages: int


def measure(*, quick: bool) -> list[Row]:
    """Return CPU and calls per cycle, by number of rentals."""
    rows = []
    for count in (10,) if quick else LIMITS_MS:
        cycles = 3 if quick else CYCLES[count]
        took = trio.run(_cycles, count, cycles, clock=MockClock(autojump_threshold=0.0))
        at = f"watch cycle, {count:,} rentals"
        rows += [
            Row(what=f"{at}: CPU", ours=took.ours_ms, limit=LIMITS_MS[count]),
            Row(what=f"{at}: CPU of the listing, {took.pages} pages", ours=took.listing_ms),
            Row(what=f"{at}: calls beside those", ours=took.other_calls, unit="", limit=0.0),
        ]
    return rows


class _Timed:
    """The provider, with the CPU its listings took."""

    def __init__(self, inner: VastProvider) -> None:
        self._inner = inner
        self.spent_s = 0.0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def list_instances(self) -> list[Instance]:
        """List; nothing else runs meanwhile, so that all CPU in between is the listing's."""
        began = time.process_time()
        try:
            return await self._inner.list_instances()
        finally:
            self.spent_s += time.process_time() - began


async def _cycles(count: int, cycles: int) -> Cycle:
    def clock() -> float:
        return EPOCH + trio.current_time()

    with tempfile.TemporaryDirectory(prefix="vastd-bench-") as made:
        in_memory.fill(Path(made), count, EPOCH)
        async with in_memory.daemon(
            Path(made), lambda held: in_memory.Pages(held, EPOCH), clock
        ) as (shell, poller, supervisor, vast):
            listing = _Timed(shell.provider)  # type: ignore[arg-type]
            shell.provider = listing  # type: ignore[assignment]

            async def cycle() -> None:
                await trio.sleep(BETWEEN_S)
                began, fetched = time.process_time(), listing.spent_s
                await poller.poll()
                while supervisor.looked_at != clock():  # woken by the listing
                    await trio.lowlevel.checkpoint()
                spent.append(time.process_time() - began - (listing.spent_s - fetched))

            spent: list[float] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(supervisor.run)
                for _ in range(2):  # rates and statuses are learnt by then
                    await cycle()
                spent.clear()
                vast.calls.clear()
                listing.spent_s = 0.0
                for _ in range(cycles):
                    await cycle()
                nursery.cancel_scope.cancel()
    return Cycle(
        ours_ms=sum(spent) * 1e3 / cycles,
        listing_ms=listing.spent_s * 1e3 / cycles,
        other_calls=sum(1 for call in vast.calls if call != LIST) / cycles,
        pages=len(vast),
    )
