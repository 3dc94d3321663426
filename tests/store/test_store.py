"""The store: one transaction or nothing, damage is never emptiness, and order survives."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.builders import JOB_ID, RENTAL_ID, T0, a_job, a_rental, sample, samples
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.rental import Phase
from vastd.errors import StateUnusable, StoreDamaged, StoreError, StoreLocked, StoreTooNew
from vastd.store.lock import locked
from vastd.store.renting_lock import RentingLock
from vastd.store.reserve import RESERVE, RESERVE_BYTES, keep_reserve, release_reserve
from vastd.store.schema import MIGRATIONS
from vastd.store.store import DATABASE, Store, opened


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def store(state_dir: Path) -> Iterator[Store]:
    with opened(state_dir) as found:
        yield found


def fill(state_dir: Path) -> None:
    """Write one rental, one job and an event, and close."""
    with opened(state_dir) as store:
        store.write([sample(ev.InstanceRunning)], [a_rental()], [a_job()])


def test_a_new_store_is_empty_private_and_of_the_newest_schema(state_dir: Path) -> None:
    with opened(state_dir) as store:
        assert (store.rentals(), store.jobs(), store.last_cursor()) == ([], [], 0)

    database = state_dir / DATABASE
    assert database.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(database) as plain:
        assert plain.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    plain.close()


def test_what_was_written_is_read_back_after_a_restart(state_dir: Path) -> None:
    with opened(state_dir) as store:
        cursors = store.write(samples(), [a_rental()], [a_job()])
    with opened(state_dir) as store:
        assert store.rentals() == [a_rental()]
        assert store.jobs() == [a_job()]
        assert [s.event for s in store.events_after(0, 100)] == samples()
        assert [s.cursor for s in store.events_after(0, 100)] == cursors


def test_records_come_back_in_the_order_of_their_first_write(state_dir: Path) -> None:
    names = ["r3", "r1", "r2"]
    with opened(state_dir) as store:
        for name in names:
            store.write([], [a_rental(rental_id=name)], [a_job(job_id=name)])
        store.write(
            [], [a_rental(Phase.BUSY, rental_id="r3")], [a_job(JobState.FAILED, job_id="r3")]
        )
    with opened(state_dir) as store:
        assert [r.rental_id for r in store.rentals()] == names
        assert [j.job_id for j in store.jobs()] == names
        assert store.rentals()[0].phase is Phase.BUSY


def test_events_are_found_by_cursor_time_and_what_they_are_about(store: Store) -> None:
    events = [
        ev.InstanceRunning(rental_id="r1", at=T0),
        ev.InstanceRunning(rental_id="r2", at=T0 + 1),
        ev.CancelAsked(job_id=JOB_ID, at=T0 + 2),
        ev.JobBegan(rental_id="r1", job_id=JOB_ID, at=T0 + 3),
    ]
    cursors = store.write(events, [], [])

    assert cursors == sorted(set(cursors))
    assert [s.event for s in store.events_after(cursors[0], 2)] == events[1:3]
    assert [s.event for s in store.events_before_end(2)] == events[2:]
    assert [s.event for s in store.events_since(T0 + 1, 1)] == events[1:2]
    assert [s.event for s in store.events_of(rental_id="r1")] == [events[0], events[3]]
    assert [s.event for s in store.events_of(job_id=JOB_ID)] == events[2:]
    assert store.last_cursor() == cursors[-1]


def test_the_first_answer_to_a_request_stands(store: Store) -> None:
    store.put_answer("q1", "job.submit", b"one")
    store.put_answer("q1", "job.submit", b"two")

    assert (store.answer("q1"), store.answer("q2")) == (b"one", None)


# -- damage


def lose_nothing(state_dir: Path) -> list[str]:
    return sorted(p.name for p in state_dir.glob("vastd.db.damaged-*"))


def truncate(database: Path) -> None:
    database.write_bytes(database.read_bytes()[: database.stat().st_size // 2])


def scribble(database: Path) -> None:
    data = bytearray(database.read_bytes())
    data[4096 : 4096 + 2000] = b"\xff" * 2000
    database.write_bytes(data)


def overwrite(database: Path) -> None:
    database.write_bytes(b"this is no database" * 500)


def sql(statement: str):
    def damage(database: Path) -> None:
        with sqlite3.connect(database) as plain:
            plain.execute(statement)
        plain.close()

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        scribble,
        overwrite,
        sql("DROP TABLE rentals"),
        sql("DROP TABLE events"),
        sql("DROP TABLE meta"),
        sql("ALTER TABLE jobs RENAME COLUMN body TO corpse"),
        sql("UPDATE rentals SET body = '{'"),
        sql("UPDATE rentals SET body = '{\"rental_id\": 5}'"),
        sql("UPDATE jobs SET body = x'00ff'"),
        sql("PRAGMA user_version = 0"),
    ],
)  # fmt: skip
def test_a_damaged_store_is_put_aside_whole_and_never_read_as_empty(
    state_dir: Path, damage
) -> None:
    fill(state_dir)
    damage(state_dir / DATABASE)
    before = (state_dir / DATABASE).read_bytes()

    with pytest.raises(StoreDamaged) as caught, opened(state_dir):
        pytest.fail("a damaged store was opened")

    (aside,) = lose_nothing(state_dir)
    assert aside in str(caught.value)
    assert (state_dir / aside).read_bytes() == before
    with opened(state_dir) as anew:
        assert anew.rentals() == []


@pytest.mark.parametrize("loss", [lambda p: p.unlink(), lambda p: p.write_bytes(b"")])
def test_a_store_that_is_missing_or_empty_in_a_used_directory_is_damage(
    state_dir: Path, loss
) -> None:
    fill(state_dir)
    (state_dir / "owner").write_text("own00001\n")
    loss(state_dir / DATABASE)

    with pytest.raises(StoreDamaged, match="missing or empty"), opened(state_dir):
        pytest.fail("a lost store was opened")
    with opened(state_dir) as anew:
        assert anew.rentals() == []


def test_a_store_of_a_newer_vastd_is_refused_untouched(state_dir: Path) -> None:
    fill(state_dir)
    sql("PRAGMA user_version = 99")(state_dir / DATABASE)
    before = (state_dir / DATABASE).read_bytes()

    with pytest.raises(StoreTooNew, match="99"), opened(state_dir):
        pytest.fail("a newer store was opened")

    assert (state_dir / DATABASE).read_bytes() == before
    assert lose_nothing(state_dir) == []


def test_an_event_that_makes_no_sense_is_an_error_of_ours_when_it_is_read(state_dir: Path) -> None:
    fill(state_dir)
    sql("UPDATE events SET body = '{}'")(state_dir / DATABASE)

    with opened(state_dir) as store, pytest.raises(StoreError, match="makes no sense"):
        store.events_after(0, 10)


# -- crashes and full disks


def test_a_kill_leaves_every_commit_in_the_log_beside_the_database(
    state_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("copy")
    with opened(state_dir) as store:
        store.write([sample(ev.InstanceRunning)], [a_rental()], [a_job()])
        for path in state_dir.iterdir():  # as a kill leaves them: nothing was checkpointed
            shutil.copy(path, copy)
    assert (copy / f"{DATABASE}-wal").stat().st_size > 0

    with opened(copy) as store:
        assert store.rentals() == [a_rental()]
        assert store.last_cursor() == 1


def test_a_full_disk_writes_nothing_and_the_store_goes_on_afterwards(store: Store) -> None:
    store.write([sample(ev.InstanceRunning)], [a_rental()], [])
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    big = a_rental(Phase.BUSY, name="x" * 100_000)

    with pytest.raises(StoreError, match="full") as caught:
        store.write([sample(ev.JobBegan)], [big], [a_job()])

    assert "free some space" in caught.value.hint
    assert store.rentals() == [a_rental()]
    assert (store.jobs(), store.last_cursor()) == ([], 1)
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.write([sample(ev.JobBegan)], [big], [a_job()])
    assert store.rentals() == [big]


def test_a_write_that_fails_half_way_leaves_no_transaction_open(store: Store) -> None:
    unwritable = ev.CancelAsked(job_id=JOB_ID, at=object())  # type: ignore[arg-type]

    with pytest.raises(TypeError):
        store.write([sample(ev.InstanceRunning), unwritable], [a_rental()], [])

    assert (store.rentals(), store.last_cursor()) == ([], 0)
    store.write([sample(ev.InstanceRunning)], [a_rental()], [])
    assert store.rentals() == [a_rental()]


FULL_DISK = """
import resource, sys
from pathlib import Path
from support.builders import a_rental, sample
from vastd.core import events as ev
from vastd.errors import StoreError
from vastd.store.store import opened
with opened(Path(sys.argv[1])) as store:
    store.write([sample(ev.InstanceRunning)], [a_rental()], [])
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    try:
        store.write([sample(ev.InstanceRunning)], [a_rental(rental_id="r2")], [])
    except StoreError as exc:
        print("refused:", exc)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    store.write([sample(ev.InstanceRunning)], [a_rental(rental_id="r3")], [])
    print([r.rental_id for r in store.rentals()])
