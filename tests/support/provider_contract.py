"""What every implementation of the provider port must do, whoever answers behind it.

Subclass `ProviderContract` in a test module and give it a fixture `rig`; the market behind it
must be fresh, have credit, at least 30 offers and no instance. Time jumps; a subclass that talks
to another process overrides `clock` with `MockClock(rate=1.0)`, which is real time.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import Struct
from trio.abc import Clock
from trio.testing import MockClock

from vastd.core.market import CreateSpec, Instance, Offer, OfferQuery
from vastd.core.money import Micros
from vastd.errors import (
    AuthRejected,
    BadSpec,
    NoCredit,
    NoSuchInstance,
    OfferGone,
    SpendRateLimit,
)
from vastd.provider.port import Provider

PUBLIC_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKx8kNRaPLpG3VdYFBbLVvJQ4BkOYyBSXbBUzjCNNVYb demo@host"
)
NO_INSTANCE = 999_999_999
NO_OFFER = 999_999_998
LABEL = "demo/train vastd-ab12cd34-r-1"


class ProviderRig(Struct, frozen=True):
    """A provider and what a test may do to the world behind it."""

    provider: Provider
    stranger: Provider  # the same Vast, asked with a key it does not know
    let_pass: Callable[[float], Awaitable[None]]  # seconds of the world's time
    boot_s: float  # by then a machine without faults is up
    destroy_s: float  # by then a destroyed one is gone
    refuse_create: Callable[[str], None]  # the next one, with that code of Vast's


async def offers(rig: ProviderRig, **query: Any) -> list[Offer]:
    return await rig.provider.search_offers(OfferQuery(**query))


def a_spec(offer: Offer, **changes: Any) -> CreateSpec:
    fields: dict[str, Any] = {
        "offer_id": offer.offer_id,
        "image": "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime",
        "disk_gb": 20.0,
        "label": LABEL,
    }
    return CreateSpec(**(fields | changes))


async def rent(rig: ProviderRig, **changes: Any) -> int:
    offer = (await offers(rig))[0]
    return (await rig.provider.create_instance(a_spec(offer, **changes))).instance_id


async def listed(rig: ProviderRig) -> list[int]:
    return [instance.instance_id for instance in await rig.provider.list_instances()]


async def read(rig: ProviderRig, instance_id: int) -> Instance:
    instance = await rig.provider.get_instance(instance_id)
    assert instance is not None
    return instance


class ProviderContract:
    """The tests; every one gets a fresh `rig`.

    They name `clock` because pytest-trio takes the clock only from a test's own arguments.
    """

    @pytest.fixture
    def clock(self) -> Clock:
        return MockClock(autojump_threshold=0)

    # -- searching -----------------------------------------------------------------------

    async def test_a_search_keeps_to_its_limit_and_order(self, rig: ProviderRig, clock: Clock):
        found = await offers(rig, limit=20)

        assert len(found) == 20
        assert [offer.dph for offer in found] == sorted(offer.dph for offer in found)
        assert len({offer.offer_id for offer in found}) == 20

    async def test_a_search_orders_downwards_too(self, rig: ProviderRig, clock: Clock):
        found = await offers(rig, order=[("dph_total", "desc")])

        assert [offer.dph for offer in found] == sorted(
            (offer.dph for offer in found), reverse=True
        )

    async def test_a_search_filters(self, rig: ProviderRig, clock: Clock):
        name = (await offers(rig))[0].gpu_name

        found = await offers(rig, filters={"gpu_name": {"eq": name}, "num_gpus": {"lte": 1}})

        assert found
        assert {(offer.gpu_name, offer.num_gpus) for offer in found} == {(name, 1)}
        assert await offers(rig, filters={"gpu_name": {"eq": "Abacus"}}) == []

    async def test_a_larger_disk_costs_more_in_every_offer(self, rig: ProviderRig, clock: Clock):
        small = {offer.offer_id: offer.dph for offer in await offers(rig, disk_gb=10.0)}
        large = {offer.offer_id: offer.dph for offer in await offers(rig, disk_gb=200.0)}

        both = small.keys() & large.keys()
        assert both
        assert all(small[offer_id] < large[offer_id] for offer_id in both)

    # -- renting -------------------------------------------------------------------------

    async def test_an_account_without_machines_lists_none(self, rig: ProviderRig, clock: Clock):
        assert await rig.provider.list_instances() == []

    async def test_a_created_instance_is_listed_once_with_its_label(
        self, rig: ProviderRig, clock: Clock
    ):
        instance_id = await rent(rig)

        (instance,) = await rig.provider.list_instances()
        assert (instance.instance_id, instance.label) == (instance_id, LABEL)
        assert instance.is_bid is False
        assert (await read(rig, instance_id)).label == LABEL

    async def test_a_bid_rents_interruptible(self, rig: ProviderRig, clock: Clock):
        found = await offers(rig, interruptible=True)
        offer = next(offer for offer in found if offer.min_bid is not None)
        assert offer.min_bid is not None
        bid = Micros(offer.min_bid * 2 + 10_000)

        created = await rig.provider.create_instance(a_spec(offer, bid=bid))

        assert (await read(rig, created.instance_id)).is_bid is True

    async def test_an_offer_can_be_rented_once(self, rig: ProviderRig, clock: Clock):
        offer = (await offers(rig))[0]
        await rig.provider.create_instance(a_spec(offer))

        with pytest.raises(OfferGone):
            await rig.provider.create_instance(a_spec(offer))

        assert len(await listed(rig)) == 1

    async def test_an_offer_that_never_was_is_gone(self, rig: ProviderRig, clock: Clock):
        offer = (await offers(rig))[0]

        with pytest.raises(OfferGone):
            await rig.provider.create_instance(a_spec(offer, offer_id=NO_OFFER))

        assert await listed(rig) == []

    @pytest.mark.parametrize("changes", [{"image": "two words"}, {"onstart": "x" * 5000}])
    async def test_a_bad_spec_rents_nothing(
        self, changes: dict[str, Any], rig: ProviderRig, clock: Clock
    ):
        offer = (await offers(rig))[0]

        with pytest.raises(BadSpec):
            await rig.provider.create_instance(a_spec(offer, **changes))

        assert await listed(rig) == []

    @pytest.mark.parametrize(
        ("code", "error"),
        [("insufficient_credit", NoCredit), ("spend_rate_limit", SpendRateLimit)],
    )
    async def test_a_create_the_account_may_not_make_rents_nothing(
        self, code: str, error: type[Exception], rig: ProviderRig, clock: Clock
    ):
        offer = (await offers(rig))[0]
        rig.refuse_create(code)

        with pytest.raises(error):
            await rig.provider.create_instance(a_spec(offer))

        assert await listed(rig) == []
        assert (await rig.provider.create_instance(a_spec(offer))).instance_id

    async def test_more_instances_than_one_page_are_all_listed(
        self, rig: ProviderRig, clock: Clock
    ):
        made = []
        for offer in await offers(rig, limit=60):
            if len(made) == 26:
                break
            try:
                spec = a_spec(offer, label=f"n{len(made)}")
                made.append((await rig.provider.create_instance(spec)).instance_id)
            except OfferGone:
                continue  # a sibling on the same machine was rented before

        assert len(made) == 26
        assert sorted(await listed(rig)) == sorted(made)

    # -- a life --------------------------------------------------------------------------

    async def test_a_machine_comes_up_with_a_way_in_and_a_price(
        self, rig: ProviderRig, clock: Clock
    ):
        instance_id = await rent(rig)

        await rig.let_pass(rig.boot_s)

        instance = await read(rig, instance_id)
        assert (instance.status, instance.intended_status) == ("running", "running")
        assert instance.dph
        assert instance.storage_dph
        assert instance.direct_ssh_port or (instance.ssh_host and instance.ssh_port)

    async def test_a_destroyed_instance_leaves_the_list_and_reads_as_none(
        self, rig: ProviderRig, clock: Clock
    ):
        kept = await rent(rig, label="kept")
        instance_id = await rent(rig)

        await rig.provider.destroy_instance(instance_id)
        await rig.let_pass(rig.destroy_s)

        assert await listed(rig) == [kept]
        assert await rig.provider.get_instance(instance_id) is None
        with pytest.raises(NoSuchInstance):
            await rig.provider.destroy_instance(instance_id)

    async def test_a_stopped_machine_stays_and_can_be_started_again(
        self, rig: ProviderRig, clock: Clock
    ):
        instance_id = await rent(rig)
        await rig.let_pass(rig.boot_s)

        await rig.provider.stop_instance(instance_id)
        await rig.let_pass(rig.boot_s)
        stopped = await read(rig, instance_id)
        await rig.provider.start_instance(instance_id)
        await rig.let_pass(rig.boot_s)
        started = await read(rig, instance_id)

        assert stopped.status in ("exited", "stopped")
        assert stopped.intended_status == "stopped"
        assert (started.status, started.intended_status) == ("running", "running")

    async def test_a_stop_and_a_start_may_be_repeated(self, rig: ProviderRig, clock: Clock):
        instance_id = await rent(rig)
        await rig.let_pass(rig.boot_s)

        await rig.provider.start_instance(instance_id)
        assert (await read(rig, instance_id)).intended_status == "running"
        await rig.provider.stop_instance(instance_id)
        await rig.provider.stop_instance(instance_id)
        assert (await read(rig, instance_id)).intended_status == "stopped"

    async def test_a_changed_bid_is_the_new_price(self, rig: ProviderRig, clock: Clock):
        offer = next(o for o in await offers(rig, interruptible=True) if o.min_bid is not None)
        assert offer.min_bid is not None
        spec = a_spec(offer, bid=Micros(offer.min_bid + 100_000))
        instance_id = (await rig.provider.create_instance(spec)).instance_id

        await rig.provider.change_bid(instance_id, Micros(offer.min_bid + 300_000))

        instance = await read(rig, instance_id)
        assert instance.is_bid is True
        assert instance.dph is not None
        assert instance.dph >= offer.min_bid + 300_000

    async def test_a_label_is_replaced(self, rig: ProviderRig, clock: Clock):
        instance_id = await rent(rig)

        await rig.provider.set_label(instance_id, "another vastd-ab12cd34-r-2")

        assert [row.label for row in await rig.provider.list_instances()] == [
            "another vastd-ab12cd34-r-2"
        ]

    # -- what does not exist -------------------------------------------------------------

    async def test_an_unknown_id_reads_as_none(self, rig: ProviderRig, clock: Clock):
        assert await rig.provider.get_instance(NO_INSTANCE) is None

    @pytest.mark.parametrize(
        ("name", "args"),
        [
            ("destroy_instance", ()),
            ("stop_instance", ()),
            ("start_instance", ()),
            ("set_label", ("l",)),
            ("change_bid", (Micros(200_000),)),
            ("attach_ssh_key", (PUBLIC_KEY,)),
        ],
    )
    async def test_an_unknown_id_cannot_be_changed(
        self, name: str, args: tuple[Any, ...], rig: ProviderRig, clock: Clock
    ):
        with pytest.raises(NoSuchInstance):
            await getattr(rig.provider, name)(NO_INSTANCE, *args)

    # -- keys and account ----------------------------------------------------------------

    async def test_ssh_keys_start_empty_and_keep_what_is_added(
        self, rig: ProviderRig, clock: Clock
    ):
        before = await rig.provider.list_ssh_keys()
        await rig.provider.add_ssh_key(PUBLIC_KEY)
        after = await rig.provider.list_ssh_keys()

        assert before == []
        assert [key.public_key for key in after] == [PUBLIC_KEY]

    async def test_a_running_machine_takes_a_key_as_often_as_it_is_given(
        self, rig: ProviderRig, clock: Clock
    ):
        instance_id = await rent(rig)
        await rig.let_pass(rig.boot_s)

        await rig.provider.attach_ssh_key(instance_id, PUBLIC_KEY)
        await rig.provider.attach_ssh_key(instance_id, PUBLIC_KEY)

        assert (await read(rig, instance_id)).status == "running"

    async def test_the_account_shows_its_credit(self, rig: ProviderRig, clock: Clock):
        account = await rig.provider.get_account()

        assert account.credit is not None
        assert account.credit > 0

    # -- a wrong key ---------------------------------------------------------------------

    async def test_a_wrong_key_is_rejected_everywhere_and_does_nothing(
        self, rig: ProviderRig, clock: Clock
    ):
        instance_id = await rent(rig)
        spec = a_spec((await offers(rig))[0])
        stranger = rig.stranger

        for call in (
            lambda: stranger.search_offers(OfferQuery()),
            lambda: stranger.create_instance(spec),
            stranger.list_instances,
            lambda: stranger.get_instance(instance_id),
            lambda: stranger.destroy_instance(instance_id),
            lambda: stranger.stop_instance(instance_id),
            lambda: stranger.start_instance(instance_id),
            lambda: stranger.set_label(instance_id, "mine"),
            lambda: stranger.change_bid(instance_id, Micros(200_000)),
            stranger.list_ssh_keys,
            lambda: stranger.add_ssh_key(PUBLIC_KEY),
            lambda: stranger.attach_ssh_key(instance_id, PUBLIC_KEY),
            stranger.get_account,
        ):
            with pytest.raises(AuthRejected):
                await call()

        await rig.let_pass(rig.destroy_s)
        (instance,) = await rig.provider.list_instances()
        assert (instance.instance_id, instance.label) == (instance_id, LABEL)
