"""Housekeeping: once a day what is old is dropped, by the `[retention]` settings.

Every step is one small transaction or one file, with a pause after it: clients and machines never
wait for housekeeping.
"""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from vastd.config.settings import BYTES_PER_MB, RetentionTable
from vastd.core import retention as core
from vastd.errors import StoreError
from vastd.shell import Shell
from vastd.store import retention
from vastd.store.reserve import keep_reserve
from vastd.store.store import DATABASE

_log = logging.getLogger(__name__)

EVERY_S: Final = 86_400.0  # guess: what is kept for days and years needs no more
DOUBT_S: Final = 600.0  # guess: Vast tells the time with every answer
PAUSE_S: Final = 0.05  # guess: between two steps of some milliseconds each
RECORDS_PER_STEP: Final = 50  # measured: 0.7 ms a step, 5 ms at most
DAY_S: Final = 86_400.0


class Housekeeping:
    """Keeps one state directory tidy. Run it in a nursery."""

    def __init__(self, shell: Shell, settings: Callable[[], RetentionTable]) -> None:
        self._shell = shell
        self._settings = settings

    async def run(self) -> None:
        """Tidy up now and every day; a disk that refuses is tried again the next day."""
        while True:
            pause_s = EVERY_S
            try:
                if self._shell.clock.agrees:
                    await self.tidy()
                else:
                    # A battery clock that is years ahead would make everything old.
                    pause_s = DOUBT_S
                    keep_reserve(self._shell.state_dir)
            except StoreError as exc:
                _log.error("old records are kept: %s", exc)
            await trio.sleep(pause_s)

    async def tidy(self) -> None:
        """Drop what is older than the settings allow, and fill the reserve a full disk took.

        Raises:
            StoreError: the database cannot be written; what was dropped stays dropped.
        """
        now, keep = self._shell.wall_clock(), self._settings()
        store = self._shell.ledger.store
        answers = await _steps(lambda: retention.drop_answers(store, now))
        events = await _steps(lambda: retention.drop_events(store, now - keep.events_days * DAY_S))
        records = await _steps(lambda: self._drop_records(now - keep.records_days * DAY_S))
        await self._drop_logs(now, keep)
        _drop_copies(self._shell.state_dir, now - keep.copies_days * DAY_S)
        keep_reserve(self._shell.state_dir)
        if answers + events + records:
            _log.info(
                "dropped as old: %d events, %d rentals and jobs, %d answers",
                events, records, answers,
            )  # fmt: skip

    def _drop_records(self, before: float) -> int:
        """Drop some ended rentals and jobs, their logs included; return how many records went."""
        ledger = self._shell.ledger
        if ledger.write_error is not None:
            return 0  # rows that are not on disk yet would come back
        found = core.outdated(ledger.rentals, ledger.jobs, before)
        # Jobs first: a rental goes once no kept job refers to it, so a cut leaves nothing dangling.
        jobs = [job.job_id for job in found.jobs[:RECORDS_PER_STEP]]
        rentals = [] if len(found.jobs) > RECORDS_PER_STEP else found.rentals[:RECORDS_PER_STEP]
        if not rentals and not jobs:
            return 0
        rental_ids = [rental.rental_id for rental in rentals]
        costs = core.per_day(rentals)
        retention.drop_records(ledger.store, rental_ids, jobs, costs, before)
        ledger.forget(rental_ids, jobs)
        for job_id in jobs:
            self._shell.logs.drop(job_id)
            self._shell.envs.drop(job_id)
        return len(rentals) + len(jobs)

    async def _drop_logs(self, now: float, keep: RetentionTable) -> None:
        """Drop logs of ended jobs that are too old, then the oldest until the rest fits."""
        jobs, logs = self._shell.ledger.jobs, self._shell.logs
        ended = [
            log for log in logs.stored() if log.job_id not in jobs or jobs[log.job_id].finished
        ]
        left = sum(log.size for log in ended)
        oldest = now - keep.logs_days * DAY_S
        for log in ended:
            if log.written_at >= oldest and left <= keep.logs_max_mb * BYTES_PER_MB:
                return
            logs.drop(log.job_id)
            left -= log.size
            _log.info("job=%s its log (%d bytes) was dropped as old", log.job_id, log.size)
            await trio.sleep(PAUSE_S)


async def _steps(step: Callable[[], int]) -> int:
    """Repeat `step` until it finds nothing more; return how much it did together."""
    total = 0
    while done := step():
        total += done
        await trio.sleep(PAUSE_S)
    return total


def _drop_copies(state_dir: Path, before: float) -> None:
    """Drop damaged stores and copies made before a migration that nobody asked for any more."""
    for pattern in (f"{DATABASE}.damaged-*", f"{DATABASE}.before-v*"):
        for path in state_dir.glob(pattern):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < before:
                    path.unlink()
                    _log.info("%s was dropped as old", path.name)
