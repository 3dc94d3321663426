"""SIGTERM at every commit and at every call to Vast: it ends within ten seconds, the next start goes on."""

from collections.abc import AsyncIterator, Callable

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import Daemon, Lab
from support.lab_stories import WORK, first, in_phase, the_job, trail
from vastd.core.job import JobState
from vastd.core.rental import Phase, Trigger
from vastd.errors import StoreError
from vastd.simulator.faults import FaultKind

pytestmark = pytest.mark.sim

SHARDS = 4
STOP_LIMIT_S = 10.0
PHASES = [
    "planned", "creating", "booting", "verifying", "ready", "busy", "collecting", "destroying",
]  # fmt: skip


class Stopper:
    """Counts the moments of a story and stops the daemon at one of them."""

    def __init__(self, lab: Lab, at: int | None) -> None:
        self.lab = lab
        self.at = at
        self.moments: list[str] = []
        self.phases: set[str] = set()
        self.daemon: Daemon | None = None
        self.asked_at = 0.0

    def moment(self, *what: object) -> None:
        """Be told of a moment."""
        self.moments.append(" ".join(str(word) for word in what))
        if len(self.moments) - 1 == self.at and self.daemon is not None:
            self.phases |= {str(r.phase) for r in self.daemon.ledger.rentals.values()}
            self.asked_at = trio.current_time()
            self.daemon.stop()


def at_commits(lab: Lab, stopper: Stopper) -> None:
    lab.on_commit = stopper.moment


def at_calls(lab: Lab, stopper: Stopper) -> None:
    lab.observer = stopper.moment


def play(at: int | None, arm: Callable[[Lab, Stopper], None]) -> Stopper:
    """Play the main job with one stop at moment `at`, and check that nothing is lost or doubled."""
    told: list[Stopper] = []

    async def story() -> None:
        lab = Lab()
        try:
            stopper = Stopper(lab, at)
            arm(lab, stopper)
            await _lives(lab, stopper)
            creates = [e for e in lab.market.journal if e.kind == "create" and e.refused is None]
            assert len({e.label for e in creates}) == len(creates)  # I2
            assert lab.market.live_contracts() == []
            assert (lab.project / "results/a.bin").stat().st_size == 1000
            assert len(lab.boxes.ledger()) == 1  # the job ran once
            told.append(stopper)
        finally:
            lab.close()

    trio.run(story, clock=MockClock(autojump_threshold=0))
    return told[0]


async def _lives(lab: Lab, stopper: Stopper) -> None:
    for _ in range(3):
        async with lab.boot() as daemon:
            stopper.daemon = daemon
            try:
                if not daemon.ledger.jobs:
                    daemon.submit(*WORK, project=lab.project, outputs=["results/"])
            except StoreError:
                pass
            while not daemon.scope.cancel_called:
                if the_job(daemon).finished and not daemon.ledger.live():
                    stopper.daemon = None
                    assert the_job(daemon).state is JobState.SUCCEEDED
                    assert the_job(daemon).collected is True
                    return
                with trio.move_on_after(30):
                    await daemon.ledger.wait_changed()
                assert trio.current_time() < 7200, (stopper.at, stopper.moments[-5:])
            await daemon.stopped.wait()
            assert trio.current_time() - stopper.asked_at <= STOP_LIMIT_S
            stopper.daemon = None
    raise AssertionError("it was stopped once and never came to its end")


@pytest.mark.sim
@pytest.mark.parametrize("arm", [at_commits, at_calls])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_stop_at_any_moment_ends_in_time_and_loses_and_doubles_nothing(
    shard: int, arm: Callable[[Lab, Stopper], None]
) -> None:
    moments = play(None, arm).moments
    for at in range(shard, len(moments), SHARDS):
        assert len(play(at, arm).moments) > at


@pytest.mark.sim
def test_the_moments_of_a_stop_cover_every_phase() -> None:
    seen: set[str] = set()
    for arm in (at_commits, at_calls):
        for at in range(len(play(None, arm).moments)):
            seen |= play(at, arm).phases

    assert seen >= set(PHASES), set(PHASES) - seen


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


async def test_a_create_without_an_answer_holds_a_stop_three_seconds_and_is_looked_for_later(
    lab: Lab, autojump_clock: MockClock
) -> None:
    lab.faults.inject("create", FaultKind.TIMEOUT, times=1)
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project, outputs=["results/"])
        await in_phase(daemon, Phase.CREATING)
        asked_at = trio.current_time()
        daemon.stop()
        await daemon.stopped.wait()
        took = trio.current_time() - asked_at
        left = [(r.phase, r.create_unknown) for r in daemon.ledger.rentals.values()]

    async with lab.boot() as daemon:
        await daemon.settled()
        ended = [rental.end_reason for rental in daemon.ledger.rentals.values()]
        state = the_job(daemon).state

    assert took == pytest.approx(3.0, abs=0.01)
    assert left == [(Phase.CREATING, True)]
    assert state is JobState.SUCCEEDED
    assert ended[-1] is Trigger.JOB_DONE
    labels = [e.label for e in lab.market.journal if e.kind == "create"]
    assert len(set(labels)) == len(labels)
    assert lab.market.live_contracts() == []


async def test_a_create_whose_answer_is_on_its_way_is_still_learnt(
    lab: Lab, autojump_clock: MockClock
) -> None:
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project, outputs=["results/"])
        await in_phase(daemon, Phase.CREATING)
        daemon.stop()
        await daemon.stopped.wait()
        rental = first(daemon)
        kinds = trail(daemon)

    assert rental.instance_id is not None
    assert "create_unresolved" not in kinds
