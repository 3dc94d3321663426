"""What is old goes in small steps; what bills, is not home, or is money stays."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from support.builders import T0, a_job, a_rental
from vastd.core import billing, retention
from vastd.core import events as ev
from vastd.core.job import Job, JobState
from vastd.core.money import Micros
from vastd.core.rental import Phase, RateSegment, Rental
from vastd.store import retention as stored
from vastd.store.store import Store, opened

DAY = 86_400.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as found:
        yield found


def gone(rental_id: str, ended_at: float = T0, **fields: object) -> Rental:
    return structs.replace(a_rental(Phase.GONE, rental_id=rental_id), ended_at=ended_at, **fields)  # type: ignore[arg-type]


def done(job_id: str, rental_id: str | None, ended_at: float = T0, **fields: object) -> Job:
    job = a_job(JobState.SUCCEEDED, job_id=job_id)
    return structs.replace(job, rental_id=rental_id, ended_at=ended_at, **fields)  # type: ignore[arg-type]


def names(rentals: list[Rental], jobs: list[Job], before: float) -> tuple[list[str], list[str]]:
    found = retention.outdated(
        {r.rental_id: r for r in rentals}, {j.job_id: j for j in jobs}, before
    )
    return [r.rental_id for r in found.rentals], [j.job_id for j in found.jobs]


def test_what_ended_before_goes_and_what_ended_after_stays() -> None:
    rentals = [gone("r1"), gone("r2", T0 + 10)]
    jobs = [done("j1", "r1"), done("j2", "r2", T0 + 9)]

    assert names(rentals, jobs, T0 + 5) == (["r1"], ["j1"])
    assert names(rentals, jobs, T0) == ([], [])
    assert names(rentals, jobs, T0 + 11) == (["r1", "r2"], ["j1", "j2"])


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.GONE])
def test_nothing_of_a_rental_that_may_bill_goes(phase: Phase) -> None:
    old = structs.replace(a_rental(phase, rental_id="r1"), phase_since=T0)

    assert names([old], [done("j1", "r1")], T0 + 999 * DAY) == ([], [])
    assert names([old], [], T0 + 999 * DAY) == ([], [])


def test_a_rental_stays_while_a_kept_job_tells_of_it() -> None:
    rentals = [gone("r1"), gone("r2", T0 + 10)]

    assert names(rentals, [done("j1", "r1", T0 + 10)], T0 + 5) == ([], [])
    assert names(rentals, [structs.replace(done("j1", None), state=JobState.RUNNING, rental_id="r1")],
                 T0 + 99) == (["r2"], [])  # fmt: skip


def test_the_days_of_a_bill_add_up_to_the_bill() -> None:
    start = (T0 // DAY) * DAY + DAY - 1800.0  # half an hour before midnight, UTC
    rates = (
        RateSegment(start, Micros(333_333)),
        RateSegment(start + 5000, Micros(7)),
        RateSegment(start + 2 * DAY, Micros(0)),
    )
    rental = gone("r1", start + 2 * DAY, rates=rates, project="/p")
    other = gone("r2", start + 60, rates=(RateSegment(start, Micros(1_000_000)),), project="/p")

    found = retention.per_day([rental, other])

    assert sum(found.values()) == sum(billing.cost(r, T0 + 99 * DAY if r is rental else start + 60)
                                      for r in (rental, other))  # fmt: skip
    assert len(found) == 3
    assert all(project == "/p" for _, project in found)


def test_dropped_records_leave_their_money_and_say_until_when(store: Store) -> None:
    rentals, jobs = [gone("r1"), gone("r2")], [done("j1", "r1")]
    store.write([], rentals, jobs)
    assert stored.pruned(store).records_before is None

    stored.drop_records(store, ["r1"], ["j1"], {("2027-01-15", "/p"): Micros(5)}, T0 + 7)
    stored.drop_records(store, ["r2"], [], {("2027-01-15", "/p"): Micros(6)}, T0 + 3)

    assert (store.rentals(), store.jobs()) == ([], [])
    assert stored.kept_costs(store) == {("2027-01-15", "/p"): Micros(11)}
    assert stored.pruned(store).records_before == T0 + 7


def test_events_go_in_steps_but_not_those_of_what_is_live(store: Store) -> None:
    old = [ev.InstanceRunning(rental_id="r-gone", at=T0 + n) for n in range(1200)]
    live = [ev.InstanceRunning(rental_id="r-live", at=T0)]
    active = [ev.CancelAsked(job_id="j-active", at=T0)]
    store.write(
        [*live, *active, *old],
        [gone("r-gone"), a_rental(Phase.BUSY, rental_id="r-live")],
        [a_job(JobState.RUNNING, job_id="j-active")],
    )

    steps = [stored.drop_events(store, T0 + 1100) for _ in range(4)]

    assert steps == [500, 500, 100, 0]
    assert [s.event for s in store.events_after(0, 9999)] == [*live, *active, *old[1100:]]
    assert stored.pruned(store).events_before == T0 + 1100
    assert store.last_cursor() == 1202


def test_a_cursor_never_comes_again_although_everything_was_dropped(store: Store) -> None:
    (first,) = store.write([ev.CancelAsked(job_id="j", at=T0)], [], [])
    assert stored.drop_events(store, T0 + 1) == 1
    (second,) = store.write([ev.CancelAsked(job_id="j", at=T0)], [], [])

    assert (first, second) == (1, 2)


def test_an_answer_is_kept_for_a_week(store: Store) -> None:
    store.put_answer("q1", "job.submit", b"one")

    assert stored.drop_answers(store, time.time() + stored.ANSWERS_KEPT_S - 60) == 0
    assert stored.drop_answers(store, time.time() + stored.ANSWERS_KEPT_S + 60) == 1
    assert store.answer("q1") is None
