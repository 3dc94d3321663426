"""Subscriptions: who follows which events and logs, and how each keeps its own pace.

Rules
1. Nothing waits for a subscriber and nothing is stored up for one. Who falls behind reads on
   from the source (the stored events, the log file) once its connection has room.
2. Events come gapless, in order and once: replay and live are the same cursor.
3. A log is served in full as far as it existed when the subscription began. Of what was added
   since, a follower that fell too far behind is told how many bytes were `dropped`.
4. Progress is a state, not a history: a slow subscriber gets the newest of each step.
"""

import base64
import itertools
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from vastd.rpc.dispatch import Call, Peer
from vastd.rpc.errors import RpcError
from vastd_protocol import envelope
from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import event, log
from vastd_protocol.methods.event import EventSubscriptionView, EventView, Progress
from vastd_protocol.methods.log import LogAppended, LogSubscriptionView

MAX_SUBSCRIPTIONS: Final = 64  # of one connection; guess
EVENT_PAGE: Final = 256  # guess: one page of replay is encoded in about a millisecond
LOG_CHUNK_BYTES: Final = 48 * 1024  # base64 makes 64 KiB of it
LOG_LAG_BYTES: Final = 4 * 1024 * 1024  # guess: more than a terminal scrolls back
LOG_TAIL_BYTES: Final = 64 * 1024  # what a follower gets after its gap; guess
MAX_STEPS: Final = 64  # progress remembered for a slow subscriber; guess


class EventSource(Protocol):
    """The stored events."""

    def newest_cursor(self) -> int:
        """Return the cursor of the newest event; 0 when there is none."""
        ...

    def events_after(self, cursor: int, limit: int) -> Sequence[EventView]:
        """Return at most `limit` events after `cursor`, oldest first."""
        ...


