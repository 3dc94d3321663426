"""Names of rentals and jobs: kept as chosen, made from what there is, never twice."""

import pytest

from vastd.errors import InvalidRequest
from vastd.renting import check_name, free_name

pytestmark = pytest.mark.sim


@pytest.mark.parametrize(
    ("wanted", "taken", "name"),
    [
        ("a----b", set(), "a----b"),
        ("lab", {"lab"}, "lab-2"),
        ("lab", {"lab", "lab-2"}, "lab-3"),
        ("My Project (new)", set(), "my-project-new"),
        ("RTX 4090", set(), "rtx-4090"),
        ("—", set(), "run"),
        ("x" * 41, set(), "x" * 36),
    ],
)
def test_a_name_is_kept_or_made_and_is_free(wanted: str, taken: set[str], name: str) -> None:
    found = free_name(taken, wanted)

    assert found == name
    assert check_name(found) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "a b", "ä", "a" * 42])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a name"):
        check_name(name)
