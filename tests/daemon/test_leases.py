"""The lease on the box, on virtual time: the bill has an end even if vastd never comes back."""

from collections.abc import AsyncIterator

import pytest
import trio
from msgspec import structs
from trio.testing import MockClock

from support.daemon_in_memory import EPOCH, Daemon, Lab
from support.lab_stories import calls, first, running, the_job, trail
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.lease import BUSY_SLACK_S, HARD_SLACK_S, LeaseFacts
from vastd.core.limits import LeaseRules, Limits
from vastd.core.rental import Phase, Policy, Rental, Trigger
from vastd.errors import ConfigError, SshClosed
from vastd.simulator.contracts import Contract, Stage
from vastd.simulator.faults import Fault, FaultKind, Point
from vastd.simulator.guards import SimGuard
from vastd.simulator.programs import CHECKPOINT

pytestmark = pytest.mark.sim

HOUR = 3600.0
LONG = ("--seconds", "40000")
SHORT = ("--seconds", "60")
STRICT = Limits(lease=LeaseRules(while_busy="lease_s"))


@pytest.fixture
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    made = Lab(limits=getattr(request, "param", None))
    yield made
    made.close()


def contract_of(lab: Lab, rental: Rental) -> Contract:
    return lab.market.world.contracts[rental.instance_id or 0]


def kept(daemon: Daemon) -> Rental:
    return daemon.shell.ledger.rental(first(daemon).rental_id)


def lease_ends(daemon: Daemon) -> float:
    """When the guard would end the machine, in seconds of virtual time."""
    until = first(daemon).lease_until
    assert until is not None
    return until - EPOCH


async def idle_machine(lab: Lab, daemon: Daemon) -> Rental:
    daemon.submit(*SHORT, project=lab.project, policy=Policy(keep=True))
    await daemon.until(
        lambda: bool(daemon.ledger.jobs) and the_job(daemon).collected is True, within_s=HOUR
    )
    await trio.sleep(10)  # the shorter lease has been told
    return first(daemon)


async def test_a_machine_is_armed_and_that_is_read_back_before_it_is_ready(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)

        told = [s.event for s in daemon.store.events_of(rental_id=first(daemon).rental_id)]
        kinds = [ev.kind(event) for event in told]
        assert kinds.index("lease_renewed") == kinds.index("became_ready") - 1
        seen = daemon.shell.observed.world.of(first(daemon).rental_id).lease
        assert seen is not None
        assert seen.unarmed is None


async def test_an_idle_machine_is_destroyed_when_its_lease_runs_out_without_a_daemon(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await idle_machine(lab, daemon)
        await trio.sleep(1000)
        ends = lease_ends(daemon)
        assert 3300 <= ends - trio.current_time() <= 3600  # renewed every 300 s
        daemon.kill()
    await trio.sleep(2 * HOUR)

    lab.market.advance()
    contract = contract_of(lab, rental)
    assert contract.stage is Stage.GONE
    assert contract.gone_at is not None
    assert 0 <= contract.gone_at - EPOCH - ends < 60
    assert calls(lab, "destroy", "stop") == []  # nobody but the guard did it


async def test_a_busy_machine_may_work_to_its_deadline_without_a_daemon_and_keeps_its_results(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=5 * HOUR)
        await trio.sleep(10)
        assert lease_ends(daemon) == pytest.approx(
            (rental.deadline_at or 0) - EPOCH + BUSY_SLACK_S, abs=2
        )
        daemon.kill()
    await trio.sleep(20 * HOUR)

    lab.market.advance()
    contract = contract_of(lab, rental)
    assert contract.stage is Stage.EXITED
    up = contract.run_of(1)
    assert up.end_at is not None
    assert 0 <= up.end_at - (rental.deadline_at or 0) - BUSY_SLACK_S < 15
    (job,) = lab.boxes.ledger()
    assert list(job.outputs) == [CHECKPOINT]  # TERM came first
    assert job.disk_exists


@pytest.mark.parametrize("lab", [STRICT], indirect=True)
async def test_a_strict_lease_ends_a_busy_machine_after_an_hour(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG)
        await trio.sleep(10)
        killed = trio.current_time()
        daemon.kill()
    await trio.sleep(2 * HOUR)

    lab.market.advance()
    end = contract_of(lab, rental).run_of(1).end_at
    assert end is not None
    assert end - EPOCH - killed <= HOUR + 15


@pytest.mark.parametrize("lab", [Limits(lease=LeaseRules(on_expiry="destroy"))], indirect=True)
async def test_who_wants_it_destroyed_anyway_has_it_so(autojump_clock: MockClock, lab: Lab) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=2 * HOUR)
        await trio.sleep(10)
        daemon.kill()
    await trio.sleep(3 * HOUR)

    lab.market.advance()
    assert contract_of(lab, rental).stage is Stage.GONE


