"""What was spent in a window of time, what is promised to machines, and whether more fits.

Rules
1. Days and months are those of UTC. What a machine cost in a window is the difference of its bill
   at both ends, so that windows side by side add up to the bill, to the micro-dollar.
2. A machine reserves what it will probably cost from now on, cut to the window: until its
   estimated end (with a buffer) if one is known, else until its deadline; never more than its own
   budget has left; and always the time it takes to wind it down.
3. A cap holds although estimates err: `Pace` says when the money spent, with what it takes to end
   everything that bills, reaches the cap (`cap_watchdogs`).
4. A stopped machine costs its storage until the end of the window, whoever else is ended: that
   money is kept back from the others.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from vastd.core import billing
from vastd.core.limits import Limits
from vastd.core.money import SECONDS_PER_HOUR, Micros, for_seconds
from vastd.core.rental import Phase, Rental
from vastd.core.sizing import DERIVED_BUFFER

SECONDS_PER_DAY: Final = 86_400.0
ESTIMATE_BUFFER: Final = DERIVED_BUFFER  # REQUIREMENTS BUD-09: a reservation is a buffered estimate
# Guess: a stopped disk has no deadline; where the window has no end either, it reserves a day.
OPEN_END_S: Final = 86_400.0
MAX_WINDOWS: Final = 366  # no machine is rented for longer than a year


class Cap(StrEnum):
    """What limits several machines together; the words are the keys of the configuration."""

    PER_DAY = "per_day_usd"
    PER_MONTH = "per_month_usd"
    PER_PROJECT = "per_project_usd"
    CREDIT = "credit"  # not a setting: what the account has left


class Window(Struct, frozen=True):
    """From `start` up to `end`, epoch seconds; no `end`: for ever."""

    start: float
    end: float | None = None

    @property
    def until(self) -> float:
        """The end as a number that can be compared."""
        return math.inf if self.end is None else self.end


EVER: Final = Window(0.0)


def day_of(at: float) -> Window:
    """Return the day of UTC that holds `at`."""
    began = at // SECONDS_PER_DAY * SECONDS_PER_DAY  # epoch seconds know no leap seconds
    return Window(began, began + SECONDS_PER_DAY)


def month_of(at: float) -> Window:
    """Return the month of UTC that holds `at`."""
    day = datetime.fromtimestamp(at, UTC)
    began = day.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (began + timedelta(days=32)).replace(day=1)
    return Window(began.timestamp(), following.timestamp())


def spent(rental: Rental, window: Window, now: float) -> Micros:
    """Return what `rental` cost in `window` until `now`."""
    until = min(now, window.until)
    # A closed bill ends with a rate of 0: what ended before the window needs no sums.
    if until <= window.start or not rental.rates or _closed_by(rental, window.start):
        return Micros(0)
    return Micros(billing.cost(rental, until) - billing.cost(rental, window.start))


def _closed_by(rental: Rental, at: float) -> bool:
    last = rental.rates[-1]
    return last.rate == 0 and last.since <= at


def wind_down_s(rental: Rental, limits: Limits) -> float:
    """Return how long a machine may bill after its end was decided: grace, one poll, settling."""
    return rental.policy.grace_s + limits.list_interval_busy_s + limits.settle_s


class Past:
    """What the machines that are gone cost, kept as sums: their bills are closed, and every look
    at a cap would add them up anew. Mutable; `count` is told of every change."""

    def __init__(self, rentals: Iterable[Rental] = ()) -> None:
        self._counted: dict[str, Rental] = {}  # by rental_id
        self._days: Counter[float] = Counter()  # by the start of the window
        self._months: Counter[float] = Counter()
        self._projects: Counter[str] = Counter()
        self._warned: Counter[tuple[str, str | None]] = Counter()  # by watchdog and project
        for rental in rentals:
            self.count(rental)

    def count(self, rental: Rental) -> None:
        """Take `rental` in as it is now; one that is not gone counts no more."""
        before = self._counted.pop(rental.rental_id, None)
        if before is not None:
            self._add(before, -1)
        if rental.phase is Phase.GONE:
            self._counted[rental.rental_id] = rental
            self._add(rental, 1)

    def carry(self, kept: Mapping[tuple[str, str], Micros]) -> None:
        """Add what machines cost whose records were dropped as old, by project. Their days and
        months are over: `retention.records_days` is longer than any window that still counts."""
        for (_, project), cost in kept.items():
            self._projects[project] += cost

    def spent(self, cap: Cap, window: Window, project: str | None) -> int:
        """Return what they cost in a whole day, month, or on a project."""
        if cap is Cap.PER_DAY:
            return self._days[window.start]
        if cap is Cap.PER_MONTH:
            return self._months[window.start]
        return self._projects[project or ""]

    def warned(self, name: str, project: str | None) -> bool:
        """Return whether a warning of that name is on one of their records."""
        return self._warned[name, project] > 0

    def _add(self, rental: Rental, sign: int) -> None:
        for name in rental.warned:
            self._warned[name, None] += sign
            self._warned[name, rental.project or ""] += sign
        if not rental.rates:
            return
        began, end = rental.rates[0].since, rental.rates[-1].since
        for kind, sums in ((day_of, self._days), (month_of, self._months)):
            window = kind(began)
            while window.start < end:
                sums[window.start] += sign * spent(rental, window, end)
                window = kind(window.until)
        self._projects[rental.project or ""] += sign * billing.cost(rental, end)


class Promise(Struct, frozen=True, kw_only=True):
    """What one machine will probably cost from `now` on: `rate` per hour until `until`."""

    rental_id: str
    name: str
    project: str | None
    now: float
    until: float
    rate: Micros
    most: Micros | None = None  # what its own budget has left; None: it has none

    def within(self, window: Window) -> Micros:
        """Return the part that falls into `window`; the parts of all windows make the whole."""
        low, high = max(self.now, window.start), min(self.until, window.until)
        return Micros(self._by(high) - self._by(low)) if high > low else Micros(0)

    def _by(self, at: float) -> int:
        cost = for_seconds(self.rate, at - self.now)
        return cost if self.most is None else min(cost, self.most)


def promise(rental: Rental, limits: Limits, now: float) -> Promise | None:
    """Return what is reserved for `rental`; None when it costs nothing any more."""
    if rental.phase is Phase.GONE:
        return None
    budget = rental.policy.budget
    left = None if budget is None else Micros(max(0, budget - billing.cost(rental, now)))
    if rental.phase is Phase.STOPPED and rental.start_asked_at is None:
        rate, until = billing.rate(rental), now + OPEN_END_S
        left = None  # storage goes on, whatever the budget says: results wait there
    else:
        rate = billing.expected_rate(rental)
        until = max(ends_at(rental, now), now) + wind_down_s(rental, limits)
        if left is not None and rate > 0:
            until = min(until, now + left / rate * SECONDS_PER_HOUR)
    return Promise(
        rental_id=rental.rental_id,
        name=rental.name,
        project=rental.project,
        now=now,
        until=until,
        rate=rate,
        most=left,
    )


def ends_at(rental: Rental, now: float) -> float:
    """Return when `rental` is expected to begin its end."""
    if rental.ending is not None or rental.phase is Phase.DESTROYING:
        return now
    deadline = rental.deadline_at
    if deadline is None:
        deadline = now + rental.policy.max_runtime_s
    # A machine that is kept outlives its jobs: no estimate tells its end.
    if rental.estimated_hours is None or rental.policy.keep:
        return deadline
    began = rental.ready_at if rental.ready_at is not None else now
    return min(deadline, began + rental.estimated_hours * ESTIMATE_BUFFER * SECONDS_PER_HOUR)


class Claim(Struct, frozen=True):
    """What one machine reserves in a window."""

    rental_id: str
    name: str
    amount: Micros


class Use(Struct, frozen=True, kw_only=True):
    """How far one cap is used in one window, and what a new machine needs of it."""

    cap: Cap
    limit: Micros
    window: Window
    spent: Micros = Micros(0)
    claims: tuple[Claim, ...] = ()  # the largest first
    needs: Micros = Micros(0)
    project: str | None = None  # whose cap it is; None: of all machines

    @property
    def reserved(self) -> Micros:
        """What all machines on record reserve together."""
        return Micros(sum(claim.amount for claim in self.claims))

    @property
    def left(self) -> Micros:
        """What neither was spent nor is reserved; below zero when more is promised than there is."""
        return Micros(self.limit - self.spent - self.reserved)

    @property
    def fits(self) -> bool:
        """Whether the new machine may be rented: what is exactly enough is enough (BUD-02)."""
        return self.needs <= self.left


class Admission(Struct, frozen=True, kw_only=True):
    """What the gate saw of one cap when it let a machine be rented: kept on record (BUD-01)."""

    cap: Cap
    limit: Micros
    window: Window
    spent: Micros
    reserved: Micros
    needs: Micros


def admission(use: Use) -> Admission:
    """Return `use` as it is kept: sums, without the names of other machines."""
    return Admission(
        cap=use.cap,
        limit=use.limit,
        window=use.window,
        spent=use.spent,
        reserved=use.reserved,
        needs=use.needs,
    )


class Book(Struct, frozen=True, kw_only=True):
    """Everything a verdict looks at."""

    rentals: Sequence[Rental]  # those that are not gone
    past: Past  # the others
    waiting: Sequence[Rental]  # machines that jobs without one wait for, as if planned
    limits: Limits
    now: float


def uses(book: Book, project: str | None, planned: Rental | None = None) -> list[Use]:
    """Return every cap in force with its use, in the present windows and in every later one that
    `planned` reaches into.

    `project`: whose cap is meant. A rental on record may be `planned` anew: it is not counted twice.
    """
    promises = _promises(book, planned)
    wish = None if planned is None else promise(planned, book.limits, book.now)
    caps, found = book.limits.caps, list[Use]()
    if caps.per_day is not None:
        found += _per(book, Cap.PER_DAY, caps.per_day, day_of, promises, wish)
    if caps.per_month is not None:
        found += _per(book, Cap.PER_MONTH, caps.per_month, month_of, promises, wish)
    if caps.per_project is not None and project is not None:
        mine = [made for made in promises if made.project == project]
        whole = _use(book, Cap.PER_PROJECT, caps.per_project, EVER, mine, wish, project=project)
        found.append(whole)
    return found


def _per(
    book: Book,
    cap: Cap,
    limit: Micros,
    kind: Callable[[float], Window],
    promises: Sequence[Promise],
    wish: Promise | None,
) -> list[Use]:
    windows = [kind(book.now)]
    while wish is not None and windows[-1].until < wish.until and len(windows) < MAX_WINDOWS:
        windows.append(kind(windows[-1].until))
    return [_use(book, cap, limit, window, promises, wish) for window in windows]


def credit_use(book: Book, credit: Micros, planned: Rental) -> Use:
    """Return how far the account's credit is promised: it must last for everything (BUD-13)."""
    wish = promise(planned, book.limits, book.now)
    promises = _promises(book, planned)
    return Use(
        cap=Cap.CREDIT,
        limit=credit,
        window=Window(book.now),
        claims=_claims(promises, Window(book.now)),
        needs=Micros(0) if wish is None else wish.within(Window(book.now)),
    )


