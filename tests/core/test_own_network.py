"""Whose silence it is: ours when Vast and every machine that was asked fall silent together."""

import pytest

from support.builders import T0, a_rental, an_inventory
from vastd.core.observed import Sighting, World
from vastd.core.own_network import down_since
from vastd.core.rental import Phase, Rental

SILENT = Sighting(unreachable_since=T0 + 30, reached_at=T0 + 5)
REACHED = Sighting(reached_at=T0 + 25)
NOT_ASKED = Sighting()


def a_pair(*sightings: Sighting, phase: Phase = Phase.BUSY, **inventory: object):  # type: ignore[no-untyped-def]
    fields = {"failing_since": T0 + 20, "unanswered": True, "error": "no answer", **inventory}
    rentals = [a_rental(phase, rental_id=f"r{n}") for n, _ in enumerate(sightings)]
    seen = {f"r{n}": sighting for n, sighting in enumerate(sightings)}
    return World(sightings=seen, inventory=an_inventory(**fields)), rentals


@pytest.mark.parametrize(
    ("world", "rentals", "since"),
    [
        (*a_pair(SILENT), T0 + 30),
        (*a_pair(SILENT, SILENT, NOT_ASKED), T0 + 30),
        (*a_pair(SILENT, failing_since=T0 + 40), T0 + 40),
        (*a_pair(SILENT, REACHED), None),  # somebody answers: it is that host's matter
        (*a_pair(NOT_ASKED), None),  # only Vast was asked: it is Vast's matter
        (*a_pair(), None),
        (*a_pair(SILENT, failing_since=None), None),
        (*a_pair(SILENT, unanswered=False), None),  # a refusal came over a network
        (*a_pair(SILENT, phase=Phase.BOOTING), None),  # nobody expects an answer yet
        (*a_pair(SILENT, phase=Phase.STOPPED), None),
    ],
)
def test_the_network_is_ours_only_when_nobody_at_all_answers(
    world: World, rentals: list[Rental], since: float | None
) -> None:
    assert down_since(world, rentals) == since
