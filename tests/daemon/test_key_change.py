"""`defaults.ssh_key` was changed and vastd started again: machines that run go on being ours."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import Daemon, Lab
from support.lab_stories import running, the_job
from vastd.core.job import JobState
from vastd.errors import ConfigError, NoSuchInstance
from vastd.key_change import NAME, spread_key
from vastd.simulator.faults import FaultKind

pytestmark = pytest.mark.sim

LONG = ("--seconds", "3000", "--output", "results/a.bin:1000")


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


async def rented_with_the_old_key(lab: Lab) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        daemon.stop()
        await daemon.stopped.wait()
    lab.boxes._identity = "another"


def attached(lab: Lab) -> int:
    return sum(entry.kind == "attach_key" for entry in lab.market.journal)


def noted(daemon: Daemon) -> str:
    return (daemon.shell.state_dir / "ssh" / NAME).read_text().strip()


async def test_a_job_is_followed_to_its_end_with_the_new_key(
    lab: Lab, autojump_clock: MockClock
) -> None:
    await rented_with_the_old_key(lab)

    async with lab.boot() as daemon:
        await spread_key(daemon.shell)
        assert noted(daemon) == daemon.shell.boxes.public_key()
        await daemon.settled()
        job = the_job(daemon)

    assert (job.state, job.collected, len(job.attempts)) == (JobState.SUCCEEDED, True, 1)
    assert (lab.project / "results/a.bin").stat().st_size == 1000


async def test_without_it_the_machine_would_not_let_us_in(
    lab: Lab, autojump_clock: MockClock
) -> None:
    await rented_with_the_old_key(lab)

    async with lab.boot() as daemon:
        await daemon.until(lambda: the_job(daemon).state is JobState.UNKNOWN, within_s=600)
        assert not (lab.state_dir / "ssh" / NAME).exists()


async def test_a_vast_that_fails_is_asked_again_until_the_machine_has_the_key(
    lab: Lab, autojump_clock: MockClock
) -> None:
    await rented_with_the_old_key(lab)
    lab.faults.inject("attach_key", FaultKind.HTTP_500, times=3)
    before = attached(lab)

    async with lab.boot() as daemon:
        await spread_key(daemon.shell)

        assert attached(lab) == before + 1
        assert noted(daemon) == daemon.shell.boxes.public_key()


async def test_the_same_key_asks_nothing_of_vast(lab: Lab, autojump_clock: MockClock) -> None:
    await rented_with_the_old_key(lab)

    async with lab.boot() as daemon:
        await spread_key(daemon.shell)
        before = attached(lab)
        await spread_key(daemon.shell)

    assert attached(lab) == before


async def test_back_to_the_first_key_reaches_what_was_rented_with_the_second(
    lab: Lab, autojump_clock: MockClock
) -> None:
    async with lab.boot() as daemon:
        await spread_key(daemon.shell)  # nothing is rented
        await running(lab, daemon, *LONG)
        await spread_key(daemon.shell)
    lab.boxes._identity = "another"
    async with lab.boot() as daemon:
        await spread_key(daemon.shell)
    before = attached(lab)
    lab.boxes._identity = "vastd"

    async with lab.boot() as daemon:
        await spread_key(daemon.shell)

    assert attached(lab) == before + 1


async def test_a_kill_before_all_have_the_key_leaves_no_note(
    lab: Lab, autojump_clock: MockClock
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        await spread_key(daemon.shell)
    lab.boxes._identity = "another"
    lab.faults.inject("attach_key", FaultKind.HTTP_500, times=None)

    async with lab.boot() as daemon:
        with trio.move_on_after(60):
            await spread_key(daemon.shell)
        assert not (lab.state_dir / "ssh" / NAME).exists()


async def test_a_machine_that_is_gone_is_not_waited_for(
    lab: Lab, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rented_with_the_old_key(lab)

    async def gone(_self: object, instance_id: int, _key: str) -> None:
        raise NoSuchInstance(f"instance {instance_id} does not exist")

    async with lab.boot() as daemon:
        monkeypatch.setattr(type(daemon.shell.provider), "attach_ssh_key", gone)
        with trio.fail_after(1):
            await spread_key(daemon.shell)

        assert noted(daemon) == daemon.shell.boxes.public_key()


async def test_a_key_that_cannot_be_used_ends_nothing(
    lab: Lab, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rented_with_the_old_key(lab)

    def refused(_self: object) -> str:
        raise ConfigError("the ssh key cannot be used")

    before = attached(lab)
    async with lab.boot() as daemon:
        monkeypatch.setattr(type(daemon.shell.boxes), "public_key", refused)
        await spread_key(daemon.shell)

    assert attached(lab) == before
