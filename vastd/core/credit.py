"""How long the account's credit lasts, and what goes on billing when it is used up.

Rules
1. Instances that are not ours spend it as well: the listing tells what they cost.
2. Without credit Vast stops every machine; their disks go on billing, below zero (VAST_API 7.2).
3. What is not known (no reading, a reading that failed) ends nothing and promises nothing.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from vastd.core import billing
from vastd.core.limits import Limits
from vastd.core.market import Instance
from vastd.core.money import SECONDS_PER_HOUR, Micros, for_seconds
from vastd.core.rental import Phase, Rental
from vastd.core.spending import Window, ends_at, promise, spent, wind_down_s
from vastd.core.statuses import Standing, standing

READ_EVERY_S: Final = 300.0  # guess: while machines bill; a few cents are spent in that time
READ_SOON_S: Final = 60.0  # guess: when it may be gone before the reading after the next
NEAR_S: Final = 900.0  # guess: three readings
# An end needs a newer look at the account than that: it may have been topped up meanwhile.
PROOF_S: Final = 90.0


class CreditLook(Struct, frozen=True, kw_only=True):
    """The credit at `now`, carried on. Rates are per hour."""

    now: float
    read_at: float
    read: Micros  # what Vast said then
    left: Micros  # less what was billed since, foreign instances included
    burn: Micros  # of everything now
    zero_at: float | None  # used up if every machine goes on until its own end; None: it lasts
    act_at: float | None  # by then what ends must begin to, or its end is not paid any more
    after_zero: Micros  # storage that goes on billing then
    stops: int  # machines of ours that Vast will stop

    @property
    def proven(self) -> bool:
        """Whether the reading is new enough to end a machine for it."""
        return self.now - self.read_at <= PROOF_S


def look(
    read_at: float,
    read: Micros,
    rentals: Sequence[Rental],
    foreign: Sequence[Instance],
    limits: Limits,
    now: float,
) -> CreditLook:
    """Carry a reading on to `now` and beyond. `rentals`: those that are not gone."""
    others = sum(foreign_rate(row) for row in foreign)
    since = Window(read_at)
    billed = sum(spent(rental, since, now) for rental in rentals)
    left = Micros(read - billed - for_seconds(Micros(others), max(0.0, now - read_at)))
    ours = billing.burn(list(rentals))
    running = [r for r in rentals if r.phase is not Phase.STOPPED and r.may_have_instance]
    disks = [r for r in rentals if r.may_have_instance]
    zero = zero_at(left, rentals, limits, now, others=Micros(others))
    return CreditLook(
        now=now,
        read_at=read_at,
        read=read,
        left=left,
        burn=Micros(ours + others),
        zero_at=zero,
        act_at=None if zero is None else _act_at(left, running, ours + others, limits, now),
        after_zero=Micros(
            sum(billing.storage_rate(r) for r in disks) + sum(_disk(row) for row in foreign)
        ),
        stops=len(running),
    )


def foreign_rate(row: Instance) -> Micros:
    """Return what an instance that is not ours costs per hour, as far as its row says."""
    match standing(row.status, row.intended_status):
        case Standing.UP:
            return row.dph or Micros(0)
        case Standing.LOST:
            return Micros(0)
        case _:
            return _disk(row)


def _disk(row: Instance) -> Micros:
    return row.storage_dph or Micros(0)


def zero_at(
    left: Micros,
    rentals: Sequence[Rental],
    limits: Limits,
    now: float,
    *,
    others: Micros = Micros(0),  # noqa: B008  a number
) -> float | None:
    """Return when `left` is used up if every machine goes on as it is until its own end, and the
    others (`others` per hour) for ever; None when the machines end before that."""
    ends = sorted(
        (max(made.until, runs_until(rental, now)), int(billing.rate(rental)))
        for rental in rentals
        if (made := promise(rental, limits, now)) is not None
    )
    rest, at, burn = float(left), now, sum(rate for _, rate in ends) + others
    for until, rate in ends:
        needed = burn * (until - at) / SECONDS_PER_HOUR
        if burn > 0 and needed >= rest:
            return at + max(0.0, rest) / burn * SECONDS_PER_HOUR
        rest, at, burn = rest - needed, until, burn - rate
    return None


def runs_until(rental: Rental, now: float) -> float:
    """Return when `rental` is expected to begin its end; one that has overrun its estimate may run
    until its deadline."""
    expected = ends_at(rental, now)
    over = rental.ending is None and expected <= now and rental.phase is not Phase.STOPPED
    return rental.deadline_at if over and rental.deadline_at is not None else expected


def _act_at(
    left: Micros, running: Sequence[Rental], burn: int, limits: Limits, now: float
) -> float | None:
    """Return when no more is left than what it takes to wind down everything that runs."""
    if burn <= 0:
        return None
    kept = sum(for_seconds(billing.expected_rate(r), wind_down_s(r, limits)) for r in running)
    return now + max(0, left - kept) / burn * SECONDS_PER_HOUR


def read_again_at(read_at: float, lasts_until: float | None) -> float:
    """Return when the account is to be asked again: sooner when its credit is nearly used up."""
    near = lasts_until is not None and lasts_until - read_at < NEAR_S
    return read_at + (READ_SOON_S if near else READ_EVERY_S)
