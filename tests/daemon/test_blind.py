"""When Vast, the network or the lid is shut: nothing is concluded, rented or destroyed for it."""

import json
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import EPOCH, Daemon, Lab
from support.lab_stories import HOUR, WORK, calls, first, running, the_job
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.money import from_usd
from vastd.core.rental import Phase, Policy, Trigger
from vastd.projection import Projection
from vastd.rebuild import adopt_orphans
from vastd.shell import Observations
from vastd.simulator.faults import FaultKind, MachineFault, MachineFaultKind
from vastd.store.store import DATABASE, opened

pytestmark = pytest.mark.sim

LONG = ("--seconds", "4500", "--output", "results/a.bin:1000")


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.HTTP_410,
        FaultKind.AUTH_404,
        *(
            pytest.param(kind, marks=pytest.mark.sim)
            for kind in (FaultKind.NULL, FaultKind.HTML, FaultKind.EMPTY_BODY,
                         FaultKind.TRUNCATED_PAGE, FaultKind.HTTP_429)
        ),
    ],
)  # fmt: skip
async def test_an_hour_without_a_listing_destroys_nothing_and_rents_nothing(
    autojump_clock: MockClock, lab: Lab, kind: FaultKind
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        now = EPOCH + trio.current_time()
        lab.faults.inject("list", kind, times=None, until_at=now + HOUR)
        await trio.sleep(60)
        daemon.submit(*WORK, project=lab.project)
        await trio.sleep(300)

        assert calls(lab, "create", "stop", "destroy") == ["create"]
        assert first(daemon).phase is Phase.BUSY
        assert daemon.shell.observed.world.inventory.error is not None
        assert "listing_stale" in first(daemon).warned
        await trio.sleep(HOUR - 360)
        assert calls(lab, "destroy") == []
        assert the_job(daemon).state is JobState.RUNNING


async def test_our_own_network_down_ends_nothing(autojump_clock: MockClock, lab: Lab) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG, heartbeat_path="hb.json", heartbeat_interval_s=60.0)
        lab.faults.cut_network(lab.clock(), lab.clock() + 1800)
        await trio.sleep(1750)

        assert the_job(daemon).state is JobState.UNKNOWN
        assert first(daemon).ending is None
        await trio.sleep(120)
        assert the_job(daemon).state is JobState.RUNNING
        await daemon.settled()
        assert the_job(daemon).state is JobState.SUCCEEDED
    assert calls(lab, "create", "destroy") == ["create", "destroy"]


@pytest.mark.parametrize("phase", [Phase.BOOTING, Phase.VERIFYING])
async def test_our_own_network_down_is_not_the_machine_s_fault(
    autojump_clock: MockClock, lab: Lab, phase: Phase
) -> None:
    lab.market.afflict(MachineFault(kind=MachineFaultKind.SSH_REFUSED, for_s=60.0))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.until(
            lambda: bool(daemon.ledger.rentals) and first(daemon).phase is phase, within_s=HOUR
        )
        lab.faults.cut_network(lab.clock(), lab.clock() + 1200)
        await daemon.settled()

        assert len(daemon.ledger.rentals) == 1
        assert the_job(daemon).state is JobState.SUCCEEDED


async def test_nine_minutes_of_suspend_kill_no_silent_job_in_the_first_cycle(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG, heartbeat_path="hb.json", heartbeat_interval_s=60.0)
        await trio.sleep(100)
        lab.suspend(540)
        await trio.sleep(60)

        assert first(daemon).ending is None
        assert daemon.shell.observed.world.watching_since > lab.clock() - 70
        await daemon.settled()
        assert the_job(daemon).state is JobState.SUCCEEDED


@pytest.mark.parametrize("phase", [Phase.BOOTING, Phase.VERIFYING])
@pytest.mark.parametrize("later_s", [0.0, 14.0])
async def test_nine_minutes_of_suspend_kill_no_machine_on_its_way_up(
    autojump_clock: MockClock, lab: Lab, phase: Phase, later_s: float
) -> None:
    lab.market.afflict(MachineFault(kind=MachineFaultKind.SSH_REFUSED, for_s=60.0))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.until(
            lambda: bool(daemon.ledger.rentals) and first(daemon).phase is phase, within_s=HOUR
        )
        await trio.sleep(later_s)
        lab.suspend(540)
        await trio.sleep(20)
        assert first(daemon).ending is None


