"""The main job on the simulated market: rent, prove, send, run, collect, destroy, prove."""

from collections.abc import AsyncIterator

import pytest
from trio.testing import MockClock

from support.daemon_in_memory import Lab
from vastd.core.job import JobState
from vastd.core.rental import Phase, Trigger

pytestmark = pytest.mark.sim


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


async def test_a_job_runs_to_its_end_and_its_machine_is_proven_gone(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        job_id = daemon.submit(
            "--seconds", "600", "--exit", "0", "--output", "results/a.txt:1000", project=lab.project
        )
        await daemon.settled()

        job = daemon.ledger.job(job_id)
        rental = next(iter(daemon.ledger.rentals.values()))
    assert job.state is JobState.SUCCEEDED
    assert job.exit_code == 0
    assert job.collected is True
    assert (lab.project / "results/a.txt").stat().st_size == 1000
    assert rental.phase is Phase.GONE
    assert rental.end_reason is Trigger.JOB_DONE
    assert lab.market.live_contracts() == []
    assert [e.kind for e in lab.market.journal if e.kind == "create"] == ["create"]
