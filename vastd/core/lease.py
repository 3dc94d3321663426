"""The lease of a machine: until when its own guard lets it be, if nobody renews it (DESIGN D8).

Rules
1. A renewal is a number of seconds; the machine's own clock makes an instant of it.
2. While a job runs the lease reaches to the deadline, so that a closed laptop costs no results;
   otherwise it is short. It never reaches past the hard limit.
3. What ran out while nobody looked is told as that: not as a machine that vanished.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from vastd.core.job import Job
from vastd.core.limits import Limits
from vastd.core.rental import Phase, Rental

HARD_SLACK_S: Final = 1800.0  # DESIGN D8: past the deadline, so that vastd acts first
# The lease of a busy machine reaches past the deadline by this, so that vastd ends the job first
# and its verdict stands. Guess: two of its looks (15 s) at most.
BUSY_SLACK_S: Final = 30.0
READ_BACK_S: Final = 30.0  # guess: a renewal takes seconds; what differs by more was not ours
# A renewal is put on record when it moves the end by that much: a restart must know the newest.
RECORD_S: Final = 60.0  # DESIGN 4.3: at most one row per minute and kind


class OnExpiry(StrEnum):
    """What the guard does with a machine whose lease ran out."""

    STOP_IF_UNCOLLECTED = "stop_if_uncollected"
    DESTROY = "destroy"


class LeaseTerms(Struct, frozen=True, kw_only=True):
    """What a machine is told about its lease. Durations in seconds from the moment it is told."""

    lease_s: float  # what a container gets that was stopped and started again
    for_s: float
    hard_s: float
    on_expiry: OnExpiry
    grace_s: float  # from TERM to KILL
    salvage: str = ""  # shell command that runs before the end; seen by the host
    # Jobs whose results are not home, and those of which nothing is left there. What is in neither
    # (a machine that was taken over; a job that begins this moment) stays as the machine noted it.
    uncollected: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()


class LeaseFacts(Struct, frozen=True, kw_only=True):
    """What a machine says of its lease, read back from what will act on it."""

    box_clock: float  # epoch seconds on its own clock
    box_expiry: float | None  # None: no lease is written
    box_hard: float | None
    on_expiry: str
    uncollected: tuple[str, ...]
    guard_pid: int | None  # None: no guard runs
    instance: str | None  # what the guard takes for its own id
    has_key: bool  # whether it has the instance's own key
    tool: str | None  # what it would call Vast with

    @property
    def left_s(self) -> float | None:
        """Seconds until the guard ends the machine; None when no lease is written."""
        ends = [at for at in (self.box_expiry, self.box_hard) if at is not None]
        return min(ends) - self.box_clock if self.box_expiry is not None else None

    def unarmed(self, instance_id: int, terms: LeaseTerms) -> str | None:
        """Return why this does not bound the bill, or None when it does."""
        left = self.left_s
        if self.guard_pid is None:
            return "the guard does not run there"
        if self.instance != str(instance_id):
            return f"the machine calls itself instance {self.instance or 'nothing'}"
        if not self.has_key:
            return "the machine has no key of its own (CONTAINER_API_KEY) to end itself with"
        if self.tool is None:
            return "the image has neither curl nor wget nor python to call Vast with"
        if left is None or abs(left - min(terms.for_s, terms.hard_s)) > READ_BACK_S:
            said = "none" if left is None else f"{left:.0f} s"
            return f"a lease of {terms.for_s:.0f} s was written, and read back as {said}"
        return None


def terms(rental: Rental, jobs: Sequence[Job], limits: Limits, now: float) -> LeaseTerms:
    """Return the lease that `rental` should have from `now` on."""
    rules = limits.lease
    hard_s = hard_at(rental, rules.lease_s, now) - now
    left_s = (rental.deadline_at if rental.deadline_at is not None else now) - now
    busy = rental.phase is Phase.BUSY and rental.ending is None
    reaches = busy and rules.while_busy == "deadline" and left_s > 0
    for_s = left_s + BUSY_SLACK_S if reaches else rules.lease_s
    if rental.lease_asked_until is not None:
        for_s = max(for_s, rental.lease_asked_until - now)
    return LeaseTerms(
        lease_s=rules.lease_s,
        for_s=max(0.0, min(for_s, hard_s)),
        hard_s=max(0.0, hard_s),
        on_expiry=OnExpiry(rules.on_expiry),
        grace_s=rental.policy.grace_s,
        salvage=rules.salvage,
        uncollected=tuple(job.job_id for job in jobs if _to_keep(job)),
        settled=tuple(
            mark for job in jobs if job.finished and not _to_keep(job) for mark in job.run_ids
        ),
    )


def hard_at(rental: Rental, lease_s: float, now: float) -> float:
    """Return past which instant no renewal reaches (epoch s). A machine that was started to fetch
    what its disk holds may be past its deadline."""
    deadline = rental.deadline_at if rental.deadline_at is not None else now
    stops = [at for phase, at in rental.phases if phase is Phase.STOPPED]
    back = [at for phase, at in rental.phases if stops and at > stops[0] and phase is Phase.READY]
    return max([deadline + HARD_SLACK_S, *(at + lease_s for at in back)])


def armed(rental: Rental, now: float) -> bool:
    """Return whether the guard on its machine would end it, and when is known."""
    works = rental.phase in (Phase.READY, Phase.BUSY, Phase.COLLECTING)
    return works and rental.lease_until is not None and now < rental.lease_until


def _to_keep(job: Job) -> bool:
    return job.may_have_started or job.uncollected


def is_urgent(told: LeaseTerms, told_at: float, terms_now: LeaseTerms, now: float) -> bool:
    """Return whether a machine that was told `told` must hear the new terms at once, and not when
    its renewal is due: its end moved, or what it must not destroy did."""
    passed_s = now - told_at
    same = structs.replace(told, lease_s=0, for_s=0, hard_s=0) == structs.replace(
        terms_now, lease_s=0, for_s=0, hard_s=0
    )
    sooner = terms_now.for_s < told.for_s - passed_s - RECORD_S
    later = terms_now.for_s > told.for_s + RECORD_S
    moved = abs(terms_now.hard_s - (told.hard_s - passed_s)) > RECORD_S
    return not same or sooner or later or moved


def ran_out(rental: Rental, at: float) -> str | None:
    """Return how the guard ended a machine that was found stopped or gone at `at`; None when its
    lease still held, it never had one, or it stood still already: no guard runs there."""
    until = rental.lease_until
    if until is None or at < until:
        return None
    if rental.phase is Phase.STOPPED:
        return None  # nobody renews it there, and its guard does not run
    return "its lease ran out while vastd did not renew it: the guard on the machine ended it"
