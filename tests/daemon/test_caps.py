"""Caps that machines share, on the simulated market: nothing passes twice, nothing overruns."""

from collections.abc import AsyncIterator
from itertools import count

import pytest
from msgspec import structs
from trio.testing import MockClock

from support.daemon_in_memory import EPOCH, Daemon, Lab, virtual_clock
from support.lab_stories import HOUR, first, in_phase, last, the_job
from vastd.core import billing, spending
from vastd.core import events as ev
from vastd.core.job import Job, JobState
from vastd.core.limits import Caps, Limits
from vastd.core.market import OfferQuery
from vastd.core.money import Micros, for_seconds, from_usd
from vastd.core.rental import Phase, Policy, Trigger
from vastd.credit import Reading
from vastd.effects.place import MONEY_WAIT_S
from vastd.errors import CapReached
from vastd.simulator.provider import SimProvider
from vastd.spending import admit_start, credit_now

PLENTY = Caps(per_day=from_usd(25))


pytestmark = pytest.mark.sim


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab(limits=Limits(caps=PLENTY))
    yield made
    made.close()


def put(daemon: Daemon, **caps: Micros | None) -> None:
    """Change the caps in force, as `budget.set` does."""
    daemon.shell.limits = structs.replace(daemon.shell.limits, caps=Caps(**caps))
    daemon.ledger.wake()


def reasons(daemon: Daemon, job_id: str) -> list[str]:
    found = daemon.store.events_of(job_id=job_id)
    return [s.event.why for s in found if isinstance(s.event, ev.MachineAwaited)]


async def need_of_one(lab: Lab) -> Micros:
    """What one job of the lab reserves: its estimate is an hour."""
    offers = await _cheapest(lab)
    return for_seconds(offers, 3600 * spending.ESTIMATE_BUFFER + 110)


async def _cheapest(lab: Lab) -> Micros:
    offers = await SimProvider(lab.market, lab.faults).search_offers(OfferQuery(disk_gb=50.0))
    return min(offer.dph for offer in offers)


