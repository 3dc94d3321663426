"""The provider port on the in-memory market: what a careful client concludes from every fault."""

import pytest
import trio

from support.sim_market import BOOTED_S, EPOCH, a_spec, an_offer_id
from vastd.core.market import OfferQuery
from vastd.core.money import Micros
from vastd.errors import (
    AuthRejected,
    BadSpec,
    ContractChanged,
    CreatedButFailed,
    NoAnswer,
    NoCredit,
    NoSuchInstance,
    OfferGone,
    OutcomeUnknown,
    RateLimited,
    Refused,
    SpendRateLimit,
)
from vastd.simulator.faults import FaultKind, Faults, Point
from vastd.simulator.market import Market
from vastd.simulator.provider import CallStage, SimProvider

pytestmark = pytest.mark.sim


def wall_clock():
    return EPOCH + trio.current_time()


class Scene:
    def __init__(self):
        self.market = Market(7, wall_clock)
        self.faults = Faults(wall_clock)
        self.calls = []
        self.provider = SimProvider(
            self.market, self.faults, observer=lambda *call: self.calls.append(call)
        )

    async def rented(self):
        created = await self.provider.create_instance(a_spec(an_offer_id(self.market)))
        return created.instance_id

    def creates(self):
        return [entry for entry in self.market.journal if entry.kind == "create"]


@pytest.fixture
async def scene():
    return Scene()


async def test_a_rental_lives_and_ends_through_the_port(autojump_clock, scene):
    provider = scene.provider
    await provider.add_ssh_key("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJr1 me")
    offers = await provider.search_offers(OfferQuery(filters={"gpu_name": {"eq": "RTX 4090"}}))
    created = await provider.create_instance(a_spec(offers[0].offer_id))
    assert [row.instance_id for row in await provider.list_instances()] == [created.instance_id]
    await trio.sleep(BOOTED_S)
    row = await provider.get_instance(created.instance_id)
    assert (row.status, row.label, row.gpu_name) == ("running", "r-1", "RTX 4090")
    await provider.set_label(created.instance_id, "r-1b")
    await provider.attach_ssh_key(created.instance_id, "ssh-ed25519 AAAA you")
    await provider.stop_instance(created.instance_id)
    await trio.sleep(60)
    await provider.start_instance(created.instance_id)
    await provider.destroy_instance(created.instance_id)
    await trio.sleep(60)

    assert await provider.list_instances() == []
    assert await provider.get_instance(created.instance_id) is None
    assert len(await provider.list_ssh_keys()) == 1
    account = await provider.get_account()
    assert account.credit == 100_000_000 - scene.market.total_billed()
    with pytest.raises(NoSuchInstance):
        await provider.destroy_instance(created.instance_id)


@pytest.mark.parametrize(
    ("kind", "error", "instances"),
    [
        (FaultKind.LOSE_REQUEST, NoAnswer, 0),
        (FaultKind.LOSE_ANSWER, NoAnswer, 1),
        (FaultKind.TIMEOUT, NoAnswer, 0),
        (FaultKind.HTTP_429, RateLimited, 0),
        (FaultKind.HTTP_500, OutcomeUnknown, 0),
        (FaultKind.HTTP_500_AFTER, OutcomeUnknown, 1),
        (FaultKind.HTTP_410, OfferGone, 0),
        (FaultKind.AUTH_404, AuthRejected, 0),
        (FaultKind.AUTH_401, AuthRejected, 0),
        (FaultKind.HTML, OutcomeUnknown, 0),
        (FaultKind.EMPTY_BODY, OutcomeUnknown, 1),
        (FaultKind.NULL, OutcomeUnknown, 1),
        (FaultKind.TRUNCATED_PAGE, OutcomeUnknown, 1),
        (FaultKind.OFFER_GONE, OfferGone, 0),
        (FaultKind.NO_CREDIT, NoCredit, 0),
        (FaultKind.SPEND_RATE, SpendRateLimit, 0),
    ],
)
async def test_a_create_says_whether_it_may_have_happened(
    autojump_clock, scene, kind, error, instances
):
    scene.faults.inject("create", kind)

    with pytest.raises(error) as raised:
        await scene.rented()

    assert type(raised.value) is error
    assert len(scene.market.live_contracts()) == len(scene.creates()) == instances


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.HTTP_410, ContractChanged),
        (FaultKind.NULL, ContractChanged),
        (FaultKind.TRUNCATED_PAGE, OutcomeUnknown),
        (FaultKind.EMPTY_BODY, OutcomeUnknown),
        (FaultKind.HTML, OutcomeUnknown),
        (FaultKind.AUTH_404, AuthRejected),
        (FaultKind.HTTP_429, RateLimited),
    ],
)
async def test_a_bad_listing_is_an_error_and_never_an_empty_list(
    autojump_clock, scene, kind, error
):
    await scene.rented()
    scene.faults.inject("list", kind)

    with pytest.raises(error):
        await scene.provider.list_instances()

    assert len(await scene.provider.list_instances()) == 1


async def test_a_lost_destroy_request_leaves_the_machine_and_a_lost_answer_does_not(
    autojump_clock, scene
):
    instance_id = await scene.rented()
    scene.faults.inject("destroy", FaultKind.LOSE_REQUEST)
    scene.faults.inject("destroy", FaultKind.LOSE_ANSWER)

    with pytest.raises(OutcomeUnknown):
        await scene.provider.destroy_instance(instance_id)
    await trio.sleep(60)
    assert len(scene.market.live_contracts()) == 1
    with pytest.raises(OutcomeUnknown):
        await scene.provider.destroy_instance(instance_id)
    await trio.sleep(60)
    assert scene.market.live_contracts() == []


