"""Renting, bidding, paying and being refused at the simulated market."""

import pytest

from support.sim_market import (
    BOOTED_S,
    EPOCH,
    HandClock,
    a_market,
    a_running_contract,
    an_offer_id,
    an_order,
)
from vastd.core.market import OfferQuery
from vastd.core.money import Micros, to_usd
from vastd.simulator.billing import BillKind
from vastd.simulator.contracts import Access
from vastd.simulator.faults import MachineFault, MachineFaultKind
from vastd.simulator.market import JournalEntry
from vastd.simulator.refusals import MarketRefused

pytestmark = pytest.mark.sim

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJr1 me@here"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJr2 you@there"


def a_bid(market, offer_id, percent):
    """So many percent of what an offer's bidders must reach, per hour."""
    row = next(r for r in market.search({}).rows if r["id"] == offer_id)
    return Micros(round(row["min_bid"] * percent * 10_000) + 1)


# -- create ------------------------------------------------------------------------------


def test_ids_ascend_and_the_journal_has_one_create_per_call():
    clock = HandClock()
    market = a_market(clock)
    offers = [an_offer_id(market, name) for name in ("RTX 4090", "RTX 3090")]

    contracts = [market.create(offer, an_order(label=f"r-{offer}")) for offer in offers]

    assert contracts[0].instance_id < contracts[1].instance_id
    assert market.journal == [
        JournalEntry(
            at=EPOCH,
            kind="create",
            label=f"r-{offer}",
            offer_id=offer,
            instance_id=contract.instance_id,
        )
        for offer, contract in zip(offers, contracts, strict=True)
    ]


def test_an_offer_can_be_rented_once():
    market = a_market(HandClock())
    offer_id = an_offer_id(market)
    market.create(offer_id, an_order())

    with pytest.raises(MarketRefused, match="no_such_ask") as refused:
        market.create(offer_id, an_order())

    assert (refused.value.status, refused.value.code) == (400, "invalid_args")
    assert refused.value.body()["ask_id"] == offer_id
    assert [entry.refused for entry in market.journal] == [None, "invalid_args"]
    assert len(market.live_contracts()) == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"image": ""}, "image or template"),
        ({"image": "two words"}, "not a valid reference"),
        ({"disk_gb": 0}, "disk must be"),
        ({"disk_gb": 1e6}, "disk must be"),
        ({"label": "x" * 257}, "label"),
        ({"onstart": "x" * 5_000}, "onstart"),
        ({"env": {"A": "x" * 257}}, "env value"),
        ({"env": {f"K{n}": "x" * 250 for n in range(140)}}, "env exceeds"),
        ({"bid": Micros(500)}, "price must be"),
        ({"target_state": "asleep"}, "target_state"),
    ],
)
def test_an_order_that_makes_no_sense_makes_nothing(changes, text):
    market = a_market(HandClock())

    with pytest.raises(MarketRefused, match=text) as refused:
        market.create(an_offer_id(market), an_order(**changes))

    assert refused.value.status == 400
    assert market.live_contracts() == []


def test_a_create_may_ask_for_a_stopped_instance():
    clock = HandClock()
    market = a_market(clock)
    contract = market.create(an_offer_id(market), an_order(target_state="stopped"))
    clock.tick(3600)

    row = market.instance_row(contract.instance_id)

    assert (row["actual_status"], row["intended_status"]) == ("stopped", "stopped")
    assert {s.kind for s in market.segments(contract.instance_id)} == {BillKind.DISK}


# -- credit ------------------------------------------------------------------------------


def test_credit_falls_by_exactly_what_was_billed():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    clock.tick(7_777.7)

    assert market.credit() == 100_000_000 - market.billed(contract.instance_id)
    assert market.user_row()["credit"] == to_usd(market.credit())
    assert market.renter().credit == market.credit()


