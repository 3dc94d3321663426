"""Compare what we hold with one complete listing: the only place where absence means anything.

Rules
1. Only a *complete* listing comes in here; anything less is `Inventory.error` and changes
   nothing (I11).
2. A listing speaks for the instant it *began* at: what was created later may be missing.
3. Rows without our claim are foreign: counted, never touched (I9).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from vastd.core import billing, boot
from vastd.core import events as ev
from vastd.core.claims import sort_rows
from vastd.core.instants import shown
from vastd.core.lease import ran_out as lease_ran_out
from vastd.core.limits import (
    LABEL_SEARCH_S,
    PROOF_SPACING_S,
    PROOFS_WHEN_ACTIVE,
    PROOFS_WHEN_ENDING,
    READINGS_TO_BELIEVE,
    Limits,
)
from vastd.core.market import Instance, InstanceStatus
from vastd.core.money import Micros
from vastd.core.observed import Inventory, Sighting, World
from vastd.core.rental import Phase, Rental, StopCause, Trigger
from vastd.core.statuses import Reading, reading
from vastd.core.stopped import Account, is_down, is_ours_to_run, together, why_stopped

_IDLE_PERCENT: Final = 5.0  # REQUIREMENTS WAT-06: all GPUs below 5 %
_COMING_UP: Final = frozenset({Phase.BOOTING, Phase.VERIFYING})


class Diff(Struct, frozen=True, kw_only=True):
    """What a listing taught us. `surplus` are instances with the claim of a rental that holds
    another instance: they are ended on sight."""

    events: tuple[ev.RentalEvent, ...]
    world: World
    surplus: tuple[int, ...] = ()


def diff(
    rentals: Mapping[str, Rental],
    world: World,
    rows: Sequence[Instance],
    *,
    owner8: str,
    begun_at: float,
    now: float,
    limits: Limits,
    credit: Micros | None = None,
) -> Diff:
    """Return the events, observations and strays that a complete listing implies.

    `rentals`: by rental_id, any phase. `begun_at`: when the first page was asked for. `credit`: of
    the account, None if not known. Events are in the order of `rentals`, and legal one after the
    other.
    """
    found = sort_rows(rentals, rows, owner8, now)
    told = together(rentals.values(), found.mine, credit)
    events: list[ev.RentalEvent] = []
    sightings: dict[str, Sighting] = {}
    for rental in rentals.values():
        before = world.of(rental.rental_id)
        row = found.mine.get(rental.rental_id)
        seen = (
            _seen(before, row, begun_at) if row else _unseen(before, rental, begun_at, now, limits)
        )
        if row is not None and is_down(row) and is_ours_to_run(rental):
            why = why_stopped(rental, row, told, now)
            seen = structs.replace(seen, down_at=begun_at, down=why)
        events.extend(
            _present(rental, before, seen, row, begun_at, now, told)
            if row
            else _absent(rental, seen, begun_at, now)
        )
        if rental.phase is not Phase.GONE or row is not None:
            sightings[rental.rental_id] = seen
    inventory = Inventory(as_of=begun_at, foreign=found.foreign, orphans=found.orphans)
    after = structs.replace(world, sightings=sightings, inventory=inventory)
    return Diff(events=tuple(events), world=after, surplus=found.surplus)


def _seen(before: Sighting, row: Instance, begun_at: float) -> Sighting:
    old = before.instance
    same = (
        old is not None
        and old.status == row.status
        and old.intended_status == (row.intended_status)
    )
    moved = old is None or (old.status, old.status_msg) != (row.status, row.status_msg)
    came_up = old is not None and old.status != row.status == InstanceStatus.RUNNING
    # A machine that stood still was neither silent nor idle: both count from its return.
    silent = None if came_up else before.unreachable_since
    quiet = None if came_up else before.quiet_since
    if row.gpu_util is not None:
        # A missing reading says nothing; only a busy one ends the quiet.
        quiet = (quiet or begun_at) if row.gpu_util < _IDLE_PERCENT else None
    return structs.replace(
        before,
        instance=row,
        seen_begun_at=begun_at,
        observed_at=begun_at,
        readings=before.readings + 1 if same else 1,
        absences=0,
        absent_since=None,
        missed_at=None,
        status_moved_at=begun_at if moved else before.status_moved_at,
        gpu_util=row.gpu_util if row.gpu_util is not None else before.gpu_util,
        quiet_since=quiet,
        unreachable_since=silent,
    )


def _unseen(
    before: Sighting, rental: Rental, begun_at: float, now: float, limits: Limits
) -> Sighting:
    touched = rental.last_touch_at
    if touched is None:
        return structs.replace(before, observed_at=begun_at)
    missed = before.missed_at if (before.missed_at or 0.0) >= touched else None
    if missed is None and begun_at >= touched:
        missed = now
    before = structs.replace(before, missed_at=missed)
    if begun_at < touched + limits.settle_s:
        return structs.replace(before, observed_at=begun_at, absences=0, absent_since=None)
    # An absence from before a destroy (or from before the settle time was over) proves nothing
    # about what came after, even if no listing succeeded in between to forget it.
    first = before.absent_since
    earlier = before.absences if first is not None and first >= touched + limits.settle_s else 0
    return structs.replace(
        before,
        observed_at=begun_at,
        absences=earlier + 1,
        absent_since=first if earlier else begun_at,
    )


def _absent(rental: Rental, seen: Sighting, begun_at: float, now: float) -> list[ev.RentalEvent]:
    if not rental.may_have_instance or seen.absences == 0:
        return []
    if rental.instance_id is None:
        # No id was ever learnt: the label must stay away for the whole search time (I2).
        sent = rental.create_sent_at
        assert sent is not None
        searched = rental.create_unknown and begun_at >= sent + LABEL_SEARCH_S
        enough = PROOFS_WHEN_ENDING if searched else None
    elif rental.phase is Phase.DESTROYING:
        enough = PROOFS_WHEN_ENDING
    else:
        enough = PROOFS_WHEN_ACTIVE
    if enough is None or seen.absences < enough:
        return []
    proof = f"{seen.absences} complete listings, the last begun at {shown(begun_at)}, without it"
    # Vast accepted its end, and no listing since showed it: the first of them bounds the bill.
    # What went without our doing is billed until the proof, because one reading may be wrong.
    asked = rental.phase is Phase.DESTROYING and rental.destroy_accepted
    absent = ev.FoundAbsent(
        rental_id=rental.rental_id,
        at=now,
        proof=proof,
        billed_until=seen.missed_at if asked else None,
    )
    lease = lease_ran_out(rental, now)
    if lease is None or rental.ending is not None:
        return [absent]
    end = ev.EndDecided(rental_id=rental.rental_id, at=now, trigger=Trigger.LEASE, why=lease)
    return [end, absent]


def _present(
    rental: Rental,
    before: Sighting,
    seen: Sighting,
    row: Instance,
    begun_at: float,
    now: float,
    told: Account,
) -> list[ev.RentalEvent]:
    rid = rental.rental_id
    if rental.phase is Phase.GONE:
        return [ev.Resurfaced(rental_id=rid, at=now, instance_id=row.instance_id)]
    found: list[ev.RentalEvent] = []
    phase = rental.phase
    if rental.instance_id is None and phase in (Phase.CREATING, Phase.DESTROYING):
        found.append(ev.InstanceFound(rental_id=rid, at=now, instance_id=row.instance_id))
        phase = Phase.BOOTING if phase is Phase.CREATING else phase
    elif phase in (Phase.PLANNED, Phase.CREATING):
        return found
    if (bill := _billing(rental, before, row, begun_at, now)) is not None:
        found.append(bill)
    if rental.ending is None or phase not in (Phase.DESTROYING, Phase.BOOTING):
        found.extend(_status(rental, phase, seen, row, now, told))
    return found


def _billing(
    rental: Rental, before: Sighting, row: Instance, begun_at: float, now: float
) -> ev.BillingChanged | None:
    """Date a dearer rate back to the last moment we knew better, and a cheaper one to the end of
    the listing that showed it: a bill is never understated."""
    rate = billing.rate_of(rental, row)
    if rental.rates and rental.rates[-1].rate == rate:
        return None
    known = before.seen_begun_at if before.seen_begun_at is not None else rental.create_sent_at
    since = now
    if not rental.rates or rate > rental.rates[-1].rate:
        floor = rental.rates[-1].since if rental.rates else rental.create_sent_at
        since = max(known if known is not None else begun_at, floor or 0.0)
    return ev.BillingChanged(
        rental_id=rental.rental_id, at=begun_at, since=since, rate=rate, status=row.status
    )


def _status(
    rental: Rental, phase: Phase, seen: Sighting, row: Instance, now: float, told: Account
) -> list[ev.RentalEvent]:
    rid = rental.rental_id
    if phase in _COMING_UP and rental.ending is None:
        fault = boot.judge(rental, phase, seen, row, told)
        if fault is not None:
            end = ev.EndDecided(
                rental_id=rid,
                at=now,
                trigger=fault.trigger,
                why=fault.why,
                blame=fault.blame,
                rule=boot.RULES[fault.blame],
                inputs={
                    "status": row.status,
                    "intended": row.intended_status,
                    "message": row.status_msg,
                    "listings in a row": seen.readings,
                    "fault of": str(fault.blame),
                },
            )
            return [end]
    match reading(phase, row.status, row.intended_status):
        case Reading.RUNS if phase is Phase.BOOTING:
            return [ev.InstanceRunning(rental_id=rid, at=now)]
        case Reading.RUNS if _is_back(rental, seen, row):
            return [ev.InstanceResumed(rental_id=rid, at=now)]
        case Reading.STOPS if _believed(rental, seen):
            return _stopped(rental, row, now, told)
        case _:
            return []


def _stopped(rental: Rental, row: Instance, now: float, told: Account) -> list[ev.RentalEvent]:
    rid, stop = rental.rental_id, why_stopped(rental, row, told, now)
    asked = rental.pause is not None
    stopped = ev.InstanceStopped(rental_id=rid, at=now, why=stop.why, asked=asked, cause=stop.cause)
    if stop.cause is not StopCause.LEASE or rental.ending is not None:
        return [stopped]
    return [stopped, ev.EndDecided(rental_id=rid, at=now, trigger=Trigger.LEASE, why=stop.why)]


def _is_back(rental: Rental, seen: Sighting, row: Instance) -> bool:
    """Whether a stopped machine runs again. One late row must not undo a stop that was asked for
    and accepted: then it takes several, of which Vast says that they are meant so."""
    if rental.pause is None or not rental.stop_accepted:
        return True
    meant = row.intended_status != InstanceStatus.STOPPED
    return meant and seen.readings >= READINGS_TO_BELIEVE


def _believed(rental: Rental, seen: Sighting) -> bool:
    """A status after boot needs several readings; one is enough for what we asked for ourselves."""
    tried, shown = rental.stop_tried_at, seen.seen_begun_at
    ordered = rental.pause is not None and rental.stop_accepted
    if ordered and tried is not None and shown is not None and shown >= tried:
        return True
    return seen.readings >= READINGS_TO_BELIEVE


def next_listing_at(
    rentals: Iterable[Rental], world: World, limits: Limits, last_begun_at: float
) -> float:
    """Return when the next listing should begin: one call serves every rental (WAI-08)."""
    at = last_begun_at + limits.list_interval_idle_s
    for rental in rentals:
        if not rental.may_have_instance:
            continue
        turning = rental.start_asked_at is not None or (
            rental.pause is not None and rental.phase is not Phase.STOPPED
        )
        if (
            turning
            or _doubtful(rental, world.of(rental.rental_id))
            or rental.phase not in (Phase.READY, Phase.BUSY, Phase.STOPPED)
        ):
            at = min(at, last_begun_at + limits.list_interval_busy_s)
        if rental.phase is Phase.DESTROYING and rental.destroy_accepted:
            at = min(at, _proof_at(rental, world.of(rental.rental_id), limits, last_begun_at))
    return at


def _doubtful(rental: Rental, seen: Sighting) -> bool:
    """Return whether a machine may have been taken away: then the next listings come sooner."""
    if rental.phase not in (Phase.READY, Phase.BUSY) or rental.pause is not None:
        return False
    down = seen.instance is not None and is_down(seen.instance)
    return down or seen.unreachable_since is not None


def _proof_at(rental: Rental, seen: Sighting, limits: Limits, last_begun_at: float) -> float:
    """Return when a listing could prove the end soonest."""
    touched = rental.last_touch_at
    assert touched is not None
    earliest = touched + limits.settle_s
    spacing = min(PROOF_SPACING_S, limits.list_interval_busy_s)
    if seen.seen_begun_at is not None and seen.seen_begun_at >= earliest:
        return last_begun_at + limits.list_interval_busy_s  # still there: no hurry
    return max(earliest, last_begun_at + spacing)
