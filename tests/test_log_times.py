"""When logs came home: the index lags and never leads, and what it does not know it does not tell."""

import os
from pathlib import Path

import pytest

from support.builders import T0
from vastd import log_times
from vastd.local_logs import LocalLogs
from vastd.log_times import RECORD_BYTES, LogTimes, Mark, Since

PIECE = 100


@pytest.fixture
def times(tmp_path: Path) -> LogTimes:
    return LogTimes(tmp_path)


def note(times: LogTimes, *seconds: float, start: int = 0) -> int:
    """Note a piece at each of these seconds after `T0`; return where the log ends."""
    for second in seconds:
        times.note("j", start, start + PIECE, T0 + second)
        start += PIECE
    return start


def marks(times: LogTimes, start: int = 0, end: int = 1 << 40, limit: int = 99) -> list[Mark]:
    return times.between("j", start, end, limit)


def records(times: LogTimes) -> int:
    return times.path("j").stat().st_size // RECORD_BYTES


def test_each_piece_has_the_time_it_came(times: LogTimes) -> None:
    note(times, 0, 5, 9)

    assert marks(times) == [Mark(100, T0), Mark(200, T0 + 5), Mark(300, T0 + 9)]
    assert marks(times, 100, 150) == [Mark(200, T0 + 5)]
    assert marks(times, 299, 300) == [Mark(300, T0 + 9)]
    assert marks(times, 300) == []
    assert marks(times, 0, limit=1) == [Mark(100, T0)]


def test_a_second_has_one_record_that_reaches_to_its_last_byte(times: LogTimes) -> None:
    note(times, 0, 0.2, 0.9, 1.0, 1.5)

    assert marks(times) == [Mark(300, T0), Mark(500, T0 + 1)]


def test_a_long_log_is_noted_more_coarsely(
    times: LogTimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_times, "HALVED_AFTER", 8)

    note(times, *range(1000))

    assert records(times) < 60  # 8 each of 1, 2, 4 … 64 s
    assert marks(times, 999 * PIECE, 1000 * PIECE)[0].at_s == pytest.approx(T0 + 999, abs=64)


@pytest.mark.parametrize(
    ("since", "offset"), [(0, 0), (1, 100), (5, 100), (5.1, 200), (9, 200), (9.1, 300)]
)
def test_what_came_since_begins_behind_what_came_before(
    times: LogTimes, since: float, offset: int
) -> None:
    size = note(times, 0, 5, 9)

    assert times.since("j", T0 + since, size) == Since(offset, known=True)


def test_a_restart_goes_on_in_the_same_index(times: LogTimes, tmp_path: Path) -> None:
    end = note(times, 0, 5)

    size = note(LogTimes(tmp_path), 60, start=end)

    assert marks(times)[-1] == Mark(300, T0 + 60)
    assert times.since("j", T0 + 30, size) == Since(200, known=True)


def test_bytes_whose_note_was_killed_have_no_time(times: LogTimes) -> None:
    """Killed between the log and its index: the second of three pieces was not noted."""
    note(times, 0)
    size = note(times, 60, start=2 * PIECE)

    assert marks(times) == [Mark(100, T0), Mark(200, None), Mark(300, T0 + 60)]
    assert times.since("j", T0 + 30, size) == Since(100, known=False)
    assert times.since("j", T0 + 90, size) == Since(300, known=True)


def test_bytes_behind_the_index_have_no_time_yet(times: LogTimes) -> None:
    size = note(times, 0, 5) + 7

    assert marks(times, 200, size) == []
    assert times.since("j", T0 + 30, size) == Since(200, known=False)


def test_a_lost_index_is_unknown_and_begins_anew_without_claims(times: LogTimes) -> None:
    end = note(times, 0, 5)
    times.drop("j")

    assert times.since("j", T0 + 1, end) == Since(0, known=False)
    assert marks(times) == []
    size = note(times, 60, start=end)
    assert marks(times) == [Mark(200, None), Mark(300, T0 + 60)]
    assert times.since("j", T0 + 1, size) == Since(0, known=False)


def test_an_empty_log_is_known_to_have_nothing(times: LogTimes) -> None:
    assert times.since("j", T0, 0) == Since(0, known=True)


@pytest.mark.parametrize("broken", [b"\0" * RECORD_BYTES, b"\xff" * RECORD_BYTES, b"half"])
def test_a_broken_end_is_cut_off_and_its_bytes_have_no_time(times: LogTimes, broken: bytes) -> None:
    note(times, 0)
    with times.path("j").open("ab") as file:
        file.write(broken)

    size = note(times, 9, start=2 * PIECE)

    assert marks(times) == [Mark(100, T0), Mark(200, None), Mark(300, T0 + 9)]
    assert times.since("j", T0 + 5, size) == Since(100, known=False)


def test_a_flipped_bit_in_the_middle_is_told_as_unknown(times: LogTimes) -> None:
    size = note(times, *range(0, 50, 5))
    data = bytearray(times.path("j").read_bytes())
    data[4 * RECORD_BYTES + 7] ^= 1
    times.path("j").write_bytes(data)

    assert [mark.end for mark in marks(times, 0, size)] == [100, 200, 300, 400]
    assert times.since("j", T0 + 1, size) == Since(0, known=False)
    assert times.since("j", T0 + 43, size) == Since(900, known=True)  # it is older than asked for


def test_rubbish_of_any_size_is_unknown_and_then_replaced(times: LogTimes) -> None:
    times.path("j").write_bytes(b"x" * RECORD_BYTES * 10_000)

    assert (marks(times), times.since("j", T0, 500)) == ([], Since(0, known=False))
    note(times, 0, start=500)
    assert marks(times) == [Mark(500, None), Mark(600, T0)]


def test_an_index_of_a_log_that_was_lost_never_leads(times: LogTimes) -> None:
    note(times, 0, 5, 9)

    assert times.since("j", T0 + 7, PIECE) == Since(0, known=False)
    note(times, 60)
    assert marks(times) == [Mark(100, T0 + 60)]


def test_a_clock_that_was_set_back_is_written_down_as_it_is(times: LogTimes) -> None:
    size = note(times, 1000, 5, 6.5)

    assert [mark.at_s for mark in marks(times)] == [T0 + 1000, T0 + 5, T0 + 6.5]
    assert times.since("j", T0 + 6, size) == Since(200, known=True)


def test_an_index_that_cannot_be_written_does_not_hold_up_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = LocalLogs(tmp_path)
    logs.append("j", 0, b"x" * PIECE)
    logs.times.path("j").mkdir()

    logs.times.note("j", 0, PIECE, T0)

    assert logs.times.between("j", 0, PIECE, 9) == []
    assert logs.times.since("j", T0, PIECE) == Since(0, known=False)
    assert "is not noted" in caplog.text


def test_an_index_goes_with_its_log(tmp_path: Path) -> None:
    logs = LocalLogs(tmp_path)
    logs.append("j", 0, b"x" * PIECE)
    logs.times.note("j", 0, PIECE, T0)
    assert logs.times.path("j").exists()

    logs.drop("j")

    assert os.listdir(logs.path("j").parent) == []


def test_a_capped_log_is_noted_to_its_last_words(tmp_path: Path) -> None:
    logs = LocalLogs(tmp_path, lambda: 50)
    size = logs.append("j", 0, b"x" * PIECE)
    logs.times.note("j", 0, size, T0)

    assert logs.capped("j")
    assert logs.times.between("j", 0, size, 9) == [Mark(logs.size("j"), T0)]
