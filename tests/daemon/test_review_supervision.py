"""What a review of the daemon found, each with the rule that was missing."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from msgspec import structs
from trio.testing import MockClock

from support.daemon_in_memory import Lab
from vastd.config.settings import RetentionTable
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.market import Offer
from vastd.core.money import Micros
from vastd.core.rental import Phase, Policy
from vastd.effects import launch as launching
from vastd.env_files import EnvFiles
from vastd.errors import PolicyRefused, SshError, StoreError
from vastd.housekeeping import Housekeeping
from vastd.renting import planned
from vastd.shell import Choice
from vastd.store import retention
from vastd.store.store import Store

pytestmark = pytest.mark.sim


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


async def test_an_intention_waits_while_the_inventory_is_unknown(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        world = daemon.shell.observed.world
        blind = structs.replace(world.inventory, error="no network")
        daemon.shell.observed.world = structs.replace(world, inventory=blind)
        daemon.ledger.commit(_an_intention(daemon))
        await trio.sleep(5)  # before the next listing

        (rental,) = daemon.ledger.rentals.values()
        assert rental.phase is Phase.PLANNED
        await daemon.until(
            lambda: next(iter(daemon.ledger.rentals.values())).phase is not Phase.PLANNED,
            within_s=120,
        )


def _an_intention(daemon, policy: Policy | None = None) -> ev.RentalPlanned:  # type: ignore[no-untyped-def]
    offer = Offer(offer_id=1, machine_id=1, gpu_name="RTX 4090", num_gpus=1, gpu_ram_mb=24_000,
                  dph=Micros(400_000))  # fmt: skip
    choice = Choice(offer=offer, image="sim/image", disk_gb=10.0)
    return planned(
        daemon.shell, choice, policy or Policy(), name="one", project=None, task="one",
        purpose="interactive",
    )  # fmt: skip


async def test_no_way_to_rent_passes_the_hourly_cap(autojump_clock: MockClock, lab: Lab) -> None:
    async with lab.boot() as daemon:
        with pytest.raises(PolicyRefused, match="over the cap"):
            _an_intention(daemon, Policy(max_dph=Micros(399_999)))


async def test_two_who_want_a_listing_get_one_after_the_other(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        under_way, most = 0, 0
        ask = daemon.shell.provider.list_instances

        async def counted():  # type: ignore[no-untyped-def]
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                await trio.sleep(3)
                return await ask()
            finally:
                under_way -= 1

        daemon.shell.provider.list_instances = counted  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(daemon.poller.poll)
            nursery.start_soon(daemon.poller.poll)
    assert most == 1


async def test_a_job_whose_start_got_no_answer_is_ended_and_collected_not_lost(
    autojump_clock: MockClock, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start arrives, its answer does not, and the limit is over before SSH is back."""
    async with lab.boot() as daemon:
        start = launching._start
        lost = False

        async def start_unheard(shell, box, rental_id, job):  # type: ignore[no-untyped-def]
            nonlocal lost
            if lost:
                raise SshError("no route")
            plain, box.job_snapshot = box.job_snapshot, _deaf_after_start(box)
            try:
                await start(shell, box, rental_id, job)
            finally:
                box.job_snapshot = plain
                lost = True

        monkeypatch.setattr(launching, "_start", start_unheard)
        job_id = daemon.submit(
            "--seconds", "7200", "--output", "results/a.txt:1000",
            project=lab.project, policy=Policy(max_runtime_s=1800),
        )  # fmt: skip
        await daemon.settled(within_s=4 * 3600)

        job = daemon.ledger.job(job_id)
    assert job.state is JobState.TIMED_OUT
    assert job.started_at is not None
    assert job.collected is True


def _deaf_after_start(box):  # type: ignore[no-untyped-def]
    plain, calls = box.job_snapshot, 0

    async def snapshot(job_id: str):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if calls > 1:
            raise SshError("the connection was lost")
        return await plain(job_id)

    return snapshot


@pytest.mark.sim
async def test_a_disk_that_refuses_ends_no_housekeeping(
    autojump_clock: MockClock, lab: Lab, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def refuse(store: Store, now: float) -> int:
        raise StoreError("read-only")

    monkeypatch.setattr(retention, "drop_answers", refuse)
    async with lab.boot() as daemon:
        with caplog.at_level(logging.ERROR), trio.move_on_after(2.5 * 86_400):
            await Housekeeping(daemon.shell, RetentionTable).run()

    told = [r.message for r in caplog.records if r.name == "vastd.housekeeping"]
    assert told == ["old records are kept: read-only"] * 3  # now, and every day


async def test_a_log_that_no_disk_takes_does_not_keep_a_machine_past_its_end(
    autojump_clock: MockClock, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lab.boot() as daemon:

        def refuse(job_id: str, offset: int, data: bytes) -> int:
            raise StoreError("no space left")

        monkeypatch.setattr(daemon.shell.logs, "append", refuse)
        job_id = daemon.submit(
            "--seconds", "600", project=lab.project, policy=Policy(max_runtime_s=1800)
        )
        await daemon.settled(within_s=2 * 3600)

        assert daemon.ledger.job(job_id).finished


def test_environments_of_unknown_jobs_are_forgotten(tmp_path: Path) -> None:
    envs = EnvFiles(tmp_path)
    envs.keep_only(set())  # nothing there yet
    envs.save("j1", {"TOKEN": "a"})
    envs.save("j2", {"TOKEN": "b"})

    envs.keep_only({"j2"})

    assert (envs.load("j1"), envs.load("j2")) == ({}, {"TOKEN": "b"})
