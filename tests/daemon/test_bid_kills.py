"""Kill -9 and a cancel at every commit of a job that is outbid: one create per rental, nothing left."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import Daemon, Lab
from support.lab_stories import HOUR, befall, bid_for, running, the_job
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.rental import OnOutbid, Phase
from vastd.simulator.faults import MachineFaultKind

pytestmark = pytest.mark.sim

LONG = ("--seconds", "1500", "--output", "results/a.bin:1000")
CKPT = "results/checkpoint.bin"
SHARDS = 4


class Moments:
    """Counts the commits from the outbid on, and does something at one of them."""

    def __init__(self, at: int | None, act: Callable[[Daemon], None]) -> None:
        self.at, self.act = at, act
        self.seen: list[str] = []
        self.daemon: Daemon | None = None  # None: nothing is counted yet, or any more

    def on_commit(self, where: str) -> None:
        if self.daemon is None:
            return
        self.seen.append(where)
        if len(self.seen) - 1 == self.at:
            daemon, self.daemon = self.daemon, None
            self.act(daemon)


def kill(daemon: Daemon) -> None:
    daemon.kill()


def play(
    at: int | None, on_outbid: OnOutbid, act: Callable[[Daemon], None], check: Callable[[Lab, Daemon], None]
) -> list[str]:  # fmt: skip
    """Play one story with something done at moment `at`; return the moments."""
    told: list[str] = []

    async def story() -> None:
        lab = Lab()
        bid_for(lab)
        moments = Moments(at, act)
        lab.on_commit = moments.on_commit
        try:
            async with lab.boot() as daemon:
                rental = await running(
                    lab, daemon, *LONG, checkpoint_path=CKPT, on_outbid=on_outbid
                )
                fault = MachineFaultKind.OUTBID
                for_s = 900.0 if on_outbid is OnOutbid.RESUME else None
                befall(lab, rental, fault, after_s=300.0, for_s=for_s)
                moments.daemon = daemon
                await _until_over(daemon)
                if not daemon.scope.cancel_called:
                    check(lab, daemon)
                    told.extend(moments.seen)
                    return
            await trio.sleep(1)
            async with lab.boot() as daemon:
                await _until_over(daemon)
                check(lab, daemon)
                told.extend(moments.seen)
        finally:
            lab.close()

    trio.run(story, clock=MockClock(autojump_threshold=0))
    return told


async def _until_over(daemon: Daemon) -> None:
    """Wait until the job has ended and an hour has passed, or the daemon was killed."""
    over_at: float | None = None
    while not daemon.scope.cancel_called:
        if the_job(daemon).finished:
            over_at = over_at or trio.current_time()
            if trio.current_time() >= over_at + HOUR:
                return
        with trio.move_on_after(30):
            await daemon.ledger.wait_changed()
        assert trio.current_time() < 12 * HOUR, the_job(daemon)


def all_is_home(lab: Lab, daemon: Daemon) -> None:
    job = the_job(daemon)
    assert (job.state, job.collected) == (JobState.SUCCEEDED, True)
    assert (lab.project / "results/a.bin").stat().st_size == 1000
    assert [r.phase for r in daemon.ledger.live()] == []
    assert lab.market.live_contracts() == []
    _one_create_each(lab)
    assert len({record.job_id for record in lab.boxes.ledger()}) == len(lab.boxes.ledger())


def only_the_old_disk_is_left(lab: Lab, daemon: Daemon) -> None:
    """The job is cancelled, or had ended before; what it left may be kept, and nothing runs."""
    alive = lab.market.live_contracts()
    assert [c.instance_id for c in alive if c.is_up or c.holds_gpus] == []
    assert {c.instance_id for c in alive} == {r.instance_id for r in daemon.ledger.live()}
    assert {r.phase for r in daemon.ledger.live()} <= {Phase.STOPPED}
    assert len(alive) <= 1
    _one_create_each(lab)


def _one_create_each(lab: Lab) -> None:
    labels = [e.label for e in lab.market.journal if e.kind == "create"]
    assert len(set(labels)) == len(labels)


def cancel_soon(daemon: Daemon) -> None:
    """Ask for the cancel from outside, as soon as the commit under way is over."""
    job_id = the_job(daemon).job_id
    token = trio.lowlevel.current_trio_token()

    def ask() -> None:
        job = daemon.ledger.job(job_id)
        if not job.finished and job.cancel_at is None:
            now = daemon.shell.wall_clock()
            daemon.ledger.commit(ev.CancelAsked(job_id=job_id, at=now))

    token.run_sync_soon(ask)


@pytest.mark.parametrize("on_outbid", [OnOutbid.RESUME, OnOutbid.RERENT])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_at_every_commit_after_an_outbid_loses_and_doubles_nothing(
    shard: int, on_outbid: OnOutbid
) -> None:
    moments = play(None, on_outbid, kill, all_is_home)
    assert any("job_interrupted" in moment for moment in moments)
    for at in range(shard, len(moments), SHARDS):
        assert len(play(at, on_outbid, kill, all_is_home)) > at


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_cancel_at_every_moment_of_a_rerent_leaves_no_machine_running(shard: int) -> None:
    """CASES A14."""
    moments = play(None, OnOutbid.RERENT, cancel_soon, all_is_home)
    for at in range(shard, len(moments), SHARDS):
        assert play(at, OnOutbid.RERENT, cancel_soon, only_the_old_disk_is_left)
