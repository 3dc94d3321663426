"""What is learnt of machines: from boots, logins, copies and deaths; who is blocked, and how long."""

import pytest
from msgspec import structs

from support.builders import LIMITS, T0, a_rental
from support.offer_builders import an_offer
from vastd.core import events as ev
from vastd.core.hosts import BLOCK_S, Block, Host, Speed, blocked, learn, of_records
from vastd.core.lifecycle import evolve
from vastd.core.rental import Blame, Order, Phase, Rental, Trigger

MACHINE = 1007
DEVEL = "pytorch/pytorch:2.6.0-cuda12.6-cudnn9-devel"  # 8 GB in the table


def planned(image: str = "my/own", down: float = 800.0) -> Rental:
    order = Order(offer=an_offer(7, inet_down_mbps=down, host_id=5), image=image, disk_gb=50.0)
    return a_rental(Phase.PLANNED, order=order)


def lived(rental: Rental, *events: ev.RentalEvent, known: Host | None = None) -> Host:
    """What is known of the machine after these events."""
    hosts = {MACHINE: known} if known else {}
    for event in events:
        after = evolve(rental, event)
        if (found := learn(hosts, event, rental, after)) is not None:
            hosts[found.machine_id] = found
        rental = after
    return hosts[MACHINE]


def at(seconds: float, kind: type[ev.RentalEvent], **fields: object) -> ev.RentalEvent:
    return kind(rental_id="r1", at=T0 + seconds, **fields)  # type: ignore[arg-type]


SENT = at(0, ev.CreateSent, deadline_at=T0 + 9999)
MADE = at(1, ev.CreateConfirmed, instance_id=42)
UP = at(160, ev.InstanceRunning)
READY = at(170, ev.BecameReady, host="192.0.2.1", port=22, route="proxy", gpu="1x RTX 3090")


def ended(trigger: Trigger, blame: Blame | None = None) -> ev.RentalEvent:
    return at(200, ev.EndDecided, trigger=trigger, why="no luck", blame=blame)


def test_a_machine_that_serves_is_known_by_its_boot_and_the_way_in() -> None:
    host = lived(planned(), SENT, MADE, UP, READY)

    assert host == Host(
        machine_id=MACHINE, host_id=5, gpu_name="RTX 3090", rented=1, served=1, seen_at=T0 + 1,
        boot_s=160.0, route="proxy", listed_down_mbps=800.0,
    )  # fmt: skip
    assert (host.risk, host.history) == (0.0, "")


def test_an_intention_alone_tells_nothing_of_a_machine() -> None:
    assert learn({}, SENT, planned(), evolve(planned(), SENT)) is None


def test_an_instance_that_a_listing_showed_first_is_counted_once() -> None:
    found = at(1, ev.InstanceFound, instance_id=42)

    assert lived(planned(), SENT, found, at(2, ev.CreateConfirmed, instance_id=42)).rented == 1


@pytest.mark.req("FAI-07")
@pytest.mark.parametrize(
    ("end", "block"),
    [
        (ended(Trigger.BOOT_OVERDUE), True),
        (ended(Trigger.HARDWARE_MISMATCH), True),
        (ended(Trigger.SSH_FAILED), True),
        (ended(Trigger.BOOT_FAILED, Blame.HOST), True),
        (ended(Trigger.BOOT_FAILED, Blame.RUN), False),
        (ended(Trigger.SSH_FAILED, Blame.NOBODY), False),
        (ended(Trigger.OUTBID), False),
        (ended(Trigger.WRONG_ORDER), False),
        (ended(Trigger.USER), False),
    ],
)
def test_the_hosts_own_fault_blocks_it_for_a_day_and_nothing_else_does(
    end: ev.RentalEvent, block: bool
) -> None:
    host = lived(planned(), SENT, MADE, end)

    assert host.failed == (1 if block else 0)
    held = Block(since=T0 + 200, until=T0 + 200 + BLOCK_S, why="no luck", by="vastd")
    assert host.block == (held if block else None)
    assert (MACHINE in blocked({MACHINE: host}, T0 + 200 + BLOCK_S - 1)) is block
    assert blocked({MACHINE: host}, T0 + 200 + BLOCK_S) == {}


def test_a_machine_that_served_is_not_blamed_for_a_later_end() -> None:
    host = lived(planned(), SENT, MADE, UP, READY, ended(Trigger.SSH_FAILED))

    assert (host.failed, host.block) == (0, None)


def test_a_second_decision_about_the_same_rental_counts_no_second_failure() -> None:
    ends = (ended(Trigger.BOOT_OVERDUE), ended(Trigger.BOOT_OVERDUE))

    assert lived(planned(), SENT, MADE, *ends).failed == 1


