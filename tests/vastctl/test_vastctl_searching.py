"""`logs --search`: an expression that never ends is ended, and the alarm clock is given back."""

import signal
import time

import pytest

from vastctl import searching
from vastctl.errors import CliError, UsageError
from vastctl.found_lines import MAX_LINE_BYTES, FoundLines
from vastctl.searching import LineSearch


def test_an_expression_that_never_ends_is_ended_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(searching, "SEARCH_S", 0.05)
    before = signal.getsignal(signal.SIGALRM)
    began = time.monotonic()

    with pytest.raises(CliError, match="took more than") as caught:
        LineSearch("(a+)+$").matching([b"a" * 60 + b"!"])

    assert time.monotonic() - began < 5
    assert "nested repeats" in caught.value.hint
    assert caught.value.exit_code == 2
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_commands_own_limit_counts_if_it_is_shorter() -> None:
    with pytest.raises(CliError) as caught:
        LineSearch("(a+)+$", limit_s=0.02).matching([b"a" * 60 + b"!"])

    assert caught.value.exit_code == 8


def test_all_pieces_together_get_no_longer_than_the_commands_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(100))  # every piece takes a second
    monkeypatch.setattr(searching.time, "monotonic", lambda: float(next(clock)))
    search = LineSearch("(a+)+$", limit_s=3.01)

    for _piece in range(3):
        assert search.matching([b"a"]) == [b"a"]
    with pytest.raises(CliError, match=r"took more than 3\.01 s$") as caught:
        search.matching([b"a" * 60 + b"!"])

    assert caught.value.exit_code == 8


def test_the_alarm_is_heard_soon_on_the_longest_line() -> None:
    """`re` looks for signals only now and then: the longer the line, the later."""
    began = time.monotonic()

    with pytest.raises(CliError):
        LineSearch("x*x*y", limit_s=0.05).matching([b"x" * MAX_LINE_BYTES])

    assert time.monotonic() - began < 2


def test_a_line_that_never_ends_is_searched_in_pieces() -> None:
    lines = FoundLines(LineSearch("x"))
    data = b"x" * (MAX_LINE_BYTES + 1)

    found = [one for n in range(3) for one in lines.of(n * len(data), data, None)]

    assert [(one.offset, len(one.line), one.ended) for one in found] == [
        (n * len(data), len(data), False) for n in range(3)
    ]
    assert lines.close() == []


def test_matching_lines_come_back_and_nonsense_is_refused() -> None:
    assert LineSearch("b|c").matching([b"a", b"b", b"xc"]) == [b"b", b"xc"]
    with pytest.raises(UsageError, match="no regular expression"):
        LineSearch("(")
