"""The report: exact sums however it is cut, the disk's share, and what was wasted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from support.builders import RATE, T0, a_job, a_rental, an_ending
from support.offer_builders import an_offer
from vastd.core import billing, costs
from vastd.core.cost_spans import Kind
from vastd.core.costs import By
from vastd.core.job import Attempt, Job, JobState
from vastd.core.money import Micros
from vastd.core.rental import Order, Phase, RateSegment, Rental, Trigger
from vastd.core.spending import EVER, Window, day_of

DAY_S = 86_400.0
DISK = Micros(3600)  # a micro-dollar a second


def a_life(rental_id: str = "r1", *, since: float = T0, gpus: int = 1, **changes: object) -> Rental:
    """Booted for 100 s on the disk's price, ran for 1,000 s, stopped for 500 s, then gone."""
    rates = ((0, DISK), (100, RATE), (1100, DISK), (1600, Micros(0)))
    phases = ((Phase.PLANNED, 0), (Phase.CREATING, 0), (Phase.BOOTING, 0), (Phase.VERIFYING, 100),
              (Phase.READY, 150), (Phase.STOPPED, 1100), (Phase.GONE, 1600))  # fmt: skip
    fields = {
        "rental_id": rental_id,
        "name": rental_id,
        "order": Order(offer=an_offer(7, dph=RATE, num_gpus=gpus), image="sim/image", disk_gb=50.0),
        "rates": tuple(RateSegment(since + at, rate) for at, rate in rates),
        "phases": tuple((phase, since + at) for phase, at in phases),
        "ended_at": since + 1600,
        "ending": an_ending(Trigger.JOB_DONE, at=since + 1600),
        "purpose": "interactive",
        **changes,
    }
    return a_rental(Phase.GONE, **fields)


def report(rentals: list[Rental], by: By, window: Window = EVER, now: float = T0 + 9999):  # type: ignore[no-untyped-def]
    found = costs.parts(rentals, [], window, now, daily=by is By.DAY)
    return costs.rows(found, by), costs.total(found)


def test_the_disks_time_is_told_apart_from_the_gpus() -> None:
    (row,), whole = report([a_life(gpus=2)], By.RENTAL)

    assert (row.cost, row.storage, row.waste) == (100 + 100_000 + 500, 500, 0)
    assert row.kinds == {
        Kind.LOADING: 100, Kind.SETUP: 5_000, Kind.IDLE: 95_000, Kind.STORAGE: 500,
    }  # fmt: skip
    assert (row.billed_s, row.gpu_s) == (1600, 2000)
    assert structs.replace(whole, key="r1", label="r1") == row


def test_days_are_of_utc_oldest_first_and_a_cut_day_keeps_its_name() -> None:
    midnight = day_of(T0).until
    life = a_life(since=midnight - 600)

    rows, _ = report([life], By.DAY, now=midnight + DAY_S)
    cut, _ = report([life], By.DAY, Window(midnight - 300), midnight + DAY_S)

    assert [(row.key, row.cost) for row in rows] == [
        ("2027-01-15", 100 + 500 * 100),
        ("2027-01-16", 500 * 100 + 500),
    ]
    assert [(row.key, row.cost) for row in cut] == [
        ("2027-01-15", 300 * 100),
        ("2027-01-16", 500 * 100 + 500),
    ]


def test_other_rows_come_dearest_first_under_the_name_a_user_knows() -> None:
    cheap = a_life("r1", project="/home/me/lab", name="train")
    dear = [a_life("r2", project=None), a_life("r3", project=None)]

    projects, _ = report([cheap, *dear], By.PROJECT)
    gpus, _ = report([cheap, *dear], By.GPU)
    machines, _ = report([cheap, *dear], By.RENTAL)

    assert [(row.label, row.rentals) for row in projects] == [("no project", 2), ("lab", 1)]
    assert [(row.key, row.rentals) for row in gpus] == [(cheap.order.offer.gpu_name, 3)]
    assert [row.label for row in machines] == ["train", "r2", "r3"]


@pytest.mark.req("BUD-14")
def test_a_failed_attempt_is_waste_and_nothing_when_billing_never_began() -> None:
    failed = a_life("r1", ending=an_ending(Trigger.BOOT_OVERDUE))
    refused = a_life("r2", ending=an_ending(Trigger.CREATE_REFUSED), rates=())
    lost = a_life("r3", ending=an_ending(Trigger.VANISHED))
    tried = Attempt(rental_id="r3", offer_id=1, machine_id=1, began_at=T0, reason="vanished")
    job = a_job(JobState.QUEUED, rental_id=None, attempts=(tried,))

    found = costs.parts([failed, refused, lost, a_life("r4")], [job], EVER, T0 + 9999, daily=False)

    assert {part.rental.rental_id: part.waste for part in found} == {
        "r1": 100_600, "r3": 100_600, "r4": 0,
    }  # fmt: skip


@pytest.mark.req("BUD-14")
@pytest.mark.parametrize(
    ("job", "wasted"),
    [
        (a_job(JobState.FAILED, collected=False, collect_final=True), True),
        (a_job(JobState.SUCCEEDED, collected=False, collect_final=True), True),
        (a_job(JobState.FAILED, collected=False), False),  # the copy is tried again
        (a_job(JobState.FAILED, collected=True), False),
        (a_job(JobState.CANCELLED, collected=False, collect_final=True), False),  # given up
        (a_job(JobState.FAILED, collected=False, collect_final=True, rents=False), False),
    ],
)
def test_a_machine_that_took_the_results_of_its_job_along_was_paid_in_vain(
    job: Job, wasted: bool
) -> None:
    assert costs.failed_on(job) == ({"r1"} if wasted else set())


@given(
    st.lists(
        st.tuples(
            st.floats(0, 5 * DAY_S),
            st.lists(st.tuples(st.floats(1, 2 * DAY_S), st.integers(0, 4_000_000)), max_size=4),
            st.sampled_from(["/a", "/b", None]),
        ),
        max_size=5,
    ),
    st.floats(0, 9 * DAY_S),
    st.one_of(st.none(), st.floats(1, 6 * DAY_S)),
)
def test_however_it_is_cut_the_rows_add_up_to_the_bills_exactly(
    lives: list[tuple[float, list[tuple[float, int]], str | None]], later: float, back: float | None
) -> None:
    now, rentals = T0 + later, []
    for number, (offset, parts, project) in enumerate(lives):
        since, rates = T0 + offset, []
        for length, rate in parts:
            rates.append(RateSegment(since, Micros(rate)))
            since += length
        rentals.append(
            a_rental(rental_id=f"r{number}", project=project, rates=tuple(rates),
                     phases=((Phase.BOOTING, T0 + offset), (Phase.READY, T0 + offset + 50)))
        )  # fmt: skip
    window = EVER if back is None else Window(now - back)
    bills = sum(billing.cost(r, now) - billing.cost(r, window.start) for r in rentals)

    for by in By:
        rows, whole = report(rentals, by, window, now)
        assert sum(row.cost for row in rows) == whole.cost == bills
        assert sum(row.storage for row in rows) == whole.storage <= whole.cost
        assert all(sum(row.kinds.values()) == row.cost >= row.waste for row in [*rows, whole])
        assert all(row.gpu_s <= row.billed_s * 8 + 1e-6 for row in rows)
