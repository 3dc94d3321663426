"""Stores of an older vastd: the kept one of schema 1, and a running daemon's store put back to it."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vastd.store.mark import NAME
from vastd.store.store import DATABASE

DUMP: Final = Path(__file__).parent.parent / "data" / "store_v1.sql"
FIRST_JOB: Final = "j000001"  # home
LIVE_JOB: Final = "j000003"  # runs on its machine since 100 s
LIVE_RENTAL: Final = "r000004"
BEGAN_S: Final = 579.0  # on the virtual clock: when the store was written


def make_v1(state_dir: Path, *, root: str = "/lab") -> Path:
    """Make the kept store in `state_dir`; `root` replaces the directory of its project."""
    return _made(state_dir, DUMP.read_text().replace("/lab/", f"{root}/"))


def put_back_to_v1(state_dir: Path) -> None:
    """Rewrite the store of an ended daemon as schema 1 had it: its tables, all their rows."""
    with sqlite3.connect(state_dir / DATABASE) as newest:
        rows = {table: newest.execute(f"SELECT * FROM {table}").fetchall() for table in _TABLES}
    newest.close()
    for path in state_dir.glob(f"{DATABASE}*"):
        path.unlink()
    (state_dir / NAME).unlink()
    schema = "\n".join(s for s in _statements(DUMP.read_text()) if not s.startswith("INSERT"))
    path = _made(state_dir, schema)
    with sqlite3.connect(path) as old:
        for table, found in rows.items():
            _insert(old, table, found)
        old.execute("DELETE FROM meta WHERE key = 'store_id'")
    old.close()


_TABLES: Final = ("events", "rentals", "jobs", "answers", "meta")


def _insert(old: sqlite3.Connection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        old.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _statements(text: str) -> list[str]:
    found, part = [], ""
    for line in text.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            found.append(part.strip())
            part = ""
    return found


def _made(state_dir: Path, script: str) -> Path:
    path = state_dir / DATABASE
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.executescript(script)
    made.close()
    path.chmod(0o600)
    return path
