"""`logs`: a job's output, from the copy vastd keeps at home, whole, the end of it, or live."""

import os
from argparse import ArgumentParser
from base64 import b64encode
from collections.abc import Iterator
from typing import Final

from vastctl import options, values
from vastctl.attend import RESTART_S
from vastctl.commands.job import FINISHED, remote_code
from vastctl.context import Context
from vastctl.errors import CliError, DaemonAbsent
from vastctl.follow import READ_LIMIT, Followed, Follower, gone_while_following, unbase64
from vastctl.found_lines import FoundLine, FoundLines
from vastctl.searching import LineSearch
from vastctl.stamping import Stamper, Stamps
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import event as events
from vastd_protocol.methods import job as jobs
from vastd_protocol.methods import log as logs

EXAMPLES: Final = """\
  vastctl logs -f j-1
  vastctl logs -n 50 --search 'loss|error'
  vastctl logs --since 10m --timestamps
  vastctl logs -f j-1 --exit-status && echo done"""

_NOT_STARTED: Final = frozenset({"queued", "placing", "starting"})


def arguments(parser: ArgumentParser) -> None:
    options.add_job(parser)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on until the job ended; Ctrl-C detaches"
    )
    parser.add_argument(
        "-n", "--lines", metavar="N", type=values.lines, help="only the last N lines so far"
    )
    parser.add_argument(
        "--search", metavar="RE", help="only lines that match this regular expression"
    )
    parser.add_argument(
        "--since", metavar="DUR", type=values.duration,
        help="only lines that reached this computer so long ago or later (90s, 20m, 2h, 1d)",
    )  # fmt: skip
    parser.add_argument(
        "--timestamps", action="store_true",
        help="when each line reached this computer, in front of it; not when it was written",
    )  # fmt: skip
    parser.add_argument(
        "--exit-status", action="store_true", help="end with the job's own exit code"
    )


def run(ctx: Context) -> int:
    args = ctx.args
    ctx.client.reconnect_s = RESTART_S
    search = None if args.search is None else LineSearch(args.search, limit_s=args.timeout)
    printer = _Printer(ctx, search)
    job = ctx.client.call(jobs.GET, jobs.JobRef(job=args.job, project=ctx.project))
    if job.state in _NOT_STARTED and job.started_at is None:
        ctx.screen.note(f"job {job.job_id} has not started yet ({job.state}): nothing is logged")
    elif job.log_bytes == 0 and job.log_path and not os.path.exists(job.log_path):
        ctx.screen.note(
            f"the log of job {job.job_id} is not here: it printed nothing, or the copy was dropped "
            "as old (retention.logs_days)"
        )
    start = _start_of_last(ctx, job.job_id, args.lines) if args.lines else 0
    if args.since is not None:
        start = max(start, _start_since(ctx, job.job_id, args.since))
    try:
        if args.follow:
            _follow(ctx, job.job_id, start, printer)
        else:
            for piece in _pieces(ctx, job.job_id, start):
                printer.piece(piece)
        printer.close()
    except KeyboardInterrupt:
        if not args.follow:
            raise
        ctx.screen.end_log()
        ctx.screen.say(
            f"detached: job {job.job_id} goes on; end it with `vastctl job cancel {job.job_id}`"
        )
        return ExitCode.OK
    finally:
        ctx.screen.end_log()
    return _exit_status(ctx, job.job_id) if args.exit_status else ExitCode.OK


class _Printer:
    """Prints the log, or only the lines that match. With `--json` whoever reads prints, unless it
    is lines that are looked for: each of them is a document then."""

    def __init__(self, ctx: Context, search: LineSearch | None) -> None:
        self._ctx = ctx
        self._found = None if search is None else FoundLines(search)
        self._stamper = Stamper() if ctx.args.timestamps else None
        self._newest: logs.LogView | None = None  # the piece the found lines are of

    @property
    def wants_pieces(self) -> bool:
        """Whether bytes alone are not enough: where they stand in the log is needed, too."""
        return self._stamper is not None or (self._found is not None and self._ctx.json)

    def event(self, event: events.EventView) -> None:
        """Leave events out: this is the log."""

    def progress(self, progress: events.Progress) -> None:
        """Leave progress out, as events."""

    def idle(self) -> None:
        """Say nothing while nothing is logged."""

    def piece(self, piece: logs.LogView) -> None:
        """Print a piece, with the times of its lines if they were asked for."""
        stamps = None if self._stamper is None else Stamps(piece.times or ())
        self._newest = piece
        self._print(piece.offset, unbase64(piece.data), stamps)

    def log(self, data: bytes) -> None:
        self._print(0, data, None)

    def _print(self, offset: int, data: bytes, stamps: Stamps | None) -> None:
        if self._found is not None:
            self._tell(self._found.of(offset, data, stamps))
        elif self._ctx.json:
            return
        elif self._stamper is not None and stamps is not None:
            self._ctx.screen.log(self._stamper.stamped(offset, data, stamps))
        else:
            self._ctx.screen.log(data)

    def _tell(self, found: list[FoundLine]) -> None:
        if self._ctx.json:
            for one in found:
                self._ctx.emit_own(self._document(one))
            return
        parts: list[bytes] = []
        for one in found:
            stamp = b"" if one.stamps is None else one.stamps.at(one.offset)
            parts += (stamp, one.line, b"\n")
        self._ctx.screen.log(b"".join(parts))

    def _document(self, one: FoundLine) -> logs.LogView:
        """Return a line as `log.read` would return these bytes alone."""
        assert self._newest is not None
        data = one.line + b"\n" if one.ended else one.line
        end = one.offset + len(data)
        times = None
        if one.stamps is not None:
            times = [logs.LogTime(end=end, at=one.stamps.time_of(one.offset))]
        return logs.LogView(
            job_id=self._newest.job_id,
            offset=one.offset,
            data=b64encode(data).decode(),
            next_offset=end,
            size=self._newest.size,
            eof=False,  # of one line nobody can say it: the stream ends when stdout does
            times=times,
        )

    def close(self) -> None:
        """Print the last line, which had no line break."""
        if self._found is not None:
            self._tell(self._found.close())


