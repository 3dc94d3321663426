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
from vastd.core.hosts import Host
from vastd.core.job import Job
from vastd.core.rental import Rental
from vastd.errors import StateUnusable, StoreDamaged, StoreError
from vastd.store.hosts import EVERY_HOST, host_of, put_hosts
from vastd.store.mark import NAME as MARK
from vastd.store.mark import Mark, Marked, forget_mark, open_mark, read_mark
from vastd.store.renting_lock import RentingLock
from vastd.store.schema import SHAPE, is_damage, migrate, require_known

DATABASE: Final = "vastd.db"
OWNER: Final = "owner"  # `vastd.owner` keeps it, outside the database on purpose


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to a change, kept so that a repeat of the request finds it."""

    request_id: str
    method: str
    body: bytes


class StoredEvent(Struct, frozen=True, kw_only=True):
    """An event with its place in the audit trail."""

    cursor: int
    event: ev.Event


class Store:
    """One open database. Use `opened`."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, mark: Mark | None = None
    ) -> None:
        self._connection = connection
        self._path = path
        self._mark = mark
        self._identity = _identity(path)

    def require_in_place(self) -> None:
        """Return if the open database is still the one that the next start will find.

        Raises:
            StoreError: it was removed or replaced: what is written into it would be lost.
        """
        if self._identity is not None and _identity(self._path) != self._identity:
            raise StoreError(
                f"{self._path} was removed or replaced while vastd had it open",
                hint="stop vastd, put the file back if you have it, and start vastd again",
            )

    def write(
        self,
        events: Sequence[ev.Event],
        rentals: Sequence[Rental],
        jobs: Sequence[Job],
        answers: Sequence[Answer] = (),
        hosts: Sequence[Host] = (),
    ) -> list[int]:
        """Make everything durable in one transaction; return the cursors of `events`.

        With nothing to write it proves that writing works, by a note.

        Raises:
            StoreError: nothing was written (full disk, read-only, I/O error).
        """
        self.require_in_place()
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
                self._put(answers)
                put_hosts(self._connection, hosts)
        except sqlite3.Error as exc:
            raise StoreError(
                f"cannot write {self._path}: {exc}",
                hint="free some space or make the directory writable; nothing new is rented until then",
            ) from exc
        if cursors and self._mark is not None:
            self._mark.note(cursors[-1])
        return cursors

    def _put(self, answers: Sequence[Answer]) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)",
            [(a.request_id, a.method, time.time(), a.body) for a in answers],
        )

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
        with self.changing():
            self._put([Answer(request_id=request_id, method=method, body=body)])

    def answer(self, request_id: str) -> bytes | None:
        """Return the first answer to `request_id`, or None."""
        row = self.read("SELECT body FROM answers WHERE request_id = ?", request_id)
        return row[0][0] if row else None

    def rentals(self) -> list[Rental]:
        """Return every rental, in the order they were first written."""
        return [
            msgspec.json.decode(body, type=Rental)
            for (body,) in self.read("SELECT body FROM rentals ORDER BY rowid")
        ]

    def jobs(self) -> list[Job]:
        """Return every job, in the order they were first written."""
        return [
            msgspec.json.decode(body, type=Job)
            for (body,) in self.read("SELECT body FROM jobs ORDER BY rowid")
        ]

    def hosts(self) -> dict[int, Host]:
        """Return every machine that is known, by machine id."""
        found = (host_of(body) for (body,) in self.read(EVERY_HOST))
        return {host.machine_id: host for host in found}

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
        """Return all events of a rental, a job, or (without either) of vastd itself, oldest first."""
        if rental_id is None and job_id is None:
            return self._events("rental_id IS NULL AND job_id IS NULL ORDER BY cursor", ())
        if rental_id is not None:
            return self._events("rental_id = ? ORDER BY cursor", (rental_id,))
        return self._events("job_id = ? ORDER BY cursor", (job_id,))

    def last_cursor(self) -> int:
        """Return the newest cursor ever given, also when its event was pruned; 0 at first."""
        rows = self.read("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        return int(rows[0][0]) if rows else 0

    def store_id(self) -> str:
        """Return the name this database was given when it was made; empty if somebody removed it."""
        rows = self.read("SELECT value FROM meta WHERE key = 'store_id'")
        return str(rows[0][0]) if rows else ""

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Run the block in a transaction of its own, for what is no event (`retention`).

        Raises:
            StoreError: nothing was changed.
        """
        try:
            with _transaction(self._connection):
                yield self._connection
        except sqlite3.Error as exc:
            raise StoreError(f"cannot write {self._path}: {exc}") from exc

    def _events(self, where: str, values: tuple[object, ...]) -> list[StoredEvent]:
        rows = self.read(f"SELECT cursor, body FROM events WHERE {where}", *values)
        try:
            return [StoredEvent(cursor=c, event=ev.from_bytes(body)) for c, body in rows]
        except msgspec.MsgspecError as exc:
            raise StoreError(f"cannot read {self._path}: an event makes no sense: {exc}") from exc

    def read(self, sql: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
        """Return the rows of a query.

        Raises:
            StoreError: the database cannot be read.
        """
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
        _begin_anew(path)
        raise StoreDamaged(
            why,
            hint="machines are looked for by their labels; see `vastctl doctor`",
        )
    connection = _connect(path)
    mark = None
    try:
        found = _check(connection, path)
        mark = open_mark(state_dir, found.store_id(), found.last_cursor())
        yield Store(connection, path, mark)
    finally:
        connection.close()
        if mark is not None:
            mark.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return which file lies at `path`; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_lost(path: Path) -> bool:
    """The owner word and the mark are written after a first start has made the database: alone,
    they tell that there was one (I8). An empty file is what a truncation leaves."""
    used = (path.parent / OWNER).exists() or (path.parent / MARK).exists()
    return used and (not path.exists() or path.stat().st_size == 0)


def _begin_anew(path: Path) -> None:
    """Make a new database; what an old mark says is not about it."""
    try:
        forget_mark(path.parent)
    except OSError as exc:
        raise StoreError(f"cannot remove the mark in {path.parent}: {exc.strerror}") from exc
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
        raise StateUnusable(f"cannot open {path}: {exc}") from exc
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> Store:
    """Prove that the database can be read whole and is the newest there was, and bring it to the
    newest schema."""
    try:
        require_known(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        _prove_whole(connection)
        migrate(connection, path)
        for table, columns in SHAPE.items():
            connection.execute(f"SELECT {columns} FROM {table} LIMIT 1").fetchall()
        store = Store(connection, path)
        _prove_newest(store, read_mark(path.parent))
        store.rentals()
        store.jobs()
    except (sqlite3.DatabaseError, msgspec.MsgspecError) as exc:
        if isinstance(exc, sqlite3.Error) and not is_damage(exc):
            raise StateUnusable(f"cannot use {path}: {exc}") from exc
        connection.close()
        RentingLock(path.parent).lock(f"the store {path} was damaged ({exc})")
        aside = _quarantine(path)
        _begin_anew(path)  # a missing file beside the owner word would read as a lost store
        raise StoreDamaged(
            f"the store {path} is damaged ({exc}); it was kept as {aside.name}",
            hint="machines are looked for by their labels; see `vastctl doctor`",
        ) from exc
    return store


def _prove_whole(connection: sqlite3.Connection) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _prove_newest(store: Store, mark: Marked | None) -> None:
    """A valid database that is older than its mark would make machines forgotten (I8)."""
    if not store.store_id():
        raise sqlite3.DatabaseError("it has lost its own name")
    if mark is None:
        return
    if mark.store_id != store.store_id():
        raise sqlite3.DatabaseError("it is not the store that was used here last")
    if store.last_cursor() < mark.cursor:
        raise sqlite3.DatabaseError(
            f"it ends at event {store.last_cursor()} although event {mark.cursor} was written: an "
            "older copy, or its write-ahead log was removed"
        )


def _quarantine(path: Path) -> Path:
    name = f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    aside, number = path.with_name(name), 1
    while aside.exists():  # two within one second: neither may replace the other
        number += 1
        aside = path.with_name(f"{name}-{number}")
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        extra = path.with_name(path.name + suffix)
        if extra.exists():
            extra.rename(aside.with_name(aside.name + suffix))
    return aside
