"""Vast's words: what each means in every phase, the unseen ones included (CASES 48)."""

import pytest

from vastd.core.market import InstanceStatus
from vastd.core.rental import Phase
from vastd.core.statuses import READINGS, Reading, Standing, is_known, reading, standing

UNSEEN = "a word of next year"
WORDS = [None, *InstanceStatus, UNSEEN]


@pytest.mark.req("WAI-05")
def test_every_word_in_every_phase_has_exactly_one_meaning() -> None:
    assert set(READINGS) == set(Phase)
    assert all(set(row) == set(Standing) for row in READINGS.values())
    for phase in Phase:
        for word in WORDS:
            for intended in (None, "running", "stopped", UNSEEN):
                assert isinstance(reading(phase, word, intended), Reading)


@pytest.mark.req("WAI-05")
def test_every_word_we_know_is_known_and_an_unseen_one_is_pending_and_not() -> None:
    assert all(is_known(word) for word in WORDS if word != UNSEEN)
    assert not is_known(UNSEEN)
    assert standing(UNSEEN) is Standing.PENDING
    assert {reading(phase, UNSEEN, "running") for phase in Phase} == {Reading.WAIT}


@pytest.mark.req("WAI-06")
@pytest.mark.parametrize(
    ("word", "means"),
    [
        (None, Reading.WAIT),
        ("created", Reading.WAIT),
        ("loading", Reading.WAIT),
        ("rebooting", Reading.WAIT),
        ("restarting", Reading.WAIT),
        ("recycling", Reading.WAIT),
        ("scheduling", Reading.WAIT),
        ("frozen", Reading.WAIT),
        ("running", Reading.RUNS),
        ("exited", Reading.FAILS),
        ("stopped", Reading.FAILS),
        ("offline", Reading.FAILS),
        ("unknown", Reading.FAILS),
    ],
)
def test_a_boot_reads_each_word(word: str | None, means: Reading) -> None:
    assert reading(Phase.BOOTING, word, "running") is means


def test_a_machine_not_meant_to_run_is_down_unless_it_runs() -> None:
    words = [word for word in WORDS if word != "running"]

    assert {standing(word, "stopped") for word in words} == {Standing.DOWN}
    assert standing("running", "stopped") is Standing.UP
