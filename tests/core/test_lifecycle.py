"""The life of a rental: the table is total and exact, races lost are rows, bugs change nothing."""

from collections import deque

import pytest
from msgspec import structs

from support.builders import INSTANCE_ID, RATE, T0, a_rental, an_ending, sample
from vastd.core import events as ev
from vastd.core import transitions
from vastd.core.lifecycle import evolve
from vastd.core.money import Micros
from vastd.core.rental import Phase, RateSegment, Rental, Trigger
from vastd.core.transitions import TRANSITIONS
from vastd.errors import IllegalTransition

FIRST = (ev.RentalPlanned, ev.RentalAdopted)
NOTES = (
    "billing_changed warned quarantined key_attached policy_changed stop_tried start_tried "
    "lease_renewed lease_asked bid_changed left_over"
)
# Written from DESIGN 4.1, not from the table: what may happen in each phase, and where it leads.
LEGAL = {
    "planned": {"planned": NOTES, "creating": "create_sent", "gone": "end_decided create_refused"},
    "creating": {
        "creating": NOTES + " create_unresolved",
        "booting": "create_confirmed instance_found",
        "destroying": "end_decided",
        "gone": "create_refused found_absent",
    },
    "booting": {
        "booting": NOTES + " create_confirmed instance_found end_decided",
        "verifying": "instance_running",
        "destroying": "destroy_decided",
        "gone": "found_absent released",
    },
    "verifying": {
        "verifying": NOTES + " create_confirmed end_decided",
        "ready": "became_ready",
        "destroying": "destroy_decided",
        "gone": "found_absent released",
    },
    "ready": {
        "ready": NOTES + " became_ready collect_verified collect_failed stop_asked end_decided",
        "busy": "job_began",
        "stopped": "instance_stopped",
        "destroying": "destroy_decided",
        "gone": "found_absent released",
    },
    "busy": {
        "busy": NOTES + " stop_asked end_decided",
        "collecting": "job_left",
        "stopped": "instance_stopped",
        "destroying": "destroy_decided",
        "gone": "found_absent released",
    },
    "collecting": {
        "collecting": NOTES + " stop_asked end_decided",
        "ready": "collect_verified collect_failed",
        "stopped": "instance_stopped",
        "destroying": "destroy_decided",
        "gone": "found_absent released",
    },
    "stopped": {
        "stopped": NOTES
        + " job_left job_went_on collect_verified collect_failed stop_asked start_asked end_decided",
        "ready": "instance_resumed",
        "destroying": "destroy_decided",
        "gone": "found_absent released",
    },
    "destroying": {
        "destroying": NOTES
        + " create_confirmed instance_found create_unresolved became_ready instance_stopped"
        " job_left collect_verified collect_failed end_decided destroy_tried",
        "gone": "create_refused found_absent",
    },
    "gone": {
        "gone": "destroy_tried stop_tried start_tried lease_renewed collect_failed warned quarantined",
        "destroying": "resurfaced",
    },
}


def leads_to(phase: Phase, kind: type[ev.RentalEvent]) -> Phase | None:
    tag = kind.__struct_config__.tag
    found = [target for target, tags in LEGAL[phase].items() if tag in tags.split()]
    assert len(found) <= 1
    return Phase(found[0]) if found else None


PAIRS = [(phase, kind) for phase in Phase for kind in ev.RENTAL_EVENTS if kind not in FIRST]


@pytest.mark.parametrize("phase", Phase)
def test_every_event_leads_where_the_design_says_or_is_illegal_and_changes_nothing(
    phase: Phase,
) -> None:
    for kind in ev.RENTAL_EVENTS:
        if kind in FIRST:
            continue
        rental = a_rental(phase)
        event = sample(kind, at=T0 + 9)
        assert isinstance(event, ev.RentalEvent)
        expected = leads_to(phase, kind)
        if expected is None:
            with pytest.raises(IllegalTransition, match=ev.kind(event)):
                evolve(rental, event)
        else:
            assert evolve(rental, event).phase is expected, kind
        assert rental == a_rental(phase)


def test_the_table_has_a_row_for_every_phase() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert set(LEGAL) == set(map(str, Phase))


def reachable(start: Phase) -> set[Phase]:
    found, todo = {start}, deque([start])
    while todo:
        for target in TRANSITIONS[todo.popleft()].values():
            if target not in found:
                found.add(target)
                todo.append(target)
    return found


def test_every_phase_is_reachable_from_the_first() -> None:
    assert reachable(Phase.PLANNED) == set(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_gone_is_reachable_from_everywhere(phase: Phase) -> None:
    assert Phase.GONE in reachable(phase)


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.GONE])
def test_ending_is_allowed_in_every_phase_that_may_bill(phase: Phase) -> None:
    assert ev.EndDecided in TRANSITIONS[phase]