"""


def test_a_write_that_the_system_refuses_is_an_error_and_no_half_truth(
    state_dir: Path, request: pytest.FixtureRequest
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(state_dir)],
        cwd=request.config.rootpath / "tests",
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.startswith("refused: cannot write")
    assert ran.stdout.endswith("['r1', 'r3']\n")


def test_a_write_of_nothing_still_proves_that_writing_works(store: Store) -> None:
    before = store._connection.total_changes

    store.write([], [], [])

    assert store._connection.total_changes > before
    store._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError):
        store.write([], [], [])


def test_the_reserve_is_real_and_given_back_once(state_dir: Path) -> None:
    keep_reserve(state_dir)
    reserve = state_dir / RESERVE

    assert reserve.stat().st_size == RESERVE_BYTES
    assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES  # a sparse file would reserve nothing
    assert release_reserve(state_dir)
    assert not release_reserve(state_dir)


# -- one owner


HOLD = """
import sys
from pathlib import Path
from vastd.errors import StoreLocked
from vastd.store.lock import locked
try:
    with locked(Path(sys.argv[1])):
        print("mine")
except StoreLocked as exc:
    print("refused:", exc)
"""


def test_a_second_process_is_refused_by_name_until_the_first_lets_go(state_dir: Path) -> None:
    def other() -> str:
        ran = subprocess.run(
            [sys.executable, "-c", HOLD, str(state_dir)], capture_output=True, text=True, check=True
        )
        return ran.stdout

    import os

    with locked(state_dir):
        refused = other()
        with pytest.raises(StoreLocked), locked(state_dir):
            pytest.fail("the lock was given twice")

    assert refused.startswith(f"refused: another vastd owns {state_dir} (pid {os.getpid()})")
    assert other() == "mine\n"


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with (
        pytest.raises(StateUnusable, match="cannot use the state directory"),
        locked(tmp_path / "file" / "state"),
    ):
        pytest.fail("a file was used as a directory")


def test_a_database_that_cannot_be_opened_or_written_says_that_nobody_watches(
    tmp_path: Path,
) -> None:
    (tmp_path / DATABASE).mkdir()

    with pytest.raises(StateUnusable, match="cannot") as caught, opened(tmp_path):
        pytest.fail("a directory was used as a database")

    assert "nobody watches them" in caught.value.hint
    assert "`cp -a STATE_DIR COPY`" in caught.value.hint


def test_the_records_are_about_what_they_say() -> None:
    assert (a_rental().rental_id, a_job().job_id) == (RENTAL_ID, JOB_ID)


@pytest.mark.parametrize("damage", ["lost", "garbage"])
def test_renting_is_locked_before_a_damaged_store_is_put_aside(
    state_dir: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill right after the damage was noticed leaves the damage or the note, never neither."""
    with opened(state_dir):
        pass
    (state_dir / "owner").write_text("abcd1234\n")
    if damage == "lost":
        (state_dir / "vastd.db").unlink()
    else:
        (state_dir / "vastd.db").write_bytes(b"no database" * 1000)
    monkeypatch.setattr("vastd.store.store._quarantine", _killed)
    monkeypatch.setattr("vastd.store.store._begin_anew", _killed)

    with pytest.raises(Killed), opened(state_dir):
        pass

    lock = RentingLock(state_dir)
    assert lock.why is not None
    lock.lift()
    assert RentingLock(state_dir).why is None


class Killed(Exception):
    pass


def _killed(path: Path) -> None:
    raise Killed
