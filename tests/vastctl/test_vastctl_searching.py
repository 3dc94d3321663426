"""`logs --search`: an expression that never ends is ended, and the alarm clock is given back."""

import signal
import time

import pytest

from vastctl import searching
from vastctl.errors import CliError, UsageError
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


def test_matching_lines_come_back_and_nonsense_is_refused() -> None:
    assert LineSearch("b|c").matching([b"a", b"b", b"xc"]) == [b"b", b"xc"]
    with pytest.raises(UsageError, match="no regular expression"):
        LineSearch("(")