@pytest.mark.parametrize("kind", FIRST)
def test_only_a_first_event_makes_a_rental_and_only_once(kind: type[ev.RentalEvent]) -> None:
    first = sample(kind)
    assert isinstance(first, ev.RentalEvent)
    made = evolve(None, first)

    assert made.phases == ((made.phase, T0),)
    with pytest.raises(IllegalTransition, match="exists already"):
        evolve(made, first)
    with pytest.raises(IllegalTransition, match="not on record"):
        evolve(None, ev.InstanceRunning(rental_id="r1", at=T0))


def test_every_phase_entered_is_kept_with_its_instant() -> None:
    rental = evolve(a_rental(Phase.BOOTING), ev.InstanceRunning(rental_id="r1", at=T0 + 5))

    assert rental.phases == ((Phase.BOOTING, T0), (Phase.VERIFYING, T0 + 5))
    assert (rental.phase_since, rental.running_at) == (T0 + 5, T0 + 5)


def test_an_event_that_does_not_move_leaves_the_phase_s_start() -> None:
    rental = evolve(a_rental(Phase.BUSY), sample(ev.EndDecided, at=T0 + 5))  # type: ignore[arg-type]

    assert (rental.phase, rental.phase_since) == (Phase.BUSY, T0)


# -- races that are lost


def test_ready_after_the_end_was_decided_stays_destroying() -> None:
    rental = evolve(a_rental(Phase.DESTROYING), sample(ev.BecameReady))  # type: ignore[arg-type]

    assert rental.phase is Phase.DESTROYING


def test_a_late_answer_to_a_create_that_shall_end_teaches_the_id() -> None:
    rental = a_rental(Phase.CREATING, create_unknown=True)
    ended = evolve(rental, sample(ev.EndDecided))  # type: ignore[arg-type]

    late = evolve(ended, sample(ev.CreateConfirmed))  # type: ignore[arg-type]

    assert ended.phase is Phase.DESTROYING
    assert (late.phase, late.instance_id, late.create_unknown) == (
        Phase.DESTROYING, INSTANCE_ID, False,
    )  # fmt: skip


def test_a_listing_may_be_faster_than_the_answer() -> None:
    found = evolve(a_rental(Phase.CREATING), sample(ev.InstanceFound))  # type: ignore[arg-type]

    answered = evolve(found, sample(ev.CreateConfirmed, at=T0 + 3))  # type: ignore[arg-type]

    assert (answered.phase, answered.phase_since) == (Phase.BOOTING, T0)


# -- fields


def test_the_first_cause_of_an_end_stands_and_the_user_can_only_add_to_it() -> None:
    rental = evolve(a_rental(), sample(ev.EndDecided, trigger=Trigger.BUDGET))  # type: ignore[arg-type]

    again = evolve(
        rental,
        ev.EndDecided(
            rental_id="r1", at=T0 + 9, trigger=Trigger.USER, why="now", force=True, collect=False
        ),
    )
    last = evolve(again, sample(ev.EndDecided, trigger=Trigger.IDLE, at=T0 + 10))  # type: ignore[arg-type]

    for held in (again.ending, last.ending):
        assert held is not None
        assert (held.trigger, held.at, held.force, held.collect) == (
            Trigger.BUDGET, T0, True, False,
        )  # fmt: skip


def test_a_real_end_replaces_job_done_with_its_cause_instant_and_reason() -> None:
    rental = a_rental(ending=an_ending(Trigger.JOB_DONE, why="its jobs are done"))

    ended = evolve(
        rental, ev.EndDecided(rental_id="r1", at=T0 + 9, trigger=Trigger.BUDGET, why="b")
    )

    assert ended.ending == an_ending(Trigger.BUDGET, at=T0 + 9, why="b")


@pytest.mark.parametrize(
    ("phase", "trigger"),
    [(Phase.CREATING, Trigger.CREATE_LOST), (Phase.BOOTING, Trigger.VANISHED),
     (Phase.BUSY, Trigger.VANISHED), (Phase.STOPPED, Trigger.VANISHED)],
)  # fmt: skip
def test_an_absence_that_nobody_decided_names_its_cause(phase: Phase, trigger: Trigger) -> None:
    rental = evolve(a_rental(phase), sample(ev.FoundAbsent))  # type: ignore[arg-type]

    assert (rental.phase, rental.end_reason, rental.end_detail) == (
        Phase.GONE, trigger, "2 listings",
    )  # fmt: skip


def test_an_absence_after_a_decision_keeps_its_cause() -> None:
    rental = evolve(a_rental(Phase.DESTROYING), sample(ev.FoundAbsent))  # type: ignore[arg-type]

    assert rental.end_reason is Trigger.USER


