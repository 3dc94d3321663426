"""What `doctor` and a client hear of a clock that cannot be believed."""

import pytest

from vastd.clock_checks import clock_check, clock_warning
from vastd.clocks import Clock


def a_clock(*, set_by: float = 0.0, vast: float | None = None) -> Clock:
    """A clock that was set while machines are on record, beside a Vast that is `vast` ahead of it."""
    wall = [1_800_000_000.0]
    clock = Clock(wall=lambda: wall[0], boot=lambda: 5.0)
    wall[0] += set_by
    clock.look(free=False)
    if vast is not None:
        clock.heard(wall[0] + vast, took_s=0.1)
    return clock


@pytest.mark.parametrize(
    ("clock", "level", "text", "remedy"),
    [
        (a_clock(), "ok", "not compared with Vast's yet", False),
        (a_clock(vast=0.4), "ok", "agrees with Vast's", False),
        (a_clock(vast=250.0), "ok", "4 min behind Vast's", False),
        (a_clock(vast=301.0), "warning", "5 min behind Vast's", True),
        (a_clock(vast=-86_400.0), "warning", "24.0 h ahead of Vast's", True),
        (a_clock(set_by=7200.0, vast=0.0), "warning", "agrees with Vast's", False),
        (a_clock(set_by=-7200.0, vast=7200.0), "warning", "2.0 h behind Vast's", True),
    ],
)
def test_the_check_of_the_clock(clock: Clock, level: str, text: str, remedy: bool) -> None:
    found = clock_check(clock)

    assert (found.level, found.fix is not None) == (level, remedy)
    assert text in found.text


def test_a_client_is_warned_while_a_set_clock_is_not_believed() -> None:
    assert clock_warning(a_clock(vast=86_400.0)) is None
    assert "is 2.0 h behind the time of the record" in (clock_warning(a_clock(set_by=-7200)) or "")
