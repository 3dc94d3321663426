"""Whose a row is when several rentals on record had the same instance."""

import pytest

from support.builders import OWNER, T0, a_rental, a_row
from vastd.core.claims import Whose, sort_rows, whose
from vastd.core.rental import Phase, Rental


def three(*, newest_released: str | None) -> dict[str, Rental]:
    """Ended long ago, let go, and the newest: all with the same instance."""
    return {
        "r1": a_rental(Phase.GONE, rental_id="r1"),
        "r2": a_rental(Phase.GONE, rental_id="r2", released="moved"),
        "r3": a_rental(Phase.READY, rental_id="r3", released=newest_released),
    }


@pytest.mark.parametrize(("released", "expected"), [(None, Whose.OURS), ("moved", Whose.RELEASED)])
def test_of_several_rentals_with_one_instance_the_newest_decides(
    released: str | None, expected: Whose
) -> None:
    rentals = three(newest_released=released)

    found, holder = whose(rentals, a_row(), OWNER)
    rows = sort_rows(rentals, [a_row()], OWNER, T0)

    assert holder is not None
    assert (found, holder.rental_id) == (expected, "r3")
    assert list(rows.mine) == ([] if released else ["r3"])
    assert len(rows.foreign) == (1 if released else 0)
