"""What a review of the limits found: whose policy counts, what is refused, what is remembered."""

from types import SimpleNamespace

import pytest

from support.builders import T0, a_job, a_rental, a_watch
from vastd.config.settings import Settings
from vastd.core import placement, steps, watchdogs
from vastd.core.job import JobState
from vastd.core.limits import Limits
from vastd.core.money import Micros, from_usd
from vastd.core.observed import Sighting
from vastd.core.rental import Phase, Policy
from vastd.errors import BudgetExceeded, InvalidRequest
from vastd.rpc.handlers.asked import no_limits, policy_of
from vastd_protocol.methods.rental import PolicyParams


def test_the_heartbeat_of_a_job_on_a_machine_it_did_not_rent_is_watched() -> None:
    declared = Policy(heartbeat_path="hb.json", heartbeat_interval_s=60)
    job = a_job(JobState.RUNNING, policy=declared, started_at=T0)
    watch = a_watch(a_rental(phase=Phase.BUSY), job, seen=Sighting(looked_at=T0 + 500))

    alarm = watchdogs.heartbeat(watch)

    assert alarm is not None
    assert alarm.at == T0 + 120


def _config() -> SimpleNamespace:
    caps = (from_usd(10), from_usd(4))
    return SimpleNamespace(
        policy=Policy, caps=lambda: caps, settings=Settings(), by_project=lambda _: False
    )


def test_a_budget_over_the_cap_is_refused_not_cut() -> None:
    with pytest.raises(BudgetExceeded, match=r"\$20.00 is over the cap of \$10.00"):
        policy_of(PolicyParams(budget_usd=20.0), _config())  # type: ignore[arg-type]
    assert policy_of(PolicyParams(budget_usd=10.0), _config()).budget == from_usd(10)  # type: ignore[arg-type]
    assert policy_of(PolicyParams(), _config()).budget == Micros(10_000_000)  # type: ignore[arg-type]


def test_limits_that_would_be_ignored_on_an_existing_machine_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="budget_usd, max_runtime_s"):
        no_limits(PolicyParams(budget_usd=1.0, max_runtime_s=60.0), a_rental())
    with pytest.raises(InvalidRequest, match="keep: rental"):
        no_limits(PolicyParams(keep=True), a_rental(purpose="job"))
    no_limits(PolicyParams(heartbeat_path="hb.json", keep=True), a_rental(purpose="interactive"))


def test_a_job_is_over_only_when_its_machine_can_take_nothing_with_it_any_more() -> None:
    gone, ready = a_rental(phase=Phase.GONE), a_rental(phase=Phase.READY)
    done = a_job(JobState.SUCCEEDED, started_at=T0, rental_id=gone.rental_id)
    home = a_job(JobState.SUCCEEDED, started_at=T0, collected=True, rental_id=gone.rental_id)

    assert not placement.is_over(done, {gone.rental_id: gone})
    assert not placement.is_over(home, {ready.rental_id: ready})
    assert placement.is_over(home, {gone.rental_id: gone})
    assert placement.is_over(a_job(JobState.FAILED, rental_id=None), {})
    assert not placement.is_over(a_job(JobState.RUNNING, rental_id=None), {})


def test_a_clock_set_back_does_not_delay_the_next_destroy() -> None:
    rental = a_rental(phase=Phase.DESTROYING, destroy_tried_at=T0 + 3600, destroy_tries=1)

    step = steps.next_step(rental, [], Sighting(), Limits(), T0)

    assert (step.do, step.not_before) == (steps.Do.DESTROY, None)