class LogSource(Protocol):
    """The logs of jobs, as copied home so far."""

    def size(self, job_id: str) -> int:
        """Return how many bytes are here; 0 when there is no log yet."""
        ...

    def read(self, job_id: str, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes from `offset`."""
        ...

    def finished(self, job_id: str) -> bool:
        """Return whether nothing more will ever come."""
        ...


class Hub:
    """All subscriptions of all connections. One per daemon."""

    def __init__(
        self, events: EventSource, logs: LogSource, *, log_lag_bytes: int = LOG_LAG_BYTES
    ) -> None:
        self._source = events
        self._logs = logs
        self._log_lag_bytes = log_lag_bytes
        self._numbers = itertools.count(1)
        self._events: dict[str, EventFollower] = {}  # by subscription id
        self._followers: dict[str, LogFollower] = {}  # by subscription id
        self._of_peer: dict[int, set[str]] = {}  # connection number -> subscription ids

    def follow_events(
        self,
        call: Call,
        *,
        after: int | None = None,
        rental_id: str | None = None,
        job_id: str | None = None,
        machines: Callable[[], Container[str]] = tuple,
        progress: bool = False,
    ) -> EventSubscriptionView:
        """Send `event.published` for every event after `after` (None: from now on).

        `rental_id` and `job_id` narrow; what happens to a job's `machines` (rental ids, asked for
        each event) belongs to the job too. Begins once `call` is answered.

        Raises:
            RpcError: BUSY, too many subscriptions on this connection.
        """
        newest = self._source.newest_cursor()
        # A cursor of a store that is gone would hide every event until it is reached again.
        cursor = newest if after is None else max(0, min(after, newest))
        subscription_id = self._new(call.peer)
        follower = EventFollower(
            call.peer, self._source, cursor, rental_id, job_id, machines, progress=progress
        )
        self._events[subscription_id] = follower
        call.stream(partial(self._run, subscription_id, call.peer.number, follower))
        return EventSubscriptionView(subscription_id=subscription_id, cursor=cursor)

    def follow_log(self, call: Call, *, job_id: str, offset: int = 0) -> LogSubscriptionView:
        """Send `log.appended` from `offset` on (negative: from that many bytes before the end).

        Begins once `call` is answered; ends by itself after the notification with `eof`.

        Raises:
            RpcError: BUSY, too many subscriptions on this connection.
        """
        size = self._logs.size(job_id)
        start = max(0, size + offset) if offset < 0 else offset
        subscription_id = self._new(call.peer)
        follower = LogFollower(
            call.peer, self._logs, subscription_id, job_id, start, self._log_lag_bytes
        )
        self._followers[subscription_id] = follower
        call.stream(partial(self._run, subscription_id, call.peer.number, follower))
        return LogSubscriptionView(subscription_id=subscription_id, job_id=job_id)

    def unsubscribe(self, peer: Peer, subscription_id: str) -> bool:
        """End a subscription; False if `peer` has none of that id. What is queued still comes."""
        if subscription_id not in self._of_peer.get(peer.number, ()):
            return False
        follower = self._events.get(subscription_id) or self._followers[subscription_id]
        follower.scope.cancel()
        self._drop(subscription_id, peer.number)
        return True

    def publish_event(self, view: EventView) -> None:
        """Tell followers of a stored event. Call in the order of cursors."""
        body = b""
        for follower in self._events.values():
            if follower.wants(view.rental_id, view.job_id):
                body = body or envelope.notification(event.PUBLISHED, envelope.encode(view))
            follower.offer(view, body)

    def publish_progress(self, progress: Progress) -> None:
        """Tell subscribers how far a long step is. Cheap enough for every piece copied."""
        body = b""
        for follower in self._events.values():
            if follower.progress and follower.wants(progress.rental_id, progress.job_id):
                body = body or envelope.notification(event.PROGRESS, envelope.encode(progress))
                follower.show(progress, body)

    def log_grew(self, job_id: str) -> None:
        """Wake the followers of a job's log: it grew, or it is finished now."""
        for follower in self._followers.values():
            if follower.job_id == job_id:
                follower.news.set()

    def _new(self, peer: Peer) -> str:
        mine = self._of_peer.get(peer.number)
        if mine is None:
            mine = self._of_peer[peer.number] = set()
            peer.at_close(partial(self._forget, peer.number))
        if len(mine) >= MAX_SUBSCRIPTIONS:
            raise RpcError(
                ErrorCode.BUSY,
                f"{len(mine)} subscriptions on this connection",
                hint="end some, or use another connection",
            )
        subscription_id = f"s-{next(self._numbers)}"
        mine.add(subscription_id)
        return subscription_id

    async def _run(
        self, subscription_id: str, number: int, follower: "EventFollower | LogFollower"
    ) -> None:
        try:
            with follower.scope:
                await follower.run()
        finally:
            self._drop(subscription_id, number)

    def _drop(self, subscription_id: str, number: int) -> None:
        self._events.pop(subscription_id, None)
        self._followers.pop(subscription_id, None)
        self._of_peer.get(number, set()).discard(subscription_id)

    def _forget(self, number: int) -> None:
        # Also those that never began, because their answer could not be sent.
        for subscription_id in list(self._of_peer[number]):
            self._drop(subscription_id, number)
        del self._of_peer[number]