def test_a_refusal_is_an_end_and_remembers_that_every_offer_would_be_refused() -> None:
    refused = sample(ev.CreateRefused, why="no credit", stop_all=True)

    rental = evolve(a_rental(Phase.CREATING, create_unknown=True), refused)  # type: ignore[arg-type]

    assert (rental.end_reason, rental.refused_for_all) == (Trigger.CREATE_REFUSED, True)
    assert not rental.create_unknown


def test_gone_closes_the_bill_at_its_instant_and_never_before_it_began() -> None:
    late = (RateSegment(T0, RATE), RateSegment(T0 + 50, Micros(7)))

    gone = evolve(a_rental(Phase.DESTROYING, rates=late), sample(ev.FoundAbsent, at=T0 + 10))  # type: ignore[arg-type]

    assert gone.ended_at == T0 + 10
    assert gone.rates == (*late, RateSegment(T0 + 50, Micros(0)))


def test_a_resurfaced_machine_is_ended_from_the_beginning_and_shouted_about_again() -> None:
    rental = a_rental(
        Phase.GONE,
        destroy_tries=7,
        destroy_tried_at=T0,
        destroy_accepted=True,
        warned=frozenset({"destroy_unconfirmed", "boot_warn"}),
    )

    back = evolve(rental, sample(ev.Resurfaced, at=T0 + 60, instance_id=43))  # type: ignore[arg-type]

    assert (back.phase, back.instance_id, back.ended_at) == (Phase.DESTROYING, 43, None)
    assert (back.destroy_tries, back.destroy_tried_at, back.destroy_accepted) == (0, None, False)
    assert back.warned == {"boot_warn"}


def test_attempts_are_counted_and_the_newest_answer_counts() -> None:
    rental = a_rental(Phase.DESTROYING)
    for at, accepted in ((1.0, True), (2.0, False)):
        rental = evolve(rental, ev.DestroyTried(rental_id="r1", at=T0 + at, accepted=accepted))

    assert (rental.destroy_tries, rental.destroy_accepted) == (2, False)
    assert rental.last_touch_at == T0 + 2


def test_failed_copies_add_up_until_one_is_verified_or_the_machine_runs_again() -> None:
    rental = a_rental(Phase.READY)
    for at in (1.0, 2.0):
        rental = evolve(rental, ev.CollectFailed(rental_id="r1", at=T0 + at, why="x"))
    verified = evolve(rental, sample(ev.CollectVerified))  # type: ignore[arg-type]
    stopped = evolve(rental, sample(ev.InstanceStopped))  # type: ignore[arg-type]
    resumed = evolve(stopped, sample(ev.InstanceResumed))  # type: ignore[arg-type]

    assert (rental.collect_failures, rental.collect_failed_at) == (2, T0 + 2)
    assert (verified.collect_failures, verified.collect_failed_at) == (0, None)
    assert (stopped.collect_failures, resumed.collect_failures) == (2, 0)  # a new chance


def test_a_rate_dated_before_the_last_one_replaces_it() -> None:
    rental = a_rental(rates=(RateSegment(T0, RATE), RateSegment(T0 + 100, Micros(5))))

    changed = evolve(
        rental,
        ev.BillingChanged(rental_id="r1", at=T0 + 200, since=T0 + 50, rate=Micros(9)),
    )

    assert changed.rates == (RateSegment(T0, RATE), RateSegment(T0 + 50, Micros(9)))


def test_only_what_was_sent_and_is_not_gone_may_have_an_instance() -> None:
    may = {phase for phase in Phase if a_rental(phase).may_have_instance}

    assert may == set(Phase) - {Phase.PLANNED, Phase.GONE}


def test_the_table_prints_as_a_graph_of_its_moves() -> None:
    drawn = transitions.dot()

    assert drawn.startswith("digraph rental {")
    assert '  creating -> booting [label="create_confirmed"];' in drawn
    assert "ready -> ready" not in drawn


def test_a_life_from_plan_to_proof() -> None:
    rental: Rental | None = None
    planned = sample(ev.RentalPlanned)
    life = [
        planned,
        *(sample(kind) for kind in (
            ev.CreateSent, ev.CreateConfirmed, ev.InstanceRunning, ev.BecameReady, ev.JobBegan,
            ev.JobLeft, ev.CollectVerified, ev.EndDecided, ev.DestroyDecided, ev.DestroyTried,
            ev.FoundAbsent,
        )),
    ]  # fmt: skip
    for number, event in enumerate(life):
        assert isinstance(event, ev.RentalEvent)
        rental = evolve(rental, structs.replace(event, at=T0 + number))

    assert rental is not None
    assert [phase for phase, _ in rental.phases] == [
        "planned", "creating", "booting", "verifying", "ready", "busy", "collecting", "ready",
        "destroying", "gone",
    ]  # fmt: skip
