"""Whether it is our own network that is down: Vast and every machine fall silent together.

One host that is silent is that host's matter, and Vast alone not answering is Vast's. Both at once
are hardly a coincidence (CASES 73), and then nobody's silence means anything.
"""

from collections.abc import Iterable
from typing import Final

from vastd.core.observed import World
from vastd.core.rental import Phase, Rental

_ON_SSH: Final = frozenset({Phase.VERIFYING, Phase.READY, Phase.BUSY, Phase.COLLECTING})


def down_since(world: World, rentals: Iterable[Rental]) -> float | None:
    """Return since when nobody at all answers; None while somebody does, or nobody was asked but
    Vast."""
    inventory = world.inventory
    if inventory.failing_since is None or not inventory.unanswered:
        return None
    silent: list[float] = []
    for rental in rentals:
        seen = world.of(rental.rental_id)
        if rental.phase not in _ON_SSH:
            continue
        if seen.reached_at is not None and seen.reached_at >= inventory.failing_since:
            return None
        if seen.unreachable_since is not None:
            silent.append(seen.unreachable_since)
    return max(inventory.failing_since, *silent) if silent else None