def _read(
    ctx: Context, job_id: str, offset: int, limit: int, *, times: bool = False
) -> tuple[bytes, logs.LogView]:
    wish = logs.LogReadParams(job=job_id, offset=offset, limit=limit, times=times)
    body = ctx.client.raw(logs.READ, wish)
    return body, ctx.client.view(logs.READ, body)


def _pieces(ctx: Context, job_id: str, start: int) -> Iterator[logs.LogView]:
    """Read from `start` to the end as it was when we began, so that a busy job cannot hold us."""
    end: int | None = None
    while True:
        body, piece = _read(ctx, job_id, start, READ_LIMIT, times=ctx.args.timestamps)
        end = piece.size if end is None else end
        if ctx.json and ctx.args.search is None and (piece.next_offset > start or start >= end):
            ctx.emit(body)
        yield piece
        if piece.next_offset <= start or piece.next_offset >= end:
            return
        start = piece.next_offset


def _start_since(ctx: Context, job_id: str, since_s: float) -> int:
    """Return where the first line begins that came home in that time; tell if that is not known."""
    wish = logs.LogReadParams(job=job_id, limit=1, since_s=since_s)
    found = ctx.client.call(logs.READ, wish)
    if found.since_known is False:
        what = "all of it is" if found.offset == 0 else "lines without a time are"
        ctx.screen.note(
            f"it is not known of every line of job {job_id} when it reached this computer: "
            f"{what} shown"
        )
    return found.offset


def _start_of_last(ctx: Context, job_id: str, lines: int) -> int:
    """Return where the last `lines` lines begin, reading from the end in growing steps."""
    back = READ_LIMIT
    while True:
        _, piece = _read(ctx, job_id, -back, back)
        tail = unbase64(piece.data)
        position = piece.next_offset
        while position < piece.size:
            _, more = _read(ctx, job_id, position, READ_LIMIT)
            if more.next_offset <= position:
                break
            tail += unbase64(more.data)
            position = more.next_offset
        # A line break at the very end ends the last line and does not begin another.
        breaks = [i for i, byte in enumerate(tail[:-1]) if byte == 10]
        if len(breaks) >= lines:
            return piece.offset + breaks[-lines] + 1
        if piece.offset == 0:
            return 0
        back *= 2


def _follow(ctx: Context, job_id: str, start: int, printer: _Printer) -> None:
    followed = Followed(job=job_id, events=False, offset=start)
    follower = Follower(ctx.client, printer, followed)
    if printer.wants_pieces:
        follower.on_timed = lambda body, piece: _timed(ctx, body, piece, printer)
    elif ctx.json:
        follower.on_piece = ctx.emit
    try:
        if not follower.until_log_ends(limit_s=ctx.args.timeout):
            raise CliError(
                f"the log of job {job_id} has not ended after {ctx.args.timeout:g} s",
                exit_code=ExitCode.TIMED_OUT,
            )
    except DaemonAbsent as gone:
        raise gone_while_following(gone, job_id) from gone


def _timed(ctx: Context, body: bytes, piece: logs.LogView, printer: _Printer) -> None:
    if ctx.json and ctx.args.search is None:
        ctx.emit(body)
    else:
        printer.piece(piece)


def _exit_status(ctx: Context, job_id: str) -> int:
    job = ctx.client.call(jobs.GET, jobs.JobRef(job=job_id))
    if job.state not in FINISHED:
        raise CliError(
            f"job {job_id} has not ended, it is {job.state}",
            hint=f"follow it with `-f`, or use `vastctl job wait {job_id}`",
        )
    return remote_code(job)
