"""`record.*`: the whole history page by page, and records taken in from files."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from vastd.core.job import Job
from vastd.core.market import Instance
from vastd.core.money import to_usd
from vastd.core.rental import Phase, Rental
from vastd.errors import InvalidRequest, InventoryUnknown
from vastd.imported import ImportedRecords, check_record
from vastd.rpc.context import Context
from vastd.rpc.dispatch import handles
from vastd_protocol.methods import record as wire

MAX_PAGE: Final = 1000  # a view has about 1.5 kB: far below a frame
MAX_RECORDS: Final = 1000  # of one call, as above

T = TypeVar("T")


@handles(wire.RENTALS)
async def rentals(ctx: Context, params: wire.PageParams) -> wire.RentalPage:
    """Return a page of all rentals, ended ones too."""
    since = _since(ctx, params)
    found = [
        r for r in ctx.shell.ledger.rentals.values() if r.ended_at is None or r.ended_at >= since
    ]
    page, following = _page(found, params, lambda rental: rental.rental_id)
    return wire.RentalPage(rentals=[ctx.show_rental(r) for r in page], next=following)


@handles(wire.JOBS)
async def jobs(ctx: Context, params: wire.PageParams) -> wire.JobPage:
    """Return a page of all jobs, ended ones too. Values of their environment are in no view."""
    since = _since(ctx, params)
    found: list[Job] = [
        j for j in ctx.shell.ledger.jobs.values() if j.ended_at is None or j.ended_at >= since
    ]
    page, following = _page(found, params, lambda job: job.job_id)
    return wire.JobPage(jobs=[ctx.show_job(j) for j in page], next=following)


@handles(wire.IMPORTED)
async def imported(ctx: Context, params: wire.PageParams) -> wire.ImportedPage:
    """Return a page of what was taken in from files; `since_s` does not narrow it."""
    found = ImportedRecords(ctx.shell.state_dir).all()
    page, following = _page(found, params, lambda one: str(one.record.instance_id))
    return wire.ImportedPage(imported=list(page), next=following)


def _since(ctx: Context, params: wire.PageParams) -> float:
    if params.since_s is None:
        return float("-inf")
    if not params.since_s > 0:
        raise InvalidRequest(f"since_s must be a positive number, not {params.since_s}")
    return ctx.shell.wall_clock() - params.since_s


def _page(
    found: Sequence[T], params: wire.PageParams, key: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """Return the page after `params.after`, and the key to ask for the next one with."""
    if not 1 <= params.limit <= MAX_PAGE:
        raise InvalidRequest(f"limit must be 1 to {MAX_PAGE}, not {params.limit}")
    begin = 0
    if params.after is not None:
        places = (n for n, one in enumerate(found, 1) if key(one) == params.after)
        begin = next(places, -1)
    if begin < 0:
        raise InvalidRequest(
            f"there is no record {params.after!r} to go on after", hint="begin again without it"
        )
    page = found[begin : begin + params.limit]
    more = begin + len(page) < len(found)
    return page, key(page[-1]) if page and more else None


@handles(wire.IMPORT)
async def take_in(ctx: Context, params: wire.ImportParams) -> wire.ImportView:
    """Tell what has become of each record's machine; keep those that ended if asked to.

    What exists at Vast is only looked at: a machine of somebody else stays his (I9).

    Raises:
        InventoryUnknown: Vast could not be asked, so nothing can be called ended (I11).
    """
    if len(params.records) > MAX_RECORDS:
        raise InvalidRequest(f"{len(params.records)} records in one call, at most {MAX_RECORDS}")
    if not params.source.strip() or len(params.source) > 4096:
        raise InvalidRequest("the source must say where the records come from")
    if params.more < 0:
        raise InvalidRequest(f"more must be zero or a positive number, not {params.more}")
    for number, record in enumerate(params.records, 1):
        check_record(record, number)
    if not await ctx.poller.poll():
        raise InventoryUnknown(
            "nothing can be compared while the inventory is unknown: "
            f"{ctx.shell.observed.world.inventory.error or 'no listing yet'}",
            hint="`vastctl doctor` checks key and network",
        )
    kept = ImportedRecords(ctx.shell.state_dir)
    look = _Look(ctx, {one.record.instance_id for one in kept.all()})
    verdicts: list[wire.VerdictView] = []
    taken: list[wire.Record] = []
    for record in params.records:
        verdict = look.at(record, keep=params.keep)
        verdicts.append(verdict)
        taken += [record] if verdict.kept else []
    kept.add(taken, params.source, ctx.shell.wall_clock(), more=params.more if taken else 0)
    return wire.ImportView(verdicts=verdicts, kept=len(taken))


class _Look:
    """What is known of instances, from one complete listing and our own records."""

    def __init__(self, ctx: Context, imported_ids: set[int]) -> None:
        inventory = ctx.shell.observed.world.inventory
        self._there: dict[int, Instance] = {
            row.instance_id: row for row in (*inventory.foreign, *inventory.orphans)
        }
        self._ours: dict[int, Rental] = {
            r.instance_id: r for r in ctx.shell.ledger.rentals.values() if r.instance_id is not None
        }
        self._imported = imported_ids

    def at(self, record: wire.Record, *, keep: bool) -> wire.VerdictView:
        number = record.instance_id
        rental = self._ours.get(number)
        if rental is not None:
            word = "known" if rental.phase is Phase.GONE else "ours"
            return wire.VerdictView(instance_id=number, verdict=word, name=rental.name)
        row = self._there.get(number)
        if row is not None:
            return wire.VerdictView(
                instance_id=number,
                verdict="foreign",
                status=row.status,
                dph_usd=None if row.dph is None else to_usd(row.dph),
            )
        if number in self._imported:
            return wire.VerdictView(instance_id=number, verdict="imported")
        if keep:
            self._imported.add(number)  # a second record of it in the same file
        return wire.VerdictView(instance_id=number, verdict="ended", kept=keep)
