"""The database schema and its migrations.

Rules
1. Version n becomes n + 1 by one entry of `MIGRATIONS`, in one transaction.
2. A database newer than this build is refused, never touched.
3. Bodies are msgspec JSON; columns beside them exist only to be queried.
"""

import sqlite3
from typing import Final

from vastd.errors import StoreTooNew

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
)


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


def migrate(connection: sqlite3.Connection) -> int:
    """Bring the database to the newest version; return the version it had.

    Raises:
        StoreTooNew: a newer vastd wrote it.
    """
    found = require_known(connection)
    for version in range(found, len(MIGRATIONS)):
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{MIGRATIONS[version]}\nPRAGMA user_version = {version + 1};\nCOMMIT;"
        )
    return found
