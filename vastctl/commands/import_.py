"""`import`: what became of the machines a file tells of; ended ones go into the history with `-y`."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Final

from vastctl import values, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.foreign_records import Read, read_file
from vastctl.screen import one_line
from vastctl.table import table
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import record as wire
from vastd_protocol.methods.record import ImportedView, ImportView, Record, VerdictView

EXAMPLES: Final = """\
  vastctl import .                          the vast-instances.json here: looks, changes nothing
  vastctl import ~/old/vast-instances.json -y
  vastctl import history.json -y            what `vastctl export` wrote elsewhere
  vastctl import --list                     what was taken in so far"""

CHUNK: Final = 500  # records per call: far below a frame
_NOW: Final = ("INSTANCE", "GPU", "FILE SAYS", "NOW")
_WORDS: Final = {
    "ours": "runs as {name}, vastd watches it",
    "known": "ended, on record as {name}",
    "foreign": "exists at Vast ({status}, {price}); not ours: it stays as it is",
    "ended": "ended: Vast lists no such instance",
    "imported": "ended, imported before",
}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE|DIR",
        nargs="?",
        type=values.path,
        help="a vast-instances.json, a directory with one, or an export",
    )
    parser.add_argument("--list", action="store_true", help="show what was imported so far")


def run(ctx: Context) -> int:
    args = ctx.args
    if args.list:
        if args.file is not None:
            raise UsageError("either a file or --list", hint="leave out one of both")
        return _list(ctx)
    if args.file is None:
        raise UsageError(
            "the file to import is missing",
            hint="`vastctl import .` reads the vast-instances.json of this directory",
        )
    found = read_file(args.file)
    for problem in found.problems:
        ctx.screen.step("warning", f"{found.path}: {problem}; left out")
    view = ImportView(verdicts=_verdicts(ctx, found, found.records, keep=False))
    ended = [v for v in view.verdicts if v.verdict == "ended"]
    if not ctx.json:
        _show(ctx, found.records, view.verdicts)
    if ended and (args.yes or ctx.interactive):
        ctx.confirm(f"take {words.count(len(ended), 'ended machine')} into the history")
        view = _keep(ctx, found, view)
    if ctx.json:
        ctx.emit_own(view)
    else:
        _tell(ctx, view, len(ended))
    return ExitCode.OK


def _keep(ctx: Context, found: Read, looked: ImportView) -> ImportView:
    """Take in what has ended; return the verdicts of all, the new ones in their places."""
    pairs = list(zip(found.records, looked.verdicts, strict=True))
    ended = [record for record, verdict in pairs if verdict.verdict == "ended"]
    newer = {v.instance_id: v for v in _verdicts(ctx, found, ended, keep=True)}
    verdicts = [newer.get(v.instance_id, v) for v in looked.verdicts]
    return ImportView(verdicts=verdicts, kept=sum(v.kept for v in verdicts))


def _verdicts(
    ctx: Context, found: Read, records: Sequence[Record], *, keep: bool
) -> list[VerdictView]:
    verdicts: list[VerdictView] = []
    for begin in range(0, len(records), CHUNK):
        part = records[begin : begin + CHUNK]
        params = wire.ImportParams(
            records=list(part),
            source=one_line(found.path),
            keep=keep,
            # What has no room is refused before the first of it is kept.
            more=len(records) - begin - len(part) if keep else 0,
            request_id=new_request_id(),
        )
        # A listing is made for it: some seconds per hundred machines.
        verdicts += ctx.client.call(wire.IMPORT, params, limit_s=150.0).verdicts
    return verdicts


def _show(ctx: Context, records: Sequence[Record], verdicts: Sequence[VerdictView]) -> None:
    rows = [
        (
            str(record.instance_id),
            words.gpu(record.gpu_name, record.num_gpus),
            record.status or words.UNKNOWN,
            _WORDS.get(verdict.verdict, verdict.verdict).format(
                name=verdict.name or words.UNKNOWN,
                status=verdict.status or "unknown",
                price=words.rate(verdict.dph_usd),
            ),
        )
        for record, verdict in zip(records, verdicts, strict=True)
    ]
    if rows:
        for line in table(_NOW, rows, columns=ctx.screen.out_columns):
            ctx.screen.out(line)


def _tell(ctx: Context, view: ImportView, ended: int) -> None:
    if not view.verdicts:
        ctx.screen.note("the file tells of no machine")
    if view.kept:
        ctx.screen.step("info", f"{words.count(view.kept, 'record')} taken into the history")
        ctx.screen.note("  marked as imported: they count in no cap and no cost of vastd's")
    elif ended:
        ctx.screen.note(
            f"nothing was changed; `-y` takes {words.count(ended, 'ended machine')} into the history"
        )
    foreign = [v for v in view.verdicts if v.verdict == "foreign"]
    if foreign:
        ctx.screen.step(
            "warning",
            f"{words.count(len(foreign), 'machine')} at Vast not rented by this vastd: "
            "it does not watch or end them; Vast's console does",
        )


def _list(ctx: Context) -> int:
    listed: list[ImportedView] = []
    after: str | None = None
    while True:
        page = ctx.client.call(wire.IMPORTED, wire.PageParams(after=after))
        listed += page.imported
        after = page.next
        if after is None:
            break
    if ctx.json:
        ctx.emit_own(wire.ImportedPage(imported=listed))
        return ExitCode.OK
    rows = [
        (
            str(one.record.instance_id),
            one.record.name or words.UNKNOWN,
            words.gpu(one.record.gpu_name, one.record.num_gpus),
            words.money(one.record.cost_usd),
            one.record.created_at or words.UNKNOWN,
            one.source,
        )
        for one in listed
    ]
    header = ("INSTANCE", "NAME", "GPU", "COST", "CREATED", "FROM")
    columns = ctx.screen.out_columns
    for line in table(header, rows, right=("COST",), columns=columns) if rows else ():
        ctx.screen.out(line)
    if not rows:
        ctx.screen.note("nothing was imported so far")
    return ExitCode.OK