def test_without_credit_everything_stops_and_storage_goes_on():
    clock = HandClock()
    market = a_market(clock, credit_usd=1.0)
    contract = a_running_contract(market, clock)
    clock.tick(86_400)
    market.advance()
    stopped_at = contract.runs[0].end_at
    gpu = next(s for s in market.segments(contract.instance_id) if s.kind is BillKind.GPU)

    assert market.instance_row(contract.instance_id)["cur_state"] == "stopped"
    # The instant at which the bill reached the credit, to a micro-dollar.
    spent = gpu.amount + contract.disk_micros_h * (stopped_at - EPOCH) / 3600
    assert spent == pytest.approx(1_000_000, abs=3)
    assert market.credit() < 0
    with pytest.raises(MarketRefused, match="insufficient_credit"):
        market.start(contract.instance_id)
    with pytest.raises(MarketRefused, match="insufficient_credit"):
        market.create(an_offer_id(market), an_order())

    market.deposit(50)
    clock.tick(60)
    assert market.instance_row(contract.instance_id)["cur_state"] == "stopped"
    market.start(contract.instance_id)
    clock.tick(BOOTED_S)
    market.advance()
    assert contract.is_up


def test_traffic_is_billed_by_the_byte():
    clock = HandClock()
    market = a_market(clock)
    row = market.search({"inet_up_cost": {"gte": 0.01}}).rows[0]
    contract = market.create(row["id"], an_order())

    market.charge_traffic(contract.instance_id, up_bytes=3_000_000_000)

    bill = {s.kind: s.amount for s in market.segments(contract.instance_id)}
    assert bill[BillKind.UPLOAD] == round(3 * row["inet_up_cost"] * 1_000_000)
    assert market.billed(contract.instance_id) == sum(bill.values())


# -- stop and start ----------------------------------------------------------------------


def test_a_start_without_free_gpus_is_refused_queued_and_can_be_cancelled():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    machine_id = contract.machine.machine_id
    market.stop(contract.instance_id)
    clock.tick(60)
    market.occupy(machine_id)

    with pytest.raises(MarketRefused, match="resources_unavailable") as refused:
        market.start(contract.instance_id)
    assert refused.value.status == 200
    assert market.instance_row(contract.instance_id)["intended_status"] == "running"

    market.stop(contract.instance_id)
    market.vacate(machine_id)
    clock.tick(BOOTED_S)
    market.advance()
    assert not contract.is_up


def test_a_queued_start_begins_when_the_gpus_are_free():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    market.stop(contract.instance_id)
    clock.tick(60)
    market.occupy(contract.machine.machine_id)
    with pytest.raises(MarketRefused):
        market.start(contract.instance_id)
    clock.tick(9_000)

    market.vacate(contract.machine.machine_id)

    clock.tick(BOOTED_S)
    market.advance()
    assert contract.is_up


def test_another_instance_on_the_released_gpus_blocks_the_start():
    clock = HandClock()
    market = a_market(clock)
    first = a_running_contract(market, clock)
    market.stop(first.instance_id)
    clock.tick(60)
    rows = market.search({"machine_id": {"eq": first.machine.machine_id}}).rows
    same = next(row for row in rows if 0 in row["gpu_ids"])
    market.create(same["id"], an_order(label="r-2"))

    with pytest.raises(MarketRefused, match="resources_unavailable"):
        market.start(first.instance_id)


def test_a_reboot_of_a_stopped_instance_is_refused():
    clock = HandClock()
    market = a_market(clock)
    contract = market.create(an_offer_id(market), an_order(target_state="stopped"))

    with pytest.raises(MarketRefused, match="not running"):
        market.reboot(contract.instance_id)
    assert market.journal[-1].refused == "invalid_args"


# -- bids --------------------------------------------------------------------------------


def test_a_bid_below_the_price_is_an_error_that_makes_a_stopped_instance():
    clock = HandClock()
    market = a_market(clock)
    offer_id = an_offer_id(market)

    with pytest.raises(MarketRefused) as refused:
        market.create(offer_id, an_order(bid=a_bid(market, offer_id, 50)))

    made = refused.value.body()["new_contract"]
    assert [c.instance_id for c in market.live_contracts()] == [made]
    assert market.instance_row(made)["cur_state"] == "stopped"
    assert market.journal[0].instance_id == made
    clock.tick(3600)
    assert market.billed(made) > 0