def promised(rentals: Iterable[Rental], limits: Limits, now: float) -> Micros:
    """Return what all of `rentals` reserve together, whenever it falls due."""
    made = (promise(rental, limits, now) for rental in rentals)
    return Micros(sum(one.within(Window(now)) for one in made if one is not None))


def worst(found: Sequence[Use]) -> Use | None:
    """Return the use that leaves least after its need; None when there is no cap."""
    return min(found, key=lambda use: use.left - use.needs, default=None)


def tightest(found: Sequence[Use]) -> tuple[Use, ...]:
    """Return, of each cap, the window that leaves least: what is kept on record."""
    caps = dict.fromkeys(use.cap for use in found)
    picked = (worst([use for use in found if use.cap is cap]) for cap in caps)
    return tuple(use for use in picked if use is not None)


def _promises(book: Book, planned: Rental | None) -> list[Promise]:
    own = None if planned is None else planned.rental_id
    return [
        made
        for rental in (*book.rentals, *book.waiting)
        if rental.rental_id != own and (made := promise(rental, book.limits, book.now)) is not None
    ]


def _use(
    book: Book,
    cap: Cap,
    limit: Micros,
    window: Window,
    promises: Sequence[Promise],
    wish: Promise | None,
    *,
    project: str | None = None,
) -> Use:
    counted = book.rentals
    if project is not None:
        counted = [rental for rental in counted if rental.project == project]
    now_live = sum(spent(rental, window, book.now) for rental in counted)
    return Use(
        cap=cap,
        limit=limit,
        window=window,
        spent=Micros(now_live + book.past.spent(cap, window, project)),
        claims=_claims(promises, window),
        needs=Micros(0) if wish is None else wish.within(window),
        project=project,
    )


def _claims(promises: Iterable[Promise], window: Window) -> tuple[Claim, ...]:
    made = ((p, p.within(window)) for p in promises)
    claims = [Claim(p.rental_id, p.name, amount) for p, amount in made if amount > 0]
    return tuple(sorted(claims, key=lambda claim: (-claim.amount, claim.rental_id)))
