"""The table of machines: what is known of each, one row per Vast `machine_id`.

Its rows are not dropped with old rentals: a row is some hundred bytes, and what it tells is wanted
long after the rentals that taught it.
"""

import sqlite3
from collections.abc import Iterable
from typing import Final

import msgspec

from vastd.core.hosts import Host

EVERY_HOST: Final = "SELECT body FROM hosts ORDER BY machine_id"


def put_hosts(connection: sqlite3.Connection, hosts: Iterable[Host]) -> None:
    """Write rows inside the transaction of the caller."""
    connection.executemany(
        "INSERT OR REPLACE INTO hosts VALUES (?, ?)",
        [(host.machine_id, msgspec.json.encode(host)) for host in hosts],
    )


def host_of(body: bytes) -> Host:
    """Return a row as it was written."""
    return msgspec.json.decode(body, type=Host)
