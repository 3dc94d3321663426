"""When the log of a job came home, on virtual time, with kills and a lost index in between."""

from collections.abc import AsyncIterator

import pytest
from trio.testing import MockClock

from support.daemon_in_memory import EPOCH, Lab
from support.lab_stories import running, the_job

pytestmark = pytest.mark.sim

LONG = ("--seconds", "600", "--log-lines", "100")


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


async def test_every_byte_has_a_time_across_a_kill(lab: Lab, autojump_clock: MockClock) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
    async with lab.boot() as daemon:
        await daemon.settled()
        job, logs = the_job(daemon), daemon.shell.logs

    size = logs.size(job.job_id)
    marks = logs.times.between(job.job_id, 0, size, 10_000)
    times = [mark.at_s for mark in marks if mark.at_s is not None]
    assert size > 0
    assert marks[-1].end == size
    assert len(times) == len(marks) > 5
    assert times == sorted(times)
    assert job.started_at is not None
    assert job.ended_at is not None
    assert EPOCH < job.started_at <= times[0] <= times[-1] <= job.ended_at + 1
