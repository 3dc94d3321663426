"""`lease`: what bounds the bill of one machine, with vastd running and without."""

import time
from argparse import ArgumentParser
from typing import Final

from vastctl import options, values, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.table import pairs
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import lease
from vastd_protocol.methods.lease import LeaseView
from vastd_protocol.methods.rental import RentalRef

EXAMPLES: Final = """\
  vastctl lease r-1
  vastctl lease r-1 --renew 6h     also if this computer sleeps meanwhile"""

WAIT_S: Final = 30.0  # guess: one round trip to the machine; longer means that it is silent
LOOK_S: Final = 0.2  # guess
NEAR_S: Final = 60.0  # vastd puts an end that moved by less on record no more


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)
    parser.add_argument(
        "--renew",
        metavar="DUR",
        type=values.duration,
        help="let it last at least that long from now, whether vastd runs or not",
    )


def run(ctx: Context) -> int:
    args = ctx.args
    wish = RentalRef(rental=args.rental, project=ctx.project)
    body = ctx.client.raw(lease.GET, wish) if args.renew is None else _renew(ctx, args.renew)
    view = ctx.client.view(lease.GET, body)
    told = args.renew is None or _reaches(view)
    if ctx.json:
        ctx.emit(body)
    else:
        for line in _lines(ctx, view):
            ctx.screen.out(line)
    if not told:
        ctx.screen.note(
            f"the machine has not confirmed it within {WAIT_S:.0f} s: vastd goes on trying; "
            f"`vastctl lease {view.name}` tells when it has"
        )
    return ExitCode.OK if told else ExitCode.UNCONFIRMED


def _renew(ctx: Context, for_s: float) -> bytes:
    wish = lease.LeaseRenewParams(
        rental=ctx.args.rental, project=ctx.project, for_s=for_s, request_id=new_request_id()
    )
    body = ctx.client.raw(lease.RENEW, wish)
    view = ctx.client.view(lease.RENEW, body)
    until = time.monotonic() + WAIT_S
    while not _reaches(view) and time.monotonic() < until:
        time.sleep(LOOK_S)
        body = ctx.client.raw(lease.GET, RentalRef(rental=view.rental_id))
        view = ctx.client.view(lease.GET, body)
    return body


def _reaches(view: LeaseView) -> bool:
    asked, ends = words.epoch(view.asked_until), words.epoch(view.expires_at)
    return asked is None or (ends is not None and ends >= asked - NEAR_S)


def _lines(ctx: Context, view: LeaseView) -> list[str]:
    if view.phase == "gone":
        return [f"machine {view.name} is gone: nothing of it bills"]
    now = ctx.now()
    stopped = view.phase == "stopped"
    deadline = words.epoch(view.deadline_at)
    rows = [
        ("machine", f"{view.name} ({view.rental_id}), {words.phase(view.phase)}"),
        ("bills", words.rate(view.storage_dph_usd if stopped else view.dph_usd)),
        ("deadline", "" if deadline is None else words.countdown(view.deadline_at, now)),
        ("budget", "" if view.budget_usd is None else words.money(view.budget_usd)),
        ("lease", _lease(view, now)),
        ("then", _then(view) if view.armed else ""),
        ("renewed", f"{words.age(view.renewed_at, now)} ago" if view.renewed_at else ""),
        ("trouble", _trouble(view)),
    ]
    return pairs([row for row in rows if row[1]], columns=ctx.screen.out_columns)


def _lease(view: LeaseView, now: float) -> str:
    if view.armed:
        until = words.countdown(view.expires_at, now)
        return f"armed on the machine, which ends itself {until} unless vastd renews it"
    if view.phase == "stopped":
        return "none needed while it stands still: only its disk bills"
    if view.expires_at is not None and view.phase in ("ready", "busy", "collecting"):
        return "it has run out; the machine is ending itself"
    return "not armed: nothing on the machine ends it while vastd does not run"


def _then(view: LeaseView) -> str:
    if view.then == "stop":
        jobs = ", ".join(view.uncollected)
        return f"the job gets TERM, then the machine stops: results of {jobs} are not home"
    return "destroyed: nothing on it waits to be brought home"


def _trouble(view: LeaseView) -> str:
    return "; ".join(word for word in (view.why_not, view.failing) if word)
