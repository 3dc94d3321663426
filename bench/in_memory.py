"""A daemon without socket and machines: real store, ledger, poller, supervisor and Vast client.

Vast is a transport that hands out pages encoded beforehand, with rows of the simulator's shape.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NoReturn

import httpx2
import trio

from bench import fleet
from support.scripted_vast import Answer, a_key, respond
from vastd.core.limits import Limits
from vastd.core.rental import Rental
from vastd.env_files import EnvFiles
from vastd.ledger import Ledger
from vastd.local_logs import LocalLogs
from vastd.owner import owner_word
from vastd.poller import Poller
from vastd.provider.vast.client import VastProvider
from vastd.provider.vast.http import VastHttp
from vastd.shell import Observations, Shell
from vastd.simulator.boxes import SimBoxes
from vastd.simulator.faults import Faults
from vastd.simulator.market import Market
from vastd.store.store import opened
from vastd.supervisor import Supervisor

PAGE_ROWS = 25  # VAST_API 4.1
FIRST_ID = 20_000_000
BOOTED_S = 3600.0  # longer than any boot


class Pages:
    """The instance list as Vast sends it; counts what is asked."""

    def __init__(self, held: list[Rental], now: float) -> None:
        self.calls: list[str] = []
        at = now - BOOTED_S

        def clock() -> float:
            return at

        market = Market(1, clock)
        made = market.add_foreign()
        at = now
        market.advance()
        row = market.instance_row(made.instance_id)
        rows = [{**row, "id": r.instance_id, "label": r.label} for r in held]  # type: ignore[dict-item]
        starts = range(0, max(len(rows), 1), PAGE_ROWS)
        self._pages = [self._page(rows, start) for start in starts]

    @staticmethod
    def _page(rows: list[dict[str, object]], start: int) -> bytes:
        part = rows[start : start + PAGE_ROWS]
        more = start + PAGE_ROWS < len(rows)
        return json.dumps(
            {
                "success": True,
                "instances_found": len(part),
                "total_instances": len(rows),
                "next_token": str(start // PAGE_ROWS + 1) if more else None,
                "instances": part,
            }
        ).encode()

    def __len__(self) -> int:
        return len(self._pages)

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        await trio.lowlevel.checkpoint()
        self.calls.append(f"{request.method} {request.url.path}")
        page = int(request.url.params.get("after_token", "0"))
        return respond(Answer(200, self._pages[page], {"content-type": "application/json"}))


@asynccontextmanager
async def daemon(
    state_dir: Path, pages: Callable[[list[Rental]], Pages], clock: Callable[[], float]
) -> AsyncIterator[tuple[Shell, Poller, Supervisor, Pages]]:
    """Open the store in `state_dir` and make a daemon on it; the caller runs its two tasks."""

    async def choose(*_: object) -> NoReturn:
        raise AssertionError("nothing is rented here")

    with ExitStack() as stack:
        ledger = Ledger(stack.enter_context(opened(state_dir)))
        answers = pages(list(ledger.rentals.values()))
        transport = httpx2.MockTransport(answers)
        async with VastHttp(
            key=a_key(), base_url="https://vast.example", version="1", transport=transport
        ) as http:
            market = Market(1, clock)
            shell = Shell(
                ledger=ledger,
                provider=VastProvider(http, page_interval_s=0.0),
                boxes=SimBoxes(market, Faults(clock), clock),
                observed=Observations(clock()),
                wall_clock=clock,
                limits=Limits(),
                owner8=owner_word(state_dir),
                new_id=lambda prefix: f"{prefix}000000",
                choose=choose,
                logs=LocalLogs(state_dir),
                envs=EnvFiles(state_dir),
                state_dir=state_dir,
            )
            poller = Poller(shell)
            yield shell, poller, Supervisor(shell, poller), answers


def fill(state_dir: Path, count: int, now: float) -> None:
    """Put `count` ready rentals on record."""
    ids = [FIRST_ID + n for n in range(count)]
    fleet.put_on_record(state_dir, [])  # first: a directory in use without a store is a damaged one
    fleet.put_on_record(state_dir, fleet.rentals(count, owner_word(state_dir), ids, now))
