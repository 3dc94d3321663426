"""`policy.set bid_usd`: a bid is changed only on order, within the caps, and what is not known is dearer."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from msgspec import structs
from trio.testing import MockClock

from support.daemon_in_memory import Daemon, Lab
from support.lab_stories import HOUR, befall, bid_for, calls, first, in_phase, running, the_job
from vastd.core import billing
from vastd.core.hosts import Known
from vastd.core.job import JobState, Needs
from vastd.core.limits import Caps, Limits
from vastd.core.money import Micros, from_usd, to_usd
from vastd.core.rental import OnOutbid, Phase, Policy, Rental
from vastd.errors import (
    CapReached,
    InvalidRequest,
    OutcomeUnknown,
    PolicyRefused,
    ProviderError,
)
from vastd.renting import planned
from vastd.rpc.handlers import policies
from vastd.shell import Choice
from vastd.simulator.faults import FaultKind, MachineFaultKind
from vastd_protocol.methods.policy import PolicySetParams

pytestmark = pytest.mark.sim

LONG = ("--seconds", "9000", "--output", "results/a.bin:1000")


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


async def ask(daemon: Daemon, *, even: bool = False, **changes: Any) -> Any:
    """As `policy.set` does."""

    def commit(_call: object, view: Any, *events: Any) -> Any:
        daemon.ledger.commit(*events)
        return view()

    ctx: Any = SimpleNamespace(
        shell=daemon.shell,
        supervisor=daemon.supervisor,
        config=SimpleNamespace(caps=lambda: (from_usd(10), from_usd(4))),
        commit=commit,
    )
    params = PolicySetParams(rental=first(daemon).rental_id, changes=changes, even_if_it_ends=even)
    return await policies.change(ctx, params, SimpleNamespace())  # type: ignore[arg-type]


async def beaten(lab: Lab, daemon: Daemon, **policy: Any) -> tuple[Rental, Micros]:
    """A machine that was outbid, and the lowest bid that would win it."""
    bid_for(lab)
    rental = await running(lab, daemon, *LONG, checkpoint_path="results/checkpoint.bin", **policy)
    befall(lab, rental, MachineFaultKind.OUTBID)
    await in_phase(daemon, Phase.STOPPED)
    row = daemon.shell.observed.world.of(rental.rental_id).instance
    assert row is not None
    assert row.min_bid is not None
    return first(daemon), row.min_bid


@pytest.mark.req("FAI-09")
async def test_a_raised_bid_wins_the_machine_back_and_the_job_goes_on(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental, lowest = await beaten(lab, daemon)
        view = await ask(daemon, bid_usd=to_usd(lowest))

        assert view.bid_usd == to_usd(lowest)
        assert first(daemon).order.bid == lowest
        await daemon.until(lambda: the_job(daemon).state is JobState.RUNNING, within_s=HOUR)
        assert the_job(daemon).run == 2
        # What it bills is the bid and its disk, to the micro-dollar.
        contract = lab.market.world.contracts[rental.instance_id or 0]
        assert billing.rate(first(daemon)) == lowest + contract.disk_micros_h
        assert billing.order_rate(first(daemon).order) == billing.rate(first(daemon))
    assert calls(lab, "bid", "create") == ["create", "bid"]


async def test_a_bid_that_does_not_win_is_refused_unless_it_is_meant(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental, lowest = await beaten(lab, daemon)
        with pytest.raises(PolicyRefused, match="does not win rental"):
            await ask(daemon, bid_usd=to_usd(lowest) - 0.000001)
        assert calls(lab, "bid") == []

        await ask(daemon, even=True, bid_usd=to_usd(lowest) - 0.000001)
        assert first(daemon).order.bid == lowest - 1
        await trio.sleep(HOUR)
        assert first(daemon).phase is Phase.STOPPED
        assert rental.order.bid != first(daemon).order.bid


@pytest.mark.parametrize(
    ("bid", "error", "match"),
    [
        (0.0005, InvalidRequest, "a bid must be"),
        (33.0, InvalidRequest, "a bid must be"),
        (2.0, PolicyRefused, "over its cap of"),
        (-1.0, InvalidRequest, "bid_usd must be more than 0"),
        (True, InvalidRequest, "bid_usd must be a number"),
        ("much", InvalidRequest, "bid_usd must be a number"),
        (None, InvalidRequest, "cannot be switched off"),
    ],
)
async def test_a_bid_that_cannot_be_or_breaks_the_hourly_cap_is_not_sent(
    autojump_clock: MockClock, lab: Lab, bid: Any, error: type[Exception], match: str
) -> None:
    async with lab.boot() as daemon:
        before, _ = await beaten(lab, daemon, max_dph=from_usd(1))
        with pytest.raises(error, match=match):
            await ask(daemon, bid_usd=bid)
        assert first(daemon).order == before.order
    assert calls(lab, "bid") == []


async def test_a_shared_cap_must_have_room_for_a_higher_bid(
    autojump_clock: MockClock, lab: Lab
) -> None:
    lab.limits = Limits(caps=Caps(per_day=from_usd(2)))
    async with lab.boot() as daemon:
        await beaten(lab, daemon)
        with pytest.raises(CapReached, match="the cap of one day"):
            await ask(daemon, bid_usd=3.0)
    assert calls(lab, "bid") == []


async def test_a_machine_on_demand_has_no_bid(autojump_clock: MockClock, lab: Lab) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        with pytest.raises(InvalidRequest, match="is on demand"):
            await ask(daemon, bid_usd=1.0)


@pytest.mark.parametrize(
    "kind", [FaultKind.LOSE_ANSWER, FaultKind.TIMEOUT, FaultKind.HTTP_500_AFTER]
)
async def test_without_an_answer_the_dearer_bid_is_on_record(
    autojump_clock: MockClock, lab: Lab, kind: FaultKind
) -> None:
    async with lab.boot() as daemon:
        _, lowest = await beaten(lab, daemon)
        lab.faults.inject("bid", kind)
        with pytest.raises(OutcomeUnknown, match="did not say whether it took the bid"):
            await ask(daemon, bid_usd=to_usd(lowest))
        assert first(daemon).order.bid == lowest

        lab.faults.inject("bid", kind)
        with pytest.raises(OutcomeUnknown):
            await ask(daemon, even=True, bid_usd=to_usd(lowest) / 2)
        assert first(daemon).order.bid == lowest


async def test_a_refusal_changes_nothing(autojump_clock: MockClock, lab: Lab) -> None:
    async with lab.boot() as daemon:
        before, lowest = await beaten(lab, daemon)
        lab.faults.inject("bid", FaultKind.AUTH_401)
        with pytest.raises(ProviderError):
            await ask(daemon, bid_usd=to_usd(lowest))
        assert first(daemon).order == before.order


async def test_what_follows_an_outbid_can_be_changed_while_it_waits(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await beaten(lab, daemon)
        with pytest.raises(InvalidRequest, match="resume, rerent, end"):
            await ask(daemon, on_outbid="ask")
        with pytest.raises(PolicyRefused, match="would end rental"):
            await ask(daemon, on_outbid="end")
        view = await ask(daemon, on_outbid="end", even=True)
        assert view.on_outbid == "end"
        assert first(daemon).policy.on_outbid is OnOutbid.END
        await daemon.until(lambda: the_job(daemon).finished, within_s=60)

        assert the_job(daemon).state is JobState.FAILED


async def test_a_bid_below_the_lowest_is_refused_before_anything_is_rented(
    autojump_clock: MockClock, lab: Lab
) -> None:
    """CASES 6: Vast would make a stopped instance of it, which bills."""
    async with lab.boot() as daemon:
        choice: Choice = await lab.choose(daemon.shell.provider, Needs(), Known(), None)
        lowest = choice.offer.min_bid
        assert lowest is not None
        low = structs.replace(choice, bid=Micros(lowest - 1))
        policy = structs.replace(Policy(), max_dph=None)

        def plan(wanted: Choice) -> object:
            return planned(
                daemon.shell, wanted, policy, name="a", project=None, task="t", purpose="job"
            )

        with pytest.raises(PolicyRefused, match="does not win offer"):
            plan(low)
        plan(structs.replace(choice, bid=lowest))
    assert calls(lab) == []


async def test_the_hourly_cap_counts_the_bid_and_the_disk(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        choice: Choice = await lab.choose(daemon.shell.provider, Needs(), Known(), None)
        bid = choice.offer.min_bid
        assert bid is not None
        wanted = structs.replace(choice, bid=bid)

        def plan(cap: int) -> object:
            return planned(
                daemon.shell, wanted, structs.replace(Policy(), max_dph=Micros(cap)), name="a",
                project=None, task="t", purpose="job",
            )  # fmt: skip

        with pytest.raises(PolicyRefused, match="over the cap"):
            plan(bid)
        made: Any = plan(from_usd(4))
        with pytest.raises(PolicyRefused, match="over the cap"):
            plan(billing.order_rate(made.rental.order) - 1)
        plan(billing.order_rate(made.rental.order))
