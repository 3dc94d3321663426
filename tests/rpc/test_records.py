"""The record page by page, and records of others: compared with Vast, never acted upon."""

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from support.builders import INSTANCE_ID, T0, a_job, a_rental, a_row
from vastd.core.job import JobState
from vastd.core.observed import Inventory, World
from vastd.core.rental import Phase
from vastd.errors import InvalidRequest, InventoryUnknown, StoreError
from vastd.imported import MAX_RECORDS, ImportedRecords
from vastd.rpc.handlers import records
from vastd_protocol.methods import job as job_wire
from vastd_protocol.methods import rental as rental_wire
from vastd_protocol.methods.record import ImportParams, PageParams, Record

FOREIGN, ORPHAN, ENDED, OURS_ENDED = 11, 12, 13, 14


class FixedPoller:
    def __init__(self) -> None:
        self.complete = True

    async def poll(self) -> bool:
        await trio.lowlevel.checkpoint()
        return self.complete


@pytest.fixture
def ctx(tmp_path: Path) -> Any:
    """A daemon with three rentals and three jobs, and two machines at Vast that are not its own."""
    rentals = [
        a_rental(Phase.GONE, rental_id="r-1", instance_id=OURS_ENDED),
        a_rental(Phase.GONE, rental_id="r-2", instance_id=99, ended_at=T0 + 5000),
        a_rental(rental_id="r-3"),
    ]
    jobs = [
        a_job(JobState.FAILED, job_id="j-1", ended_at=T0),
        a_job(JobState.FAILED, job_id="j-2", ended_at=T0 + 5000),
        a_job(job_id="j-3"),
    ]
    inventory = Inventory(
        as_of=T0,
        foreign=(a_row(instance_id=FOREIGN, label="somebody's"),),
        orphans=(a_row(instance_id=ORPHAN),),
    )
    shell = SimpleNamespace(
        ledger=SimpleNamespace(
            rentals={r.rental_id: r for r in rentals}, jobs={j.job_id: j for j in jobs}
        ),
        observed=SimpleNamespace(world=World(inventory=inventory)),
        wall_clock=lambda: T0 + 6000,
        state_dir=tmp_path,
    )
    return SimpleNamespace(
        shell=shell,
        poller=FixedPoller(),
        show_rental=lambda r: rental_wire.RentalView(
            rental_id=r.rental_id, name=r.name, phase=r.phase
        ),
        show_job=lambda j: job_wire.JobView(
            job_id=j.job_id, name=j.name, command=j.command, state=j.state
        ),
    )


async def test_a_long_list_comes_in_pages_without_gap_or_repeat(ctx: Any) -> None:
    first = await records.rentals(ctx, PageParams(limit=2))
    second = await records.rentals(ctx, PageParams(limit=2, after=first.next))

    assert [r.rental_id for r in first.rentals] == ["r-1", "r-2"]
    assert (first.next, [r.rental_id for r in second.rentals], second.next) == (
        "r-2",
        ["r-3"],
        None,
    )
    assert (await records.jobs(ctx, PageParams(limit=3))).next is None
    for wrong in (PageParams(limit=0), PageParams(limit=1001), PageParams(after="r-9")):
        with pytest.raises(InvalidRequest):
            await records.rentals(ctx, wrong)


async def test_what_ended_longer_ago_is_left_out_when_asked(ctx: Any) -> None:
    recent = PageParams(since_s=3600.0)

    assert [r.rental_id for r in (await records.rentals(ctx, recent)).rentals] == ["r-2", "r-3"]
    assert [j.job_id for j in (await records.jobs(ctx, recent)).jobs] == ["j-2", "j-3"]
    with pytest.raises(InvalidRequest, match="since_s"):
        await records.jobs(ctx, PageParams(since_s=-1.0))


def of(*ids: int, keep: bool = False) -> ImportParams:
    found = [Record(instance_id=number, cost_usd=1.5) for number in ids]
    return ImportParams(records=found, source="/old/vast-instances.json", keep=keep)