class EventFollower:
    """One `event.subscribe`: everything up to `cursor` has been sent."""

    def __init__(
        self,
        peer: Peer,
        source: EventSource,
        cursor: int,
        rental_id: str | None,
        job_id: str | None,
        machines: Callable[[], Container[str]] = tuple,
        *,
        progress: bool,
    ) -> None:
        self._peer = peer
        self._source = source
        self._cursor = cursor
        self._rental_id = rental_id
        self._job_id = job_id
        self._machines = machines
        self.progress: Final = progress
        self.scope: Final = trio.CancelScope()
        self._news = trio.Event()
        self._began = False  # before: the client does not know of the subscription yet
        self._late: dict[tuple[str | None, ...], bytes] = {}  # newest progress of each step

    def wants(self, rental_id: str | None, job_id: str | None) -> bool:
        """Return whether something of this rental and job passes the filter."""
        rental_fits = self._rental_id is None or self._rental_id == rental_id
        if self._job_id is None or job_id is not None:
            return rental_fits and self._job_id in (None, job_id)
        return rental_fits and rental_id in self._machines()

    def offer(self, view: EventView, body: bytes) -> None:
        """Send a new event at once if everything before it was sent; else `run` will read it."""
        if self._began and view.cursor == self._cursor + 1 and self._send(view, body):
            return
        self._news.set()

    def show(self, progress: Progress, body: bytes) -> None:
        """Send progress at once, or keep it as the newest of its step."""
        if self._began and not self._late and self._peer.notify_encoded(body):
            return
        key = (progress.step, progress.request_id, progress.rental_id, progress.job_id)
        self._late[key] = body
        if len(self._late) > MAX_STEPS:
            del self._late[next(iter(self._late))]
        self._news.set()

    async def run(self) -> None:
        """Send what was missed whenever there is room, for ever."""
        self._began = True
        while True:
            self._news = trio.Event()
            await self._peer.wait_room()
            if not self._replay() and not self._send_late():
                await self._news.wait()

    def _replay(self) -> bool:
        """Send a page of stored events; False when there was none."""
        views = self._source.events_after(self._cursor, EVENT_PAGE)
        for view in views:
            body = b""
            if self.wants(view.rental_id, view.job_id):
                body = envelope.notification(event.PUBLISHED, envelope.encode(view))
            if not self._send(view, body):
                break
        return bool(views)

    def _send(self, view: EventView, body: bytes) -> bool:
        if self.wants(view.rental_id, view.job_id) and not self._peer.notify_encoded(body):
            return False
        self._cursor = view.cursor
        return True

    def _send_late(self) -> bool:
        while self._late:
            key = next(iter(self._late))
            if not self._peer.notify_encoded(self._late[key]):
                return True
            del self._late[key]
        return False


class LogFollower:
    """One `log.subscribe`: everything before `offset` has been sent, or told as dropped."""

    def __init__(
        self,
        peer: Peer,
        logs: LogSource,
        subscription_id: str,
        job_id: str,
        offset: int,
        lag_bytes: int,
    ) -> None:
        self._peer = peer
        self._logs = logs
        self._subscription_id = subscription_id
        self.job_id: Final = job_id
        self._offset = offset
        self._lag_bytes = lag_bytes
        self._backlog_end = logs.size(job_id)
        self._dropped = 0  # bytes skipped since the last notification
        self.scope: Final = trio.CancelScope()
        self.news = trio.Event()

    async def run(self) -> None:
        """Send the log until its end."""
        while True:
            self.news = trio.Event()
            finished = self._logs.finished(self.job_id)  # before the size: it may grow until then
            size = self._logs.size(self.job_id)
            data = self._logs.read(self.job_id, self._offset, LOG_CHUNK_BYTES)
            end = self._offset + len(data)
            eof = finished and end >= size
            if not data and not eof:
                await self.news.wait()
            elif self._peer.notify_encoded(self._message(data, eof=eof)):
                self._offset, self._dropped = end, 0
                if eof:
                    return
                await trio.lowlevel.checkpoint()
            else:
                await self._peer.wait_room()
                self._skip()

    def _skip(self) -> None:
        """After waiting for a slow client: leave out what nobody could follow any more."""
        size = self._logs.size(self.job_id)
        if self._offset < self._backlog_end or size - self._offset <= self._lag_bytes:
            return
        start = size - min(LOG_TAIL_BYTES, self._lag_bytes)
        self._dropped += start - self._offset
        self._offset = start

    def _message(self, data: bytes, *, eof: bool) -> bytes:
        params = LogAppended(
            subscription_id=self._subscription_id,
            job_id=self.job_id,
            offset=self._offset,
            data=base64.b64encode(data).decode(),
            dropped=self._dropped,
            eof=eof,
        )
        return envelope.notification(log.APPENDED, envelope.encode(params))
