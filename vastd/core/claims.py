"""Whose every instance of a listing is: ours, an orphan, another vastd's, or somebody else's (I2, I9).

Rules
1. What a rental on record holds is known by its id, whatever its label says.
2. Our claim without a rental is an orphan: listed with what it costs, ended only by order.
3. Everything else is foreign. So is what was released: we promised to let it be.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from vastd.core.labels import read_claim
from vastd.core.limits import LATE_ARRIVAL_S
from vastd.core.market import Instance
from vastd.core.rental import Phase, Rental


class Whose(StrEnum):
    """Who answers for an instance."""

    OURS = "ours"  # a rental on record holds it
    ORPHAN = "orphan"  # our claim, and no rental explains it
    OTHER_VASTD = "other_vastd"  # the claim of a vastd with another state directory
    FOREIGN = "foreign"  # no claim: another tool's, or made by hand
    RELEASED = "released"  # it was ours, and we let it go


class Sorted(Struct, frozen=True, kw_only=True):
    """The rows of one listing. `mine`: by rental_id; `surplus`: instance ids with the claim of a
    rental that holds another instance."""

    mine: dict[str, Instance]
    foreign: tuple[Instance, ...]
    orphans: tuple[Instance, ...]
    surplus: tuple[int, ...]


def sort_rows(
    rentals: Mapping[str, Rental], rows: Iterable[Instance], owner8: str, now: float
) -> Sorted:
    """Sort the rows of a complete listing by whose they are. `rentals`: by rental_id, any phase."""
    by_id = _holders(rentals)
    mine: dict[str, Instance] = {}
    foreign: list[Instance] = []
    orphans: list[Instance] = []
    surplus: list[int] = []
    for row in rows:
        holder = by_id.get(row.instance_id)
        if holder is not None and holder.released is None:
            mine[holder.rental_id] = row
            continue
        claim = read_claim(row.label)
        if holder is not None or claim is None or claim.owner8 != owner8:
            foreign.append(row)
            continue
        rental = rentals.get(claim.rental_id)
        if rental is None or _too_old(rental, now):
            orphans.append(row)
        elif rental.instance_id is None and rental.rental_id not in mine:
            mine[rental.rental_id] = row
        else:
            surplus.append(row.instance_id)
    return Sorted(mine=mine, foreign=tuple(foreign), orphans=tuple(orphans), surplus=tuple(surplus))


def _holders(rentals: Mapping[str, Rental]) -> dict[int, Rental]:
    """Return by instance id the rental that holds it: of several, the newest. What was let go and
    taken back is ours again, and what was let go last is let be, whatever it was before."""
    return {r.instance_id: r for r in rentals.values() if r.instance_id is not None}


def whose(rentals: Mapping[str, Rental], row: Instance, owner8: str) -> tuple[Whose, Rental | None]:
    """Return who answers for one row, and the rental that does or did."""
    holder = _holders(rentals).get(row.instance_id)
    if holder is not None:
        return (Whose.OURS if holder.released is None else Whose.RELEASED), holder
    claim = read_claim(row.label)
    if claim is None:
        return Whose.FOREIGN, None
    return (Whose.ORPHAN if claim.owner8 == owner8 else Whose.OTHER_VASTD), None


def _too_old(rental: Rental, now: float) -> bool:
    ended = rental.ended_at
    return rental.phase is Phase.GONE and ended is not None and now - ended > LATE_ARRIVAL_S
