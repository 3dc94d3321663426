"""The store is lost, older, or of an older vastd, while machines bill: none is forgotten or doubled."""

import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import Daemon, Lab
from support.lab_stories import WORK
from support.old_store import LIVE_JOB, LIVE_RENTAL, make_v1
from vastd.core.job import JobState
from vastd.core.labels import read_claim
from vastd.core.rental import Phase, Trigger
from vastd.store.mark import NAME
from vastd.store.renting_lock import NAME as LOCK
from vastd.store.store import DATABASE

pytestmark = pytest.mark.sim

SEEDS = 30
PER_TEST = 10
_OVER = (Phase.STOPPED, Phase.GONE)
LONG = ("--seconds", "3000", "--output", "results/b.bin:1000")


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


async def test_a_job_that_runs_through_an_upgrade_of_the_store_is_followed_to_its_end(
    lab: Lab, autojump_clock: MockClock
) -> None:
    await _as_the_old_vastd_did(lab)
    make_v1(lab.state_dir, root=str(lab.root))

    async with lab.boot() as daemon:
        held = daemon.ledger.rentals[LIVE_RENTAL]
        assert held.instance_id == lab.market.live_contracts()[0].instance_id
        await daemon.settled()
        job = daemon.ledger.jobs[LIVE_JOB]

    assert (job.state, job.collected) == (JobState.SUCCEEDED, True)
    assert (lab.project / "results/b.bin").stat().st_size == 1000
    assert len([e for e in lab.market.journal if e.kind == "create"]) == 2
    assert lab.market.live_contracts() == []
    assert not (lab.state_dir / LOCK).exists()


async def _as_the_old_vastd_did(lab: Lab) -> None:
    """Bring market and machines to where the kept store was written, then lose our store of it."""
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project, outputs=["results/"], name="first")
        await daemon.settled()
        daemon.submit(*LONG, project=lab.project, outputs=["results/"], name="second")
        await daemon.until(
            lambda: daemon.ledger.jobs[LIVE_JOB].state is JobState.RUNNING, within_s=3600
        )
        daemon.stop()
        await daemon.stopped.wait()
    for path in lab.state_dir.glob(f"{DATABASE}*"):
        path.unlink()
    (lab.state_dir / NAME).unlink()


# -- seeds: a kill at any time, and then the store is not what it was


def _lost(state: Path, older: Path) -> None:
    (state / DATABASE).unlink()


def _without_log(state: Path, older: Path) -> None:
    (state / f"{DATABASE}-wal").unlink(missing_ok=True)


def _older(state: Path, older: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        (state / f"{DATABASE}{suffix}").unlink(missing_ok=True)
        if (older / f"{DATABASE}{suffix}").exists():
            shutil.copy(older / f"{DATABASE}{suffix}", state)


def _empty(state: Path, older: Path) -> None:
    for path in state.glob(f"{DATABASE}*"):
        path.unlink()
    with sqlite3.connect(state / DATABASE) as other:
        other.execute("CREATE TABLE t (a)")
    other.close()


def _garbage(state: Path, older: Path) -> None:
    (state / DATABASE).write_bytes(b"no database" * 1000)
    (state / f"{DATABASE}-wal").unlink()  # from it alone SQLite makes the whole database again


LOSSES: list[Callable[[Path, Path], None]] = [_lost, _without_log, _older, _empty, _garbage]


async def _story(seed: int) -> list[str]:
    """Play one seed; return what was created before the loss."""
    rng = random.Random(f"lost:{seed}")
    lab = Lab(seed)
    older = lab.root / "older"
    try:
        async with lab.boot() as daemon:
            for number in range(1 + rng.randrange(2)):
                daemon.submit(
                    *WORK, project=lab.project, outputs=["results/"], name=f"job-{number}"
                )
            await trio.sleep(rng.uniform(0, 60))
            _snapshot(lab.state_dir, older)
            await trio.sleep(rng.uniform(1, 400))
            # What was lost must be what was done: without a commit since, nothing was.
            daemon.submit(*WORK, project=lab.project, outputs=["results/"], name="late")
            _snapshot(lab.state_dir, lab.root / "killed")
        before = [e.label or "" for e in lab.market.journal if e.kind == "create"]
        _restore(lab.root / "killed", lab.state_dir)
        LOSSES[seed % len(LOSSES)](lab.state_dir, older)
        await _after_the_loss(lab, seed, before)
        return before
    finally:
        lab.close()


def _snapshot(state: Path, into: Path) -> None:
    """Copy the store as a kill would leave it now."""
    into.mkdir()
    for path in [*state.glob(f"{DATABASE}*"), state / NAME]:
        shutil.copy(path, into)


def _restore(killed: Path, state: Path) -> None:
    """Undo what closing the store tidied up: a kill does not."""
    for path in state.glob(f"{DATABASE}*"):
        path.unlink()
    for path in killed.iterdir():
        shutil.copy(path, state)


async def _after_the_loss(lab: Lab, seed: int, before: list[str]) -> None:
    async with lab.boot() as daemon:
        assert daemon.shell.locked() is not None, f"seed {seed}: renting was not locked"
        with trio.fail_after(3 * 86_400):
            while live := _unended(lab, daemon):
                # Whatever bills is held, after the first listings.
                if trio.current_time() > 600:
                    assert live <= set(daemon.ledger.rentals), f"seed {seed}: {live} forgotten"
                with trio.move_on_after(600):
                    await daemon.ledger.wait_changed()
        assert all(r.end_reason is not Trigger.CREATE_LOST for r in daemon.ledger.rentals.values())
    after = [e.label or "" for e in lab.market.journal if e.kind == "create"]
    assert after == before, f"seed {seed}: something was rented although renting was locked"


def _unended(lab: Lab, daemon: Daemon) -> set[str]:
    """Return the rentals that bill at the market and are not yet stopped or ended at our side."""
    claims = [read_claim(c.label) for c in lab.market.live_contracts()]
    over = {r.rental_id for r in daemon.ledger.rentals.values() if r.phase in _OVER}
    return {claim.rental_id for claim in claims if claim is not None} - over


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_every_machine_is_taken_over_and_ended_and_nothing_rented_after_a_loss(first: int) -> None:
    told: list[list[str]] = []
    for seed in range(first, first + PER_TEST):

        async def run(seed: int = seed) -> None:
            told.append(await _story(seed))

        trio.run(run, clock=MockClock(autojump_threshold=0))

    assert any(told)
