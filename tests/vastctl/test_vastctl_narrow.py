"""Terminals of few columns: nothing breaks in the middle, nothing is lost, nothing stays behind."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastctl.columns import cut, width
from vastctl.screen import Screen
from vastctl.table import NARROW_COLUMNS, pairs, table
from vastd_protocol.methods import budget, job, rental

HEADER = ("NAME", "PHASE", "PRICE")
ROWS = [("lab", "stopped, storage bills", "$0.312/h"), ("train-7b", "ready", "")]


@pytest.mark.parametrize("columns", [1, 5, 20, 30])
def test_a_row_that_would_break_is_a_line_per_cell(columns: int) -> None:
    lines = table(HEADER, ROWS, right=("PRICE",), columns=columns)

    words = " ".join(lines).split()
    for row in ROWS:
        assert set(" ".join(row).split()) <= set(words)
    longest = max(len(word) for word in words)
    assert max(width(line) for line in lines) <= max(columns, longest + 4)


@pytest.mark.parametrize("columns", [None, 42, NARROW_COLUMNS, 200])
def test_a_table_that_fits_or_nearly_fits_stays_one(columns: int | None) -> None:
    assert table(HEADER, ROWS, columns=columns) == table(HEADER, ROWS)
    assert pairs([("key", "value")], columns=columns) == ["key  value"]


def test_a_block_tells_every_cell_under_its_title() -> None:
    assert table(HEADER, ROWS, columns=20) == [
        "NAME", "lab", "  PHASE", "    stopped, storage", "    bills", "  PRICE  $0.312/h",
        "train-7b", "  PHASE  ready",
    ]  # fmt: skip


@given(st.text(max_size=60), st.integers(0, 60))
def test_a_cut_text_never_takes_more_room_than_there_is(text: str, columns: int) -> None:
    short = cut(text, columns)

    assert width(short) <= columns
    assert short == text or width(text) > columns


@pytest.mark.parametrize("columns", [1, 2, 8, 20, 27])
def test_progress_never_breaks_its_line_because_it_could_not_be_rewritten(
    make: Any, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    err = make.stream(tty=True)
    now = iter(range(100))
    screen = Screen(make.stream(tty=True), err, colour=False, clock=lambda: float(next(now)))

    for done in (0, 1_000_000, 999, 4_000_000):
        screen.progress("漢字 sync", done, 4_000_000, "bytes")
    screen.flush()

    assert all(width(part) < max(columns, 1) for part in err.text.split("\r"))
    assert "\n" not in err.text


@pytest.mark.parametrize("columns", ["1", "20", "59", "80"])
@pytest.mark.parametrize(
    "words",
    [("ls",), ("jobs",), ("show", "r-1"), ("job", "show", "j-1"), ("budget",),
     ("--help",), ("run", "--help")],
)  # fmt: skip
def test_no_command_minds_a_narrow_terminal(
    vastctl: Callable[..., Any], daemon: Any, make: Any, monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...], columns: str,
) -> None:  # fmt: skip
    wide = make.rental(name="train-7b", label="lab/train vastd-own00001-r-1")
    daemon.on("rental.list", rental.RentalListView(rentals=[wide], inventory=rental.InventoryView(
        state="fresh"), totals=rental.TotalsView(dph_usd=0.3, cost_usd=0.1)))  # fmt: skip
    daemon.on("rental.get", wide)
    daemon.on("job.list", job.JobListView(jobs=[make.job()]))
    daemon.on("job.get", make.job(outputs=["results/", "*.log"]))
    cap = budget.CapView(key="per_day_usd", window="day", value_usd=25.0, origin="file")
    daemon.on("budget.get", budget.BudgetView(at="", caps=[cap], warn_percent=80.0))
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = vastctl(*words).out
    monkeypatch.setenv("COLUMNS", columns)

    ran = vastctl(*words, tty=True)

    assert (ran.code, ran.err) == (0, "")
    shown = set(ran.out.replace("\x1b[1m", " ").replace("\x1b[0m", " ").split())
    assert words[-1] == "--help" or set(whole.split()) <= shown
    assert vastctl(*words).out == whole or words[-1] == "--help"  # nobody's terminal