async def test_a_machine_that_nobody_ever_reached_ends_by_the_lease_of_its_start_script(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        daemon.submit(*LONG, project=lab.project)
        await daemon.until(
            lambda: any(r.phase is Phase.BOOTING for r in daemon.ledger.rentals.values()),
            within_s=HOUR,
        )
        rental = first(daemon)
        daemon.kill()
    await trio.sleep(3 * HOUR)

    lab.market.advance()
    contract = contract_of(lab, rental)
    assert contract.stage is Stage.GONE
    assert contract.start_at is not None
    assert contract.gone_at is not None
    assert HOUR <= contract.gone_at - contract.start_at < HOUR + 60


async def test_a_daemon_that_comes_back_says_that_the_lease_ended_it(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await idle_machine(lab, daemon)
        daemon.kill()
    await trio.sleep(3 * HOUR)
    async with lab.boot() as daemon:
        await daemon.settled()

        gone = first(daemon)
        assert gone.end_reason is Trigger.LEASE
        assert "lease ran out" in (gone.ending.why if gone.ending else "")
        assert calls(lab, "create") == ["create"]


async def test_results_on_a_machine_that_its_guard_stopped_come_home_when_it_is_started(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG, max_runtime_s=5 * HOUR)
        await trio.sleep(10)
    await trio.sleep(9 * HOUR)
    async with lab.boot() as daemon:
        await daemon.until(lambda: first(daemon).phase is Phase.STOPPED, within_s=HOUR)
        stopped = first(daemon)
        assert stopped.end_reason in (Trigger.LEASE, Trigger.MAX_RUNTIME)
        await daemon.until(lambda: the_job(daemon).finished, within_s=60)

        now = daemon.shell.wall_clock()
        daemon.ledger.commit(ev.StartAsked(rental_id=stopped.rental_id, at=now))
        await daemon.settled()

        assert the_job(daemon).collected is True
    assert (lab.project / CHECKPOINT).stat().st_size == 2000
    assert calls(lab, "create", "destroy") == ["create", "destroy"]


@pytest.mark.parametrize("kind", [FaultKind.LOSE_REQUEST, FaultKind.LOSE_ANSWER])
async def test_a_renewal_that_is_lost_is_repeated_long_before_the_lease_runs_out(
    autojump_clock: MockClock, lab: Lab, kind: FaultKind
) -> None:
    async with lab.boot() as daemon:
        rental = await idle_machine(lab, daemon)
        for _ in range(3):
            lab.faults.add(Fault(kind=kind, point=Point.BOX_LEASE))
        await trio.sleep(5 * HOUR)

        assert contract_of(lab, rental).is_up
        assert kept(daemon).ending is None
        assert lease_ends(daemon) - trio.current_time() > 3200


def lacking(monkeypatch: pytest.MonkeyPatch, **facts: object) -> None:
    """Let every machine say of its guard what `facts` says."""
    whole = SimGuard.facts

    def bare(guard: SimGuard, at: float, skew_s: float) -> LeaseFacts:
        return structs.replace(whole(guard, at, skew_s), **facts)

    monkeypatch.setattr(SimGuard, "facts", bare)


async def test_a_machine_whose_guard_cannot_be_armed_is_given_up_like_one_without_ssh(
    autojump_clock: MockClock, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking(monkeypatch, has_key=False)
    async with lab.boot() as daemon:
        daemon.submit(*SHORT, project=lab.project)
        await daemon.settled(within_s=3 * HOUR)

        gone = list(daemon.ledger.rentals.values())
        assert [r.end_reason for r in gone] == [Trigger.SSH_FAILED] * 3
        assert "no key of its own" in (gone[0].ending.why if gone[0].ending else "")
        assert the_job(daemon).state is JobState.FAILED


@pytest.mark.parametrize("lab", [Limits(lease=LeaseRules(required=False))], indirect=True)
async def test_who_does_not_require_a_guard_gets_the_machine_without_one(
    autojump_clock: MockClock, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking(monkeypatch, tool=None)
    async with lab.boot() as daemon:
        daemon.submit(*SHORT, project=lab.project)
        await daemon.settled()

        assert the_job(daemon).state is JobState.SUCCEEDED
        assert first(daemon).lease_until is None


async def test_a_new_deadline_reaches_the_machine_at_once(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, max_runtime_s=5 * HOUR)
        await trio.sleep(10)
        before = lease_ends(daemon)
        now = daemon.shell.wall_clock()
        assert rental.deadline_at is not None
        daemon.ledger.commit(
            ev.PolicyChanged(
                rental_id=rental.rental_id, at=now, policy=rental.policy,
                deadline_at=rental.deadline_at + 2 * HOUR, changes={},
            )
        )  # fmt: skip
        await trio.sleep(5)

        assert lease_ends(daemon) - before == pytest.approx(2 * HOUR, abs=2)


async def test_a_lease_that_was_asked_for_lasts_without_a_daemon(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await idle_machine(lab, daemon)
        now = daemon.shell.wall_clock()
        daemon.ledger.commit(
            ev.LeaseAsked(rental_id=rental.rental_id, at=now, until=now + 4 * HOUR)
        )
        await trio.sleep(5)
        ends = lease_ends(daemon)
        assert ends == pytest.approx(now - EPOCH + 4 * HOUR, abs=5)
        daemon.kill()
    await trio.sleep(3.9 * HOUR)
    lab.market.advance()
    assert contract_of(lab, rental).is_up
    await trio.sleep(0.2 * HOUR)
    lab.market.advance()
    assert not contract_of(lab, rental).is_up


async def test_the_hard_limit_is_half_an_hour_past_the_deadline_while_vastd_winds_down(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG, "--ignore-term", max_runtime_s=HOUR, grace_s=600)
        assert rental.deadline_at is not None
        await trio.sleep(rental.deadline_at - EPOCH - trio.current_time() + 20)

        guard = contract_of(lab, rental).guard
        assert guard is not None
        assert guard.hard_at == pytest.approx(rental.deadline_at + HARD_SLACK_S, abs=2)
        await daemon.settled()
        assert first(daemon).end_reason is Trigger.MAX_RUNTIME


async def test_a_full_disk_at_home_does_not_stop_renewals(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await idle_machine(lab, daemon)
        daemon.store.full = True
        await trio.sleep(4 * HOUR)

        assert contract_of(lab, rental).is_up
        daemon.store.full = False
        await trio.sleep(400)
        assert lease_ends(daemon) > trio.current_time() + 3000


async def test_a_machine_that_stands_still_as_asked_is_not_renewed_and_is_armed_when_it_is_back(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await idle_machine(lab, daemon)
        now = daemon.shell.wall_clock()
        daemon.ledger.commit(ev.StopAsked(rental_id=rental.rental_id, at=now, why="lunch"))
        await daemon.until(lambda: first(daemon).phase is Phase.STOPPED, within_s=HOUR)
        await trio.sleep(5 * HOUR)
        assert kept(daemon).ending is None
        daemon.ledger.commit(
            ev.StartAsked(rental_id=rental.rental_id, at=daemon.shell.wall_clock())
        )
        await daemon.until(lambda: trail(daemon)[-1] == "became_ready", within_s=HOUR)
        await trio.sleep(5)

        assert lease_ends(daemon) > trio.current_time() + 3000


async def test_an_idle_machine_that_does_not_answer_any_more_is_noticed_by_its_lease(
    autojump_clock: MockClock, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lab.boot() as daemon:
        rental = await idle_machine(lab, daemon)
        monkeypatch.setattr(
            type(lab.boxes), "_endpoint", lambda *_: (_ for _ in ()).throw(SshClosed("no route"))
        )
        await daemon.shell.boxes.forget(rental.instance_id or 0)
        await trio.sleep(HOUR)

        assert "unreachable" in kept(daemon).warned


async def test_a_key_that_cannot_be_read_any_more_ends_no_daemon_and_is_tried_again(
    autojump_clock: MockClock, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise ConfigError("cannot read the SSH key")

    async with lab.boot() as daemon:
        await idle_machine(lab, daemon)
        with monkeypatch.context() as patch:
            patch.setattr(type(lab.boxes), "open", unreadable)
            await trio.sleep(1000)
        await trio.sleep(60)

        assert lease_ends(daemon) > trio.current_time() + 3500
