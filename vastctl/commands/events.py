"""`events`: the audit trail, past and live."""

from argparse import ArgumentParser
from typing import Final

from msgspec.json import encode

from vastctl import values, words
from vastctl.attend import RESTART_S
from vastctl.context import Context
from vastctl.errors import CliError
from vastctl.follow import Followed, Follower
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import event as events
from vastd_protocol.methods.event import EventView, Progress

EXAMPLES: Final = """\
  vastctl events --since 2h
  vastctl events -f --rental r-1
  vastctl events --after 1042 --json"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--since", metavar="DUR", type=values.duration, help="only so far back")
    parser.add_argument(
        "--after", metavar="CURSOR", type=values.cursor, help="only newer than this event"
    )
    parser.add_argument(
        "-n", "--lines", metavar="N", type=values.lines, default=200, help="at most so many (200)"
    )
    parser.add_argument("--rental", metavar="RENTAL", type=values.path, help="only of this machine")
    parser.add_argument("--job", metavar="JOB", type=values.path, help="only of this job")


def run(ctx: Context) -> int:
    args = ctx.args
    wish = events.EventListParams(
        after=args.after, since_s=args.since, rental=args.rental, job=args.job, limit=args.lines
    )
    body = ctx.client.raw(events.LIST, wish)
    past = ctx.client.view(events.LIST, body)
    printer = _Printer(ctx)
    if ctx.json and not args.follow:
        ctx.emit(body)
        return ExitCode.OK
    if past.pruned_before is not None:
        ctx.screen.note(
            f"events before {words.date_and_clock(past.pruned_before)} were dropped as old "
            "(retention.events_days)"
        )
    for event in past.events:
        printer.event(event)
    if not args.follow:
        return ExitCode.OK
    ctx.client.reconnect_s = RESTART_S
    followed = Followed(only_job=args.job, rental=args.rental, after=past.cursor)
    limit_s, ctx.client.timeout_s = args.timeout, None
    Follower(ctx.client, printer, followed).until(lambda: False, limit_s=limit_s)
    raise CliError(f"followed for {limit_s:g} s", exit_code=ExitCode.TIMED_OUT)


class _Printer:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def event(self, event: EventView) -> None:
        if self._ctx.json:
            self._ctx.screen.raw(encode(event))
            return
        about = " ".join(part for part in (event.rental_id, event.job_id) if part)
        mark = {"warning": "! ", "error": "x "}.get(event.severity, "")
        text = event.reason or event.kind.replace("_", " ")
        self._ctx.screen.out(
            f"{event.cursor:>6}  {words.date_and_clock(event.at)}  {event.kind:<18}  "
            f"{about + '  ' if about else ''}{mark}{text}"
        )
        if self._ctx.args.follow:
            self._ctx.screen.flush()

    def progress(self, progress: Progress) -> None:
        """Leave progress out: it is no part of the audit trail."""

    def log(self, data: bytes) -> None:
        """There is no log here."""

    def idle(self) -> None:
        """Say nothing while nothing happens."""
