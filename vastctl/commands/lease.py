"""`lease`: what bounds the bill of one machine, with vastd running and without."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, words
from vastctl.context import Context
from vastctl.table import pairs
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.rental import RentalView

EXAMPLES: Final = """\
  vastctl lease r-1"""


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)


def run(ctx: Context) -> int:
    wish = rentals.RentalRef(rental=ctx.args.rental, project=ctx.project)
    body = ctx.client.raw(rentals.GET, wish)
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    for line in _lines(ctx, ctx.client.view(rentals.GET, body)):
        ctx.screen.out(line)
    return ExitCode.OK


def _lines(ctx: Context, rental: RentalView) -> list[str]:
    if rental.phase == "gone":
        return [f"machine {rental.name} is gone: nothing of it bills"]
    now = ctx.now()
    at = words.epoch(rental.deadline_at)
    stopped = rental.phase == "stopped"
    rows = [
        ("machine", f"{rental.name} ({rental.rental_id}), {words.phase(rental.phase)}"),
        ("bills", words.rate(rental.storage_dph_usd if stopped else rental.dph_usd)),
        ("deadline", "" if at is None else words.countdown(rental.deadline_at, now)),
        ("budget", "" if rental.budget_usd is None else words.money(rental.budget_usd)),
        ("lease", _lease(rental, now)),
    ]
    lines = pairs([row for row in rows if row[1]])
    if not rental.lease_armed:
        lines.append(
            "vastd enforces deadline and budget while it runs; while it does not, nothing on the "
            "machine does: keep vastd running (`vastctl daemon install`)"
        )
    return lines


def _lease(rental: RentalView, now: float) -> str:
    if not rental.lease_armed:
        return "none on the machine: this version keeps no lease there"
    return f"armed on the machine, runs out {words.countdown(rental.lease_expires_at, now)}"
