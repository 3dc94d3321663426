"""Housekeeping on a daemon's own state: what is old goes, money and what is live stays."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import EPOCH, Daemon, Lab
from support.lab_stories import WORK
from vastd.config.settings import RetentionTable
from vastd.core import billing
from vastd.core.job import JobState
from vastd.core.rental import Rental
from vastd.core.spending import EVER, Cap
from vastd.housekeeping import Housekeeping
from vastd.store import retention

pytestmark = pytest.mark.sim

DAY = 86_400.0
MONTH = RetentionTable(events_days=1, records_days=32, logs_days=1)


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


async def one_ended(lab: Lab, daemon: Daemon) -> str:
    """Run a job to its end; return its id."""
    job_id = daemon.submit(*WORK, "--log-lines", "50", project=lab.project, outputs=["results/"])
    await daemon.settled()
    return job_id


async def one_running(lab: Lab, daemon: Daemon) -> Rental:
    """Begin a long job; return its machine once it runs there."""
    job_id = daemon.submit("--seconds", "3000", project=lab.project)
    jobs = daemon.ledger.jobs
    await daemon.until(lambda: jobs[job_id].state is JobState.RUNNING, within_s=3600)
    return daemon.ledger.rental(jobs[job_id].rental_id or "")


async def later(lab: Lab, daemon: Daemon, days: int, keep: RetentionTable) -> None:
    """Tidy up as if `days` had passed."""
    shell = replace(daemon.shell, wall_clock=lambda: lab.clock() + days * DAY)
    await Housekeeping(shell, lambda: keep).tidy()


async def test_forty_days_later_the_records_are_gone_and_their_money_is_not(
    lab: Lab, autojump_clock: MockClock
) -> None:
    async with lab.boot() as daemon:
        await one_ended(lab, daemon)
        spent = sum(billing.cost(r, lab.clock()) for r in daemon.ledger.rentals.values())
        live = await one_running(lab, daemon)
        logs = daemon.shell.logs

        await later(lab, daemon, 40, MONTH)

        store = daemon.store
        assert list(daemon.ledger.rentals) == [live.rental_id]
        assert [job.state for job in daemon.ledger.jobs.values()] == [JobState.RUNNING]
        assert [r.rental_id for r in store.rentals()] == [live.rental_id]
        kept = [s.event for s in store.events_after(0, 999)]
        assert {getattr(e, "rental_id", None) for e in kept} == {live.rental_id, None}
        assert {getattr(e, "job_id", None) for e in kept} == {*daemon.ledger.jobs, None}
        assert sum(retention.kept_costs(store).values()) == spent
        assert spent > 0
        assert {log.job_id for log in logs.stored()} <= set(daemon.ledger.jobs)
        await daemon.settled()  # and it goes on with its work

    async with lab.boot() as daemon:  # the cap of the project holds over a restart, too
        left = sum(billing.cost(r, lab.clock()) for r in daemon.ledger.rentals.values())
        held = daemon.shell.past.spent(Cap.PER_PROJECT, EVER, live.project)
        assert held == spent + left


async def test_nothing_is_dropped_within_what_is_kept(lab: Lab, autojump_clock: MockClock) -> None:
    async with lab.boot() as daemon:
        await one_ended(lab, daemon)
        before = (dict(daemon.ledger.rentals), len(daemon.store.events_after(0, 999)))

        await later(lab, daemon, 364, RetentionTable())

        assert (dict(daemon.ledger.rentals), len(daemon.store.events_after(0, 999))) == before
        assert retention.pruned(daemon.store).events_before is None


async def test_records_wait_while_the_disk_refuses(lab: Lab, autojump_clock: MockClock) -> None:
    async with lab.boot() as daemon:
        await one_ended(lab, daemon)
        daemon.store.full = True
        daemon.ledger.write_error = "database or disk is full"

        await later(lab, daemon, 40, MONTH)

        assert len(daemon.ledger.rentals) == 1


async def test_logs_of_ended_jobs_go_oldest_first_until_they_fit(
    lab: Lab, autojump_clock: MockClock
) -> None:
    async with lab.boot() as daemon:
        ended = await one_ended(lab, daemon)
        active = daemon.ledger.jobs_of((await one_running(lab, daemon)).rental_id)[0].job_id
        logs = daemon.shell.logs
        for age, job_id in ((9, active), (5, ended), (1, "j-unknown")):
            logs.append(job_id, logs.size(job_id), bytes(700_000))
            os.utime(logs.path(job_id), (lab.clock() - age, lab.clock() - age))

        await Housekeeping(daemon.shell, lambda: RetentionTable(logs_max_mb=1)).tidy()

        assert {log.job_id for log in logs.stored()} == {active, "j-unknown"}


async def test_copies_that_nobody_asked_for_go_after_their_time(
    lab: Lab, autojump_clock: MockClock
) -> None:
    async with lab.boot() as daemon:
        names = ("vastd.db.damaged-20260101T000000Z", "vastd.db.before-v2", "vastd.db.damaged-new")
        for name in names:
            (lab.state_dir / name).touch()
            old = lab.clock() - (0 if name.endswith("new") else 91 * DAY)
            os.utime(lab.state_dir / name, (old, old))

        await Housekeeping(daemon.shell, RetentionTable).tidy()

        assert [name for name in names if (lab.state_dir / name).exists()] == [names[2]]


@pytest.mark.parametrize("years", [0, 3])
async def test_a_clock_that_is_years_ahead_makes_nothing_old(
    autojump_clock: MockClock, lab: Lab, years: int
) -> None:
    async with lab.boot() as daemon:
        job_id = await one_ended(lab, daemon)
        lab.step_s = years * 365 * DAY
        await trio.sleep(60)
        if years:
            assert daemon.shell.wall_clock() > EPOCH + 3 * 364 * DAY  # nothing depends on it
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Housekeeping(daemon.shell, RetentionTable).run)
            await trio.sleep(300)
            nursery.cancel_scope.cancel()

        assert list(daemon.ledger.jobs) == [job_id]
        assert len(daemon.ledger.rentals) == 1
