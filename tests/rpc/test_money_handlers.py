"""`cost.*` and `budget.*`, and what a refusal looks like on the wire."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from msgspec.json import decode, encode

from support.builders import RATE, T0, a_rental, a_row, a_world
from vastd.config.load import load
from vastd.config.settings import BudgetTable
from vastd.configuration import ConfigurationHolder
from vastd.core import billing
from vastd.core import events as ev
from vastd.core.limits import Caps, Limits
from vastd.core.market import Account, Instance
from vastd.core.money import Micros, from_usd, to_usd
from vastd.core.observed import Inventory
from vastd.core.rental import Phase, RateSegment, Rental
from vastd.core.spending import Past, day_of
from vastd.credit import Credit
from vastd.errors import CapReached, ConfigError, InvalidRequest, Unreachable
from vastd.rpc.errors import describe
from vastd.rpc.handlers import money
from vastd.spending import admit, note_caps
from vastd_protocol.errors import ErrorCode, ErrorObject, exit_code
from vastd_protocol.methods import budget, cost

NOW = T0 + 3600


class Ledger:
    """The record, and what was committed to it."""

    def __init__(self, *rentals: Rental) -> None:
        self.rentals = {rental.rental_id: rental for rental in rentals}
        self.jobs: dict[str, Any] = {}
        self.store = SimpleNamespace(read=lambda *_: [])  # nothing was dropped as old
        self.committed: list[ev.Event] = []

    def live(self) -> list[Rental]:
        return [rental for rental in self.rentals.values() if rental.phase is not Phase.GONE]

    def commit(self, *events: ev.Event) -> None:
        self.committed.extend(events)


class Account1:
    """A Vast that tells its credit, or fails; counts how often it was asked."""

    def __init__(self, credit: Micros | None) -> None:
        self.credit, self.asked = credit, 0

    async def get_account(self) -> Account:
        self.asked += 1
        if self.credit is None:
            raise Unreachable("no route to Vast")
        return Account(user_id=1, credit=self.credit)


@pytest.fixture
def config(tmp_path: Path) -> ConfigurationHolder:
    return ConfigurationHolder(load(tmp_path / "config.toml", {}), {})


def a_context(
    *rentals: Rental,
    config: ConfigurationHolder | None = None,
    caps: Caps = Caps(per_day=from_usd(25)),  # noqa: B008  frozen
    credit: Micros | None = from_usd(50),  # noqa: B008  an integer
    foreign: tuple[Instance, ...] = (),
) -> Any:
    shell = SimpleNamespace(
        ledger=Ledger(*rentals), limits=Limits(caps=caps), wall_clock=lambda: NOW,
        credit=Credit(), observed=SimpleNamespace(world=a_world(inventory=Inventory(foreign=foreign))),
        past=Past(rentals), provider=Account1(credit),
    )  # fmt: skip
    context = SimpleNamespace(shell=shell, config=config)
    if config is not None:

        def on_change() -> None:
            shell.limits = config.limits()

        config.on_change = on_change
        shell.limits = config.limits()
    return context


BUSY = a_rental(Phase.BUSY, estimated_hours=2.0, ready_at=T0, phases=((Phase.READY, T0),))
ENDED = a_rental(
    Phase.GONE, rental_id="r0", name="old", phases=((Phase.READY, T0),),
    rates=(RateSegment(T0, RATE), RateSegment(T0 + 100, Micros(0))), ended_at=T0 + 100,
)  # fmt: skip


async def test_the_report_tells_what_was_spent_what_accrues_and_what_is_promised() -> None:
    view = await money.report(a_context(BUSY, ENDED), cost.CostReportParams(by="rental"))

    assert [(row.label, row.cost_usd) for row in view.rows] == [("lab", 0.36), ("old", 0.01)]
    assert (view.cost_usd, view.ended_usd, view.accrued_usd) == (0.37, 0.01, 0.36)
    assert view.reserved_usd == pytest.approx((2 * 1.3 - 1) * 0.36 + 110 * 0.0001)
    assert (view.dph_usd, view.since, view.rentals) == (0.36, None, 2)
    decode(encode(view), type=cost.CostReportView)


async def test_the_report_narrows_to_a_project_and_a_time() -> None:
    mine = a_rental(project="/a", rental_id="r7")

    view = await money.report(
        a_context(mine, BUSY), cost.CostReportParams(by="project", project="/a", since_s=60.0)
    )

    assert [(row.key, row.cost_usd) for row in view.rows] == [("/a", 0.006)]
    assert view.since is not None


@pytest.mark.parametrize(
    "wrong",
    [{"by": "week"}, {"since_s": -1.0}, {"since_s": float("inf")}, {"since_s": 0.0}],
    ids=str,
)
async def test_a_report_of_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        await money.report(a_context(), cost.CostReportParams(**wrong))


async def test_the_forecast_tells_credit_and_caps_and_asks_once_a_minute() -> None:
    context = a_context(BUSY, caps=Caps(per_day=from_usd(0.7)), credit=from_usd(0.18))

    view = await money.forecast(context, cost.CostForecastParams())
    await money.forecast(context, cost.CostForecastParams())

    assert context.shell.provider.asked == 1
    assert (view.credit_usd, view.credit_error) == (0.18, None)
    assert view.zero_credit_at == "2027-01-15T09:30:00.000Z"
    (cap,) = view.caps
    assert (cap.key, cap.spent_usd, cap.resets_at) == (
        "per_day_usd", 0.36, "2027-01-16T00:00:00.000Z",
    )  # fmt: skip
    assert cap.reached_at == "2027-01-15T09:54:50.000Z"  # 0.34 less 110 s of winding down


@pytest.mark.req("BUD-13")
async def test_the_forecast_goes_on_after_zero_and_counts_what_others_spend() -> None:
    """CASES A27: stopped machines and their storage, below zero, are part of the forecast."""
    stranger = a_row(instance_id=9, dph=RATE, storage_dph=from_usd(0.01))
    still = a_rental(Phase.STOPPED, rental_id="r2", rates=(RateSegment(T0, from_usd(0.005)),))
    context = a_context(BUSY, still, credit=from_usd(0.36), foreign=(stranger,))

    view = await money.forecast(context, cost.CostForecastParams())

    # 0.36 + 0.36 + 0.005 $/h of 0.36 $: half an hour, less 12.4 s.
    assert view.zero_credit_at == "2027-01-15T09:29:47.586Z"
    assert (view.foreign, view.foreign_dph_usd) == (1, 0.36)
    assert view.after_zero_stops == 1
    storage = to_usd(billing.storage_rate(BUSY) + billing.storage_rate(still)) + 0.01
    assert view.after_zero_dph_usd == pytest.approx(storage)
    # 110 s of winding down at 0.36 $/h are kept: 0.011 $, which are 54.6 s of all three.
    assert view.ends_for_credit_at == "2027-01-15T09:28:52.965Z"


@pytest.mark.parametrize("changes", [{"end_at_zero_credit": False}, {}])
async def test_when_jobs_end_for_credit_is_told_only_if_they_do(changes: dict[str, Any]) -> None:
    context = a_context(BUSY, credit=from_usd(0.18))
    context.shell.limits = structs.replace(context.shell.limits, **changes)

    view = await money.forecast(context, cost.CostForecastParams())

    assert (view.ends_for_credit_at is None) is bool(changes)
    assert view.zero_credit_at is not None


async def test_credit_that_cannot_be_read_is_unknown_with_the_reason() -> None:
    view = await money.forecast(a_context(BUSY, credit=None), cost.CostForecastParams())

    assert (view.credit_usd, view.zero_credit_at) == (None, None)
    assert view.credit_error == "no route to Vast"


async def test_every_cap_is_told_with_its_origin_and_use(config: ConfigurationHolder) -> None:
    config.set({"budget.per_project_usd": 2})
    context = a_context(BUSY, config=config)

    view = await money.get(context, budget.BudgetGetParams(project="/elsewhere"))

    told = {cap.key: cap for cap in view.caps}
    assert list(told) == [
        "per_job_usd", "per_day_usd", "per_month_usd", "per_project_usd", "max_dph_usd",
    ]  # fmt: skip
    day = told["per_day_usd"]
    assert (day.value_usd, day.origin, day.spent_usd) == (25.0, "default", 0.36)
    assert [who.name for who in day.reserved_by] == ["lab"]
    assert day.left_usd == pytest.approx(25 - 0.36 - (day.reserved_usd or 0))
    assert day.percent == round(100 * (25 - (day.left_usd or 0)) / 25, 1)
    assert (told["per_project_usd"].origin, told["per_project_usd"].spent_usd) == ("file", 0.0)
    assert told["per_month_usd"].value_usd is None
    assert (told["per_job_usd"].window, told["per_job_usd"].spent_usd) == ("job", None)
    assert view.warn_percent == 80


async def test_the_caps_told_are_those_that_count_in_the_project(
    config: ConfigurationHolder, tmp_path: Path
) -> None:
    (tmp_path / "vastd.toml").write_text("[budget]\nper_job_usd = 2\n")
    context = a_context(BUSY, config=config)

    view = await money.get(context, budget.BudgetGetParams(project=str(tmp_path)))

    job = {cap.key: cap for cap in view.caps}["per_job_usd"]
    assert (job.value_usd, job.origin, job.default_usd) == (2.0, "project", 10.0)


@pytest.mark.parametrize(
    ("changes", "project"),
    [
        ({"per_day_usd": 40.0, "budget.per_day_usd": 50.0}, None),
        ({"per_day_usd": 40.0, "nonsense": 1.0}, None),
        ({"per_day_usd": 40.0, "max_dph_usd": -1.0}, None),
        ({"per_day_usd": 40.0}, "[nonsense"),  # the answer could not be made
    ],
)
async def test_caps_that_cannot_all_be_set_are_not_set_at_all(
    config: ConfigurationHolder,
    tmp_path: Path,
    changes: dict[str, float | None],
    project: str | None,
) -> None:
    (tmp_path / "vastd.toml").write_text(project or "")
    wish = budget.BudgetSetParams(changes=changes, project=str(tmp_path))
    before = config.config

    with pytest.raises((InvalidRequest, ConfigError)):
        await money.set_caps(a_context(BUSY, config=config), wish)

    assert config.config is before


async def test_caps_are_changed_together_and_in_force_at_once(config: ConfigurationHolder) -> None:
    context = a_context(BUSY, config=config)
    wish = budget.BudgetSetParams(changes={"per_day_usd": 40.0, "budget.per_month_usd": 100.0})

    view = await money.set_caps(context, wish)

    assert context.shell.limits.caps == Caps(per_day=from_usd(40), per_month=from_usd(100))
    assert {cap.key: cap.value_usd for cap in view.caps}["per_month_usd"] == 100
    again = budget.BudgetSetParams(changes={"per_month_usd": None})
    view = await money.set_caps(context, again)
    assert {cap.key: cap.value_usd for cap in view.caps}["per_month_usd"] is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "no change"),
        ({"per_day_usd": 40.0, "per_week_usd": 1.0}, "no cap is called 'per_week_usd'"),
        ({"per_day_usd": 40.0, "per_month_usd": -1.0}, "per_month_usd: expected a number"),
        ({"per_day_usd": 40.0, "timing.grace_s": 1.0}, "no cap is called"),
    ],
    ids=str,
)
async def test_one_wrong_cap_changes_none(
    config: ConfigurationHolder, changes: dict[str, float | None], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        await money.set_caps(a_context(config=config), budget.BudgetSetParams(changes=changes))

    assert config.settings.budget == BudgetTable()


def test_a_change_of_a_cap_is_on_the_trail_whoever_made_it() -> None:
    shell = a_context().shell

    note_caps(shell, BudgetTable(), BudgetTable(per_day_usd=40, per_month_usd=100))
    note_caps(shell, BudgetTable(), BudgetTable())

    assert shell.ledger.committed == [
        ev.CapsChanged(at=NOW, changes={"per_day_usd": (25.0, 40), "per_month_usd": (None, 100)})
    ]


def test_a_refusal_carries_its_numbers_and_exits_with_6() -> None:
    shell = a_context(BUSY, caps=Caps(per_day=from_usd(2))).shell
    with pytest.raises(CapReached) as caught:
        admit(shell, a_rental(Phase.PLANNED, rental_id="r9"))

    told = describe(caught.value, mutates=True)

    assert isinstance(told, ErrorObject)
    assert told.code == ErrorCode.BUDGET_EXCEEDED == 1007
    assert exit_code(told.code) == 6
    data = decode(encode(told))["data"]
    assert data["kind"] == "budget_exceeded"
    assert data["hint"].startswith("three ways on:\n1. raise the cap: `vastctl budget per_day_usd=")
    numbers = data["budget"]
    assert (numbers["cap"], numbers["limit_usd"], numbers["spent_usd"]) == ("per_day_usd", 2, 0.36)
    assert list(numbers["reserved_by"]) == ["lab"]
    assert numbers["left_usd"] == pytest.approx(2 - 0.36 - numbers["reserved_usd"])
    assert numbers["needs_usd"] > numbers["left_usd"]
    assert numbers["resets_at"] == "2027-01-16T00:00:00.000Z"
    assert day_of(NOW).until - NOW == 15 * 3600