async def test_a_timeout_hangs_as_long_as_it_says(autojump_clock, scene):
    scene.faults.inject("account", FaultKind.TIMEOUT, hang_s=120)
    began = trio.current_time()

    with pytest.raises(OutcomeUnknown):
        await scene.provider.get_account()

    assert trio.current_time() - began > 120


async def test_a_flicker_shows_once_what_is_not_so(autojump_clock, scene):
    instance_id = await scene.rented()
    await trio.sleep(BOOTED_S)
    scene.faults.inject("list", FaultKind.FLICKER)
    scene.faults.inject("list", FaultKind.FLICKER, status="exited")
    scene.faults.inject("get", FaultKind.FLICKER)

    assert await scene.provider.list_instances() == []
    assert [row.status for row in await scene.provider.list_instances()] == ["exited"]
    assert [row.status for row in await scene.provider.list_instances()] == ["running"]
    assert await scene.provider.get_instance(instance_id) is None
    assert await scene.provider.get_instance(instance_id) is not None


async def test_a_leaking_search_forgets_numeric_bounds(autojump_clock, scene):
    scene.faults.inject("search", FaultKind.LEAK)
    query = OfferQuery(filters={"num_gpus": {"gte": 99}})

    assert len(await scene.provider.search_offers(query)) == 64
    assert await scene.provider.search_offers(query) == []


async def test_an_outage_that_begins_after_the_request_hides_the_answer(autojump_clock, scene):
    began = wall_clock()
    slow = SimProvider(scene.market, scene.faults, latency_s=10)
    scene.faults.cut_network(began + 15, began + 100)  # a way takes 5 to 15 s

    offer_id = an_offer_id(scene.market)
    with pytest.raises(OutcomeUnknown, match="before the answer came"):
        await slow.create_instance(a_spec(offer_id))
    with pytest.raises(OutcomeUnknown, match="lose_request"):
        await slow.get_account()

    assert len(scene.creates()) == 1
    await trio.sleep(60)
    assert (await slow.get_account()).user_id is not None


async def test_a_cancelled_call_may_have_happened(autojump_clock, scene):
    outcomes = set()
    for n in range(12):
        with trio.move_on_after(0.05 * n):
            await scene.rented()
        outcomes.add(len(scene.creates()))

    assert 0 in outcomes
    assert max(outcomes) > 0
    assert len(scene.creates()) == len(scene.market.live_contracts())


async def test_a_client_that_was_cut_off_reaches_nothing_even_in_mid_call(autojump_clock, scene):
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def renting():
            with trio.CancelScope(shield=True), pytest.raises(OutcomeUnknown):
                await scene.rented()

        await trio.sleep(0.01)
        scene.provider.cut()

    assert scene.market.journal == []
    with pytest.raises(OutcomeUnknown):
        await scene.provider.list_instances()


async def test_the_observer_is_told_of_every_stage(autojump_clock, scene):
    instance_id = await scene.rented()
    with pytest.raises(NoSuchInstance):
        await scene.provider.stop_instance(instance_id + 1)

    assert scene.calls == [
        (Point.CREATE, CallStage.ASKED),
        (Point.CREATE, CallStage.DONE),
        (Point.STOP, CallStage.ASKED),
    ]


async def test_a_revoked_key_is_rejected_and_says_nothing_of_instances(autojump_clock, scene):
    await scene.rented()
    scene.market.account.revoke_api_key(scene.market.account.owner_key)

    with pytest.raises(AuthRejected):
        await scene.provider.list_instances()
    assert len(scene.market.live_contracts()) == 1


async def test_a_bid_that_is_too_low_names_the_instance_to_end(autojump_clock, scene):
    offer_id = an_offer_id(scene.market)

    with pytest.raises(CreatedButFailed) as raised:
        await scene.provider.create_instance(a_spec(offer_id, bid=Micros(2_000)))

    assert [c.instance_id for c in scene.market.live_contracts()] == [raised.value.instance_id]


async def test_refusals_become_the_classes_that_say_what_to_do_next(autojump_clock, scene):
    offer_id = an_offer_id(scene.market)
    with pytest.raises(BadSpec):
        await scene.provider.create_instance(a_spec(offer_id, label="x" * 300))
    await scene.provider.create_instance(a_spec(offer_id))
    with pytest.raises(OfferGone):
        await scene.provider.create_instance(a_spec(offer_id))
    instance_id = scene.market.live_contracts()[0].instance_id
    with pytest.raises(Refused):
        await scene.provider.change_bid(instance_id, Micros(300_000))
    await trio.sleep(BOOTED_S)
    await scene.provider.stop_instance(instance_id)
    await trio.sleep(60)
    scene.market.occupy(scene.market.live_contracts()[0].machine.machine_id)
    with pytest.raises(Refused) as raised:
        await scene.provider.start_instance(instance_id)

    assert type(raised.value) is Refused


async def test_the_same_seed_takes_the_same_time(autojump_clock, scene):
    async def story():
        market = Market(3, wall_clock)
        provider = SimProvider(market, Faults(wall_clock))
        began = trio.current_time()
        await provider.get_account()
        await provider.list_instances()
        return round(trio.current_time() - began, 6)

    assert await story() == await story()
