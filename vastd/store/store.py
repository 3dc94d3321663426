"""The store: events and the rows they lead to, written in one transaction (DESIGN D3).

Rules
1. `write` is synchronous: no other task and no cancellation comes between disk and memory.
2. A damaged database is never read as empty: it is moved aside and reported (I8).
3. Nothing secret is ever stored here.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from vastd.core import events as ev
from vastd.core.job import Job
from vastd.core.rental import Rental
from vastd.errors import StoreDamaged, StoreError
from vastd.store.renting_lock import RentingLock
from vastd.store.schema import migrate, require_known

DATABASE: Final = "vastd.db"
OWNER: Final = "owner"  # `vastd.owner` keeps it, outside the database on purpose
RESERVE: Final = "reserve"
RESERVE_BYTES: Final = 8 * 1024 * 1024  # DESIGN I6: released on a full disk
ANSWERS_KEPT_S: Final = 7 * 86_400.0  # CONTRACT 3
EVENTS_KEPT_S: Final = 365 * 86_400.0  # guess: a year of audit trail is small


class StoredEvent(Struct, frozen=True, kw_only=True):
    """An event with its place in the audit trail."""

    cursor: int
    event: ev.Event


class Store:
    """One open database. Use `opened`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def write(
        self,
        events: Sequence[ev.Event],
        rentals: Sequence[Rental],
        jobs: Sequence[Job],
    ) -> list[int]:
        """Make everything durable in one transaction; return the cursors of `events`.

        With nothing to write it proves that writing works, by a note.

        Raises:
            StoreError: nothing was written (full disk, read-only, I/O error).
        """
        try:
            with _transaction(self._connection):
                cursors = [self._append(event) for event in events]
                if not events:
                    self._connection.execute(
                        "INSERT OR REPLACE INTO meta VALUES ('probed', hex(randomblob(8)))"
                    )
                # Not REPLACE: that would give the row a new place in the order.
                self._connection.executemany(
                    "INSERT INTO rentals VALUES (?, ?, ?) ON CONFLICT (rental_id) "
                    "DO UPDATE SET phase = excluded.phase, body = excluded.body",
                    [(r.rental_id, r.phase, _encode(r)) for r in rentals],
                )
                self._connection.executemany(
                    "INSERT INTO jobs VALUES (?, ?, ?) ON CONFLICT (job_id) "
                    "DO UPDATE SET state = excluded.state, body = excluded.body",
                    [(j.job_id, j.state, _encode(j)) for j in jobs],
                )
                return cursors
        except sqlite3.Error as exc:
            raise StoreError(
                f"cannot write {self._path}: {exc}",
                hint="free some space or make the directory writable; nothing new is rented until then",
            ) from exc

    def _append(self, event: ev.Event) -> int:
        rental_id = getattr(event, "rental_id", None)
        job_id = getattr(event, "job_id", None)
        row = self._connection.execute(
            "INSERT INTO events (at, kind, rental_id, job_id, body) VALUES (?, ?, ?, ?, ?)",
            (event.at, ev.kind(event), rental_id, job_id, ev.to_bytes(event)),
        )
        assert row.lastrowid is not None
        return row.lastrowid

    def put_answer(self, request_id: str, method: str, body: bytes) -> None:
        """Keep the answer to a mutating request; the first one stands.

        Raises:
            StoreError: it is not kept.
        """
        try:
            with _transaction(self._connection):
                self._connection.execute(
                    "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)",
                    (request_id, method, time.time(), body),
                )
        except sqlite3.Error as exc:
            raise StoreError(f"cannot write {self._path}: {exc}") from exc

    def answer(self, request_id: str) -> bytes | None:
        """Return the first answer to `request_id`, or None."""
        row = self._read("SELECT body FROM answers WHERE request_id = ?", (request_id,))
        return row[0][0] if row else None

    def rentals(self) -> list[Rental]:
        """Return every rental, in the order they were first written."""
        return [
            msgspec.json.decode(body, type=Rental)
            for (body,) in self._read("SELECT body FROM rentals ORDER BY rowid", ())
        ]

    def jobs(self) -> list[Job]:
        """Return every job, in the order they were first written."""
        return [
            msgspec.json.decode(body, type=Job)
            for (body,) in self._read("SELECT body FROM jobs ORDER BY rowid", ())
        ]

    def events_after(self, cursor: int, limit: int) -> list[StoredEvent]:
        """Return up to `limit` events after `cursor`, oldest first."""
        return self._events("cursor > ? ORDER BY cursor LIMIT ?", (cursor, limit))

    def events_before_end(self, limit: int) -> list[StoredEvent]:
        """Return the newest `limit` events, oldest first."""
        found = self._events("1 = 1 ORDER BY cursor DESC LIMIT ?", (limit,))
        return found[::-1]

    def events_since(self, at: float, limit: int) -> list[StoredEvent]:
        """Return up to `limit` events at or after `at`, oldest first."""
        return self._events("at >= ? ORDER BY cursor LIMIT ?", (at, limit))

    def events_of(
        self, *, rental_id: str | None = None, job_id: str | None = None
    ) -> list[StoredEvent]:
        """Return all events of a rental or a job, oldest first."""
        if rental_id is not None:
            return self._events("rental_id = ? ORDER BY cursor", (rental_id,))
        return self._events("job_id = ? ORDER BY cursor", (job_id,))

    def last_cursor(self) -> int:
        """Return the newest cursor; 0 when there are no events."""
        return int(self._read("SELECT COALESCE(MAX(cursor), 0) FROM events", ())[0][0])

    def prune(self, now: float) -> None:
        """Drop answers after 7 days and events after a year."""
        try:
            with _transaction(self._connection):
                self._connection.execute(
                    "DELETE FROM answers WHERE at < ?", (now - ANSWERS_KEPT_S,)
                )
                self._connection.execute("DELETE FROM events WHERE at < ?", (now - EVENTS_KEPT_S,))
        except sqlite3.Error as exc:
            raise StoreError(f"cannot prune {self._path}: {exc}") from exc

    def _events(self, where: str, values: tuple[object, ...]) -> list[StoredEvent]:
        rows = self._read(f"SELECT cursor, body FROM events WHERE {where}", values)
        try:
            return [StoredEvent(cursor=c, event=ev.from_bytes(body)) for c, body in rows]
        except msgspec.MsgspecError as exc:
            raise StoreError(f"cannot read {self._path}: an event makes no sense: {exc}") from exc

    def _read(self, sql: str, values: tuple[object, ...]) -> list[tuple]:  # type: ignore[type-arg]
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as exc:
            raise StoreError(f"cannot read {self._path}: {exc}") from exc


