"""`host.*`: what is listed first, what a block needs, and that it is lifted as asked."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.builders import T0
from vastd.core import events as ev
from vastd.core.hosts import Block, Host
from vastd.errors import InvalidRequest, NotFound
from vastd.ledger import Ledger
from vastd.rpc.handlers.hosts import block, list_hosts, unblock
from vastd.store.store import opened
from vastd_protocol.methods.host import HostBlockParams, HostListParams, HostUnblockParams

DAY = 86_400.0
STUCK = Block(since=T0, until=T0 + DAY, why="stuck", by="vastd")
OVER = Block(since=T0 - DAY, until=T0, why="stuck", by="vastd")


@pytest.fixture
def ctx(tmp_path: Path) -> Any:
    with opened(tmp_path) as store:
        ledger = Ledger(store)
        ledger.hosts = {
            1: Host(machine_id=1, seen_at=T0 - 50, rented=1, failed=1, block=OVER),
            2: Host(machine_id=2, seen_at=T0 - 20, rented=4, served=4, boot_s=31.23456),
            3: Host(machine_id=3, seen_at=T0 - 90, rented=1, failed=1, block=STUCK),
        }
        shell = SimpleNamespace(ledger=ledger, wall_clock=lambda: T0)

        def commit(call: object, view: Any, *events: ev.Event) -> Any:
            ledger.commit(*events)
            return view()

        yield SimpleNamespace(shell=shell, commit=commit)


async def test_blocked_machines_come_first_then_those_rented_last(ctx: Any) -> None:
    every = (await list_hosts(ctx, HostListParams())).hosts
    blocked = (await list_hosts(ctx, HostListParams(blocked=True))).hosts

    assert [h.machine_id for h in every] == [3, 2, 1]
    assert [h.machine_id for h in blocked] == [3]
    assert (every[1].boot_s, every[2].block, every[2].risk_percent) == (31.235, None, 50.0)


async def test_a_block_holds_until_its_instant_or_for_ever(ctx: Any) -> None:
    until = HostBlockParams(machine_id=9, reason=" slow ", until="2027-01-16T08:00:00+00:00")
    for_ever = HostBlockParams(machine_id=9, reason="slow")

    timed = await block(ctx, until, None)  # type: ignore[arg-type]
    always = await block(ctx, for_ever, None)  # type: ignore[arg-type]

    assert timed.block is not None
    assert (timed.block.why, timed.block.by) == ("slow", "user")
    assert timed.block.until == "2027-01-16T08:00:00.000Z"
    assert always.block is not None
    assert always.block.until is None


async def test_a_block_by_vastd_is_lifted_and_lifting_again_changes_nothing(ctx: Any) -> None:
    lifted = await unblock(ctx, HostUnblockParams(machine_id=3), None)  # type: ignore[arg-type]
    again = await unblock(ctx, HostUnblockParams(machine_id=3), None)  # type: ignore[arg-type]

    assert (lifted.block, lifted.failed) == (None, 1)
    assert again == lifted
    assert len(ctx.shell.ledger.store.events_after(0, 9)) == 1
    with pytest.raises(NotFound, match="machine 77"):
        await unblock(ctx, HostUnblockParams(machine_id=77), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"reason": " "}, "needs a reason"),
        ({"reason": "x" * 501}, "needs a reason"),
        ({"machine_id": 0}, "no machine id"),
        ({"machine_id": -4}, "no machine id"),
        ({"machine_id": 2**53}, "no machine id"),
        ({"until": "tomorrow"}, "must be an instant"),
        ({"until": "2027-01-16T08:00:00"}, "must be an instant"),
        ({"until": "2001-01-01T00:00:00Z"}, "in the past"),
    ],
)
async def test_a_block_that_makes_no_sense_is_refused(
    ctx: Any, said: dict[str, Any], words: str
) -> None:
    params = HostBlockParams(**{"machine_id": 9, "reason": "slow", **said})

    with pytest.raises(InvalidRequest, match=words):
        await block(ctx, params, None)  # type: ignore[arg-type]

    assert 9 not in ctx.shell.ledger.hosts
