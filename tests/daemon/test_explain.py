"""The explanation of what really happened: exact money, decisions with their facts, what comes next."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import Daemon, Lab
from support.lab_stories import HOUR, first, running, the_job
from vastd.core import billing, costs
from vastd.core import events as ev
from vastd.core.cost_spans import Kind
from vastd.core.job import JobState
from vastd.core.money import for_seconds, to_usd
from vastd.core.rental import Phase, Rental, Trigger
from vastd.core.spending import EVER
from vastd.core.waiting import waiting
from vastd.rpc.context import Context
from vastd.rpc.handlers.rentals import _trail
from vastd.rpc.views.explain import explain_view
from vastd.rpc.views.money import report_view
from vastd.rpc.views.rental import rental_view
from vastd.simulator.faults import MachineFault, MachineFaultKind
from vastd_protocol.methods.rental import ExplainView

pytestmark = pytest.mark.sim

WORK = ("--seconds", "600", "--output", "results/a.bin:1000")


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


def explained(daemon: Daemon, rental: Rental) -> ExplainView:
    shell, ledger = daemon.shell, daemon.ledger
    now, world = shell.wall_clock(), shell.observed.world
    jobs = ledger.jobs_of(rental.rental_id)
    shown = rental_view(
        rental, jobs, world.of(rental.rental_id), now, None,
        waiting(rental, jobs, world, shell.limits, now),
    )  # fmt: skip
    trail = daemon.store.events_of(rental_id=rental.rental_id)
    failed = {lost for job in ledger.jobs.values() for lost in costs.failed_on(job)}
    return explain_view(shown, trail, daemon.supervisor.watch(rental), failed, now)


def check_money(daemon: Daemon, rental: Rental) -> ExplainView:
    """`explain`, `show` and `cost` agree to the micro-dollar, and the parts add up."""
    story, now = explained(daemon, rental), daemon.shell.wall_clock()
    bill = story.bill
    assert bill is not None
    exact = round(sum(piece.cost_usd for piece in bill.pieces), 6)
    assert exact == bill.cost_usd == story.rental.cost_usd
    assert round(sum(span.cost_usd for span in bill.spans), 6) == bill.cost_usd
    assert round(sum(piece.waste_usd for piece in bill.pieces), 6) == bill.waste_usd
    found = costs.parts([rental], daemon.ledger.jobs.values(), EVER, now, daily=True)
    report = report_view(found, costs.By.DAY, EVER, now, billing.rate(rental), billing.rate(rental))
    assert (report.cost_usd, report.waste_usd) == (bill.cost_usd, bill.waste_usd)
    assert report.kinds_usd == {p.kind: p.cost_usd for p in bill.pieces if p.cost_usd} | {
        kind: 0.0 for kind, usd in report.kinds_usd.items() if usd == 0
    }
    return story


async def test_the_main_job_s_money_is_told_by_what_it_was_for(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *WORK)
        await trio.sleep(100)
        check_money(daemon, first(daemon))
        await daemon.settled()
        story = check_money(daemon, first(daemon))

    assert story.bill is not None
    kinds = [piece.kind for piece in story.bill.pieces]
    assert kinds == ["loading", "setup", "sync", "run", "collect", "ending"]
    run = next(piece for piece in story.bill.pieces if piece.kind == Kind.RUN)
    assert 600 <= run.seconds < 610
    assert run.cost_usd > 0.8 * story.bill.cost_usd
    assert story.timeline[0].cost_usd == 0.0
    assert story.timeline[-1].cost_usd == story.bill.cost_usd
    assert all(step.rule for step in story.timeline if step.kind in ("end_decided", "found_absent"))


async def test_a_boot_that_failed_is_all_waste_and_its_decision_has_its_facts(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.market.afflict(MachineFault(kind=MachineFaultKind.BOOT_STUCK))
    async with lab.boot() as daemon:
        daemon.submit(*WORK, project=lab.project)
        await daemon.settled()
        story = check_money(daemon, first(daemon))
        check_money(daemon, list(daemon.ledger.rentals.values())[-1])

    assert story.rental.end_reason == Trigger.BOOT_OVERDUE
    assert story.bill is not None
    assert story.bill.waste_usd == story.bill.cost_usd > 0
    assert story.bill.waste_why is not None
    decided = next(step for step in story.timeline if step.kind == "end_decided")
    assert decided.rule is not None
    assert decided.rule.startswith("boot time: ")
    assert decided.inputs


async def test_a_host_that_is_offline_bills_nothing_here_as_there(
    autojump_clock: MockClock, lab: Lab
) -> None:
    fault = MachineFault(kind=MachineFaultKind.HOST_LOSS, after_s=400.0, for_s=2400.0)
    lab.market.afflict(fault)
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, "--seconds", "9000", "--output", "results/a.bin:10")
        await trio.sleep(2000)
        assert daemon.shell.observed.world.of(rental.rental_id).instance is not None
        rate = billing.expected_rate(first(daemon))
        ours = billing.cost(first(daemon), daemon.shell.wall_clock())
        assert rental.instance_id is not None
        true = lab.market.billed(rental.instance_id)

        assert billing.rate(first(daemon)) == 0
        polls_s = 3 * lab.limits.list_interval_busy_s
        assert true <= ours <= true + for_seconds(rate, polls_s)
        assert (
            to_usd(billing.rate(first(daemon))) == explained(daemon, first(daemon)).rental.dph_usd
        )


async def test_a_machine_that_cannot_be_reached_says_what_its_end_waits_for(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, "--seconds", "9000", "--output", "results/a.bin:10",
                               max_runtime_s=HOUR)  # fmt: skip
        lab.faults.inject("box.*", "lose_request", times=None, from_at=lab.true_time() + 3400)
        await daemon.until(lambda: first(daemon).ending is not None, within_s=2 * HOUR)
        await trio.sleep(60)

        story = explained(daemon, first(daemon))
        assert rental.deadline_at is not None
        assert story.rental.waiting is not None
        assert "max_runtime" in story.rental.waiting
        assert "waits for SSH, silent for" in story.rental.waiting
        assert the_job(daemon).state is JobState.UNKNOWN
        assert first(daemon).phase is Phase.BUSY


async def test_every_watchdog_says_when_or_why_it_cannot(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *WORK, heartbeat_path="hb.json", heartbeat_interval_s=60.0)
        await trio.sleep(100)
        dogs = {dog.name: dog for dog in explained(daemon, first(daemon)).watchdogs}
        await daemon.settled()
        over = explained(daemon, first(daemon)).watchdogs

    assert dogs["max_runtime"].state == dogs["heartbeat"].state == "armed"
    assert dogs["max_runtime"].action == (
        "end it: ask the job to save and exit, then collect (job active)"
    )
    assert dogs["idle"].state == "off"
    assert all(dog.title and dog.why and dog.state for dog in dogs.values())
    assert all((dog.fires_at is not None) == (dog.state == "armed") for dog in dogs.values())
    assert {dog.state for dog in over} == {"off"}
    assert all(dog.fires_at is None for dog in over)


async def test_what_vastd_itself_met_meanwhile_is_part_of_the_story(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *WORK)
        lab.step_s = 7200.0
        await trio.sleep(60)
        shell = daemon.shell
        context = cast(Context, SimpleNamespace(shell=shell))
        told = [e.event for e in _trail(context, first(daemon), shell.wall_clock())]
        await daemon.settled()
        ended = first(daemon)
        lab.step_s = 0.0
        await trio.sleep(60)
        later = [e.event for e in _trail(context, ended, shell.wall_clock())]

    jumps = [event for event in told if isinstance(event, ev.ClockJumped)]
    assert [event.jump for event in jumps] == ["stepped"]
    assert [event.at for event in told] == sorted(event.at for event in told)
    # What came after its end is not its story.
    assert [event for event in later if isinstance(event, ev.ClockJumped)] == jumps
