"""The life and the bill of one simulated contract."""

import contextlib
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.sim_market import (
    BOOTED_S,
    EPOCH,
    HandClock,
    a_market,
    a_running_contract,
    an_offer_id,
    an_order,
)
from vastd.core.money import for_seconds
from vastd.simulator.billing import BillKind
from vastd.simulator.contracts import Stage
from vastd.simulator.faults import MachineFault, MachineFaultKind
from vastd.simulator.refusals import MarketRefused

pytestmark = pytest.mark.sim


def statuses(market, instance_id, clock, seconds):
    """Every status seen when looking once a second, without repeats."""
    seen = []
    for _ in range(seconds):
        row = market.instance_row(instance_id)
        status = row["actual_status"] if row else "no row"
        if not seen or seen[-1] != status:
            seen.append(status)
        clock.tick(1)
    return seen


def test_a_boot_goes_from_nothing_reported_to_running():
    clock = HandClock()
    market = a_market(clock)

    contract = market.create(an_offer_id(market), an_order())

    assert statuses(market, contract.instance_id, clock, 600) == [
        None,
        "created",
        "loading",
        "running",
    ]
    row = market.instance_row(contract.instance_id)
    assert row["status_msg"] == "success, running pytorch/pytorch_2.7/ssh"
    assert (row["intended_status"], row["cur_state"], row["next_state"]) == ("running",) * 3


def test_scale_shortens_the_boot_and_the_destroy_but_not_the_bill():
    slow, fast = HandClock(), HandClock()
    markets = [a_market(slow), a_market(fast, scale=0.1)]
    contracts = [m.create(an_offer_id(m), an_order()) for m in markets]
    for clock in (slow, fast):
        clock.tick(3600)
    boots = [
        c.runs[0].start_at - EPOCH for c, m in zip(contracts, markets, strict=True) if m.advance()
    ]

    assert boots[1] == pytest.approx(boots[0] / 10)
    ran = 3600 - boots[1]
    gpu = next(s for s in markets[1].segments(contracts[1].instance_id) if s.kind is BillKind.GPU)
    assert gpu.amount == for_seconds(contracts[1].gpu_micros_h, ran)


def test_the_gpu_is_billed_only_while_running_and_the_disk_from_creation():
    clock = HandClock()
    market = a_market(clock)
    contract = market.create(an_offer_id(market), an_order())
    clock.tick(3600)

    bill = {segment.kind: segment for segment in market.segments(contract.instance_id)}

    assert bill[BillKind.GPU].start_at == contract.runs[0].start_at > EPOCH
    assert bill[BillKind.DISK].start_at == EPOCH
    assert bill[BillKind.DISK].amount == for_seconds(contract.disk_micros_h, 3600)


def test_a_stopped_contract_pays_storage_only():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    market.stop(contract.instance_id)
    clock.tick(60)
    before = market.billed(contract.instance_id)
    row = market.instance_row(contract.instance_id)

    clock.tick(36_000)

    assert (row["actual_status"], row["intended_status"], row["cur_state"]) == (
        "exited",
        "stopped",
        "stopped",
    )
    assert row["ports"] == {}
    assert row["instance"]["gpuCostPerHour"] == 0
    paid = market.billed(contract.instance_id) - before
    assert abs(paid - for_seconds(contract.disk_micros_h, 36_000)) <= 1  # one segment, cut once


def test_an_offline_machine_bills_nothing_and_boots_again_when_it_returns():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    lost = MachineFault(kind=MachineFaultKind.HOST_LOSS, for_s=7_200)
    market.afflict(lost, instance_id=contract.instance_id)
    before = market.billed(contract.instance_id)

    clock.tick(7_100)
    row = market.instance_row(contract.instance_id)
    assert (row["actual_status"], row["intended_status"]) == ("offline", "running")
    assert market.billed(contract.instance_id) == before

    clock.tick(100 + BOOTED_S)
    market.advance()
    assert contract.is_up
    assert contract.boot_id == 2