def test_an_interruptible_instance_pays_its_bid():
    clock = HandClock()
    market = a_market(clock)
    offer_id = an_offer_id(market)
    bid = a_bid(market, offer_id, 120)
    contract = market.create(offer_id, an_order(bid=bid))
    clock.tick(3600)

    gpu = next(s for s in market.segments(contract.instance_id) if s.kind is BillKind.GPU)

    assert gpu.micros_per_hour == bid
    assert market.instance(contract.instance_id).is_bid


@pytest.mark.parametrize("keeps_intent", [False, True])
def test_outbid_stops_without_warning_and_resumes_when_the_bid_wins_again(keeps_intent):
    clock = HandClock()
    market = a_market(clock)
    rows = market.search({}).rows
    row = next(
        r for r in rows if market.machines[r["machine_id"]].outbid_keeps_intent is keeps_intent
    )
    bid = a_bid(market, row["id"], 110)
    contract = market.create(row["id"], an_order(bid=bid))
    clock.tick(BOOTED_S)
    machine_id, per_gpu = row["machine_id"], to_usd(bid) / row["num_gpus"]

    market.set_min_bid(machine_id, per_gpu * 1.5)
    seen = market.instance_row(contract.instance_id)
    assert seen["actual_status"] == "exited"
    assert seen["cur_state"] == "stopped"
    assert seen["intended_status"] == ("running" if keeps_intent else "stopped")
    assert seen["min_bid"] > to_usd(bid)
    clock.tick(5_000)
    assert not contract.is_up

    market.set_min_bid(machine_id, per_gpu * 0.9)
    clock.tick(BOOTED_S)
    market.advance()
    assert contract.is_up


def test_starting_an_instance_whose_bid_loses_is_refused_and_queued_until_it_wins():
    clock = HandClock()
    market = a_market(clock)
    offer_id = an_offer_id(market)
    with pytest.raises(MarketRefused) as refused:
        market.create(offer_id, an_order(bid=a_bid(market, offer_id, 50)))
    contract = market.contract(refused.value.extra["new_contract"])

    with pytest.raises(MarketRefused, match="resources_unavailable"):
        market.start(contract.instance_id)
    clock.tick(BOOTED_S)
    market.advance()
    assert contract.runs == []
    market.set_min_bid(contract.machine.machine_id, to_usd(contract.bid) * 0.9)
    clock.tick(BOOTED_S)
    market.advance()
    assert contract.is_up


def test_a_higher_bid_brings_an_outbid_instance_back():
    clock = HandClock()
    market = a_market(clock)
    offer_id = an_offer_id(market)
    bid = a_bid(market, offer_id, 110)
    contract = market.create(offer_id, an_order(bid=bid))
    clock.tick(BOOTED_S)
    market.set_min_bid(contract.machine.machine_id, to_usd(bid) * 1.2)

    market.change_bid(contract.instance_id, to_usd(bid) * 1.3)

    clock.tick(BOOTED_S)
    market.advance()
    assert contract.is_up
    with pytest.raises(MarketRefused, match="invalid_price"):
        market.change_bid(contract.instance_id, 33.0)


def test_an_on_demand_renter_displaces_a_bidder_and_a_higher_bidder_does_too():
    clock = HandClock()
    market = a_market(clock)
    offer_id = an_offer_id(market)
    row = market.search({"ask_contract_id": {"eq": offer_id}}).rows[0]

    def the_same_gpu():
        rows = market.search({"machine_id": {"eq": row["machine_id"]}}).rows
        return next(r["id"] for r in rows if r["gpu_ids"] == row["gpu_ids"])

    first = market.create(offer_id, an_order(bid=a_bid(market, offer_id, 110)))
    clock.tick(BOOTED_S)
    again = the_same_gpu()
    second = market.create(again, an_order(label="r-2", bid=a_bid(market, again, 100)))
    assert not first.is_up
    clock.tick(BOOTED_S)
    third = market.create(the_same_gpu(), an_order(label="r-3"))
    clock.tick(BOOTED_S)
    market.advance()

    assert (first.is_up, second.is_up, third.is_up) == (False, False, True)
    assert first.outbid
    assert second.outbid
    market.destroy(third.instance_id)
    clock.tick(BOOTED_S)
    market.advance()
    assert first.is_up != second.is_up