@pytest.mark.req("BUD-11")
async def test_at_the_day_cap_machines_end_with_their_results_and_the_cap_holds(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        for number in range(2):
            (lab.project / str(number)).mkdir()
            daemon.submit(
                "--seconds", "9000", "--output", "results/a.bin:1000",
                project=lab.project / str(number), name=f"job-{number}",
            )  # fmt: skip
        await daemon.until(
            lambda: all(j.state is JobState.RUNNING for j in daemon.ledger.jobs.values()),
            within_s=HOUR,
        )
        rentals = list(daemon.ledger.rentals.values())
        burn = sum(billing.expected_rate(r) for r in rentals)
        cap = Micros(for_seconds(burn, 1800))
        put(daemon, per_day=cap)
        await daemon.settled()
        jobs = list(daemon.ledger.jobs.values())
        # Both chose the same offer at first: one attempt was refused.
        rentals = [r for r in daemon.ledger.rentals.values() if r.instance_id is not None]

    billed = sum(lab.market.billed(r.instance_id or 0) for r in rentals)
    assert billed <= cap + for_seconds(burn, daemon.shell.limits.list_interval_busy_s)
    assert billed > cap * 0.8  # it was not ended out of mere caution either
    assert [(j.state, j.collected) for j in jobs] == [(JobState.TIMED_OUT, True)] * 2
    assert {r.end_reason for r in rentals} == {Trigger.BUDGET}
    assert all("the cap of one day is used up" in (r.end_detail or "") for r in rentals)
    told = [name for r in rentals for name in r.warned if name.startswith("per_day_warn")]
    assert told == ["per_day_warn-2027-01-15"]


@pytest.mark.req("BUD-09")
async def test_of_two_at_once_with_money_for_one_the_other_waits_and_then_runs(
    autojump_clock: MockClock, lab: Lab
) -> None:
    need = await need_of_one(lab)
    lab.limits = Limits(caps=Caps(per_day=Micros(need * 3 // 2)))
    searches, choose = count(), lab.choose

    async def counted(*args):  # type: ignore[no-untyped-def]
        next(searches)
        return await choose(*args)

    lab.choose = counted  # type: ignore[method-assign]
    async with lab.boot() as daemon:
        ids = [
            daemon.submit("--seconds", "60", project=lab.project, name=f"job-{number}")
            for number in range(2)
        ]
        await daemon.until(lambda: any(reasons(daemon, i) for i in ids), within_s=HOUR)
        assert len(daemon.ledger.rentals) == 1
        waiting = next(j for j in daemon.ledger.jobs.values() if reasons(daemon, j.job_id))
        assert waiting.state is JobState.QUEUED
        assert "it goes on when there is room" in (waiting.reason or "")
        await daemon.settled()

        assert [daemon.ledger.job(i).state for i in ids] == [JobState.SUCCEEDED] * 2
        assert [len(reasons(daemon, i)) for i in ids].count(1) == 1
    assert next(searches) == 3  # one each, and one when there was room: searches are rationed
    ended, second = daemon.ledger.rentals.values()
    # What the first had reserved is free once its end has begun.
    assert second.created_at >= dict(ended.phases)[Phase.DESTROYING]


async def test_a_raised_cap_lets_a_waiting_job_go_on_at_once(
    autojump_clock: MockClock, lab: Lab
) -> None:
    need = await need_of_one(lab)
    lab.limits = Limits(caps=Caps(per_day=Micros(need * 3 // 2)))
    async with lab.boot() as daemon:
        for number in range(2):
            daemon.submit("--seconds", "3000", project=lab.project, name=f"job-{number}")
        await daemon.until(
            lambda: any(reasons(daemon, i) for i in daemon.ledger.jobs), within_s=HOUR
        )
        put(daemon, per_day=Micros(need * 4))
        await daemon.until(lambda: len(daemon.ledger.rentals) == 2, within_s=5)  # one search

        assert last(daemon).phase in (Phase.PLANNED, Phase.CREATING)


async def test_a_waiting_job_is_given_up_after_a_day_with_its_reason(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.limits = Limits(caps=Caps(per_day=Micros(await need_of_one(lab) * 3 // 2)))
    async with lab.boot() as daemon:
        daemon.submit("--seconds", "3000", project=lab.project, name="first")
        await in_phase(daemon, Phase.BOOTING)
        since = lab.clock() - MONEY_WAIT_S + 100
        job = Job(job_id="j-late", name="late", command=["sim-job"], project=str(lab.project),
                  submitted_at=since)  # fmt: skip
        daemon.ledger.commit(ev.JobSubmitted(job_id=job.job_id, at=since, job=job))
        await daemon.until(lambda: daemon.ledger.job("j-late").finished, within_s=200)

        late = daemon.ledger.job("j-late")
        assert len(reasons(daemon, "j-late")) == 1  # it did wait
    assert (late.state, late.failure) == (JobState.FAILED, "budget")
    assert "the cap of one day" in (late.reason or "")
    assert len(daemon.ledger.rentals) == 1


async def test_what_no_empty_cap_could_hold_fails_at_once(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.limits = Limits(caps=Caps(per_day=Micros(await need_of_one(lab) - 1)))
    async with lab.boot() as daemon:
        job_id = daemon.submit("--seconds", "60", project=lab.project)
        await daemon.settled()

        job = daemon.ledger.job(job_id)
        assert (job.state, job.failure) == (JobState.FAILED, "budget")
        assert reasons(daemon, job_id) == []
    assert lab.market.journal == []


async def test_a_waiting_job_can_be_cancelled(autojump_clock: MockClock, lab: Lab) -> None:
    lab.limits = Limits(caps=Caps(per_day=Micros(await need_of_one(lab) * 3 // 2)))
    async with lab.boot() as daemon:
        daemon.submit("--seconds", "3000", project=lab.project, name="first")
        await in_phase(daemon, Phase.BOOTING)
        waits = daemon.submit("--seconds", "60", project=lab.project, name="second")
        await daemon.until(lambda: bool(reasons(daemon, waits)), within_s=HOUR)
        daemon.ledger.commit(ev.CancelAsked(job_id=waits, at=lab.clock()))
        await daemon.until(lambda: daemon.ledger.job(waits).finished, within_s=60)

        assert daemon.ledger.job(waits).state is JobState.CANCELLED


@pytest.mark.req("BUD-01")
async def test_an_intention_older_than_the_money_is_dropped_before_any_request(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:

        def lower(where: str) -> None:
            if where.startswith("after rental_planned"):
                put(daemon, per_day=Micros(0))

        daemon.store.on_commit = lower
        job_id = daemon.submit("--seconds", "60", project=lab.project)
        await daemon.settled()

        job, rental = daemon.ledger.job(job_id), first(daemon)
    assert lab.market.journal == []
    assert (rental.phase, rental.end_reason) == (Phase.GONE, Trigger.BUDGET)
    assert (rental.end_detail or "").startswith(
        "not rented: the cap of one day is used up: $0.00 of $0.00"
    )
    assert job.state is JobState.TIMED_OUT


@pytest.mark.req("BUD-01")
async def test_every_create_has_a_record_of_the_gate_with_its_numbers(
    autojump_clock: MockClock, lab: Lab
) -> None:
    need = await need_of_one(lab)
    async with lab.boot() as daemon:
        daemon.submit("--seconds", "60", project=lab.project)
        await daemon.settled()

        (planned,) = [
            s.event
            for s in daemon.store.events_of(rental_id=first(daemon).rental_id)
            if isinstance(s.event, ev.RentalPlanned)
        ]
    (seen,) = planned.gate
    assert (seen.cap, seen.limit, seen.spent, seen.reserved) == ("per_day_usd", from_usd(25), 0, 0)
    assert seen.needs == need


@pytest.mark.req("BUD-13")
async def test_a_job_waits_for_credit_and_is_rented_for_once_it_is_there(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        daemon.shell.credit.reading = Reading(at=lab.clock(), credit=Micros(1_000))
        # More than the credit, less than any cap: it may wait.
        lab.limits = daemon.shell.limits
        job_id = daemon.submit("--seconds", "60", project=lab.project)
        await daemon.settled()

        job = the_job(daemon)
    # An account that cannot pay for it even when nothing else runs is no reason to wait.
    assert (job.job_id, job.failure) == (job_id, "budget")
    assert "the credit of the account has $0.0010 left" in (job.reason or "")


async def test_credit_not_known_refuses_nothing_and_is_said(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        daemon.shell.credit.reading = Reading(at=EPOCH, error="Vast did not answer")
        daemon.submit("--seconds", "60", project=lab.project)
        await daemon.settled()

        assert the_job(daemon).state is JobState.SUCCEEDED
        planned = daemon.store.events_of(rental_id=first(daemon).rental_id)[0].event
    assert isinstance(planned, ev.RentalPlanned)
    assert "the account's credit is not known (Vast did not answer)" in planned.why


async def test_credit_is_the_reading_less_what_was_billed_since(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        assert credit_now(daemon.shell) is None
        read = await daemon.shell.credit.look(daemon.shell.provider, lab.clock)
        assert read.credit == from_usd(100)
        daemon.submit("--seconds", "60", project=lab.project)
        await daemon.settled()

        cost = billing.cost(first(daemon), lab.clock())
        assert credit_now(daemon.shell) == from_usd(100) - cost
        assert read is daemon.shell.credit.reading  # not asked again within five minutes
        later = await daemon.shell.credit.look(daemon.shell.provider, lab.clock)
    assert later.credit is not None
    assert later.credit >= from_usd(100) - cost  # our bill is never below the market's


async def test_starting_a_stopped_machine_needs_room_until_its_deadline(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        daemon.submit("--seconds", "3000", project=lab.project, policy=Policy(max_runtime_s=7200.0))
        rental = await in_phase(daemon, Phase.BUSY)
        stopped = structs.replace(rental, phase=Phase.STOPPED)
        rate = billing.expected_rate(rental)

        put(daemon, per_day=for_seconds(rate, 7400))
        admit_start(daemon.shell, stopped)
        put(daemon, per_day=for_seconds(rate, 7000))
        with pytest.raises(CapReached, match="the cap of one day"):
            admit_start(daemon.shell, stopped)


async def test_a_used_up_cap_ends_machines_although_time_passes_while_it_is_looked_at(
    autojump_clock: MockClock, lab: Lab
) -> None:
    ticks = count()
    lab.clock = lambda: virtual_clock() + next(ticks) / 1e6
    async with lab.boot() as daemon:
        daemon.submit("--seconds", "9000", project=lab.project)
        rental = await in_phase(daemon, Phase.BUSY)
        put(daemon, per_day=Micros(0))
        await daemon.until(lambda: first(daemon).ending is not None, within_s=1)

        assert first(daemon).end_reason is Trigger.BUDGET
        assert rental.ending is None
