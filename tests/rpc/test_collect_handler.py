"""`rental.collect` on a machine whose jobs are not on record any more."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from support.builders import T0, a_rental
from vastd.errors import InvalidRequest
from vastd.jobs.port import CollectReport
from vastd.rpc.handlers import rentals
from vastd_protocol.methods.rental import RentalCollectParams


@pytest.mark.parametrize(
    ("hinted", "said", "asked"),
    [
        (("out/", "*.log"), None, ["out/", "*.log"]),
        (("out/",), ["mine/"], ["mine/"]),
        ((), ["mine/"], ["mine/"]),
        ((), None, None),
    ],
)
async def test_what_a_lost_store_declared_is_collected_unless_something_else_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hinted: tuple[str, ...],
    said: list[str] | None,
    asked: list[str] | None,
) -> None:
    machine = a_rental(taken_over=True, hinted_outputs=hinted, project=str(tmp_path))
    ledger = SimpleNamespace(rentals={"r1": machine}, jobs={}, jobs_of=lambda _: [])
    ctx: Any = SimpleNamespace(shell=SimpleNamespace(ledger=ledger, wall_clock=lambda: T0))
    brought: list[list[str]] = []

    async def bring(*words: Any) -> CollectReport:
        await trio.lowlevel.checkpoint()
        brought.append(words[3])
        return CollectReport(files=[])

    monkeypatch.setattr(rentals, "bring_home", bring)
    wish = RentalCollectParams(rental="r1", outputs=said)

    if asked is None:
        with pytest.raises(InvalidRequest, match="ran no job"):
            await rentals.collect(ctx, wish)
        return
    view = await rentals.collect(ctx, wish)

    assert (brought, view.destination) == ([asked], str(tmp_path))
