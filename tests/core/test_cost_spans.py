"""What the money of a machine was spent on: exact, without gap, and what of it was wasted."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import T0, a_job, a_rental, an_ending
from vastd.core import billing, cost_spans
from vastd.core.cost_spans import Kind, pieces, spans
from vastd.core.job import Job, JobState
from vastd.core.money import Micros
from vastd.core.rental import Phase, Policy, RateSegment, Rental, Trigger
from vastd.core.setup import Setup
from vastd.core.spending import Window

HOUR_RATE = Micros(3_600_000)  # a dollar an hour: a thousand micro-dollars a second


def a_life(*phases: tuple[Phase, float], rate: Micros = HOUR_RATE, **changes: object) -> Rental:
    fields: dict[str, object] = {
        "phases": tuple((phase, T0 + at) for phase, at in phases),
        "rates": (RateSegment(T0 + phases[0][1], rate),),
    }
    return a_rental(phases[-1][0], **{**fields, **changes})


def told(rental: Rental, jobs: list[Job], now: float) -> list[tuple[str, float, float]]:
    return [(s.kind, s.since - T0, s.until - T0) for s in spans(rental, jobs, T0 + now)]


MAIN = (
    (Phase.PLANNED, 0), (Phase.CREATING, 0), (Phase.BOOTING, 2), (Phase.VERIFYING, 100),
    (Phase.READY, 120), (Phase.BUSY, 150), (Phase.COLLECTING, 1150), (Phase.READY, 1180),
    (Phase.DESTROYING, 1181), (Phase.GONE, 1220),
)  # fmt: skip


def the_job(**changes: object) -> Job:
    fields = {"submitted_at": T0 - 5, "sync_at": T0 + 121, "started_at": T0 + 150,
              "ended_at": T0 + 1150, "collected_at": T0 + 1180, "collected": True}  # fmt: skip
    return a_job(JobState.SUCCEEDED, **{**fields, **changes})


def test_the_main_job_reads_as_people_say_it() -> None:
    rental = a_life(*MAIN, ended_at=T0 + 1220, ending=an_ending(Trigger.JOB_DONE, at=T0 + 1180))

    assert told(rental, [the_job()], 5000) == [
        ("loading", 0, 100), ("setup", 100, 121), ("sync", 121, 150), ("run", 150, 1150),
        ("collect", 1150, 1180), ("ending", 1180, 5000),
    ]  # fmt: skip


def test_a_copy_that_failed_holds_the_machine() -> None:
    rental = a_life(*MAIN[:-2])  # collecting failed: ready again

    assert told(rental, [the_job(collected=False, collected_at=None)], 2000)[-2:] == [
        ("collect", 1150, 1180),
        ("held", 1180, 2000),
    ]


def test_a_machine_without_a_job_is_idle_until_one_is_asked_for() -> None:
    rental = a_life((Phase.READY, 0))
    waits = a_job(JobState.STARTING, submitted_at=T0 + 500, sync_at=T0 + 510)

    assert told(rental, [waits], 600) == [("idle", 0, 500), ("setup", 500, 510), ("sync", 510, 600)]


def test_a_set_up_is_no_run_and_a_stopped_machine_costs_storage() -> None:
    rental = a_life((Phase.READY, 0), (Phase.BUSY, 10), (Phase.READY, 60), (Phase.STOPPED, 100))
    setup = a_job(JobState.SUCCEEDED, setup=Setup(), submitted_at=T0 + 5, started_at=T0 + 10,
                  ended_at=T0 + 60, collected_at=T0 + 60, collected=True)  # fmt: skip

    assert told(rental, [setup], 200) == [
        ("idle", 0, 5), ("setup", 5, 60), ("idle", 60, 100), ("storage", 100, 200),
    ]  # fmt: skip


def test_what_billed_before_it_was_taken_over_is_told_too() -> None:
    rental = a_life((Phase.READY, 100), rates=(RateSegment(T0, HOUR_RATE),), taken_over=True)

    assert told(rental, [], 200) == [("idle", 0, 200)]


def test_a_window_cuts_the_spans() -> None:
    rental = a_life(*MAIN, ended_at=T0 + 1220)

    found = spans(rental, [the_job()], T0 + 5000, Window(T0 + 110, T0 + 160))

    assert [(s.kind, s.cost) for s in found] == [
        (Kind.SETUP, 11_000), (Kind.SYNC, 29_000), (Kind.RUN, 10_000),
    ]  # fmt: skip


WASTE = [
    ({}, [the_job()], None, 39_000 + 1_000),
    ({"ending": an_ending(Trigger.BOOT_FAILED, at=T0 + 100)}, [], "it could not be used", 1_220_000),
    ({"phases": ((Phase.READY, T0), (Phase.GONE, T0 + 1220))}, [], "no job ever started", 1_220_000),
    ({"phases": ((Phase.READY, T0), (Phase.GONE, T0 + 1220)), "purpose": "interactive"}, [], None, 40_000),
    ({"phases": ((Phase.BUSY, T0), (Phase.READY, T0 + 220)), "policy": Policy(keep=True)}, [], None, 40_000),
    ({"phases": ((Phase.BUSY, T0), (Phase.READY, T0 + 220))}, [], None, 1_000_000),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "jobs", "why", "waste"), WASTE)
def test_waste_is_what_bought_nothing(
    changes: dict[str, object], jobs: list[Job], why: str | None, waste: int
) -> None:
    rates = (RateSegment(T0, HOUR_RATE), RateSegment(T0 + 1220, Micros(0)))
    ending = an_ending(Trigger.JOB_DONE, at=T0 + 1180)
    rental = a_life(*MAIN, **{"rates": rates, "ending": ending, **changes})  # type: ignore[arg-type]

    found = pieces(
        spans(rental, jobs, T0 + 1220),
        all_wasted=cost_spans.why_wasted(rental, []) is not None,
        idle_is_use=cost_spans.idle_is_use(rental),
    )

    assert sum(piece.waste for piece in found) == waste
    assert (cost_spans.why_wasted(rental, []) or "None").startswith(why or "None")


def test_a_machine_that_could_not_serve_its_job_is_all_waste() -> None:
    assert cost_spans.why_wasted(a_life(*MAIN), {"r1"}) == "it could not serve its job"


INSTANTS = st.floats(-100, 4000).map(lambda at: T0 + at)
JOBS = st.builds(
    lambda sub, sync, start, end, home, setup: a_job(
        submitted_at=sub, sync_at=sync, started_at=start, ended_at=end, collected_at=home,
        setup=Setup() if setup else None,
    ),
    INSTANTS, *[st.one_of(st.none(), INSTANTS)] * 4, st.booleans(),
)  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(Phase), INSTANTS), min_size=1, max_size=8),
    st.lists(st.tuples(st.floats(0.01, 900), st.integers(0, 4_000_000)), max_size=5),
    st.lists(JOBS, max_size=3),
    INSTANTS,
    st.one_of(st.none(), INSTANTS),
)
def test_the_spans_add_up_to_the_bill_to_the_micro_dollar(
    phases: list[tuple[Phase, float]],
    rates: list[tuple[float, int]],
    jobs: list[Job],
    now: float,
    ends_at: float | None,
) -> None:
    """Whatever the record says, also instants out of order: no gap, no overlap, no micro-dollar."""
    since, segments = T0 + rates[0][0] if rates else T0, list[RateSegment]()
    for length, rate in rates:
        segments.append(RateSegment(since, Micros(rate)))
        since += length
    ending = None if ends_at is None else an_ending(Trigger.USER, at=ends_at)
    rental = a_rental(
        phases[-1][0], phases=tuple(phases), rates=tuple(segments), ending=ending,
        ended_at=phases[-1][1] if phases[-1][0] is Phase.GONE else None,
    )  # fmt: skip

    found = spans(rental, jobs, now)

    assert sum(span.cost for span in found) == billing.cost(rental, now)
    assert all(a.until <= b.since and a.kind != b.kind for a, b in pairwise(found))
    assert all(span.since < span.until <= now and span.cost >= 0 for span in found)
    totals = pieces(found, all_wasted=False, idle_is_use=False)
    assert sum(piece.cost for piece in totals) == billing.cost(rental, now)
    assert all(0 <= piece.waste <= piece.cost for piece in totals)
