"""The lease: how long a machine may live without us, when it must hear of a change, what is armed."""

import pytest
from msgspec import structs

from support.builders import INSTANCE_ID, JOB_ID, T0, a_done_job, a_job, a_rental, an_ending
from vastd.core import lease
from vastd.core.job import JobState
from vastd.core.lease import LeaseFacts, LeaseTerms, OnExpiry
from vastd.core.limits import LeaseRules, Limits
from vastd.core.rental import Phase, Policy

HOUR = 3600.0
DEADLINE_S = 43_200.0  # of `a_rental`
STRICT = Limits(lease=LeaseRules(while_busy="lease_s"))


def test_without_a_job_it_is_short() -> None:
    terms = lease.terms(a_rental(Phase.READY), [], Limits(), T0 + 100)

    assert (terms.for_s, terms.hard_s) == (3600.0, DEADLINE_S - 100 + 1800)


def test_with_a_job_it_reaches_to_the_deadline_and_a_little_more() -> None:
    terms = lease.terms(a_rental(Phase.BUSY), [a_job()], Limits(), T0 + 100)

    assert terms.for_s == DEADLINE_S - 100 + 30
    assert terms.uncollected == (JOB_ID,)


def test_the_strict_rule_keeps_it_short_for_a_job_too() -> None:
    assert lease.terms(a_rental(Phase.BUSY), [a_job()], STRICT, T0).for_s == 3600.0


def test_a_decided_end_makes_it_short_even_with_a_job() -> None:
    ending = a_rental(Phase.BUSY, ending=an_ending())

    assert lease.terms(ending, [a_job()], Limits(), T0).for_s == 3600.0


@pytest.mark.parametrize(
    ("after_deadline_s", "for_s"), [(-600.0, 2400.0), (0.0, 1800.0), (1700.0, 100.0), (1900.0, 0.0)]
)
def test_nothing_reaches_past_half_an_hour_after_the_deadline(
    after_deadline_s: float, for_s: float
) -> None:
    at = T0 + DEADLINE_S + after_deadline_s

    assert lease.terms(a_rental(Phase.READY), [], Limits(), at).for_s == for_s


def test_a_machine_that_was_started_to_fetch_what_it_holds_has_a_lease_past_its_deadline() -> None:
    stopped, back = T0 + DEADLINE_S, T0 + 3 * DEADLINE_S
    rental = a_rental(
        phases=((Phase.READY, T0), (Phase.STOPPED, stopped), (Phase.READY, back)),
        ending=an_ending(),
    )

    assert lease.terms(rental, [], Limits(), back + 10).for_s == 3590.0


def test_what_the_user_asked_for_lasts_longer_but_not_past_the_hard_limit() -> None:
    asked = a_rental(lease_asked_until=T0 + 5 * HOUR)
    too_long = a_rental(lease_asked_until=T0 + 50 * HOUR)

    assert lease.terms(asked, [], Limits(), T0 + HOUR).for_s == 4 * HOUR
    assert lease.terms(too_long, [], Limits(), T0).for_s == DEADLINE_S + 1800


def test_every_job_is_told_as_to_keep_or_as_settled_or_not_at_all() -> None:
    jobs = [
        a_job(job_id="runs"),
        a_job(JobState.SUCCEEDED, job_id="ended", ended_at=T0),
        a_job(JobState.STARTING, job_id="perhaps", synced_files=1),
        a_job(JobState.STARTING, job_id="not-sent"),
        a_job(JobState.QUEUED, job_id="waits"),
        a_job(JobState.CANCELLED, job_id="never-began", started_at=None, ended_at=T0),
        a_done_job(job_id="home"),
    ]

    terms = lease.terms(a_rental(), jobs, Limits(), T0)

    assert terms.uncollected == ("runs", "ended", "perhaps")
    assert terms.settled == ("never-began", "home")


TOLD = LeaseTerms(
    lease_s=3600, for_s=3600, hard_s=40_000, on_expiry=OnExpiry.STOP_IF_UNCOLLECTED, grace_s=60
)


@pytest.mark.parametrize(
    ("changes", "urgent"),
    [
        ({}, False),  # a renewal that is due is not a change
        ({"for_s": 3650.0}, False),
        ({"for_s": 30_000.0}, True),  # a job began
        ({"for_s": 3200.0}, True),  # its end came nearer than it would have been: 3,500 s are left
        ({"hard_s": 39_900.0}, False),  # just the time that has passed
        ({"hard_s": 47_000.0}, True),
        ({"uncollected": ("j1",)}, True),
        ({"settled": ("j1",)}, True),
        ({"on_expiry": OnExpiry.DESTROY}, True),
        ({"grace_s": 5.0}, True),
        ({"lease_s": 60.0}, False),
    ],
)
def test_what_the_machine_must_hear_at_once(changes: dict[str, object], *, urgent: bool) -> None:
    passed = structs.replace(TOLD, hard_s=39_900.0)
    now = structs.replace(passed, **changes)

    assert lease.is_urgent(TOLD, T0, now, T0 + 100) is urgent


FACTS = LeaseFacts(
    box_clock=5000.0, box_expiry=8600.0, box_hard=45_000.0, on_expiry="stop_if_uncollected",
    uncollected=(), guard_pid=7, instance=str(INSTANCE_ID), has_key=True, tool="curl",
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"guard_pid": None}, "does not run"),
        ({"instance": None}, "calls itself instance nothing"),
        ({"instance": "43"}, "calls itself instance 43"),
        ({"has_key": False}, "no key of its own"),
        ({"tool": None}, "neither curl nor wget nor python"),
        ({"box_expiry": None}, "read back as none"),
        ({"box_expiry": 9000.0}, "read back as 4000 s"),
        ({"box_hard": 5100.0}, "read back as 100 s"),
    ],
)
def test_only_what_would_really_end_the_machine_counts_as_armed(
    changes: dict[str, object], why: str | None
) -> None:
    told = structs.replace(FACTS, **changes).unarmed(INSTANCE_ID, TOLD)

    assert told == why if why is None else why in (told or "")


@pytest.mark.parametrize(
    ("phase", "until", "expected"),
    [
        (Phase.READY, T0 + 1, True),
        (Phase.BUSY, T0 + 1, True),
        (Phase.READY, T0, False),
        (Phase.READY, None, False),
        (Phase.STOPPED, T0 + 1, False),
        (Phase.GONE, T0 + 1, False),
    ],
)
def test_armed_is_said_only_of_a_machine_that_works(
    phase: Phase, until: float | None, *, expected: bool
) -> None:
    assert lease.armed(a_rental(phase, lease_until=until), T0) is expected


def test_a_policy_decides_the_grace_time() -> None:
    assert lease.terms(a_rental(policy=Policy(grace_s=9.0)), [], Limits(), T0).grace_s == 9.0