def test_a_block_of_the_user_is_not_shortened_by_ours() -> None:
    own = Block(since=T0, until=None, why="noisy", by="user")
    known = Host(machine_id=MACHINE, block=own)

    host = lived(planned(), SENT, MADE, ended(Trigger.BOOT_OVERDUE), known=known)

    assert (host.block, host.failed) == (own, 1)


def test_an_expired_block_of_the_user_gives_way_to_ours() -> None:
    known = Host(
        machine_id=MACHINE, block=Block(since=T0 - 9, until=T0 + 100, why="noisy", by="user")
    )

    host = lived(planned(), SENT, MADE, ended(Trigger.BOOT_OVERDUE), known=known)

    assert host.block is not None
    assert host.block.by == "vastd"


def test_the_user_blocks_a_machine_nobody_rented_and_lifts_any_block() -> None:
    order = ev.HostBlocked(at=T0, machine_id=3, why="noisy", until=None)
    host = learn({}, order, None, None)

    assert host is not None
    assert blocked({3: host}, T0 + 1e9) == {3: "noisy (blocked by user until it is unblocked)"}
    lifted = learn({3: host}, ev.HostUnblocked(at=T0, machine_id=3), None, None)
    assert lifted == Host(machine_id=3)
    assert learn({}, ev.HostUnblocked(at=T0, machine_id=4), None, None) is None


def test_the_way_a_rental_died_is_kept() -> None:
    rental = structs.replace(planned(), phase=Phase.DESTROYING, instance_id=42)
    rental = evolve(rental, ended(Trigger.BUDGET))

    host = lived(rental, at(300, ev.FoundAbsent, proof="2 listings"))

    assert host.death is not None
    assert (host.death.trigger, host.death.at, host.death.rental_id) == ("budget", T0 + 300, "r1")


# -- measured speeds


@pytest.mark.req("VER-09")
def test_a_boot_with_a_large_image_measures_the_network_and_names_its_source() -> None:
    host = lived(planned(DEVEL, down=800.0), SENT, MADE, UP)

    assert host.down is not None
    assert host.down.mbps == 400.0  # 8 GB in 160 s
    assert "guess" in host.down.source
    assert not host.is_slow  # half of its word is enough


def test_a_boot_slower_than_half_of_the_hosts_word_makes_it_slow_and_dearer() -> None:
    host = lived(planned(DEVEL, down=801.0), SENT, MADE, UP, READY)

    assert host.is_slow
    assert host.risk == 0.25
    assert host.history.startswith("400 Mb/s seen of 801 advertised")


@pytest.mark.parametrize(
    ("image", "down", "up_s"), [("my/own", 800.0, 160), (DEVEL, 200.0, 160), (DEVEL, 800.0, 99)]
)
def test_a_boot_that_pulled_nothing_or_too_little_measures_nothing(
    image: str, down: float, up_s: float
) -> None:
    assert lived(planned(image, down), SENT, MADE, at(up_s, ev.InstanceRunning)).down is None


def test_copies_measure_both_ways_when_they_are_large_enough() -> None:
    rental = a_rental(order=planned().order)
    big = ev.Synced(job_id="j", rental_id="r1", at=T0, files=1, bytes=20_000_000, seconds=2.0)
    home = ev.Collected(
        job_id="j", rental_id="r1", at=T0, files=1, bytes=40_000_000, missing=[], seconds=2.0
    )

    down, up = learn({}, big, rental, rental), learn({}, home, rental, rental)

    assert down is not None
    assert up is not None
    assert down.down == Speed(
        mbps=80.0, at=T0, source="a project sent to it, bounded by your own network too"
    )
    assert up.up is not None
    assert up.up.mbps == 160.0
    for poor in (structs.replace(big, bytes=19_999_999), structs.replace(big, seconds=None)):
        assert learn({}, poor, rental, rental) is None


# -- records of an older vastd


def test_the_records_of_an_older_vastd_are_read_for_what_they_tell() -> None:
    fail = structs.replace(planned(), rental_id="r1", phase=Phase.GONE, instance_id=1,
                           ending=a_rental(Phase.GONE).ending, ended_at=T0 + 9)  # fmt: skip
    assert fail.ending is not None
    fail = structs.replace(fail, ending=structs.replace(fail.ending, trigger=Trigger.SSH_FAILED))
    serve = structs.replace(fail, rental_id="r2", ready_at=T0, route="direct")
    never = structs.replace(fail, rental_id="r3", instance_id=None)

    host = of_records({r.rental_id: r for r in (fail, serve, never)})[MACHINE]

    assert (host.rented, host.served, host.failed, host.route) == (2, 1, 1, "direct")
    assert host.block is not None
    assert host.block.until == T0 + BLOCK_S
    assert host.risk == pytest.approx(1 / 3)
    assert LIMITS.attempts == 3
