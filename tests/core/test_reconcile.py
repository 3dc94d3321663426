"""Reconciling with a complete listing: proofs, claims, bills and boots, to the second."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from support.builders import INSTANCE_ID, LIMITS, OTHER, OWNER, RATE, T0, a_rental, a_row, an_ending
from vastd.core import events as ev
from vastd.core import reconcile
from vastd.core.lifecycle import evolve
from vastd.core.limits import LABEL_SEARCH_S, LATE_ARRIVAL_S
from vastd.core.market import Instance
from vastd.core.money import Micros
from vastd.core.observed import Inventory, Sighting, World
from vastd.core.reconcile import Diff, next_listing_at
from vastd.core.rental import Order, Pause, Phase, Policy, RateSegment, Rental, Trigger

STORAGE = Micros(3_600)


class Account:
    """One rental and the world, listed again and again."""

    def __init__(self, rental: Rental) -> None:
        self.rental = rental
        self.world = World(watching_since=T0)

    def list(self, begun_at: float, *rows: Instance, took_s: float = 1.0) -> list[str]:
        """Apply a listing begun `begun_at` seconds after T0; return the kinds of its events."""
        found = self.diff(begun_at, rows, took_s)
        self.world = found.world
        for event in found.events:
            self.rental = evolve(self.rental, event)
        return [ev.kind(event) for event in found.events]

    def diff(self, begun_at: float, rows: Sequence[Instance], took_s: float = 1.0) -> Diff:
        return reconcile.diff(
            {self.rental.rental_id: self.rental}, self.world, rows, owner8=OWNER,
            begun_at=T0 + begun_at, now=T0 + begun_at + took_s, limits=LIMITS,
        )  # fmt: skip

    @property
    def seen(self) -> Sighting:
        return self.world.of(self.rental.rental_id)


# -- absence


def test_two_listings_prove_the_end_and_the_first_begins_after_the_settle_time() -> None:
    account = Account(a_rental(Phase.DESTROYING, destroy_tried_at=T0, destroy_accepted=True))

    assert account.list(29.9) == []
    assert account.list(30.0) == []
    assert account.list(32.0) == ["found_absent"]
    assert account.rental.phase is Phase.GONE


@pytest.mark.parametrize(
    ("accepted", "listings", "until"),
    [
        (True, ((20, False),), 21.0),  # the end of the first listing without it
        (True, ((5, True), (20, False), (25, False)), 21.0),
        (True, ((5, False), (10, True), (20, False)), 21.0),  # it flickered, and billed on
        (True, ((20, False), (35, True)), 41.0),  # it was still there
        (True, ((-5, False), (5, True)), 41.0),  # from before the destroy
        (True, ((-5, False),), 41.0),
        (True, (), 41.0),
        (False, ((20, False),), 43.0),  # nobody said that it ends: only the proof counts
    ],
)
def test_a_bill_ends_with_the_first_listing_without_it_once_its_end_was_accepted_and_proven(
    accepted: bool, listings: tuple[tuple[float, bool], ...], until: float
) -> None:
    account = Account(a_rental(Phase.DESTROYING, destroy_tried_at=T0, destroy_accepted=accepted))
    for at, there in listings:
        account.list(at, *((a_row(),) if there else ()))

    account.list(40.0)
    assert account.list(42.0) == ["found_absent"]

    assert account.rental.rates[-1] == RateSegment(T0 + until, Micros(0))
    assert account.rental.ended_at == T0 + 43


def test_the_bill_of_a_machine_that_vanished_ends_with_the_proof() -> None:
    account = Account(a_rental(Phase.BUSY))
    for at in (100, 120, 140):
        account.list(at)

    assert account.rental.rates[-1] == RateSegment(T0 + 141, Micros(0))


@pytest.mark.parametrize("phase", [Phase.BOOTING, Phase.VERIFYING, Phase.READY, Phase.BUSY,
                                   Phase.COLLECTING, Phase.STOPPED])  # fmt: skip
def test_a_machine_nobody_ended_needs_three_listings(phase: Phase) -> None:
    account = Account(a_rental(phase))

    assert [account.list(at) for at in (100, 120)] == [[], []]
    assert account.list(140) == ["found_absent"]
    assert account.rental.end_reason is Trigger.VANISHED


def test_a_row_that_flickers_begins_the_count_anew() -> None:
    account = Account(a_rental(Phase.BUSY))
    for at, rows in ((100, ()), (120, ()), (140, (a_row(),)), (160, ()), (180, ())):
        assert "found_absent" not in account.list(at, *rows)

    assert account.list(200) == ["found_absent"]


def test_absences_from_before_a_destroy_prove_nothing_about_what_came_after() -> None:
    """Two listings without the row, then a destroy, then only failing listings for a while."""
    account = Account(a_rental(Phase.BUSY))
    account.list(100)
    account.list(120)
    account.rental = structs.replace(
        account.rental, phase=Phase.DESTROYING, ending=an_ending(), destroy_tried_at=T0 + 130
    )

    assert account.list(300) == []
    assert account.list(302) == ["found_absent"]


def test_another_destroy_moves_the_proof_away() -> None:
    account = Account(a_rental(Phase.DESTROYING, destroy_tried_at=T0))
    account.list(40)
    account.rental = structs.replace(account.rental, destroy_tried_at=T0 + 41)

    assert [account.list(at) for at in (60, 71)] == [[], []]
    assert account.list(73) == ["found_absent"]


def test_a_create_without_an_answer_is_looked_for_at_least_two_minutes() -> None:
    account = Account(a_rental(Phase.CREATING, create_unknown=True))

    assert [account.list(at) for at in (40, 60, 80, 100, LABEL_SEARCH_S - 0.1)] == [[]] * 5
    assert account.list(LABEL_SEARCH_S) == ["found_absent"]
    assert account.rental.end_reason is Trigger.CREATE_LOST


def test_a_create_whose_answer_is_still_to_come_is_never_called_lost() -> None:
    account = Account(a_rental(Phase.CREATING, create_unknown=False))

    assert [account.list(at) for at in (50, 150, 250, 9_999)] == [[]] * 4


def test_what_was_never_sent_is_not_proven_away() -> None:
    account = Account(a_rental(Phase.PLANNED))

    assert [account.list(at) for at in (50, 150, 250, 999)] == [[]] * 4
    assert account.seen.absences == 0


# -- presence and claims


@pytest.mark.parametrize(
    ("phase", "target"),
    [(Phase.CREATING, Phase.BOOTING), (Phase.DESTROYING, Phase.DESTROYING)],
)
def test_a_label_teaches_the_id_of_a_create_without_an_answer(phase: Phase, target: Phase) -> None:
    account = Account(a_rental(phase, instance_id=None, create_unknown=True, rates=()))

    kinds = account.list(90, a_row("loading"))

    assert kinds == ["instance_found", "billing_changed"]
    assert (account.rental.phase, account.rental.instance_id) == (target, INSTANCE_ID)


def test_found_running_is_found_and_running_in_one_listing() -> None:
    account = Account(a_rental(Phase.CREATING, rates=()))

    assert account.list(90, a_row()) == ["instance_found", "billing_changed", "instance_running"]
    assert account.rental.phase is Phase.VERIFYING


@pytest.mark.parametrize(
    "label", [None, "mine", f"vastd-{OTHER}-r1", f"vastd-{OWNER}-r1 renamed", "vastd-own0001-r1"]
)
def test_a_row_without_our_claim_is_foreign_and_nothing_is_done(label: str | None) -> None:
    account = Account(a_rental(Phase.CREATING, rates=()))

    found = account.diff(10, [a_row(label=label)])

    assert (found.events, found.surplus) == ((), ())
    assert [row.instance_id for row in found.world.inventory.foreign] == [INSTANCE_ID]


def test_our_instance_stays_ours_when_somebody_renames_it() -> None:
    account = Account(a_rental(Phase.READY))

    found = account.diff(10, [a_row(label="renamed")])

    assert found.world.inventory.foreign == ()
    assert found.world.of("r1").seen_begun_at == T0 + 10


def test_our_claim_without_a_record_is_an_orphan_not_foreign_and_not_ended() -> None:
    account = Account(a_rental(Phase.READY))

    found = account.diff(10, [a_row(), a_row(instance_id=77, label=f"vastd-{OWNER}-r9")])

    assert [row.instance_id for row in found.world.inventory.orphans] == [77]
    assert found.surplus == ()


def test_a_second_instance_with_the_same_claim_is_surplus() -> None:
    account = Account(a_rental(Phase.READY))
    second = a_row(instance_id=77)

    assert account.diff(10, [a_row(), second]).surplus == (77,)
    unknown = Account(a_rental(Phase.CREATING, rates=()))
    assert unknown.diff(10, [a_row(), second]).surplus == (77,)


@pytest.mark.parametrize(
    ("after_s", "expected"),
    [(LATE_ARRIVAL_S - 10, ["resurfaced"]), (LATE_ARRIVAL_S, [])],
)
def test_a_late_arrival_is_ended_on_sight_for_a_day(after_s: float, expected: list[str]) -> None:
    """The create was called lost, and no id was ever learnt."""
    account = Account(a_rental(Phase.GONE, instance_id=None))

    assert account.list(after_s, a_row()) == expected
    assert len(account.world.inventory.orphans) == (0 if expected else 1)


def test_an_instance_proven_gone_that_shows_again_is_ended_again_and_billed() -> None:
    account = Account(a_rental(Phase.GONE))

    assert account.list(500, a_row()) == ["resurfaced"]
    assert account.list(520, a_row()) == ["billing_changed"]
    assert account.rental.phase is Phase.DESTROYING
    assert account.rental.rates[-1].rate == RATE


def test_pages_of_a_listing_speak_for_the_instant_it_began() -> None:
    account = Account(a_rental(Phase.READY))

    account.list(10, a_row(), took_s=50)

    assert (account.seen.seen_begun_at, account.world.inventory.as_of) == (T0 + 10, T0 + 10)


def test_what_is_gone_is_forgotten_and_what_is_foreign_is_never_kept() -> None:
    account = Account(a_rental(Phase.GONE))
    account.list(10)

    assert account.world.sightings == {}


# -- billing


def test_a_dearer_rate_is_dated_back_to_the_listing_before() -> None:
    account = Account(a_rental(Phase.BOOTING, rates=(RateSegment(T0, STORAGE),)))
    account.list(20, a_row("loading"))

    account.list(40, a_row("running"), took_s=3)

    assert account.rental.rates == (RateSegment(T0, STORAGE), RateSegment(T0 + 20, RATE))


def test_a_cheaper_rate_is_dated_to_the_end_of_the_listing_that_showed_it() -> None:
    account = Account(a_rental(Phase.BUSY))
    account.list(20, a_row())

    account.list(40, a_row("exited"), took_s=3)

    assert account.rental.rates == (RateSegment(T0, RATE), RateSegment(T0 + 43, STORAGE))


def test_after_a_restart_a_dearer_rate_is_dated_back_to_the_last_one_known() -> None:
    account = Account(a_rental(Phase.BUSY, rates=(RateSegment(T0 + 5, STORAGE),)))

    account.list(1000, a_row())

    assert account.rental.rates == (RateSegment(T0 + 5, RATE),)


def test_the_first_rate_counts_from_the_create() -> None:
    account = Account(a_rental(Phase.CREATING, rates=()))

    account.list(90, a_row())

    assert account.rental.rates == (RateSegment(T0, RATE),)


def test_the_same_rate_is_no_event() -> None:
    account = Account(a_rental(Phase.READY))

    assert [account.list(at, a_row()) for at in (10, 30, 50)] == [[]] * 3


# -- boot, stop, resume


@pytest.mark.parametrize("status", ["exited", "offline", "unknown"])
def test_a_dead_boot_is_believed_at_the_second_reading(status: str) -> None:
    account = Account(a_rental(Phase.BOOTING))
    row = a_row(status, status_msg="no luck")

    assert "end_decided" not in account.list(20, row)
    assert "end_decided" in account.list(40, row)
    assert account.rental.end_reason is Trigger.BOOT_FAILED
    assert "no luck" in (account.rental.end_detail or "")


@pytest.mark.parametrize(
    "said",
    ["Error: OCI runtime create failed: x", "GPU error, unable to start instance.",
     "manifest unknown", "pull access denied for x", "no space left on device", "unauthorized: x"],
)  # fmt: skip
def test_a_fatal_message_is_believed_when_it_stands_twice(said: str) -> None:
    account = Account(a_rental(Phase.BOOTING))
    for at in (20, 40, 60):
        account.list(at, a_row("loading", status_msg="Pulling"))

    assert account.list(80, a_row("loading", status_msg=said)) == []
    assert account.list(100, a_row("loading", status_msg=said)) == ["end_decided"]


def test_a_message_that_passes_and_an_unknown_status_end_nothing() -> None:
    account = Account(a_rental(Phase.BOOTING, rates=(RateSegment(T0, STORAGE),)))
    account.list(20, a_row("loading", status_msg="manifest unknown"))

    assert account.list(40, a_row("loading", status_msg="retrying")) == []
    for at in (60, 80, 100, 120):
        assert "end_decided" not in account.list(at, a_row("a word of next year"))
    assert "instance_running" in account.list(140, a_row())


def test_a_machine_stopped_before_it_ran_is_a_failed_boot() -> None:
    account = Account(a_rental(Phase.BOOTING))
    row = a_row("created", intended_status="stopped")

    account.list(20, row)

    assert account.list(40, row) == ["end_decided"]


@pytest.mark.parametrize(
    ("rental", "row", "why"),
    [
        (a_rental(Phase.BOOTING), a_row("loading", is_bid=True), "ordered on-demand, got interr"),
        (
            a_rental(
                Phase.BOOTING,
                order=Order(offer=a_rental().order.offer, image="i", disk_gb=5.0, bid=RATE),
            ),
            a_row("loading", is_bid=False),
            "ordered interruptible, got on-demand",
        ),
        (
            a_rental(Phase.BOOTING, policy=Policy(max_dph=Micros(RATE - 1))),
            a_row("loading"),
            "0.3600 $/h, over the cap",
        ),
    ],
)
def test_what_was_not_ordered_is_ended_before_it_runs(
    rental: Rental, row: Instance, why: str
) -> None:
    account = Account(rental)

    assert "end_decided" in account.list(20, row)
    assert account.rental.end_reason is Trigger.WRONG_ORDER
    assert why in (account.rental.end_detail or "")


def test_missing_fields_prove_no_wrong_order() -> None:
    account = Account(a_rental(Phase.BOOTING, policy=Policy(max_dph=Micros(1))))

    assert "end_decided" not in account.list(20, a_row("loading", is_bid=None, dph=None))


@pytest.mark.parametrize("phase", [Phase.READY, Phase.BUSY, Phase.COLLECTING])
@pytest.mark.parametrize("row", [a_row("exited"), a_row("stopped"),
                                 a_row("offline", intended_status="stopped")])  # fmt: skip
def test_a_stop_is_believed_at_the_third_reading(phase: Phase, row: Instance) -> None:
    account = Account(a_rental(phase))

    assert "instance_stopped" not in account.list(20, row) + account.list(40, row)
    assert account.list(60, row) == ["instance_stopped"]


def test_a_host_out_of_contact_is_not_a_stopped_one() -> None:
    account = Account(a_rental(Phase.BUSY))

    for at in range(20, 400, 20):
        assert "instance_stopped" not in account.list(at, a_row("offline"))


def test_a_stopped_machine_that_runs_again_is_resumed_at_once() -> None:
    account = Account(a_rental(Phase.STOPPED))

    assert account.list(20, a_row()) == ["instance_resumed"]


def test_a_stop_we_asked_for_is_believed_at_the_first_reading_after_it_was_accepted() -> None:
    wished = a_rental(pause=Pause(at=T0, why="lunch"), stop_tried_at=T0 + 30, stop_accepted=True)
    account = Account(wished)

    assert account.list(20, a_row("exited")) == ["billing_changed"]
    assert account.list(30, a_row("exited")) == ["instance_stopped"]


def test_one_late_row_does_not_undo_a_stop_that_vast_accepted() -> None:
    stopped = a_rental(
        Phase.STOPPED, pause=Pause(at=T0, why="lunch"), stop_tried_at=T0, stop_accepted=True
    )
    account = Account(stopped)
    account.list(10, a_row("exited"))

    assert "instance_resumed" not in account.list(20, a_row("running"))
    assert account.list(30, a_row("exited")) == ["billing_changed"]
    for at in (40, 50, 60):
        account.list(at, a_row("running"))
    assert account.rental.phase is Phase.READY  # somebody started it elsewhere


def test_a_machine_that_stood_still_was_neither_silent_nor_idle() -> None:
    account = Account(a_rental(Phase.STOPPED))
    account.list(10, a_row("exited", gpu_util=0.0))
    seen = structs.replace(account.seen, unreachable_since=T0 + 5)
    account.world = structs.replace(account.world, sightings={account.rental.rental_id: seen})

    account.list(20, a_row("exited", gpu_util=0.0))
    assert (account.seen.unreachable_since, account.seen.quiet_since) == (T0 + 5, T0 + 10)
    account.list(30, a_row("running", gpu_util=0.0))

    assert (account.seen.unreachable_since, account.seen.quiet_since) == (None, T0 + 30)


def test_quiet_begins_with_an_idle_reading_and_only_a_busy_one_ends_it() -> None:
    account = Account(a_rental(Phase.READY))
    quiet = []
    for at, util in ((10, 50.0), (30, 4.9), (50, None), (70, 0.0), (90, 5.0)):
        account.list(at, a_row(gpu_util=util))
        quiet.append(account.seen.quiet_since)

    assert quiet == [None, T0 + 30, T0 + 30, T0 + 30, None]


# -- when to list next


@pytest.mark.parametrize(
    ("rental", "seen", "due_s"),
    [
        (a_rental(Phase.PLANNED), Sighting(), 60),
        (a_rental(Phase.CREATING), Sighting(), 20),
        (a_rental(Phase.BOOTING), Sighting(), 20),
        (a_rental(Phase.VERIFYING), Sighting(), 20),
        (a_rental(Phase.READY), Sighting(), 60),
        (a_rental(Phase.BUSY), Sighting(), 60),
        (a_rental(Phase.STOPPED), Sighting(), 60),
        (a_rental(Phase.COLLECTING), Sighting(), 20),
        (a_rental(Phase.GONE), Sighting(), 60),
        (a_rental(Phase.DESTROYING, destroy_tried_at=T0 - 15), Sighting(), 20),
        # accepted: at the settle time, and not sooner than 2 s after the listing before
        (a_rental(Phase.DESTROYING, destroy_tried_at=T0 - 15, create_sent_at=T0 - 99,
                  destroy_accepted=True), Sighting(), 15),
        (a_rental(Phase.DESTROYING, destroy_tried_at=T0 - 60, create_sent_at=T0 - 99,
                  destroy_accepted=True), Sighting(), 2),
        (a_rental(Phase.DESTROYING, destroy_tried_at=T0 - 60, create_sent_at=T0 - 99,
                  destroy_accepted=True), Sighting(seen_begun_at=T0 - 20), 20),
    ],
)  # fmt: skip
def test_the_next_listing_begins_exactly_when_it_can_teach_something(
    rental: Rental, seen: Sighting, due_s: float
) -> None:
    world = World(sightings={"r1": seen})

    assert next_listing_at([rental], world, LIMITS, T0) == T0 + due_s


def test_one_listing_serves_the_most_urgent_rental() -> None:
    rentals = [a_rental(Phase.READY), a_rental(Phase.BOOTING, rental_id="r2")]

    assert next_listing_at(rentals, World(), LIMITS, T0) == T0 + 20


# -- the three values of the inventory


@pytest.mark.parametrize(
    ("inventory", "now_s", "state"),
    [
        (Inventory(), 0, "unknown"),
        (Inventory(error="410"), 0, "unknown"),
        (Inventory(as_of=T0), 60, "fresh"),
        (Inventory(as_of=T0), 61, "stale"),
        (Inventory(as_of=T0, error="410"), 60, "stale"),
        (Inventory(as_of=T0, error="410"), 61, "unknown"),
    ],
)
def test_an_inventory_is_fresh_stale_or_unknown(
    inventory: Inventory, now_s: float, state: str
) -> None:
    assert inventory.state(T0 + now_s, 60.0) == state


def test_a_complete_listing_ends_a_failure() -> None:
    account = Account(a_rental(Phase.READY))
    failing = Inventory(as_of=T0, error="410", failing_since=T0, auth_failed=True)
    account.world = structs.replace(account.world, inventory=failing)

    account.list(10, a_row())

    assert account.world.inventory == Inventory(as_of=T0 + 10)
