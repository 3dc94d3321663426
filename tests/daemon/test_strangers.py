"""Machines that no rental explains: told apart, taken over, let go, ended by order only."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from support.daemon_in_memory import OWNER8, Daemon, Lab
from support.handler_calls import NOBODY, context_of
from support.lab_stories import calls, first, running, the_job, trail
from vastd.core.job import JobState
from vastd.core.labels import make_label, read_claim
from vastd.core.rental import Phase, Policy, Rental, Trigger
from vastd.errors import (
    BudgetExceeded,
    CapReached,
    InvalidRequest,
    InventoryUnknown,
    JobActive,
    NotFound,
    PolicyRefused,
)
from vastd.rpc.handlers.strangers import adopt, reconcile, release
from vastd.simulator.contracts import Contract
from vastd.simulator.faults import FaultKind
from vastd_protocol.methods.reconcile import ReconcileParams, ReconcileView
from vastd_protocol.methods.rental import (
    PolicyParams,
    RentalAdoptParams,
    RentalReleaseParams,
    RentalView,
)

pytestmark = pytest.mark.sim

HOUR = 3600.0
LONG = ("--seconds", "40000")
OTHER = "lab/x vastd-oth00002-r000001"


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


async def look(daemon: Daemon, **params: bool) -> ReconcileView:
    return await reconcile(context_of(daemon), ReconcileParams(**params), NOBODY)


async def take(daemon: Daemon, instance_id: int, **params: object) -> RentalView:
    wish = RentalAdoptParams(instance_id=instance_id, **params)  # type: ignore[arg-type]
    return await adopt(context_of(daemon), wish, NOBODY)


async def let_go(daemon: Daemon, rental: str, **params: object) -> RentalView:
    wish = RentalReleaseParams(rental=rental, **params)  # type: ignore[arg-type]
    return await release(context_of(daemon), wish, NOBODY)


async def a_running_stranger(lab: Lab, label: str | None) -> Contract:
    contract = lab.market.add_foreign(label=label)
    while not contract.is_up:  # virtual time
        await trio.sleep(10)
        lab.market.advance()
    return contract


def alive(lab: Lab) -> set[int]:
    return {contract.instance_id for contract in lab.market.live_contracts()}


async def test_everything_in_the_account_is_told_apart_with_what_it_costs(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        await running(lab, daemon, *LONG)
        by_hand = lab.market.add_foreign(label="my box").instance_id
        bare = lab.market.add_foreign().instance_id
        theirs = lab.market.add_foreign(label=OTHER).instance_id
        lost = (await a_running_stranger(lab, make_label(OWNER8, "r777777"))).instance_id

        view = await look(daemon)

        assert (view.ours, view.inventory.state) == (1, "fresh")
        told = {one.instance_id: (one.whose, one.owner) for one in [*view.foreign, *view.orphans]}
        assert told == {
            by_hand: ("foreign", None),
            bare: ("foreign", None),
            theirs: ("other_vastd", "oth00002"),
            lost: ("orphan", OWNER8),
        }
        (orphan,) = view.orphans
        assert orphan.dph_usd is not None
        assert view.inventory.orphans_dph_usd == orphan.dph_usd > 0
        assert view.ended == []


async def test_looking_touches_nothing(autojump_clock: MockClock, lab: Lab) -> None:
    async with lab.boot() as daemon:
        lab.market.add_foreign(label=make_label(OWNER8, "r777777"))
        lab.market.add_foreign(label=OTHER)
        before = alive(lab)
        await look(daemon)
        await trio.sleep(HOUR)

        assert alive(lab) == before
        assert calls(lab) == []
        assert not daemon.ledger.rentals


async def test_orphans_are_ended_by_order_proven_gone_and_counted_and_nobody_else(
    autojump_clock: MockClock,
    lab: Lab,
) -> None:
    async with lab.boot() as daemon:
        lost = await a_running_stranger(lab, make_label(OWNER8, "r777777"))
        theirs = lab.market.add_foreign(label=OTHER).instance_id
        by_hand = lab.market.add_foreign(label="mine").instance_id
        lab.faults.inject("destroy", FaultKind.HTTP_500)
        lab.faults.inject("destroy", FaultKind.LOSE_REQUEST)

        view = await look(daemon, destroy_orphans=True)
        await daemon.settled()

        assert view.ended == [lost.instance_id]
        assert alive(lab) == {theirs, by_hand}
        gone = daemon.ledger.rental("r777777")
        assert (gone.phase, gone.end_reason) == (Phase.GONE, Trigger.USER)
        assert trail(daemon, gone)[:3] == ["rental_adopted", "end_decided", "destroy_decided"]
        again = await look(daemon, destroy_orphans=True)
        assert again.ended == []


async def test_an_orphan_of_a_rental_that_ended_long_ago_is_ended_under_its_name(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        daemon.submit("--seconds", "60", project=lab.project)
        await daemon.settled()
        rental = first(daemon)
        await trio.sleep(25 * HOUR)  # past the day in which a late arrival is ended on sight
        late = await a_running_stranger(lab, rental.label)
        view = await look(daemon)
        assert [one.instance_id for one in view.orphans] == [late.instance_id]

        await look(daemon, destroy_orphans=True)
        await daemon.settled()

        assert alive(lab) == set()
        assert "resurfaced" in trail(daemon, rental)


async def test_without_a_complete_listing_nothing_is_ended_taken_over_or_believed(
    autojump_clock: MockClock,
    lab: Lab,
) -> None:
    async with lab.boot() as daemon:
        lost = await a_running_stranger(lab, make_label(OWNER8, "r777777"))
        await look(daemon)
        for _ in range(3):
            lab.faults.inject("list", FaultKind.TRUNCATED_PAGE, times=9)

        with pytest.raises(InventoryUnknown, match="no orphan was ended"):
            await look(daemon, destroy_orphans=True)
        with pytest.raises(InventoryUnknown, match="was not taken over"):
            await take(daemon, lost.instance_id)

        assert (await look(daemon)).inventory.error is not None
        assert alive(lab) == {lost.instance_id}
        assert not daemon.ledger.rentals


@pytest.mark.parametrize("label", [None, "my box", make_label(OWNER8, "r777777", "lab/train")])
async def test_what_was_taken_over_has_our_label_limits_and_a_lease_and_ends_by_them(
    autojump_clock: MockClock, lab: Lab, label: str | None
) -> None:
    async with lab.boot() as daemon:
        contract = await a_running_stranger(lab, label)
        taken = trio.current_time()

        view = await take(
            daemon, contract.instance_id, name="box", project=str(lab.project),
            policy=PolicyParams(max_runtime_s=HOUR),
        )  # fmt: skip
        await trio.sleep(60)

        assert (view.name, view.phase, view.instance_id) == ("box", "ready", contract.instance_id)
        claim = read_claim(contract.label)
        assert claim is not None
        assert (claim.owner8, claim.rental_id) == (OWNER8, view.rental_id)
        rental = daemon.ledger.rental(view.rental_id)
        assert rental.lease_until is not None
        assert rental.deadline_at is not None
        assert rental.deadline_at - rental.created_at == pytest.approx(HOUR)
        assert rental.created_at - 1_800_000_000 == pytest.approx(taken, abs=5)
        # Unknown files may be on it: a limit stops it and keeps the disk.
        await daemon.until(
            lambda: daemon.ledger.rental(view.rental_id).phase is Phase.STOPPED, within_s=5 * HOUR
        )
        assert daemon.ledger.rental(view.rental_id).end_reason is Trigger.MAX_RUNTIME


async def test_another_vastds_machine_is_taken_only_by_its_owners_word(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        contract = await a_running_stranger(lab, OTHER)
        number = contract.instance_id

        with pytest.raises(PolicyRefused, match="belongs to another vastd") as refused:
            await take(daemon, number)
        assert "--from oth00002" in refused.value.hint
        with pytest.raises(PolicyRefused):
            await take(daemon, number, from_owner="oth00003")
        assert contract.label == OTHER
        view = await take(daemon, number, from_owner="oth00002")

        assert contract.label == f"lab/x vastd-{OWNER8}-{view.rental_id}"


async def test_an_owners_word_for_a_machine_without_one_is_a_mistake(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        contract = await a_running_stranger(lab, "my box")

        with pytest.raises(InvalidRequest, match="no claim of another vastd"):
            await take(daemon, contract.instance_id, from_owner="oth00002")

        assert contract.label == "my box"


async def test_taking_over_twice_or_what_does_not_exist(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        contract = await a_running_stranger(lab, "my box")
        one = await take(daemon, contract.instance_id)
        two = await take(daemon, contract.instance_id)

        assert one.rental_id == two.rental_id
        assert len(daemon.ledger.rentals) == 1
        with pytest.raises(NotFound, match="no instance 99"):
            await take(daemon, 99)


async def test_two_who_take_over_at_once_make_one_rental(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        contract = await a_running_stranger(lab, "my box")
        views: list[RentalView] = []
        refused: list[PolicyRefused] = []

        async def one() -> None:
            try:
                views.append(await take(daemon, contract.instance_id))
            except PolicyRefused as exc:
                refused.append(exc)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(one)

        assert len({view.rental_id for view in views}) == 1
        assert len(daemon.ledger.rentals) == 1
        assert len(views) + len(refused) == 2


async def test_a_machine_that_no_cap_has_room_for_is_not_taken_over(
    autojump_clock: MockClock, lab: Lab
) -> None:
    from vastd.core.limits import Caps, Limits
    from vastd.core.money import from_usd

    lab.limits = Limits(caps=Caps(per_day=from_usd(0.01)))
    async with lab.boot() as daemon:
        contract = await a_running_stranger(lab, "my box")

        with pytest.raises((BudgetExceeded, CapReached)):
            await take(daemon, contract.instance_id)

        assert contract.label == "my box"
        assert not daemon.ledger.rentals


async def idle(lab: Lab, daemon: Daemon) -> Rental:
    daemon.submit("--seconds", "60", project=lab.project, policy=Policy(keep=True))
    await daemon.until(
        lambda: bool(daemon.ledger.jobs) and the_job(daemon).collected is True, within_s=HOUR
    )
    await trio.sleep(10)
    return first(daemon)


async def test_what_was_let_go_lives_on_unlabelled_unguarded_and_untouched(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await idle(lab, daemon)

        view = await let_go(daemon, rental.rental_id, reason="moved")
        await trio.sleep(48 * HOUR)  # past its deadline, its lease and the day of late arrivals

        assert (view.phase, view.end_reason) == ("gone", "released")
        contract = lab.market.world.contracts[rental.instance_id or 0]
        assert contract.is_up
        assert read_claim(contract.label) is None
        assert calls(lab, "destroy", "stop") == []
        shown = await look(daemon)
        assert [(o.instance_id, o.whose) for o in shown.foreign] == [
            (rental.instance_id, "released")
        ]
    # Nor does a daemon that starts again touch it.
    async with lab.boot() as daemon:
        await trio.sleep(2 * HOUR)
        assert calls(lab, "destroy", "stop") == []
        assert daemon.ledger.rental(rental.rental_id).released == "released by the user: moved"


async def test_its_cost_ends_when_it_is_let_go(autojump_clock: MockClock, lab: Lab) -> None:
    from vastd.core import billing

    async with lab.boot() as daemon:
        rental = await idle(lab, daemon)
        await let_go(daemon, rental.rental_id)
        now = daemon.shell.wall_clock()
        gone = daemon.ledger.rental(rental.rental_id)

        assert billing.cost(gone, now + 9e6) == billing.cost(gone, now)


async def test_what_was_let_go_can_be_taken_back(autojump_clock: MockClock, lab: Lab) -> None:
    async with lab.boot() as daemon:
        rental = await idle(lab, daemon)
        await let_go(daemon, rental.rental_id)

        view = await take(daemon, rental.instance_id or 0)
        await trio.sleep(300)

        assert view.rental_id != rental.rental_id
        assert daemon.ledger.rental(view.rental_id).phase is Phase.READY
        assert (await look(daemon)).foreign == []


async def test_a_running_job_is_let_go_of_only_with_force_and_a_reason(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await running(lab, daemon, *LONG)

        with pytest.raises(JobActive):
            await let_go(daemon, rental.rental_id)
        with pytest.raises(InvalidRequest, match="needs a reason"):
            await let_go(daemon, rental.rental_id, force=True)
        assert first(daemon).released is None
        await let_go(daemon, rental.rental_id, force=True, reason="the team has it now")
        await daemon.until(lambda: the_job(daemon).finished, within_s=60)

        assert the_job(daemon).state is JobState.CANCELLED
        assert lab.market.world.contracts[rental.instance_id or 0].is_up


async def test_a_guard_that_cannot_be_called_off_holds_the_release_back(
    autojump_clock: MockClock, lab: Lab
) -> None:
    async with lab.boot() as daemon:
        rental = await idle(lab, daemon)
        for _ in range(4):
            lab.faults.inject("box.lease", FaultKind.LOSE_REQUEST)
        with pytest.raises(PolicyRefused, match="cannot be called off"):
            await let_go(daemon, rental.rental_id)
        contract = lab.market.world.contracts[rental.instance_id or 0]

        assert first(daemon).released is None
        assert read_claim(contract.label) is not None


async def test_sixty_instances_over_pages_half_of_them_foreign(
    autojump_clock: MockClock, lab: Lab
) -> None:
    """One chain of list calls per cycle, and no foreign row is touched, whatever happens."""
    async with lab.boot() as daemon:
        strangers = {
            lab.market.add_foreign(label=[None, "by hand", OTHER][n % 3]).instance_id
            for n in range(30)
        }
        for n in range(30):
            daemon.submit(*LONG, project=lab.project, name=f"job{n}")
            await trio.sleep(20)
        await trio.sleep(600)
        assert len(alive(lab)) == 60
    async with lab.boot() as daemon:
        await trio.sleep(600)
        for rental in list(daemon.ledger.live())[:10]:
            daemon.ledger.commit(_ended(daemon, rental))
        await trio.sleep(600)

        assert len(daemon.ledger.live()) == 20
    assert strangers <= alive(lab)
    touched = {entry.instance_id for entry in lab.market.journal if entry.kind != "create"}
    assert not touched & strangers


def _ended(daemon: Daemon, rental: Rental):  # type: ignore[no-untyped-def]
    from vastd.core import events as ev

    return ev.EndDecided(
        rental_id=rental.rental_id, at=daemon.shell.wall_clock(), trigger=Trigger.USER, why="x",
        force=True, collect=False,
    )  # fmt: skip
