"""The database schema and its migrations.

Rules
1. Version n becomes n + 1 by one entry of `MIGRATIONS`, in one transaction.
2. A database newer than this build is refused, never touched.
3. Bodies are msgspec JSON; columns beside them exist only to be queried.
"""

import os
import sqlite3
from pathlib import Path
from typing import Final

from vastd.errors import StoreError, StoreTooNew

# What turns version n (the index) into n + 1. Entries are never changed once released.
MIGRATIONS: Final = (
    """
    CREATE TABLE events (
        cursor INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        rental_id TEXT,
        job_id TEXT,
        body BLOB NOT NULL
    );
    CREATE INDEX events_rental ON events (rental_id, cursor);
    CREATE INDEX events_job ON events (job_id, cursor);
    CREATE INDEX events_at ON events (at);
    CREATE TABLE rentals (
        rental_id TEXT PRIMARY KEY,
        phase TEXT NOT NULL,
        body BLOB NOT NULL
    );
    CREATE TABLE jobs (
        job_id TEXT PRIMARY KEY,
        state TEXT NOT NULL,
        body BLOB NOT NULL
    );
    CREATE TABLE answers (
        request_id TEXT PRIMARY KEY,
        method TEXT NOT NULL,
        at REAL NOT NULL,
        body BLOB NOT NULL
    );
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    """,
    # `costs`: what rentals cost whose rows were pruned. `store_id`: see `store.mark`.
    """
    CREATE TABLE costs (
        day TEXT NOT NULL,
        project TEXT NOT NULL,
        micros INTEGER NOT NULL,
        PRIMARY KEY (day, project)
    );
    INSERT INTO meta VALUES ('store_id', lower(hex(randomblob(8))));
    """,
    # `hosts`: what is known of machines; filled by the ledger from the rentals there are.
    """
    CREATE TABLE hosts (
        machine_id INTEGER PRIMARY KEY,
        body BLOB NOT NULL
    );
    """,
)

# What every statement of the store relies on: a table without it is damage, found at the start.
SHAPE: Final = {
    "events": "cursor, at, kind, rental_id, job_id, body",
    "rentals": "rental_id, phase, body",
    "jobs": "job_id, state, body",
    "answers": "request_id, method, at, body",
    "meta": "key, value",
    "costs": "day, project, micros",
    "hosts": "machine_id, body",
}


def require_known(connection: sqlite3.Connection) -> int:
    """Return the version of a database that this build may change.

    Raises:
        StoreTooNew: a newer vastd wrote it.
    """
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > len(MIGRATIONS):
        raise StoreTooNew(
            f"the store has schema version {found}, this vastd knows up to {len(MIGRATIONS)}",
            hint="start the newer vastd again, or use another state directory (VASTD_STATE_DIR)",
        )
    return int(found)


def migrate(connection: sqlite3.Connection, path: Path) -> int:
    """Bring the database at `path` to the newest version; return the version it had.

    A copy of an older one is kept beside it first, as `vastd.db.before-vN`.

    Raises:
        StoreTooNew: a newer vastd wrote it.
        StoreError: the disk refuses; the database is as it was.
    """
    found = require_known(connection)
    if found == len(MIGRATIONS):
        return found
    try:
        if found:
            _keep_copy(connection, path.with_name(f"{path.name}.before-v{len(MIGRATIONS)}"))
        for version in range(found, len(MIGRATIONS)):
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{MIGRATIONS[version]}\n"
                f"PRAGMA user_version = {version + 1};\nCOMMIT;"
            )
    except sqlite3.Error as exc:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if not found or is_damage(exc):
            raise
        raise StoreError(
            f"cannot bring {path} from schema {found} to {len(MIGRATIONS)}: {exc}; "
            "the store is as it was",
            hint="free some space (a copy of the store is made first) and start vastd again",
        ) from exc
    return found


def is_damage(exc: sqlite3.Error) -> bool:
    """Return whether `exc` means a database that is not as it must be, and not a passing trouble."""
    if type(exc) is sqlite3.DatabaseError:  # malformed, or no database at all
        return True
    # Tables that are not as the version says.
    said = ("no such table", "no such column", "already exists")
    return any(words in str(exc) for words in said)


def _keep_copy(connection: sqlite3.Connection, copy: Path) -> None:
    """Write the database as it is now to `copy`, whole or not at all."""
    partial = copy.with_name(f"{copy.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        # Made first, for us alone; SQLite takes an empty file.
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        connection.execute("VACUUM INTO ?", (str(partial),))
        partial.replace(copy)
    except OSError as exc:
        raise sqlite3.OperationalError(f"cannot keep {copy.name}: {exc.strerror}") from exc
    finally:
        partial.unlink(missing_ok=True)
