"""Costs, caps and refusals for money, as the wire shows them."""

from collections.abc import Mapping, Sequence
from typing import Final

from vastd.core import costs
from vastd.core.costs import By, Part, Row
from vastd.core.instants import maybe, rfc3339
from vastd.core.money import Micros, to_usd
from vastd.core.pace import Pace
from vastd.core.refusal import Refusal
from vastd.core.rental import Phase
from vastd.core.spending import Use, Window
from vastd_protocol.errors import CapRefusal
from vastd_protocol.methods.budget import BudgetView, CapView, HolderView
from vastd_protocol.methods.config import SettingView
from vastd_protocol.methods.cost import CapForecastView, CostReportView, CostRowView

# What each cap limits, by its key; in the order in which they are shown.
_WINDOWS: Final = {
    "per_job_usd": "job",
    "per_day_usd": "day",
    "per_month_usd": "month",
    "per_project_usd": "project",
    "max_dph_usd": "machine",
}


def report_view(
    found: Sequence[Part], by: By, window: Window, now: float, reserved: Micros, burn: Micros
) -> CostReportView:
    """Return the rows and their totals."""
    whole = costs.total(found)
    accrued = costs.total([part for part in found if part.rental.phase is not Phase.GONE])
    return CostReportView(
        by=by,
        since=rfc3339(window.start) if window.start > 0 else None,
        until=rfc3339(now),
        rows=[_row(row) for row in costs.rows(found, by)],
        rentals=whole.rentals,
        hours=costs.hours(whole.billed_s),
        gpu_hours=costs.hours(whole.gpu_s),
        cost_usd=to_usd(whole.cost),
        storage_usd=to_usd(whole.storage),
        waste_usd=to_usd(whole.waste),
        kinds_usd={str(kind): to_usd(cost) for kind, cost in whole.kinds.items()},
        ended_usd=to_usd(whole.cost - accrued.cost),
        accrued_usd=to_usd(accrued.cost),
        reserved_usd=to_usd(reserved),
        dph_usd=to_usd(burn),
    )


def _row(row: Row) -> CostRowView:
    return CostRowView(
        key=row.key,
        label=row.label,
        rentals=row.rentals,
        hours=costs.hours(row.billed_s),
        gpu_hours=costs.hours(row.gpu_s),
        cost_usd=to_usd(row.cost),
        storage_usd=to_usd(row.storage),
        waste_usd=to_usd(row.waste),
        kinds_usd={str(kind): to_usd(cost) for kind, cost in row.kinds.items()},
    )


def cap_forecast(pace: Pace, warn_percent: float) -> CapForecastView:
    """Return when one cap is reached."""
    return CapForecastView(
        key=pace.cap,
        project=pace.project,
        limit_usd=to_usd(pace.limit),
        spent_usd=to_usd(pace.spent),
        warns_at=None if pace.told else maybe(pace.reaches(warn_percent / 100)),
        reached_at=maybe(pace.reaches()),
        resets_at=maybe(pace.window.end),
    )


def budget_view(
    settings: Mapping[str, SettingView],
    found: Sequence[Use],
    now: float,
    *,
    project: str | None,
    credit: Micros | None,
) -> BudgetView:
    """Return every cap of `[budget]`, with its use where it counts one. `settings`: by bare key."""
    by_key = {str(use.cap): use for use in found}
    warn = settings["warn_percent"].value
    assert isinstance(warn, int | float)
    return BudgetView(
        at=rfc3339(now),
        caps=[
            _cap(settings[key], key, window, by_key.get(key), project)
            for key, window in _WINDOWS.items()
        ],
        warn_percent=float(warn),
        credit_usd=None if credit is None else to_usd(credit),
    )


def _cap(
    setting: SettingView, key: str, window: str, use: Use | None, project: str | None
) -> CapView:
    view = CapView(
        key=key,
        window=window,
        value_usd=_usd(setting.value),
        origin=setting.origin,
        default_usd=_usd(setting.default),
        project=project if window == "project" else None,
    )
    if use is None:
        return view
    taken = use.spent + use.reserved
    return CapView(
        key=key,
        window=window,
        value_usd=to_usd(use.limit),
        origin=setting.origin,
        default_usd=view.default_usd,
        project=use.project,
        since=rfc3339(use.window.start) if use.window.end is not None else None,
        resets_at=maybe(use.window.end),
        spent_usd=to_usd(use.spent),
        reserved_usd=to_usd(use.reserved),
        left_usd=to_usd(use.left),
        percent=round(100 * taken / use.limit, 1) if use.limit > 0 else None,
        reserved_by=_holders(use),
    )


def _usd(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _holders(use: Use) -> list[HolderView]:
    return [
        HolderView(rental_id=c.rental_id, name=c.name, reserved_usd=to_usd(c.amount))
        for c in use.claims
    ]


def refusal_view(told: Refusal) -> CapRefusal:
    """Return the numbers of a refusal, for programs."""
    use = told.use
    return CapRefusal(
        cap=use.cap,
        limit_usd=to_usd(use.limit),
        spent_usd=to_usd(use.spent),
        reserved_usd=to_usd(use.reserved),
        left_usd=to_usd(use.left),
        needs_usd=to_usd(use.needs),
        reserved_by={claim.name: to_usd(claim.amount) for claim in use.claims},
        resets_at=maybe(use.window.end),
        raise_to_usd=to_usd(told.raise_to),
        budget_usd=None if told.budget is None else to_usd(told.budget),
        max_runtime_s=told.max_runtime_s,
        offer_id=None if told.cheaper is None else told.cheaper.offer_id,
        end_rental=told.ending,
    )