def test_an_outbid_fault_lasts_as_long_as_it_says():
    clock = HandClock()
    market = a_market(clock)
    offer_id = an_offer_id(market)
    market.afflict(MachineFault(kind=MachineFaultKind.OUTBID, after_s=1_000, for_s=2_000))
    contract = market.create(offer_id, an_order(bid=a_bid(market, offer_id, 110)))
    clock.tick(10_000)
    market.advance()

    assert contract.runs[0].end_at == contract.runs[0].start_at + 1_000
    assert contract.runs[1].start_at > contract.runs[0].end_at + 2_000


# -- the account -------------------------------------------------------------------------


def test_an_instance_accepts_the_keys_the_account_had_and_those_attached():
    clock = HandClock()
    market = a_market(clock)
    market.add_ssh_key(KEY)
    contract = a_running_contract(market, clock)
    market.add_ssh_key(OTHER_KEY)

    assert contract.accepts(KEY.rsplit(" ", 1)[0] + " another-comment")
    assert not contract.accepts(OTHER_KEY)
    market.attach_key(contract.instance_id, OTHER_KEY)
    assert contract.accepts(OTHER_KEY)
    market.detach_key(contract.instance_id, market.account.key_id(KEY))
    assert not contract.accepts(KEY)


def test_the_same_key_is_registered_once_and_nonsense_is_refused():
    market = a_market(HandClock())

    assert market.add_ssh_key(KEY) == market.add_ssh_key(KEY + " again")
    assert len(market.account.ssh_keys) == 1
    with pytest.raises(MarketRefused, match="no_ssh_key"):
        market.add_ssh_key("/home/me/.ssh/id_ed25519.pub")


def test_several_keys_are_valid_until_revoked():
    account = a_market(HandClock()).account
    other = account.add_api_key("laptop")

    assert account.authenticate(account.owner_key).name == "owner"
    assert account.authenticate(other.token) == other
    account.revoke_api_key(other.token)
    assert account.authenticate(other.token) is None
    assert account.authenticate(None) is None
    assert account.owner_key != a_market(HandClock(), 8).account.owner_key


def test_secrets_are_upper_cased_and_checked():
    account = a_market(HandClock()).account
    account.set_secret("hf_token", "abc")

    assert account.secrets == {"HF_TOKEN": "abc"}
    for name, value, code in (
        ("hf_token", "x", "existing_key"),
        ("a-b", "x", "invalid_characters"),
        ("", "x", "missing_input"),
        ("long", "x" * 300, "input_too_long"),
    ):
        with pytest.raises(MarketRefused, match=code):
            account.set_secret(name, value)
    account.delete_secret("HF_TOKEN")
    with pytest.raises(MarketRefused, match="nonexistent_key"):
        account.delete_secret("HF_TOKEN")


# -- the world ---------------------------------------------------------------------------


def test_foreign_instances_are_listed_and_are_not_in_our_journal():
    clock = HandClock()
    market = a_market(clock)

    foreign = market.add_foreign(label="somebody else's work")
    clock.tick(3600)

    assert [row["label"] for row in market.instance_rows()] == ["somebody else's work"]
    assert market.journal == []
    assert market.total_billed() == market.billed(foreign.instance_id) > 0
    assert market.total_billed(foreign=False) == 0


def test_a_fault_for_the_next_rental_spares_foreign_instances():
    clock = HandClock()
    market = a_market(clock)
    market.afflict(MachineFault(kind=MachineFaultKind.VANISH))
    foreign = market.add_foreign()
    clock.tick(3600)
    market.advance()

    assert foreign.alive


def test_the_next_change_is_announced():
    clock = HandClock()
    market = a_market(clock)
    assert market.next_change_at() is None
    contract = market.create(an_offer_id(market), an_order())

    while market.next_change_at() is not None and not contract.is_up:
        clock.now = market.next_change_at()
        market.advance()

    assert clock.now == contract.runs[0].start_at


