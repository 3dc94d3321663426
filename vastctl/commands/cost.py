"""`cost`: what was spent on what, what is reserved, and how long credit and caps last."""

from argparse import ArgumentParser
from typing import Final

from vastctl import values, words
from vastctl.context import Context
from vastctl.table import table
from vastd_protocol.methods import cost
from vastd_protocol.methods.cost import (
    CapForecastView,
    CostForecastView,
    CostReportView,
    CostRowView,
)

EXAMPLES: Final = """\
  vastctl cost
  vastctl cost --by gpu --since 30d
  vastctl cost --by rental --project
  vastctl cost --forecast --json"""

_TITLES: Final = {"day": "DAY (UTC)", "rental": "MACHINE", "project": "PROJECT", "gpu": "GPU"}
_NUMBERS: Final = ("MACHINES", "HOURS", "GPU-HOURS", "COST", "STORAGE", "WASTED")
_CAPS: Final = {
    "per_day_usd": "today's cap",
    "per_month_usd": "this month's cap",
    "per_project_usd": "the project's cap",
}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--by", choices=tuple(_TITLES), default="day", help="what the rows are")
    parser.add_argument(
        "--since", type=values.duration, metavar="DUR", help="only the last 12h, 7d, …"
    )
    parser.add_argument("--project", action="store_true", help="only of this project")
    parser.add_argument("--forecast", action="store_true", help="only how it goes on from now")


def run(ctx: Context) -> int:
    args = ctx.args
    project = ctx.project if args.project else None
    wish = cost.CostForecastParams(project=project)
    if args.forecast:
        body = ctx.client.raw(cost.FORECAST, wish)
        if ctx.json:
            ctx.emit(body)
        else:
            _print(ctx, _forecast(ctx.client.view(cost.FORECAST, body), ctx.now()))
        return 0
    asked = cost.CostReportParams(by=args.by, since_s=args.since, project=project)
    body = ctx.client.raw(cost.REPORT, asked)
    if ctx.json:
        ctx.emit(body)
        return 0
    report = ctx.client.view(cost.REPORT, body)
    _print(ctx, _table(ctx, report))
    if report.rows:
        ctx.screen.note(
            "at most: when a machine began or ceased to bill is known to within two listings, and "
            "the dearer side counts; traffic is not in it"
        )
    if report.dropped_usd and report.dropped_before is not None:
        ctx.screen.note(
            f"beside it {words.money(report.dropped_usd)} by machines whose records from before "
            f"{words.date_and_clock(report.dropped_before)} were dropped (retention.records_days)"
        )
    ahead = ctx.client.view(cost.FORECAST, ctx.client.raw(cost.FORECAST, wish))
    _print(ctx, _forecast(ahead, ctx.now()))
    return 0


def _print(ctx: Context, lines: list[str]) -> None:
    for line in lines:
        ctx.screen.out(line)


def _table(ctx: Context, report: CostReportView) -> list[str]:
    if not report.rows:
        return ["nothing was spent" if report.since is None else "nothing was spent in that time"]
    rows = [_row(row) for row in report.rows]
    rows.append(
        (
            "in all, at most",
            str(report.rentals),
            f"{report.hours:.1f}",
            f"{report.gpu_hours:.1f}",
            words.money(report.cost_usd),
            words.money(report.storage_usd),
            words.money(report.waste_usd),
        )
    )
    title = _TITLES.get(report.by, report.by.upper())
    header, *body = table((title, *_NUMBERS), rows, right=_NUMBERS, columns=ctx.screen.out_columns)
    lines = [ctx.screen.bold(header), *body]
    if report.kinds_usd:
        spent = sorted(report.kinds_usd.items(), key=lambda item: -item[1])
        parts = [f"{words.kind(kind)} {words.money(usd)}" for kind, usd in spent if usd]
        lines.append(f"spent on: {'; '.join(parts)}")
    if report.accrued_usd:
        lines.append(f"of that {words.money(report.accrued_usd)} on machines that may still bill")
    return lines


def _row(row: CostRowView) -> tuple[str, ...]:
    return (
        row.label,
        str(row.rentals),
        f"{row.hours:.1f}",
        f"{row.gpu_hours:.1f}",
        words.money(row.cost_usd),
        words.money(row.storage_usd),
        words.money(row.waste_usd),
    )


def _forecast(ahead: CostForecastView, now: float) -> list[str]:
    reserved = words.money(ahead.reserved_usd)
    lines = [f"now: {words.rate(ahead.dph_usd)}, {reserved} reserved until the machines end"]
    if ahead.credit_usd is None:
        lines.append(f"credit: not known ({ahead.credit_error or 'not told'})")
    elif ahead.zero_credit_at is not None:
        lines.append(
            f"credit: {words.money(ahead.credit_usd)}, used up "
            f"{words.countdown(ahead.zero_credit_at, now)} "
            f"({words.date_and_clock(ahead.zero_credit_at)}): then Vast stops every machine"
        )
        lines += _after_zero(ahead, now)
    else:
        lines.append(f"credit: {words.money(ahead.credit_usd)}, lasts for what runs now")
    return lines + [_cap(cap, now) for cap in ahead.caps]


def _after_zero(ahead: CostForecastView, now: float) -> list[str]:
    """Say what happens shortly before the credit is gone, and what goes on afterwards."""
    lines = []
    if ahead.ends_for_credit_at is not None:
        at = ahead.ends_for_credit_at
        lines.append(
            f"  jobs end {words.countdown(at, now)} ({words.date_and_clock(at)}), while their "
            "results can still come home"
        )
    if ahead.after_zero_dph_usd:
        a_day = words.money(ahead.after_zero_dph_usd * 24)
        stops = words.count(ahead.after_zero_stops or 0, "machine")
        lines.append(
            f"  after that {stops} of yours stand still and disks go on billing {a_day} a day, below "
            "zero, until they are destroyed; a top-up starts none of them"
        )
    if ahead.foreign_dph_usd:
        others = words.count(ahead.foreign, "instance")
        lines.append(
            f"  {words.rate(ahead.foreign_dph_usd)} of it by {others} not rented by this vastd"
        )
    return lines


def _cap(cap: CapForecastView, now: float) -> str:
    what = _CAPS.get(cap.key, cap.key) + (f" ({cap.project})" if cap.project else "")
    said = f"{what}: {words.money(cap.spent_usd)} spent of {words.money(cap.limit_usd)}"
    if cap.reached_at is None:
        return said + ", not reached at this rate"
    when = f"{words.countdown(cap.reached_at, now)} ({words.date_and_clock(cap.reached_at)})"
    return said + f", reached {when}: then the machines are collected and destroyed"
