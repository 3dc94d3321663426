"""`budget`: the caps on spending, how far each is used, and changing them."""

from argparse import ArgumentParser
from typing import Final

from vastctl import words
from vastctl.caps import HOLDERS_SHOWN, confirm_caps
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.table import table
from vastctl.values import once
from vastd_protocol.methods import budget
from vastd_protocol.methods.budget import BudgetView, CapView

EXAMPLES: Final = """\
  vastctl budget
  vastctl budget per_day_usd=40
  vastctl budget per_project_usd=100 per_month_usd=off
  vastctl budget per_day_usd=default"""

_MAY_BE_OFF: Final = frozenset({"per_project_usd", "per_month_usd"})
_OF: Final = {
    "job": "each job",
    "machine": "each machine, per hour",
    "day": "all machines, per day (UTC)",
    "month": "all machines, per month (UTC)",
    "project": "this project, in all",
}
_RIGHT: Final = ("VALUE", "SPENT", "RESERVED", "LEFT", "USED")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "changes",
        metavar="KEY=VALUE",
        nargs="*",
        help="a cap in dollars, `default`, or `off` for those that may be",
    )


def run(ctx: Context) -> int:
    if ctx.args.changes:
        changes = once(_change(text) for text in ctx.args.changes)
        confirm_caps(ctx, changes)
        wish = budget.BudgetSetParams(
            changes=changes, project=ctx.project, request_id=new_request_id()
        )
        body = ctx.client.raw(budget.SET, wish)
        view = None if ctx.json else ctx.client.view(budget.SET, body)
    else:
        body = ctx.client.raw(budget.GET, budget.BudgetGetParams(project=ctx.project))
        view = None if ctx.json else ctx.client.view(budget.GET, body)
    if view is None:
        ctx.emit(body)
        return 0
    for line in _lines(ctx, view):
        ctx.screen.out(line)
    return 0


def _change(text: str) -> tuple[str, float | None]:
    name, equals, raw = text.partition("=")
    key, word = name.strip().removeprefix("budget."), raw.strip().lower()
    if not equals or not key:
        raise UsageError(f"{text!r} is no cap", hint="write it as KEY=VALUE: per_day_usd=40")
    if word in ("default", "null"):
        return key, None
    if word == "off":
        if key not in _MAY_BE_OFF:
            raise UsageError(
                f"{key} cannot be off: every machine is under some cap",
                hint=f"give a high number, or `{key}=default`",
            )
        return key, None
    try:
        value = float(word.removeprefix("$").removesuffix("%"))
    except ValueError:
        raise UsageError(
            f"the value of {key} must be a number of dollars, `default` or `off`, not {raw!r}"
        ) from None
    if not 0 <= value < float("inf"):
        raise UsageError(f"the value of {key} must be zero or more, not {raw!r}")
    return key, value


def _lines(ctx: Context, view: BudgetView) -> list[str]:
    header, *body = table(
        ("CAP", "VALUE", "FROM", "OF", "SPENT", "RESERVED", "LEFT", "USED"),
        [_row(cap) for cap in view.caps],
        right=_RIGHT,
        columns=ctx.screen.out_columns,
    )
    lines = [ctx.screen.bold(header), *body]
    share = f"{view.warn_percent:g} %"
    lines += [
        f"day, month, project: warned at {share}; at the cap machines are collected and destroyed",
        "per_job_usd, max_dph_usd: limits of new jobs and machines; those that run keep their own",
    ]
    for cap in view.caps:
        if cap.reserved_by:
            named = ", ".join(
                f"{who.name} {words.money(who.reserved_usd)}"
                for who in cap.reserved_by[:HOLDERS_SHOWN]
            )
            more = len(cap.reserved_by) - HOLDERS_SHOWN
            lines.append(f"{cap.key}: reserved by {named}{f' and {more} more' if more > 0 else ''}")
        if cap.resets_at is not None:
            lines.append(f"{cap.key}: begins anew {words.countdown(cap.resets_at, ctx.now())}")
    return lines


def _row(cap: CapView) -> tuple[str, ...]:
    return (
        cap.key,
        "off" if cap.value_usd is None else words.money(cap.value_usd),
        cap.origin,
        _OF.get(cap.window, cap.window),
        words.money(cap.spent_usd),
        words.money(cap.reserved_usd),
        words.money(cap.left_usd),
        words.UNKNOWN if cap.percent is None else f"{cap.percent:.0f} %",
    )