def test_the_service_may_say_where_a_real_sshd_listens():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    market.set_access(
        contract.instance_id,
        Access(public_ip="127.0.0.1", direct_port=4022, ssh_host="127.0.0.1", ssh_port=4023),
    )

    instance = market.instance(contract.instance_id)

    assert (instance.public_ip, instance.direct_ssh_port) == ("127.0.0.1", 4022)
    assert (instance.ssh_host, instance.ssh_port) == ("127.0.0.1", 4023)
    market.stop(contract.instance_id)
    clock.tick(60)
    assert market.instance(contract.instance_id).direct_ssh_port is None


def test_a_withdrawn_offer_is_gone():
    market = a_market(HandClock())
    offer = market.find_offers(OfferQuery())[0]
    market.withdraw(offer.offer_id)

    assert offer.offer_id not in {o.offer_id for o in market.find_offers(OfferQuery())}
    with pytest.raises(MarketRefused, match="no_such_ask"):
        market.create(offer.offer_id, an_order())


def test_a_clock_that_is_set_back_shrinks_no_bill():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    clock.tick(3600)
    before = market.billed(contract.instance_id)

    clock.tick(-7200)

    assert market.billed(contract.instance_id) == before


def test_a_label_can_be_replaced_up_to_1024_characters():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    market.set_label(contract.instance_id, "y" * 1024)

    assert market.instance(contract.instance_id).label == "y" * 1024
    with pytest.raises(MarketRefused, match="label_too_long"):
        market.set_label(contract.instance_id, "y" * 1025)
    with pytest.raises(MarketRefused, match="no_such_instance") as refused:
        market.set_label(1, "x")
    assert refused.value.status == 404


def test_a_lost_host_takes_its_neighbours_along_and_its_offers_off_the_market():
    clock = HandClock()
    market = a_market(clock)
    one, two = (market.create(i, an_order()) for i in two_offers_of_one_machine(market))
    clock.tick(BOOTED_S)
    machine = {"machine_id": {"eq": one.machine.machine_id}}
    lost = MachineFault(kind=MachineFaultKind.HOST_LOSS, for_s=600)
    market.afflict(lost, instance_id=one.instance_id)

    assert {row["actual_status"] for row in market.instance_rows()} == {"offline"}
    market.destroy(one.instance_id)
    clock.tick(60)
    assert market.search(machine).rows == []
    clock.tick(600 + BOOTED_S)
    assert two.instance_id in {c.instance_id for c in market.live_contracts() if c.is_up}
    assert market.search(machine).rows


def two_offers_of_one_machine(market):
    """Two single-GPU offers that do not overlap."""
    by_machine = {}
    for row in market.search({"num_gpus": {"eq": 1}, "order": [["dph_total", "asc"]]}).rows:
        by_machine.setdefault(row["machine_id"], []).append(row["id"])
    return next(ids for ids in by_machine.values() if len(ids) == 2)


def test_a_stopped_instance_holds_no_gpu_while_it_is_lost_or_destroyed():
    clock = HandClock()
    market = a_market(clock)
    first = a_running_contract(market, clock)
    market.stop(first.instance_id)
    clock.tick(60)
    rows = market.search({"machine_id": {"eq": first.machine.machine_id}}).rows
    again = next(row for row in rows if set(row["gpu_ids"]) == set(first.chunk.gpu_ids))
    second = market.create(again["id"], an_order(label="r-2"))
    clock.tick(BOOTED_S)

    lost = MachineFault(kind=MachineFaultKind.HOST_LOSS, for_s=60)
    market.afflict(lost, instance_id=first.instance_id)
    assert not first.holds_gpus
    assert second.holds_gpus
    clock.tick(60 + BOOTED_S)
    market.advance()
    assert (first.is_up, second.is_up) == (False, True)
    market.destroy(first.instance_id)
    clock.tick(60)
    assert [c.instance_id for c in market.live_contracts()] == [second.instance_id]
    assert second.is_up


def test_ports_asked_for_are_mapped_beside_ssh():
    clock = HandClock()
    market = a_market(clock)
    env = {"-p 8080:8080": "1", "-p 5353:53/udp": "1", "TOKEN": "x"}
    contract = a_running_contract(market, clock, env=env)

    ports = market.instance_row(contract.instance_id)["ports"]

    assert ports.keys() == {"22/tcp", "8080/tcp", "53/udp"}
    assert len({entry[0]["HostPort"] for entry in ports.values()}) == 3
