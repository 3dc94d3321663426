"""Labels: the last word is the claim, and nothing else is one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastd.core.labels import LABEL_MAX_CHARS, Claim, claim_text, make_label, read_claim


@given(st.text(max_size=400))
def test_every_label_we_make_fits_and_carries_its_claim(prefix: str) -> None:
    label = make_label("abcd1234", "r0000001", prefix)

    assert len(label) <= LABEL_MAX_CHARS
    assert read_claim(label) == Claim("abcd1234", "r0000001")
    assert label.endswith(claim_text("abcd1234", "r0000001"))


def test_a_prefix_shows_project_and_task_without_unsafe_characters() -> None:
    assert make_label("abcd1234", "r1", "my lab/träin") == "my-lab/tr-in vastd-abcd1234-r1"
    assert make_label("abcd1234", "r1", " ! ") == "vastd-abcd1234-r1"


@pytest.mark.parametrize(
    "label",
    [
        None,
        "",
        "   ",
        "somebody else",
        "vastd-abcd1234-r1 later words",
        "vastd-abcd123-r1",
        "vastd-ABCD1234-r1",
        "vastd-abcd1234-x1",
        "vastd-abcd1234-r",
        "vastd-abcd1234-r1-more",
        "myvastd-abcd1234-r1",
        "vastd-abcd1234-r" + "1" * 33,
    ],
)
def test_anything_else_is_foreign(label: str | None) -> None:
    assert read_claim(label) is None
