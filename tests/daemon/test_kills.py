"""Kill -9 at every commit and at every call to Vast: one create, results home, machine gone."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import Daemon, Lab
from support.lab_stories import WORK, the_job
from vastd.core.job import JobState
from vastd.core.rental import Phase, Trigger
from vastd.errors import StoreError

pytestmark = pytest.mark.sim

SHARDS = 8


class Killer:
    """Counts the moments of a story and kills the daemon at one of them."""

    def __init__(self, lab: Lab, at: int | None) -> None:
        self.lab = lab
        self.at = at
        self.moments: list[str] = []
        self.daemon: Daemon | None = None

    def on_commit(self, where: str) -> None:
        self._moment(where)

    def on_call(self, point: object, stage: object) -> None:
        self._moment(f"{point} {stage}")

    def _moment(self, what: str) -> None:
        self.moments.append(what)
        if len(self.moments) - 1 == self.at and self.daemon is not None:
            self.daemon.kill()


def play(at: int | None, arm: Callable[[Lab, Killer], None]) -> list[str]:
    """Play the main job with one kill at moment `at`; check every promise; return the moments."""
    told: list[str] = []

    async def story() -> None:
        lab = Lab()
        try:
            killer = Killer(lab, at)
            arm(lab, killer)
            await _lives(lab, killer)
            _check(lab, killer)
            told.extend(killer.moments)
        finally:
            lab.close()

    trio.run(story, clock=MockClock(autojump_threshold=0))
    return told


async def _lives(lab: Lab, killer: Killer) -> None:
    job_id = ""
    for _ in range(4):
        async with lab.boot() as daemon:
            killer.daemon = daemon
            try:
                if not daemon.ledger.jobs:
                    job_id = daemon.submit(*WORK, project=lab.project, outputs=["results/"])
            except StoreError:
                pass  # killed at this very commit: the client would send it again
            while not daemon.scope.cancel_called:
                if daemon.ledger.jobs and _settled(daemon):
                    killer.daemon = None
                    assert the_job(daemon).state is JobState.SUCCEEDED, (job_id, killer.moments)
                    assert the_job(daemon).collected is True
                    _check_rentals(daemon)
                    return
                with trio.move_on_after(30):
                    await daemon.ledger.wait_changed()
                assert trio.current_time() < 7200, (killer.at, killer.moments[-5:])
        killer.daemon = None
        await trio.sleep(1)


def _settled(daemon: Daemon) -> bool:
    return all(j.finished for j in daemon.ledger.jobs.values()) and all(
        r.phase is Phase.GONE for r in daemon.ledger.rentals.values()
    )


def _check_rentals(daemon: Daemon) -> None:
    """One machine served. Killed between the intent and the request, a rental is looked for in
    vain, and another one follows it."""
    *lost, served = (rental.end_reason for rental in daemon.ledger.rentals.values())
    assert served is Trigger.JOB_DONE
    assert lost in ([], [Trigger.CREATE_LOST])


def _check(lab: Lab, killer: Killer) -> None:
    creates = [e for e in lab.market.journal if e.kind == "create"]
    labels = [e.label for e in creates]
    assert len(set(labels)) == len(labels), (killer.at, labels)  # I2
    assert len(creates) == 1, (killer.at, killer.moments[killer.at or 0])
    assert lab.market.live_contracts() == []
    assert (lab.project / "results/a.bin").stat().st_size == 1000
    assert len(lab.boxes.ledger()) == 1  # the job ran once


def at_commits(lab: Lab, killer: Killer) -> None:
    lab.on_commit = killer.on_commit


def at_calls(lab: Lab, killer: Killer) -> None:
    lab.observer = killer.on_call


def test_the_main_job_has_moments_to_be_killed_at() -> None:
    commits, asked = play(None, at_commits), play(None, at_calls)

    assert len(commits) >= 30
    assert "before create_sent" in commits
    assert {"create asked", "create done", "destroy asked", "destroy done"} <= set(asked)


@pytest.mark.sim
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_before_and_after_every_commit_loses_and_doubles_nothing(shard: int) -> None:
    moments = play(None, at_commits)
    for at in range(shard, len(moments), SHARDS):
        assert len(play(at, at_commits)) >= at


@pytest.mark.sim
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_at_every_call_to_vast_loses_and_doubles_nothing(shard: int) -> None:
    moments = play(None, at_calls)
    for at in range(shard, len(moments), SHARDS):
        assert len(play(at, at_calls)) >= at


def test_a_kill_between_the_create_and_its_answer_adopts_the_machine_into_the_run() -> None:
    moments = play(None, at_calls)

    again = play(moments.index("create done"), at_calls)

    assert again.count("create asked") == 1
    assert again.count("create done") == 1
