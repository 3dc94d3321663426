"""The budget of a job is for all of its machines together."""

from types import SimpleNamespace

import pytest

from support.builders import T0, a_job, a_rental
from vastd.core.job import Attempt
from vastd.core.money import Micros, from_usd
from vastd.core.rental import Phase, Policy, RateSegment
from vastd.effects.place import _what_is_left
from vastd.errors import BudgetExceeded

pytestmark = pytest.mark.sim


def _shell(spent_usd: float) -> SimpleNamespace:
    rates = (RateSegment(T0, from_usd(spent_usd)), RateSegment(T0 + 3600, Micros(0)))
    failed = a_rental(phase=Phase.GONE, rates=rates)
    ledger = SimpleNamespace(rentals={"r-1": failed})
    return SimpleNamespace(ledger=ledger, wall_clock=lambda: T0 + 7200)


def _job(budget: Micros | None):  # type: ignore[no-untyped-def]
    tried = Attempt(rental_id="r-1", offer_id=1, machine_id=1, began_at=T0, reason="boot_failed")
    return a_job(policy=Policy(budget=budget), attempts=(tried,), rental_id=None)


def test_the_next_machine_gets_what_the_failed_ones_left() -> None:
    left = _what_is_left(_shell(0.5), _job(from_usd(2)))  # type: ignore[arg-type]

    assert left.budget == from_usd(1.5)
    assert _what_is_left(_shell(0.5), _job(None)).budget is None  # type: ignore[arg-type]


def test_a_job_whose_failed_machines_cost_its_budget_gets_no_other() -> None:
    with pytest.raises(BudgetExceeded, match=r"whole budget of \$0.50"):
        _what_is_left(_shell(0.5), _job(from_usd(0.5)))  # type: ignore[arg-type]
