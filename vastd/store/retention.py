"""What is dropped from the store when it is old, in steps so small that nobody waits for them.

Rules
1. Nothing of a rental that may bill, nor of a job that is not settled, is ever dropped.
2. The money stays: a rental's row goes only together with its sum per day, into `costs`.
3. How far the store was pruned is written down in the same transaction, so that lists can tell.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from vastd.core.job import FINISHED
from vastd.core.money import Micros
from vastd.core.rental import Phase
from vastd.store.store import Store

ANSWERS_KEPT_S: Final = 7 * 86_400.0  # CONTRACT 3
STEP_ROWS: Final = 500  # measured: 2.6 ms a step, 9 ms at most (2 cores, SSD, December 2026)
_EVENTS_KEY: Final = "events_pruned_before"
_RECORDS_KEY: Final = "records_pruned_before"

Costs = Mapping[tuple[str, str], Micros]
"""What pruned rentals cost, by UTC day (`2026-12-01`) and project (empty: none)."""


class Pruned(Struct, frozen=True, kw_only=True):
    """How far the store was pruned, epoch seconds. None: everything is still there."""

    events_before: float | None
    records_before: float | None


def pruned(store: Store) -> Pruned:
    """Return how far back the store is complete."""
    rows = dict(store.read("SELECT key, value FROM meta WHERE key LIKE '%_pruned_before'"))
    events, records = rows.get(_EVENTS_KEY), rows.get(_RECORDS_KEY)
    return Pruned(
        events_before=None if events is None else float(events),
        records_before=None if records is None else float(records),
    )


def drop_answers(store: Store, now: float) -> int:
    """Drop a step's worth of answers older than 7 days; return how many.

    Raises:
        StoreError: nothing was dropped.
    """
    with store.changing() as connection:
        found = connection.execute(
            "DELETE FROM answers WHERE request_id IN "
            "(SELECT request_id FROM answers WHERE at < ? LIMIT ?)",
            (now - ANSWERS_KEPT_S, STEP_ROWS),
        )
        return found.rowcount


def drop_events(store: Store, before: float) -> int:
    """Drop a step's worth of events older than `before`; return how many.

    Raises:
        StoreError: nothing was dropped.
    """
    finished = ", ".join(f"'{state}'" for state in sorted(FINISHED))
    with store.changing() as connection:
        found = connection.execute(
            f"""DELETE FROM events WHERE cursor IN (
                SELECT cursor FROM events WHERE at < ?
                AND (rental_id IS NULL OR rental_id NOT IN
                    (SELECT rental_id FROM rentals WHERE phase <> '{Phase.GONE}'))
                AND (job_id IS NULL OR job_id NOT IN
                    (SELECT job_id FROM jobs WHERE state NOT IN ({finished})))
                LIMIT ?)""",
            (before, STEP_ROWS),
        )
        if found.rowcount:
            _move(connection, _EVENTS_KEY, before)
        return found.rowcount


def drop_records(
    store: Store, rental_ids: Sequence[str], job_ids: Sequence[str], costs: Costs, before: float
) -> None:
    """Drop rentals and jobs, and add what the rentals cost to the sums that stay.

    Raises:
        StoreError: nothing was dropped.
    """
    with store.changing() as connection:
        connection.executemany(
            "INSERT INTO costs VALUES (?, ?, ?) ON CONFLICT (day, project) "
            "DO UPDATE SET micros = micros + excluded.micros",
            [(day, project, micros) for (day, project), micros in costs.items()],
        )
        connection.executemany(
            "DELETE FROM rentals WHERE rental_id = ?", [(name,) for name in rental_ids]
        )
        connection.executemany("DELETE FROM jobs WHERE job_id = ?", [(name,) for name in job_ids])
        _move(connection, _RECORDS_KEY, before)


def kept_costs(store: Store) -> dict[tuple[str, str], Micros]:
    """Return what rentals cost whose records were dropped, by UTC day and project."""
    rows = store.read("SELECT day, project, micros FROM costs ORDER BY day, project")
    return {(day, project): Micros(micros) for day, project, micros in rows}


def _move(connection: sqlite3.Connection, key: str, before: float) -> None:
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE "
        "SET value = max(CAST(value AS REAL), CAST(excluded.value AS REAL))",
        (key, before),
    )