def test_destroy_ends_the_gpu_at_once_and_the_row_a_little_later():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)

    market.destroy(contract.instance_id)

    assert market.instance_row(contract.instance_id) is not None
    assert not contract.is_up
    clock.tick(contract.machine.destroy_s + 0.001)
    assert market.instance_row(contract.instance_id) is None
    total = market.billed(contract.instance_id)
    clock.tick(1_000_000)
    assert market.billed(contract.instance_id) == total
    assert market.live_contracts() == []
    with pytest.raises(MarketRefused, match="no_such_instance"):
        market.destroy(contract.instance_id)


def test_destroying_twice_is_accepted_while_the_row_is_there():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    market.destroy(contract.instance_id)
    gone_at = contract.next_at()

    market.destroy(contract.instance_id)

    assert contract.next_at() == gone_at
    assert [entry.kind for entry in market.journal] == ["create", "destroy", "destroy"]


def test_every_start_maps_another_port_and_only_while_running():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    first = market.instance(contract.instance_id).direct_ssh_port
    market.stop(contract.instance_id)
    clock.tick(60)
    between = market.instance(contract.instance_id).direct_ssh_port
    market.start(contract.instance_id)
    assert market.instance_row(contract.instance_id)["actual_status"] == "exited"
    clock.tick(BOOTED_S)

    second = market.instance(contract.instance_id).direct_ssh_port

    assert between is None
    assert first != second
    assert {first, second} != {None}
    ports = market.instance_row(contract.instance_id)["ports"]
    assert ports["22/tcp"][0] == {"HostIp": "0.0.0.0", "HostPort": str(second)}


def test_a_second_boot_needs_no_pull():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    market.stop(contract.instance_id)
    clock.tick(60)
    began = clock.now
    market.start(contract.instance_id)
    clock.tick(BOOTED_S)
    market.advance()

    assert contract.runs[1].start_at - began < contract.machine.pull_s


def test_a_machine_without_direct_ports_is_reached_through_the_proxy_alone():
    clock = HandClock()
    market = a_market(clock)
    rows = market.search({"direct_port_count": {"eq": 0}}).rows
    contract = market.create(rows[0]["id"], an_order())
    clock.tick(3600)

    instance = market.instance(contract.instance_id)

    assert instance.status == "running"
    assert instance.direct_ssh_port is None
    assert instance.ssh_host.endswith(".vast.ai")
    assert instance.ssh_port > 0


def test_a_reboot_keeps_the_gpu_and_a_recycle_replaces_the_disk():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    market.reboot(contract.instance_id)
    assert contract.stage is Stage.REBOOTING
    assert contract.holds_gpus
    clock.tick(BOOTED_S)
    market.advance()
    assert (contract.boot_id, contract.disk_id) == (2, 1)

    market.recycle(contract.instance_id)
    clock.tick(BOOTED_S)
    market.advance()

    assert (contract.boot_id, contract.disk_id) == (3, 2)


def test_a_boot_that_is_stuck_stays_loading_without_gpu_cost():
    clock = HandClock()
    market = a_market(clock)
    market.afflict(MachineFault(kind=MachineFaultKind.BOOT_STUCK))
    contract = market.create(an_offer_id(market), an_order())
    clock.tick(86_400)

    assert market.instance_row(contract.instance_id)["actual_status"] == "loading"
    assert {s.kind for s in market.segments(contract.instance_id)} == {BillKind.DISK}


def test_a_boot_error_shows_its_message_and_is_given_up_after_seven_minutes():
    clock = HandClock()
    market = a_market(clock)
    text = "Error response from daemon: manifest unknown"
    market.afflict(MachineFault(kind=MachineFaultKind.BOOT_ERROR, message=text))
    contract = market.create(an_offer_id(market), an_order())
    clock.tick(60)
    early = market.instance_row(contract.instance_id)
    clock.tick(600)
    late = market.instance_row(contract.instance_id)

    assert (early["actual_status"], early["intended_status"]) == ("created", "running")
    assert (late["actual_status"], late["intended_status"]) == ("created", "stopped")
    assert early["status_msg"] == late["status_msg"] == text


