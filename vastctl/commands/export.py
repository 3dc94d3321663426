"""`export`: the whole record as one document that other programs can read.

Rules
1. It is written as it is read, page by page: memory does not grow with the history.
2. No secrets: vastd keeps no value of a job's environment on record, and no view has a key.
3. A file is complete or not there: it is written beside its place and moved there at the end.
"""

import os
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Final, Protocol, TypeVar

from msgspec import Raw, Struct, to_builtins
from msgspec.json import encode

from vastctl import values
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.screen import one_line
from vastctl.whole_file import Write, write_whole
from vastd_protocol.method import Method, Nothing
from vastd_protocol.methods import daemon
from vastd_protocol.methods import event as events
from vastd_protocol.methods import record as records
from vastd_protocol.methods.job import JobView
from vastd_protocol.methods.rental import RentalView

EXAMPLES: Final = """\
  vastctl export --output history.json
  vastctl export --since 30d --format csv > machines.csv
  vastctl export --format csv --table events --output events.csv"""

FORMAT: Final = "vastd-export"
VERSION: Final = 1
TABLES: Final = ("rentals", "jobs", "events", "imported")
PAGE: Final = 500  # records per call; guess: some hundred kB
EVENTS_PAGE: Final = 1000  # as many as vastd gives at once

STDOUT: Final = "-"
# The wide ones are taken for the narrow ones by spreadsheets in Asian settings.
_FORMULAS: Final = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")

R = TypeVar("R")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--since", metavar="DUR", type=values.duration, help="what went on in the last 30d, 12h, …"
    )
    parser.add_argument(
        "--format", choices=("json", "csv"), default="json", help="csv has one table (json)"
    )
    parser.add_argument("--table", choices=TABLES, help="which one for csv (rentals)")
    parser.add_argument(
        "--output", metavar="FILE", type=values.path, help="write here; - is stdout (-)"
    )


def run(ctx: Context) -> int:
    args = ctx.args
    if args.table and args.format != "csv":
        raise UsageError("--table is for csv: the JSON document has all of them")
    if ctx.json and args.format == "csv" and args.output in (None, STDOUT):
        raise UsageError(
            "--json and --format csv contradict each other", hint="add `--output FILE`"
        )
    write_all = _csv if args.format == "csv" else _json
    if args.output in (None, STDOUT):
        sys_out = _Stdout(ctx)
        write_all(ctx, sys_out.write)
        sys_out.flush()
        return 0
    counts = write_whole(args.output, lambda write: write_all(ctx, write))
    if ctx.json:
        ctx.emit_own({"path": os.path.abspath(args.output), **counts})
    else:
        listed = ", ".join(f"{number} {table}" for table, number in counts.items())
        ctx.screen.step("info", f"{listed} in {args.output}")
    return 0


class _Stdout:
    """stdout as bytes, in pieces that are worth a call."""

    def __init__(self, ctx: Context) -> None:
        self._write = ctx.screen.bytes_out
        self._held = bytearray()

    def write(self, data: bytes) -> None:
        self._held += data
        if len(self._held) >= 1 << 16:
            self.flush()

    def flush(self) -> None:
        self._write(bytes(self._held))
        self._held.clear()


# -- reading, page by page


class _Source(Protocol):
    def __call__(self, ctx: Context) -> Iterator[list[bytes]]:
        """Yield pages of records as JSON texts, oldest first."""


class _Rows(Struct, frozen=True):
    """Any page: only what goes on; its records stay the bytes vastd sent."""

    next: str | None = None
    rentals: list[Raw] = []
    jobs: list[Raw] = []
    imported: list[Raw] = []


class _Events(Struct, frozen=True):
    events: list[Raw] = []
    cursor: int = 0


def _paged(table: str, method: Method[records.PageParams, R]) -> _Source:
    def pages(ctx: Context) -> Iterator[list[bytes]]:
        from msgspec.json import decode

        after: str | None = None
        while True:
            wish = records.PageParams(after=after, since_s=ctx.args.since, limit=PAGE)
            page = decode(ctx.client.raw(method, wish, limit_s=60.0), type=_Rows)
            yield [bytes(raw) for raw in getattr(page, table)]
            after = page.next
            if after is None:
                return

    return pages


def _events(ctx: Context) -> Iterator[list[bytes]]:
    from msgspec.json import decode

    # What happens from now on belongs to the next export: a busy daemon must not keep us here.
    end = ctx.client.call(events.LIST, events.EventListParams(limit=1)).cursor
    wish = events.EventListParams(after=0, limit=EVENTS_PAGE)
    if ctx.args.since is not None:
        wish = events.EventListParams(since_s=ctx.args.since, limit=EVENTS_PAGE)
    while True:
        page = decode(ctx.client.raw(events.LIST, wish, limit_s=60.0), type=_Events)
        yield [bytes(raw) for raw in page.events]
        if not page.events or page.cursor >= end:
            return
        wish = events.EventListParams(after=page.cursor, limit=EVENTS_PAGE)


_SOURCES: Final[dict[str, _Source]] = {
    "rentals": _paged("rentals", records.RENTALS),
    "jobs": _paged("jobs", records.JOBS),
    "events": _events,
    "imported": _paged("imported", records.IMPORTED),
}


# -- writing


def _json(ctx: Context, write: Write) -> dict[str, int]:
    """Write one document: an object with a line per record, so that two can be compared."""
    status = ctx.client.call(daemon.STATUS, Nothing())
    head = {
        "format": FORMAT,
        "version": VERSION,
        "exported_at": _instant(ctx.now()),
        "since_s": ctx.args.since,
        "vastd": status.daemon.version,
        "simulated": status.daemon.simulated,
    }
    write(encode(head)[:-1])
    counts: dict[str, int] = {}
    for table, source in _SOURCES.items():
        write(b',\n"' + table.encode() + b'":[')
        counts[table] = 0
        for page in source(ctx):
            for row in page:
                write(b",\n" if counts[table] else b"\n")
                write(row)
                counts[table] += 1
        write(b"\n]" if counts[table] else b"]")
    write(b"}\n")
    return counts


def _csv(ctx: Context, write: Write) -> dict[str, int]:
    """Write one table; what is no plain value is JSON in its cell."""
    import csv
    import io

    from msgspec.json import decode

    table: str = ctx.args.table or "rentals"
    row_type = {
        "rentals": RentalView,
        "jobs": JobView,
        "events": events.EventView,
        "imported": records.Record,
    }[table]
    columns = list(row_type.__struct_fields__)
    if table == "imported":
        columns += ["source", "imported_at"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    number = 0
    for page in _SOURCES[table](ctx):
        for row in page:
            found = decode(row)
            facts = {**found.pop("record"), **found} if table == "imported" else found
            writer.writerow([_cell(facts.get(column)) for column in columns])
            number += 1
        write(text.getvalue().encode())
        text.seek(0)
        text.truncate()
    return {table: number}


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return one_line(encode(to_builtins(value)).decode()) if value else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    # Texts of machines come from outside: spreadsheets run a cell that begins like a formula, and
    # terminals obey what a file they show holds.
    text = one_line(value)
    return f"'{text}" if text.lstrip()[:1] in _FORMULAS else text


def _instant(now: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
