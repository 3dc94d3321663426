"""Which rental a word means: never one of two that it fits equally well."""

import itertools
from types import SimpleNamespace
from typing import cast

import pytest

from support.builders import a_rental
from vastd.core.rental import Phase, Rental
from vastd.errors import AmbiguousName, NotFound
from vastd.ledger import Ledger
from vastd.rpc.handlers.resolve import find_rental


def a_ledger(*rentals: Rental) -> Ledger:
    # Only its records are read.
    return cast("Ledger", SimpleNamespace(rentals={r.rental_id: r for r in rentals}, jobs={}))


def found(ledger: Ledger, wanted: str | None) -> str:
    return find_rental(ledger, wanted, None).rental_id


@pytest.mark.parametrize(
    ("named", "numbered", "turned"),
    list(itertools.product((Phase.READY, Phase.GONE), (Phase.READY, Phase.GONE), (False, True))),
)
def test_digits_that_are_a_name_and_the_instance_of_another_are_ambiguous(
    named: Phase, numbered: Phase, turned: bool
) -> None:
    mine = a_rental(named, rental_id="r-a", name="4711", instance_id=42)
    other = a_rental(numbered, rental_id="r-b", name="lab", instance_id=4711)
    ledger = a_ledger(*((other, mine) if turned else (mine, other)))

    with pytest.raises(AmbiguousName) as caught:
        find_rental(ledger, "4711", None)

    assert "4711 (r-a, instance 42), lab (r-b, instance 4711)" in str(caught.value)
    assert [found(ledger, word) for word in ("r-a", "r-b", "42", "lab")] == [
        "r-a", "r-b", "r-a", "r-b",
    ]  # fmt: skip


def test_a_name_that_is_its_own_instance_id_is_not_ambiguous() -> None:
    assert found(a_ledger(a_rental(name="42", instance_id=42)), "42") == "r1"


def test_a_name_or_instance_wins_over_the_beginning_of_others() -> None:
    ledger = a_ledger(
        a_rental(rental_id="r-a", name="47", instance_id=1),
        a_rental(rental_id="r-b", name="4711", instance_id=2),
        a_rental(rental_id="r-c", name="lab", instance_id=471),
    )

    assert [found(ledger, word) for word in ("47", "471", "4711", "la")] == [
        "r-a", "r-c", "r-b", "r-c",
    ]  # fmt: skip
    with pytest.raises(AmbiguousName):
        find_rental(ledger, "4", None)
    with pytest.raises(NotFound):
        find_rental(ledger, "x", None)


def test_a_live_rental_wins_over_ended_ones_of_its_name_and_then_the_newest() -> None:
    old, new = (a_rental(Phase.GONE, rental_id=f"r-{n}", instance_id=n) for n in (1, 2))

    assert found(a_ledger(old, new), "lab") == "r-2"
    assert found(a_ledger(a_rental(rental_id="r-3"), old, new), "lab") == "r-3"