def test_a_silence_that_lasted_over_a_suspend_begins_anew() -> None:
    observed = Observations(EPOCH)
    observed.note("r1", unreachable_since=EPOCH + 5, reached_at=EPOCH)
    observed.note("r2", reached_at=EPOCH)

    observed.restart_watch(EPOCH + 600)

    assert observed.world.watching_since == EPOCH + 600
    assert observed.world.of("r1").unreachable_since == EPOCH + 600
    assert observed.world.of("r2").unreachable_since is None


async def test_a_deadline_that_passed_while_the_lid_was_closed_counts(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=HOUR)
        assert rental.deadline_at is not None
        lab.suspend(rental.deadline_at + 5 - lab.true_time())  # before the machine's own guard acts
        await daemon.settled(within_s=600)

        assert first(daemon).end_reason is Trigger.MAX_RUNTIME
        assert the_job(daemon).collected is True


async def test_a_restart_renews_no_deadline(autojump_clock: MockClock, lab: Lab) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=HOUR)
    await trio.sleep(HOUR - 600)
    async with lab.boot() as daemon:
        await daemon.settled(within_s=1200)

        assert first(daemon).deadline_at == rental.deadline_at
        assert first(daemon).end_reason is Trigger.MAX_RUNTIME


async def test_a_full_disk_at_home_stops_no_end_and_is_caught_up_with(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *WORK)
        daemon.store.full = True
        await daemon.settled()
        assert lab.market.live_contracts() == []
        assert daemon.ledger.write_error is not None

        daemon.store.full = False
        await trio.sleep(20)
        assert daemon.ledger.write_error is None
    with opened(lab.state_dir) as store:
        assert [r.phase for r in store.rentals()] == [Phase.GONE]
        assert ev.kind(store.events_before_end(1)[0].event) == "found_absent"


# -- a damaged store


async def test_after_a_damaged_store_machines_are_taken_over_and_nothing_is_rented_or_destroyed(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG)
    (lab.state_dir / DATABASE).unlink()
    async with lab.boot() as daemon:
        lock: list[str | None] = ["the store was damaged"]
        daemon.shell.locked = lambda: lock[0]
        # The lab's daemon takes it over as the real one does, maybe before we look.
        adopt_orphans(daemon.shell, Policy())
        assert list(daemon.ledger.rentals) == [rental.rental_id]
        assert adopt_orphans(daemon.shell, Policy()) == 0
        daemon.submit(*WORK, project=lab.project)
        await trio.sleep(HOUR)

        adopted = daemon.ledger.rentals[rental.rental_id]
        assert (adopted.phase, adopted.instance_id) == (Phase.READY, rental.instance_id)
        assert adopted.deadline_at is not None
        assert calls(lab, "create", "stop", "destroy") == ["create"]
        assert the_job(daemon).failure == "provisioning"

        lock[0] = None
        daemon.submit(*WORK, project=lab.project)
        await daemon.until(lambda: list(daemon.ledger.jobs.values())[-1].finished, within_s=HOUR)
        assert list(daemon.ledger.jobs.values())[-1].state is JobState.SUCCEEDED
        assert daemon.ledger.rentals[rental.rental_id].phase is Phase.READY


