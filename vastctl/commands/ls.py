"""`ls`: every machine on one screen: does it work, what does it cost, when does it end."""

from argparse import ArgumentParser
from typing import Final

from vastctl import words
from vastctl.context import Context
from vastctl.table import table
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.rental import InventoryView, RentalListView, RentalView

EXAMPLES: Final = """\
  vastctl ls
  vastctl ls --all --json"""

_HEADER: Final = ("NAME", "ID", "PHASE", "GPU", "PRICE", "COST", "AGE", "ENDS", "LEASE", "JOB")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="ended machines as well")
    parser.add_argument("--project", action="store_true", help="only those of this project")


def run(ctx: Context) -> int:
    args = ctx.args
    wish = rentals.RentalListParams(all=args.all, project=ctx.project if args.project else None)
    body = ctx.client.raw(rentals.LIST, wish)
    if ctx.json:
        ctx.emit(body)
        return 0
    for line in _lines(ctx, ctx.client.view(rentals.LIST, body)):
        ctx.screen.out(line)
    return 0


def _lines(ctx: Context, listed: RentalListView) -> list[str]:
    now = ctx.now()
    lines: list[str] = []
    if listed.rentals:
        rows = [_row(rental, now) for rental in listed.rentals]
        right, columns = ("PRICE", "COST", "AGE"), ctx.screen.out_columns
        header, *body = table(_HEADER, rows, right=right, columns=columns)
        lines += [ctx.screen.bold(header), *body]
        live = sum(1 for rental in listed.rentals if rental.phase != "gone")
        totals = listed.totals
        lines.append(
            f"{words.count(live, 'machine')} alive, {words.rate(totals.dph_usd)} now, "
            f"{words.money(totals.cost_usd)} so far"
        )
    else:
        lines.append("no machines")
    for rental in listed.rentals:
        if rental.waiting is not None and rental.phase != "gone":
            lines.append(f"{rental.name}: {rental.waiting}")
        lines += [f"warning: {rental.name}: {warning}" for warning in rental.warnings]
    return lines + inventory_lines(listed.inventory)


def _row(rental: RentalView, now: float) -> tuple[str, ...]:
    ended = rental.phase == "gone"
    reason = f" ({rental.end_reason.replace('_', ' ')})" if ended and rental.end_reason else ""
    return (
        rental.name,
        rental.rental_id,
        words.phase(rental.phase) + _stopped(rental) + reason + _wish(rental),
        words.gpu(rental.gpu_name, rental.num_gpus),
        words.UNKNOWN if ended else words.rate(rental.dph_usd),
        words.money(rental.cost_usd),
        words.age(rental.created_at, now),
        words.UNKNOWN if ended else words.countdown(rental.deadline_at, now),
        _lease(rental, now),
        ", ".join(rental.jobs if ended else rental.unfinished_jobs) or words.UNKNOWN,
    )


def _lease(rental: RentalView, now: float) -> str:
    """Say until when the machine bills at most should vastd end this moment."""
    if rental.lease_armed is None or rental.phase == "stopped":
        return words.UNKNOWN
    return words.countdown(rental.lease_expires_at, now) if rental.lease_armed else "NOT ARMED"


def _stopped(rental: RentalView) -> str:
    if rental.stopped_by in (None, "asked", "unknown"):
        return ""
    if rental.stopped_by == "outbid" and rental.bid_usd is not None:
        wins = "" if rental.min_bid_usd is None else f", {words.rate(rental.min_bid_usd)} wins"
        return f" (outbid: {words.rate(rental.bid_usd)}{wins})"
    return f" ({words.STOPS.get(rental.stopped_by or '', rental.stopped_by)})"


def _wish(rental: RentalView) -> str:
    if rental.wanted is None:
        return ""
    return ", to be stopped" if rental.wanted == "stopped" else ", to be started"


def inventory_lines(inventory: InventoryView) -> list[str]:
    """Return how far the list can be trusted, and what vastd does not own."""
    age = "" if inventory.age_s is None else f", {words.span(inventory.age_s)} old"
    why = f": {inventory.error}" if inventory.error else ""
    line = f"inventory: {inventory.state}{age}{why}"
    if inventory.state == "unknown":
        line += "; Vast may hold machines that are not shown"
    lines = [line]
    if inventory.network_down_since is not None:
        lines.append(
            "warning: your own network seems down since "
            f"{words.clock(inventory.network_down_since)}: neither Vast nor any machine answers; "
            "machines and jobs go on, deadlines hold"
        )
    if inventory.foreign:
        lines.append(
            f"{words.count(inventory.foreign, 'machine')} of the account not rented by this vastd "
            f"({words.rate(inventory.foreign_dph_usd)}), never touched"
        )
    if inventory.orphans:
        lines.append(
            f"{words.count(inventory.orphans, 'orphan')}: our label, but no rental explains it, "
            f"and it bills {words.rate(inventory.orphans_dph_usd)}; `vastctl reconcile`"
        )
    return lines
