"""What a client sees of a job."""

from pathlib import Path

import pytest

from support.builders import RATE, T0, a_done_job, a_job, a_rental, an_ending
from vastd.core.job import Attempt, Job, JobState
from vastd.core.money import Micros
from vastd.core.observed import Sighting
from vastd.core.rental import Phase, RateSegment, Rental, Trigger
from vastd.local_logs import LocalLogs
from vastd.rpc.views.job import job_view

ATTEMPT = Attempt(rental_id="r-1", offer_id=7, machine_id=40, began_at=T0)
FAILED = Attempt(
    rental_id="r-0", offer_id=6, machine_id=39, began_at=T0, ended_at=T0 + 5, reason="it never ran"
)


@pytest.mark.parametrize(
    ("job", "seconds"),
    [
        (a_job(attempts=[FAILED, ATTEMPT]), [5.0, 500.0]),
        (a_done_job(ended_at=T0 + 60, attempts=[FAILED, ATTEMPT]), [5.0, 60.0]),
    ],
)
def test_an_attempt_lasts_until_it_failed_or_its_job_ended(
    job: Job, seconds: list[float], tmp_path: Path
) -> None:
    view = job_view(job, {}, Sighting(), LocalLogs(tmp_path), T0 + 500)

    assert [attempt.seconds for attempt in view.attempts] == seconds


def a_lost_machine(trigger: Trigger) -> Rental:
    phases = ((Phase.BOOTING, T0), (Phase.BUSY, T0 + 10), (Phase.GONE, T0 + 110))
    rates = (RateSegment(T0 + 10, RATE), RateSegment(T0 + 110, Micros(0)))
    return a_rental(
        Phase.GONE, rental_id="r-1", ending=an_ending(trigger), phases=phases, rates=rates
    )


@pytest.mark.req("BUD-14")
@pytest.mark.parametrize(
    ("trigger", "state", "home", "reason"),
    [
        (Trigger.VANISHED, JobState.FAILED, False, "the machine vanished, and nothing came home"),
        (Trigger.BUDGET, JobState.TIMED_OUT, False, "the machine ended (budget), and nothing"),
        (Trigger.VANISHED, JobState.FAILED, True, None),
        (Trigger.USER, JobState.CANCELLED, False, None),  # he gave it up
    ],
)
def test_what_went_with_its_machine_is_told_as_lost_and_as_waste(
    trigger: Trigger, state: JobState, home: bool, reason: str | None, tmp_path: Path
) -> None:
    job = a_job(
        state, rental_id="r-1", ended_at=T0 + 110, attempts=(FAILED, ATTEMPT), collected=home,
        collect_final=not home,
    )  # fmt: skip
    machine = a_lost_machine(trigger)

    view = job_view(job, {"r-1": machine}, Sighting(), LocalLogs(tmp_path), T0 + 500)

    _, attempt = view.attempts
    assert (view.results_lost, view.cost_usd) == (not home, 0.01)  # 100 s at $0.36/h
    assert attempt.wasted_usd == (0.01 if reason else 0.0)
    assert attempt.phase == ("busy" if reason else None)
    assert (attempt.reason or "None").startswith(reason or "None")


def test_a_copy_that_failed_is_not_lost_while_its_machine_exists(tmp_path: Path) -> None:
    job = a_job(JobState.SUCCEEDED, rental_id="r1", collected=False, collect_final=True)
    logs = LocalLogs(tmp_path)

    assert not job_view(job, {"r1": a_rental()}, Sighting(), logs, T0).results_lost
    assert job_view(job, {}, Sighting(), logs, T0).results_lost  # its record is dropped
