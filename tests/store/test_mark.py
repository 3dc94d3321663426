"""A valid database that is older than the one used last is damage (I8), and no kill looks like one."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from support.builders import a_rental, sample
from vastd.core import events as ev
from vastd.errors import StoreDamaged
from vastd.store.mark import NAME, Marked, open_mark, read_mark
from vastd.store.renting_lock import RentingLock
from vastd.store.store import DATABASE, Store, opened

WAL = f"{DATABASE}-wal"


def write(store: Store, times: int = 1) -> None:
    for number in range(times):
        store.write([sample(ev.InstanceRunning)], [a_rental(rental_id=f"r{number}")], [])


def killed(state_dir: Path, into: Path, *, writes: int = 3) -> Path:
    """Leave in `into` what a kill leaves: nothing was checkpointed."""
    state_dir.mkdir()
    with opened(state_dir) as store:
        write(store, writes)
        shutil.copytree(state_dir, into)
    return into


def old_copy(state: Path) -> None:
    with sqlite3.connect(state / DATABASE) as newest:
        newest.execute("PRAGMA journal_mode = DELETE")
        newest.execute("DELETE FROM events WHERE cursor > 1")
        newest.execute("UPDATE sqlite_sequence SET seq = 1")
    newest.close()


def without_log(state: Path) -> None:
    (state / WAL).unlink()


def empty_and_valid(state: Path) -> None:
    for name in (DATABASE, WAL, f"{DATABASE}-shm"):
        (state / name).unlink(missing_ok=True)
    with sqlite3.connect(state / DATABASE) as other:
        other.execute("CREATE TABLE t (a)")
    other.close()


def of_another_directory(state: Path) -> None:
    empty_and_valid(state)
    (state / DATABASE).unlink()
    other = state / "other"
    other.mkdir()
    with opened(other) as store:
        write(store, 9)
    shutil.copy(other / DATABASE, state / DATABASE)


@pytest.mark.parametrize("swap", [old_copy, without_log, empty_and_valid, of_another_directory])
def test_an_older_or_other_store_is_put_aside_and_renting_locked(
    tmp_path: Path, swap: Callable[[Path], None]
) -> None:
    state = killed(tmp_path / "first", tmp_path / "state")
    swap(state)

    with pytest.raises(StoreDamaged, match=r"ends at event|not the store"), opened(state):
        pytest.fail("it was believed")

    assert RentingLock(state).why is not None
    assert len(list(state.glob(f"{DATABASE}.damaged-*"))) >= 1
    with opened(state) as anew:
        assert anew.rentals() == []
        write(anew)
    with opened(state) as again:
        assert again.last_cursor() == 1


@pytest.mark.parametrize("cursor", [0, 1, 2, 3])
def test_a_mark_that_lags_behind_as_after_a_power_cut_is_no_alarm(
    tmp_path: Path, cursor: int
) -> None:
    state = killed(tmp_path / "first", tmp_path / "state")
    told = read_mark(state)
    assert told is not None
    assert told.cursor == 3
    _set(state, told.store_id, cursor)

    with opened(state) as store:
        assert store.last_cursor() == 3

    assert read_mark(state) == Marked(store_id=told.store_id, cursor=3)


def _set(state: Path, store_id: str, cursor: int) -> None:
    mark = open_mark(state, store_id, cursor)
    assert mark is not None
    mark.close()


@pytest.mark.parametrize("text", ["", "garbage", "a 1 00000000\n", "\xff"])
def test_a_mark_that_makes_no_sense_says_nothing(tmp_path: Path, text: str) -> None:
    state = killed(tmp_path / "first", tmp_path / "state")
    (state / NAME).write_bytes(text.encode("latin-1"))

    with opened(state) as store:
        assert store.last_cursor() == 3


def test_a_store_that_was_pruned_bare_is_still_the_newest(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, 3)
        store._connection.execute("DELETE FROM events")

    with opened(tmp_path) as store:
        assert store.last_cursor() == 3


def test_a_missing_database_beside_a_mark_is_damage_also_without_the_owner_word(
    tmp_path: Path,
) -> None:
    state = killed(tmp_path / "first", tmp_path / "state")
    for name in (DATABASE, WAL, f"{DATABASE}-shm"):
        (state / name).unlink()

    with pytest.raises(StoreDamaged, match="missing or empty"), opened(state):
        pytest.fail("it was taken for a first start")


def test_two_damaged_stores_of_one_second_are_both_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with opened(tmp_path) as store:
            write(store)
        (tmp_path / DATABASE).write_bytes(b"no database" * 1000)
        with pytest.raises(StoreDamaged), opened(tmp_path):
            pytest.fail("it was believed")

    kept = [
        p for p in tmp_path.glob(f"{DATABASE}.damaged-*") if not p.name.endswith(("wal", "shm"))
    ]
    assert len(kept) == 2
