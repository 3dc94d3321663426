"""`make soak` tells every broken story, and fails if there is one."""

import pytest

from support import soak
from support.soak import report, told


def test_a_story_that_breaks_is_told_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(seed: int) -> None:
        if seed == 3:
            raise RuntimeError("a machine bills that nobody knows")

    monkeypatch.setattr(soak, "play", play)

    assert told(2) is None
    assert told(3) == "seed 3: RuntimeError: a machine bills that nobody knows"


@pytest.mark.parametrize(("outcomes", "code"), [([None] * 3, 0), ([None, "seed 200: x", None], 1)])
def test_progress_is_told_and_one_broken_story_fails_the_soak(
    outcomes: list[str | None], code: int
) -> None:
    said: list[str] = []

    assert report(range(199, 202), outcomes, said.append, iter([0.0, 1.0, 1.5]).__next__) == code

    assert said == [
        *(wrong for wrong in outcomes if wrong),
        f"up to seed 200: {code} broken, 2.0 stories a second",
        f"up to seed 201: {code} broken, 2.0 stories a second",
    ]