def test_a_waiting_fault_hits_one_contract_and_then_no_other():
    clock = HandClock()
    market = a_market(clock)
    market.afflict(MachineFault(kind=MachineFaultKind.VANISH, after_s=100))
    first = market.create(an_offer_id(market), an_order())
    second = market.create(an_offer_id(market), an_order())
    clock.tick(3600)

    assert [c.instance_id for c in market.live_contracts()] == [second.instance_id]
    assert first.gone_at == first.runs[0].start_at + 100


def test_a_contract_ends_with_the_hosts_and_cannot_be_started_again():
    clock = HandClock()
    market = a_market(clock, credit_usd=10_000)
    contract = a_running_contract(market, clock)
    clock.now = contract.machine.end_at + 1

    assert market.instance_row(contract.instance_id)["actual_status"] == "exited"
    assert contract.runs[0].end_at == contract.machine.end_at
    with pytest.raises(MarketRefused, match="has ended"):
        market.start(contract.instance_id)


def test_an_instance_key_is_good_for_its_instance_and_dies_with_it():
    clock = HandClock()
    market = a_market(clock)
    contract = a_running_contract(market, clock)
    key = market.account.authenticate(contract.api_key)
    market.destroy(contract.instance_id)
    clock.tick(60)
    market.advance()

    assert key is not None
    assert key.instance_id == contract.instance_id
    assert market.account.authenticate(contract.api_key) is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["stop", "start", "reboot", "recycle", "destroy", "look", "offline"]),
        st.floats(0.0, 4_000.0),
    ),
    max_size=25,
)


@given(steps=STEPS)
@settings(max_examples=15)
def test_the_bill_is_the_sum_of_its_segments_whatever_happened(steps):
    clock = HandClock()
    market = a_market(clock, credit_usd=3.0)
    contract = market.create(an_offer_id(market), an_order())
    lost = MachineFault(kind=MachineFaultKind.HOST_LOSS, for_s=500)
    calls = {
        "stop": market.stop,
        "start": market.start,
        "reboot": market.reboot,
        "recycle": market.recycle,
        "destroy": market.destroy,
        "look": market.instance_row,
        "offline": lambda i: market.afflict(lost, instance_id=i),
    }
    for name, wait in steps:
        with contextlib.suppress(MarketRefused):
            calls[name](contract.instance_id)
        clock.tick(wait)

        segments = market.segments(contract.instance_id)
        assert market.billed(contract.instance_id) == sum(s.amount for s in segments)
        assert market.credit() == 3_000_000 - market.total_billed()
        gpu = [s for s in segments if s.kind is BillKind.GPU]
        up = sum((run.end_at or clock.now) - run.start_at for run in contract.runs)
        # Reboots keep the GPU, so it may be billed a little longer than it was up.
        assert sum(s.end_at - s.start_at for s in gpu) >= up - 1e-6
        for kind in BillKind:
            mine = sorted((s.start_at, s.end_at) for s in segments if s.kind is kind)
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(mine))


@given(looks=st.lists(st.floats(0.001, 900.0), max_size=40))
@settings(max_examples=15)
def test_how_often_one_looks_changes_neither_states_nor_bill(looks):
    often, once = HandClock(), HandClock()
    watched, left_alone = a_market(often), a_market(once)
    contracts = [m.create(an_offer_id(m), an_order()) for m in (watched, left_alone)]
    for wait in looks:
        often.tick(wait)
        watched.instances()
    once.now = often.now

    assert watched.total_billed() == left_alone.total_billed()
    assert contracts[0].runs == contracts[1].runs
    assert watched.instances() == left_alone.instances()
