"""Where subscriptions read from: the audit trail, the local logs, the stored answers."""

from collections.abc import Sequence

from vastd.ledger import Ledger
from vastd.local_logs import LocalLogs
from vastd.rpc.views.event import event_view
from vastd_protocol.methods.event import EventView


class Trail:
    """The stored events as views. Implements `hub.EventSource`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def newest_cursor(self) -> int:
        """Return the cursor of the newest event; 0 when there is none."""
        return self._ledger.store.last_cursor()

    def events_after(self, cursor: int, limit: int) -> Sequence[EventView]:
        """Return at most `limit` events after `cursor`, oldest first."""
        found = self._ledger.store.events_after(cursor, limit)
        return [event_view(stored.cursor, stored.event) for stored in found]


class JobLogs:
    """The local logs. Implements `hub.LogSource`."""

    def __init__(self, ledger: Ledger, logs: LocalLogs) -> None:
        self._ledger = ledger
        self._logs = logs

    def size(self, job_id: str) -> int:
        """Return how many bytes are home."""
        return self._logs.size(job_id)

    def read(self, job_id: str, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes from `offset`."""
        return self._logs.read(job_id, offset, limit)

    def finished(self, job_id: str) -> bool:
        """Return whether nothing more will ever come: the log is home before a job is finished."""
        job = self._ledger.jobs.get(job_id)
        return job is None or job.finished


class StoredAnswers:
    """Answers to mutating requests. Implements `mutations.Answers`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def get(self, request_id: str) -> bytes | None:
        """Return what was stored under `request_id`, or None."""
        return self._ledger.answer(request_id)

    def put(self, request_id: str, method: str, body: bytes) -> None:
        """Store `body`; durable on return."""
        self._ledger.store.put_answer(request_id, method, body)