_encode = msgspec.json.encode


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A failed COMMIT (full disk) leaves the transaction open; without this every later
        # write would fail with "cannot start a transaction within a transaction".
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def opened(state_dir: Path) -> Iterator[Store]:
    """Open the store of a locked state directory, making or migrating it as needed.

    Raises:
        StoreDamaged: the database is unreadable and was moved aside as `vastd.db.damaged-…`, or
            it was lost. The next call opens a new one.
        StoreTooNew, StoreError: nothing was changed.
    """
    path = state_dir / DATABASE
    if _is_lost(path):
        why = f"the store {path} is missing or empty although this state directory was in use"
        RentingLock(state_dir).lock(why)
        _connect_new(path)
        raise StoreDamaged(
            why,
            hint="machines are looked for by their labels; see `vastctl doctor`",
        )
    connection = _connect(path)
    try:
        _check(connection, path)
        yield Store(connection, path)
    finally:
        connection.close()


def _is_lost(path: Path) -> bool:
    """The owner word is written after a first start has made the database: alone, it tells that
    there was one (I8). An empty file is what a truncation leaves."""
    used = (path.parent / OWNER).exists()
    return used and (not path.exists() or path.stat().st_size == 0)


def _connect_new(path: Path) -> None:
    connection = _connect(path)
    try:
        _check(connection, path)
    finally:
        connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    existed = path.exists()
    try:
        if not existed:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as exc:
        raise StoreError(f"cannot open {path}: {exc}") from exc
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Prove that the database can be read whole, and bring it to the newest schema."""
    try:
        require_known(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        _prove_whole(connection)
        migrate(connection)
        for table, columns in _SHAPE.items():
            connection.execute(f"SELECT {columns} FROM {table} LIMIT 1").fetchall()
        store = Store(connection, path)
        store.rentals()
        store.jobs()
    except (sqlite3.DatabaseError, msgspec.MsgspecError) as exc:
        if isinstance(exc, sqlite3.OperationalError) and not _is_damage(exc):
            raise StoreError(f"cannot use {path}: {exc}") from exc
        connection.close()
        RentingLock(path.parent).lock(f"the store {path} was damaged ({exc})")
        aside = _quarantine(path)
        _connect_new(path)  # a missing file beside the owner word would read as a lost store
        raise StoreDamaged(
            f"the store {path} is damaged ({exc}); it was kept as {aside.name}",
            hint="machines are looked for by their labels; see `vastctl doctor`",
        ) from exc


def _prove_whole(connection: sqlite3.Connection) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


# What every statement of this module relies on: a table without it is damage, found at the start.
_SHAPE: Final = {
    "events": "cursor, at, kind, rental_id, job_id, body",
    "rentals": "rental_id, phase, body",
    "jobs": "job_id, state, body",
    "answers": "request_id, method, at, body",
    "meta": "key, value",
}


def _is_damage(exc: sqlite3.OperationalError) -> bool:
    """Tables that are not as the version says; other operational errors may pass."""
    said = ("no such table", "no such column", "already exists")
    return any(words in str(exc) for words in said)


def _quarantine(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        extra = path.with_name(path.name + suffix)
        if extra.exists():
            extra.rename(aside.with_name(aside.name + suffix))
    return aside


def keep_reserve(state_dir: Path) -> None:
    """Make the reserve file, so that a full disk still leaves room to record endings."""
    path = state_dir / RESERVE
    with contextlib.suppress(OSError):  # a full disk at start: there is nothing to reserve
        if not path.exists() or path.stat().st_size < RESERVE_BYTES:
            path.write_bytes(bytes(RESERVE_BYTES))


def release_reserve(state_dir: Path) -> bool:
    """Give the reserve back to a full disk; return whether there was one."""
    try:
        (state_dir / RESERVE).unlink()
    except OSError:
        return False
    return True
