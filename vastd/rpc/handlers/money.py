"""`cost.*`, `budget.*`: what was spent, what is promised, and what may be."""

import math
from typing import Final

from msgspec import structs

from vastd.config import keys
from vastd.config.keys import BadValue, UnknownKey
from vastd.core import billing, costs
from vastd.core.costs import By
from vastd.core.credit import CreditLook
from vastd.core.instants import maybe, rfc3339
from vastd.core.money import to_usd
from vastd.core.pace import paces
from vastd.core.rental import Phase
from vastd.core.spending import EVER, Window, promised
from vastd.errors import InvalidRequest
from vastd.rpc.context import Context
from vastd.rpc.dispatch import handles
from vastd.rpc.views import money as views
from vastd.shell import Shell
from vastd.spending import credit_look, credit_now, in_use
from vastd.store.retention import kept_costs, pruned
from vastd.store.store import Store
from vastd_protocol.methods import budget as budget_wire
from vastd_protocol.methods import config as config_wire
from vastd_protocol.methods import cost as wire

MAX_SINCE_S: Final = 3_155_760_000.0  # a century: more is a unit mistaken


@handles(wire.REPORT)
async def report(ctx: Context, params: wire.CostReportParams) -> wire.CostReportView:
    """Sum the bills up, from memory."""
    shell = ctx.shell
    by, now = _by(params.by), shell.wall_clock()
    window = _since(params.since_s, now)
    rentals = [
        rental
        for rental in shell.ledger.rentals.values()
        if params.project is None or rental.project == params.project
    ]
    jobs = shell.ledger.jobs.values()
    found = costs.parts(rentals, jobs, window, now, daily=by is By.DAY)
    reserved = promised(rentals, shell.limits, now)
    shown = views.report_view(found, by, window, now, reserved, billing.burn(rentals))
    store = shell.ledger.store
    return structs.replace(
        shown,
        dropped_usd=_dropped_usd(store, window, params.project),
        dropped_before=maybe(pruned(store).records_before),
    )


def _dropped_usd(store: Store, window: Window, project: str | None) -> float:
    """Return what was spent by machines whose records were dropped, by whole days of UTC."""
    micros = sum(
        cost
        for (day, of), cost in kept_costs(store).items()
        if project in (None, of) and day >= rfc3339(window.start)[: len(day)]
    )
    return to_usd(micros)


def _by(word: str) -> By:
    try:
        return By(word)
    except ValueError:
        known = ", ".join(By)
        raise InvalidRequest(f"by must be one of {known}, not {word[:40]!r}") from None


def _since(since_s: float | None, now: float) -> Window:
    if since_s is None:
        return EVER
    if not math.isfinite(since_s) or not 0 < since_s <= MAX_SINCE_S:
        raise InvalidRequest(f"since_s must be a positive number of seconds, not {since_s}")
    return Window(max(0.0, now - since_s))


@handles(wire.FORECAST)
async def forecast(ctx: Context, params: wire.CostForecastParams) -> wire.CostForecastView:
    """Carry the present on; asks Vast for the credit at most once a minute."""
    shell = ctx.shell
    read = await shell.credit.look(shell.provider, shell.wall_clock)
    now, rentals = shell.wall_clock(), shell.ledger.live()
    credit, ahead = credit_now(shell), credit_look(shell, now)
    found = [
        views.cap_forecast(pace, shell.limits.warn_percent)
        for pace in paces(rentals, shell.past, shell.limits, now)
        if pace.project is None or params.project in (None, pace.project)
    ]
    return wire.CostForecastView(
        at=rfc3339(now),
        dph_usd=to_usd(billing.burn(rentals)),
        reserved_usd=to_usd(promised(rentals, shell.limits, now)),
        credit_usd=None if credit is None else to_usd(credit),
        credit_read_at=rfc3339(read.at),
        credit_error=read.error,
        zero_credit_at=None if ahead is None else maybe(ahead.zero_at),
        ends_for_credit_at=maybe(_ends_for_credit(shell, ahead)),
        foreign=len(shell.observed.world.inventory.foreign),
        foreign_dph_usd=None if ahead is None else to_usd(ahead.burn - billing.burn(rentals)),
        after_zero_stops=None if ahead is None else ahead.stops,
        after_zero_dph_usd=None if ahead is None else to_usd(ahead.after_zero),
        caps=found,
    )


def _ends_for_credit(shell: Shell, ahead: CreditLook | None) -> float | None:
    """Return when machines rented for jobs end because their end could not be paid later."""
    if ahead is None or ahead.read <= 0 or not shell.limits.end_at_zero_credit:
        return None
    jobs = any(r.purpose == "job" and r.phase is not Phase.STOPPED for r in shell.ledger.live())
    return ahead.act_at if jobs else None


@handles(budget_wire.GET)
async def get(ctx: Context, params: budget_wire.BudgetGetParams) -> budget_wire.BudgetView:
    """Return every cap with its use."""
    return _budget(ctx, params.project)


@handles(budget_wire.SET)
async def set_caps(ctx: Context, params: budget_wire.BudgetSetParams) -> budget_wire.BudgetView:
    """Write caps to the configuration and take them into force; the change is on the trail."""
    if not params.changes:
        raise InvalidRequest("no change: name at least one cap")
    changes: dict[str, config_wire.Value] = {}
    for name, value in params.changes.items():
        dotted = _checked(name, value)
        if dotted in changes:
            raise InvalidRequest(f"{dotted} is named twice", hint="say which value it shall have")
        changes[dotted] = value
    ctx.config.of_project(params.project)  # what is wrong there must show before anything is set
    ctx.config.set(changes)
    return _budget(ctx, params.project)


def _checked(name: str, value: float | None) -> str:
    """Return the dotted key of one cap whose new value is possible."""
    bare = name.removeprefix("budget.")
    try:
        key = keys.find(f"budget.{bare}")
        if value is not None:
            keys.convert(key, value)
    except UnknownKey as exc:
        known = ", ".join(k.name for k in keys.all_keys().values() if k.table == "budget")
        raise InvalidRequest(
            f"no cap is called {bare[:40]!r}", hint=exc.hint or f"there are {known}"
        ) from exc
    except BadValue as exc:
        raise InvalidRequest(f"{bare}: {exc}") from exc
    return key.dotted


def _budget(ctx: Context, project: str | None) -> budget_wire.BudgetView:
    shell = ctx.shell
    settings = {s.key.partition(".")[2]: s for s in ctx.config.view("budget", project).settings}
    read = shell.credit.reading
    return views.budget_view(
        settings,
        in_use(shell, project),
        shell.wall_clock(),
        project=project,
        credit=None if read is None else read.credit,
    )
