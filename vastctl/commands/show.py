"""`show`: everything about one machine."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, words
from vastctl.context import Context
from vastctl.table import pairs
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.rental import RentalView

EXAMPLES: Final = """\
  vastctl show r-1
  vastctl show            the project's only machine"""


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)


def run(ctx: Context) -> int:
    wish = rentals.RentalRef(rental=ctx.args.rental, project=ctx.project)
    body = ctx.client.raw(rentals.GET, wish)
    if ctx.json:
        ctx.emit(body)
        return 0
    view = ctx.client.view(rentals.GET, body)
    for line in rental_lines(view, ctx.now(), ctx.screen.out_columns):
        ctx.screen.out(line)
    return 0


def rental_lines(rental: RentalView, now: float, columns: int | None = None) -> list[str]:
    """Return one rental as `key  value` lines; what is unknown is left out."""
    ssh = rental.ssh
    ended = rental.phase == "gone"  # then a deadline threatens nobody
    rows = [
        ("name", rental.name),
        ("rental", rental.rental_id),
        ("phase", _phase(rental)),
        ("waits", rental.waiting or ""),
        ("instance", _text(rental.instance_id)),
        ("offer", _text(rental.offer_id)),
        ("machine", _text(rental.machine_id)),
        ("GPU", _gpu(rental)),
        ("profile", rental.profile or ""),
        ("image", rental.image or ""),
        ("price", "" if rental.dph_usd is None else words.rate(rental.dph_usd)),
        ("cost so far", words.money(rental.cost_usd)),
        ("estimate", _estimate(rental)),
        ("budget", "" if rental.budget_usd is None else words.money(rental.budget_usd)),
        ("created", _ago(rental.created_at, now)),
        ("ready", _ago(rental.ready_at, now)),
        ("bid", _bid(rental)),
        ("stopped", _ago(rental.stopped_at, now)),
        ("stopped by", rental.stop_detail or ""),
        ("disk alone", "" if ended else _storage(rental)),
        ("ended", _ago(rental.ended_at, now)),
        ("deadline", "" if ended else _until(rental.deadline_at, now)),
        ("lease", "" if ended else _lease(rental, now)),
        ("ssh", "" if ssh is None else f"{ssh.user}@{ssh.host} port {ssh.port} ({ssh.route})"),
        ("Vast says", " - ".join(part for part in (rental.status, rental.status_msg) if part)),
        ("GPU use", "" if rental.gpu_util is None else f"{rental.gpu_util:.0f}%"),
        ("heartbeat", _ago(rental.last_heartbeat_at, now)),
        ("jobs", ", ".join(rental.jobs)),
        ("project", rental.project or ""),
        ("label", rental.label or ""),
    ]
    lines = pairs([row for row in rows if row[1]], columns=columns)
    return lines + [f"warning: {warning}" for warning in rental.warnings]


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _phase(rental: RentalView) -> str:
    why = rental.end_detail or rental.end_reason
    return words.phase(rental.phase) + (f" ({why})" if why else "")


def _bid(rental: RentalView) -> str:
    if rental.bid_usd is None:
        return ""
    wins = "" if rental.min_bid_usd is None else f"; {words.rate(rental.min_bid_usd)} wins now"
    return f"{words.rate(rental.bid_usd)} for the GPUs, the disk is extra{wins}"


def _storage(rental: RentalView) -> str:
    return "" if rental.storage_dph_usd is None else words.rate(rental.storage_dph_usd)


def _gpu(rental: RentalView) -> str:
    if rental.gpu_name is None:
        return ""
    memory = "" if rental.gpu_ram_mb is None else f", {rental.gpu_ram_mb / 1024:.0f} GB each"
    return words.gpu(rental.gpu_name, rental.num_gpus) + memory


def _estimate(rental: RentalView) -> str:
    if rental.estimated_cost_usd is None:
        return ""
    hours = "" if rental.estimated_hours is None else f" for {rental.estimated_hours:g} h"
    return words.money(rental.estimated_cost_usd) + hours


def _ago(instant: str | None, now: float) -> str:
    if words.epoch(instant) is None:
        return ""
    return f"{words.date_and_clock(instant)} ({words.age(instant, now)} ago)"


def _until(instant: str | None, now: float) -> str:
    if words.epoch(instant) is None:
        return ""
    return f"{words.date_and_clock(instant)} ({words.countdown(instant, now)})"


def _lease(rental: RentalView, now: float) -> str:
    until = _until(rental.lease_expires_at, now)
    if rental.lease_armed is None:
        return until
    return f"{until} {'armed on the machine' if rental.lease_armed else 'NOT armed'}".strip()
