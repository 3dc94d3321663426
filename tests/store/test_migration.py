"""A store of an older vastd becomes one of this vastd, or stays exactly what it was."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from support.old_store import FIRST_JOB, LIVE_JOB, LIVE_RENTAL, make_v1
from vastd.core.job import JobState
from vastd.core.rental import Phase
from vastd.errors import StoreError
from vastd.ledger import Ledger
from vastd.store.schema import MIGRATIONS
from vastd.store.store import DATABASE, opened

BACKUP = f"{DATABASE}.before-v{len(MIGRATIONS)}"


def version(path: Path) -> int:
    with sqlite3.connect(path) as plain:
        (found,) = plain.execute("PRAGMA user_version").fetchone()
    plain.close()
    return int(found)


def test_a_store_of_schema_1_is_read_whole_and_brought_to_the_newest_schema(tmp_path: Path) -> None:
    make_v1(tmp_path)

    with opened(tmp_path) as store:
        ledger = Ledger(store)
        events, answer = store.events_after(0, 100), store.answer("q-second")
        named = store.store_id()

    assert ledger.jobs[FIRST_JOB].collected is True
    assert ledger.jobs[LIVE_JOB].state is JobState.RUNNING
    assert ledger.rentals[LIVE_RENTAL].phase is Phase.BUSY
    assert [r.phase for r in ledger.rentals.values()] == [Phase.GONE, Phase.BUSY]
    assert len(events) == 36
    assert answer is not None
    assert len(named) == 16
    assert version(tmp_path / DATABASE) == len(MIGRATIONS)


def test_a_copy_of_the_old_store_stays_beside_it_for_us_alone(tmp_path: Path) -> None:
    make_v1(tmp_path)

    with opened(tmp_path):
        pass

    assert version(tmp_path / BACKUP) == 1
    assert (tmp_path / BACKUP).stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(tmp_path / BACKUP) as plain:
        assert plain.execute("SELECT count(*) FROM events").fetchone() == (36,)
    plain.close()


def test_a_new_store_needs_no_copy(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass

    assert not (tmp_path / BACKUP).exists()


FULL_DISK = """
import resource, sys
from pathlib import Path
from vastd.errors import StoreError
from vastd.store.store import opened
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    with opened(Path(sys.argv[1])):
        print("opened")
except StoreError as exc:
    print("refused:", exc, "|", exc.hint)
"""


@pytest.mark.sim
@pytest.mark.parametrize("limit", [1024, 16_384, 40_000])
def test_a_migration_on_a_full_disk_leaves_the_old_store_as_it_was(
    tmp_path: Path, limit: int
) -> None:
    make_v1(tmp_path)
    before = _dump(tmp_path / DATABASE)

    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), str(limit)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert ran.stdout.startswith("refused: "), ran.stdout
    assert _dump(tmp_path / DATABASE) == before
    assert version(tmp_path / DATABASE) == 1
    assert not list(tmp_path.glob("*.partial"))
    with opened(tmp_path) as store:  # with room again
        assert Ledger(store).jobs[LIVE_JOB].state is JobState.RUNNING


def test_a_migration_that_breaks_off_is_undone_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_v1(tmp_path)
    before = _dump(tmp_path / DATABASE)
    broken = (*MIGRATIONS[:1], MIGRATIONS[1] + "INSERT INTO costs VALUES (1, 1, zeroblob(2e9));")
    monkeypatch.setattr("vastd.store.schema.MIGRATIONS", broken)

    with pytest.raises(StoreError, match="from schema 1 to 2") as caught, opened(tmp_path):
        pytest.fail("it was opened")

    assert "as it was" in str(caught.value)
    assert _dump(tmp_path / DATABASE) == before


def _dump(path: Path) -> list[str]:
    with sqlite3.connect(path) as plain:
        lines = list(plain.iterdump())
    plain.close()
    return lines