async def test_only_what_has_ended_is_kept_and_only_once(ctx: Any) -> None:
    ids = (FOREIGN, ORPHAN, ENDED, OURS_ENDED, INSTANCE_ID, ENDED)

    looked = await records.take_in(ctx, of(*ids))
    kept = await records.take_in(ctx, of(*ids, keep=True))
    again = await records.take_in(ctx, of(*ids, keep=True))

    words = ["foreign", "foreign", "ended", "known", "ours"]
    assert [v.verdict for v in looked.verdicts] == [*words, "ended"]
    assert (looked.kept, kept.kept, again.kept) == (0, 1, 0)
    assert [v.verdict for v in kept.verdicts] == [*words, "imported"]
    assert [v.kept for v in kept.verdicts] == [False, False, True, False, False, False]
    assert again.verdicts[2].verdict == "imported"
    assert looked.verdicts[0].dph_usd == 0.36
    (one,) = (await records.imported(ctx, PageParams())).imported
    assert (one.record.instance_id, one.source) == (ENDED, "/old/vast-instances.json")
    # History of others: nothing that counts money or machines sees it.
    assert set(ctx.shell.ledger.rentals) == {"r-1", "r-2", "r-3"}
    assert stat.S_IMODE((ctx.shell.state_dir / "imported.json").stat().st_mode) == 0o600


async def test_nothing_is_called_ended_while_vast_cannot_be_asked(ctx: Any) -> None:
    ctx.poller.complete = False

    with pytest.raises(InventoryUnknown):
        await records.take_in(ctx, of(ENDED, keep=True))

    assert ImportedRecords(ctx.shell.state_dir).all() == []


async def test_an_unreadable_history_is_never_written_over(ctx: Any) -> None:
    path = ctx.shell.state_dir / "imported.json"
    path.write_text("{half")

    with pytest.raises(StoreError, match="cannot read"):
        await records.take_in(ctx, of(ENDED, keep=True))

    assert path.read_text() == "{half"


async def test_what_is_too_much_is_refused_whole(ctx: Any) -> None:
    with pytest.raises(InvalidRequest, match="at most 1000"):
        await records.take_in(ctx, of(*range(1001)))
    with pytest.raises(InvalidRequest, match="where the records come from"):
        await records.take_in(ctx, ImportParams(records=[], source=" "))
    many = [Record(instance_id=number) for number in range(MAX_RECORDS + 1)]
    with pytest.raises(StoreError, match="at most 10000"):
        ImportedRecords(ctx.shell.state_dir).add(many, "x", T0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"instance_id": 0}, {"instance_id": 2**53}, {"offer_id": -1}, {"name": "a\nb"},
        {"name": "\x1b[2J"}, {"label": "\x9b31m"}, {"gpu_name": "\u202e"}, {"status": "x" * 501},
        {"created_at": "soon"}, {"ended_at": "9999-01-01"}, {"experiments": ["fine", "a\tb"]},
    ],
)  # fmt: skip
async def test_what_no_file_can_mean_is_not_kept_for_ever(ctx: Any, wrong: dict[str, Any]) -> None:
    good = Record(instance_id=ENDED, name="ölçüm 漢", created_at="2026-11-12T08:05:45Z")
    bad = Record(**{"instance_id": 77, **wrong})

    with pytest.raises(InvalidRequest, match=r"record 2: "):
        await records.take_in(ctx, ImportParams(records=[good, bad], source="/x", keep=True))

    assert ImportedRecords(ctx.shell.state_dir).all() == []
    assert (await records.take_in(ctx, ImportParams(records=[good], source="/x", keep=True))).kept


async def test_a_file_that_has_no_room_as_a_whole_is_refused_at_its_first_part(ctx: Any) -> None:
    def part(more: int) -> ImportParams:
        wanted = [Record(instance_id=ENDED)]
        return ImportParams(records=wanted, source="/x", keep=True, more=more)

    with pytest.raises(StoreError, match=f"{MAX_RECORDS + 1} records have no room"):
        await records.take_in(ctx, part(MAX_RECORDS))
    with pytest.raises(InvalidRequest):
        await records.take_in(ctx, part(-1))

    assert ImportedRecords(ctx.shell.state_dir).all() == []
    assert (await records.take_in(ctx, part(MAX_RECORDS - 1))).kept == 1
