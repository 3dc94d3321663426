"""The account runs out of money on the simulated market: told in time, results home, nothing unpaid."""

from collections.abc import AsyncIterator

import pytest
import trio
from msgspec import structs
from trio.testing import MockClock

from support.daemon_in_memory import Daemon, Lab
from support.lab_stories import HOUR, first, in_phase, running, the_job
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.money import to_usd
from vastd.core.rental import Phase, StopCause, Trigger
from vastd.core.story import tell

pytestmark = pytest.mark.sim

LONG = ("--seconds", "20000", "--output", "results/a.bin:1000")


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


def leave(lab: Lab, seconds: float) -> None:
    """Let the account have credit for so many seconds of what is billed now."""
    world = lab.market.world
    now = world.advance()
    rate = sum(contract.meter.rate() for contract in world.live.values())
    lab.market.deposit(to_usd(round(rate * seconds / 3600) - world.credit(now)))


def warnings(daemon: Daemon, name: str) -> list[str]:
    found = [s.event for s in daemon.store.events_of(rental_id=first(daemon).rental_id)]
    return [e.why for e in found if isinstance(e, ev.Warned) and e.watchdog.startswith(name)]


@pytest.mark.req("BUD-13")
async def test_a_job_ends_with_its_results_before_the_credit_is_gone(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        leave(lab, HOUR)
        began = trio.current_time()
        await daemon.until(lambda: bool(warnings(daemon, "credit_warn")), within_s=301)
        assert "Vast stops it then" in warnings(daemon, "credit_warn")[0]
        await daemon.settled(within_s=12 * HOUR)
        took = trio.current_time() - began

        assert (the_job(daemon).state, the_job(daemon).collected) == (JobState.TIMED_OUT, True)
        assert first(daemon).end_reason is Trigger.BUDGET
        assert "the credit of the account is used up" in (the_job(daemon).reason or "")
        assert len(warnings(daemon, "credit_warn")) == 1
        # It used what there was, but for the cost of its end.
        assert HOUR - 300 < took < HOUR
    assert lab.market.world.credit(lab.market.world.advance()) > 0


@pytest.mark.sim
@pytest.mark.req("BUD-13")
async def test_left_to_vast_it_is_stopped_told_of_and_comes_home_after_a_top_up(
    autojump_clock: MockClock, lab: Lab
) -> None:
    """CASES A28; `on_zero_credit = "warn"`."""
    lab.limits = structs.replace(lab.limits, end_at_zero_credit=False)
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        leave(lab, HOUR)
        still = await in_phase(daemon, Phase.STOPPED, within_s=HOUR + 200)
        assert still.stopped_by is StopCause.CREDIT
        assert len(warnings(daemon, "credit_warn")) == 1
        await trio.sleep(100)
        assert len(warnings(daemon, "credit_out")) == 1
        told = [
            tell(s.event).text
            for s in daemon.store.events_of(rental_id=still.rental_id)
            if isinstance(s.event, ev.InstanceStopped)
        ]
        assert len(told) == 1
        assert "out of credit" in told[0]

    # Also told by a daemon that starts while nothing can be paid; and a top-up starts nothing.
    async with lab.boot() as daemon:
        await trio.sleep(86_400)
        assert len(warnings(daemon, "credit_out")) == 2
        lab.market.deposit(50)
        await trio.sleep(HOUR)
        assert first(daemon).phase is Phase.STOPPED
        asked = ev.StartAsked(rental_id=still.rental_id, at=daemon.shell.wall_clock())
        daemon.ledger.commit(asked)
        await daemon.until(lambda: the_job(daemon).collected is True, within_s=HOUR)


@pytest.mark.sim
async def test_a_top_up_in_time_ends_nothing(autojump_clock: MockClock, lab: Lab) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        leave(lab, HOUR)
        await trio.sleep(HOUR - 400)
        lab.market.deposit(100)
        await daemon.settled(within_s=12 * HOUR)

        assert the_job(daemon).state is JobState.SUCCEEDED
