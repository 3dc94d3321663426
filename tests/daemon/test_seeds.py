"""Six hundred stories drawn from their number (DESIGN 4.4); `python -m support.seeded_story N`, from
`tests/`, tells one again."""

import pytest

from support.seeded_story import draw, play

pytestmark = pytest.mark.sim

SEEDS = 600
PER_TEST = 8  # keeps the number of test processes' tasks small and the load even


@pytest.mark.sim
@pytest.mark.parametrize("first", range(1, SEEDS + 1, PER_TEST))
def test_every_promise_holds_in_stories_of_faults_kills_and_clock_jumps(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        told = play(seed)  # raises `Broken` with the seed and its trace

        assert len(told.submitted) == len(told.draw.jobs)


@pytest.mark.sim
def test_a_seed_tells_the_same_story_again() -> None:
    first, second = play(7), play(7)

    assert draw(7) == draw(7)
    assert first.trace == second.trace
    assert len(first.trace) > 10
