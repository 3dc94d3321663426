"""What a client sees of a job."""

from pathlib import Path

import pytest

from support.builders import T0, a_done_job, a_job
from vastd.core.job import Attempt, Job
from vastd.core.observed import Sighting
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