@pytest.mark.parametrize("spoiled", [None, "label", "file", "instance"])
async def test_names_limits_and_outputs_of_a_lost_store_come_back_from_the_state_file(
    autojump_clock: MockClock, lab: Lab, spoiled: str | None
) -> None:
    """Only for machines that Vast shows with our label; without the file they are taken over as well."""
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, budget=from_usd(3.0), max_runtime_s=2 * HOUR)
        Projection(daemon.shell).write()
    (lab.state_dir / DATABASE).unlink()
    file = lab.state_dir / "vast-instances.json"
    entries = json.loads(file.read_text())
    ghost = {**entries[0], "instance_id": 999_999}  # no machine is made of an entry
    change = {"label": {"label": "another"}, "instance": {"instance_id": 4711}}.get(
        spoiled or "", {}
    )
    text = "broken" if spoiled == "file" else json.dumps([{**entries[0], **change}, ghost])
    file.write_text(text)

    async with lab.boot() as daemon:
        adopt_orphans(daemon.shell, Policy(budget=from_usd(10.0)))

        (adopted,) = daemon.ledger.rentals.values()
    known = spoiled is None
    assert adopted.instance_id == rental.instance_id
    assert adopted.taken_over
    assert (adopted.name == rental.name) == known
    assert adopted.project == (str(lab.project) if known else None)
    assert adopted.hinted_outputs == (("results/",) if known else ())
    # The lab takes over with the default policy, and may be faster than this test.
    assert adopted.policy.budget in ((from_usd(3.0),) if known else (None, from_usd(10.0)))
    assert adopted.policy.max_runtime_s == (2 * HOUR if known else 43_200.0)


# -- bugs


def crash(daemon: Daemon, name: str, instance_id: int) -> list[int]:
    """Let one call about one machine raise what nobody expects; return how often it did."""
    provider, hits = daemon.shell.provider, []
    real = getattr(provider, name)

    async def broken(about, *rest):  # type: ignore[no-untyped-def]
        await trio.lowlevel.checkpoint()
        if about == instance_id:
            hits.append(1)
            raise KeyError("actual_status")
        return await real(about, *rest)

    setattr(provider, name, broken)
    return hits


async def test_an_effect_that_keeps_crashing_quarantines_its_rental_and_others_go_on(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=MachineFaultKind.SSH_AUTH, healed_by_attach=True))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.until(
            lambda: bool(daemon.ledger.rentals) and first(daemon).phase is Phase.BOOTING,
            within_s=60,
        )
        hits = crash(daemon, "attach_ssh_key", first(daemon).instance_id or 0)
        await daemon.until(lambda: first(daemon).quarantined is not None, within_s=HOUR)
        other = lab.project / "other"
        other.mkdir()
        second = daemon.submit(*WORK, project=other, name="other")
        await daemon.until(lambda: daemon.ledger.jobs[second].finished, within_s=HOUR)

        assert len(hits) == 5
        assert "KeyError" in (first(daemon).quarantined or "")
        assert daemon.ledger.jobs[second].state is JobState.SUCCEEDED
        # Nothing of the user's was on it yet: it is ended at once, and bills nobody.
        assert first(daemon).end_reason is Trigger.BUG
        await daemon.settled(within_s=600)
    assert lab.market.live_contracts() == []


async def test_a_create_that_crashes_on_its_answer_is_looked_for_by_its_label(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        provider = daemon.shell.provider
        real = provider.create_instance

        async def broken(spec):  # type: ignore[no-untyped-def]
            await real(spec)
            raise KeyError("new_contract")

        provider.create_instance = broken  # type: ignore[method-assign]
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        assert the_job(daemon).state is JobState.SUCCEEDED
    assert calls(lab, "create") == ["create"]


async def test_a_create_that_crashes_before_it_was_sent_is_called_lost_and_replaced(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        provider = daemon.shell.provider
        real, crashes = provider.create_instance, [1]

        async def broken(spec):  # type: ignore[no-untyped-def]
            await trio.lowlevel.checkpoint()
            if crashes:
                crashes.pop()
                raise KeyError("offer")
            return await real(spec)

        provider.create_instance = broken  # type: ignore[method-assign]
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()

        assert first(daemon).end_reason is Trigger.CREATE_LOST
        assert the_job(daemon).state is JobState.SUCCEEDED
    assert calls(lab, "create") == ["create"]


async def test_a_collection_that_crashes_is_a_failed_copy_and_a_limit_stops_the_machine(
    autojump_clock: MockClock, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *WORK, max_runtime_s=HOUR)

        async def broken(*args: object) -> None:
            await trio.lowlevel.checkpoint()
            raise KeyError("sha256")

        monkeypatch.setattr("vastd.simulator.box.SimBox.collect", broken)
        await daemon.until(lambda: first(daemon).phase is Phase.STOPPED, within_s=2 * HOUR)

        assert first(daemon).collect_failures == 5
        assert the_job(daemon).collect_final
    assert calls(lab, "stop", "destroy") == ["stop"]
