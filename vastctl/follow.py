"""Following a job or a machine: events by cursor, the log by offset, across reconnects.

Rules
1. Nothing is lost and nothing comes twice: an event at or before `cursor` and bytes before
   `offset` are dropped, bytes that were left out are read before later ones are shown.
2. After a reconnect both subscriptions start again where they stopped, and a held request is
   sent again.
3. Whatever ends the following, the job goes on.
"""

import time
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import UNSET, DecodeError
from msgspec.json import decode, encode

from vastctl.client import Client, Message
from vastctl.errors import CliError, ConnectionLost, DaemonAbsent
from vastctl.link import garbage
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import event as events
from vastd_protocol.methods import log as logs
from vastd_protocol.methods.event import EventView, Progress

READ_LIMIT: Final = 262_144  # bytes of log per request; guess
CHECK_S: Final = 5.0  # guess; a change that came without an event is seen after this


class Audience(Protocol):
    """Who is told what happens."""

    def event(self, event: EventView) -> None:
        """One recorded fact, in order, once."""

    def progress(self, progress: Progress) -> None:
        """How far a long step is."""

    def log(self, data: bytes) -> None:
        """The next bytes of the job's log."""

    def idle(self) -> None:
        """Nothing happened for a few seconds."""


class Followed:
    """What is followed, and how far it was shown. Changed by `Follower` only.

    `job` is whose log is followed. Events are those of `rental`, all if there is none: the
    story of a job is told by its machines' events as well, so the audience picks.
    """

    def __init__(
        self,
        *,
        job: str | None = None,
        rental: str | None = None,
        events: bool = True,
        after: int | None = None,
        offset: int | None = None,
        only_job: str | None = None,
    ) -> None:
        self.job = job
        self.only_job = only_job
        self.rental = rental
        self.events = events
        self.after = after  # cursor of the newest event shown; None: from now on
        self.offset = offset  # end of the log shown; None: the log is not followed
        self.log_ended = False


class Follower:
    """Feeds an audience from two subscriptions on one connection."""

    def __init__(self, client: Client, audience: Audience, what: Followed) -> None:
        self._client = client
        self._audience = audience
        self.what = what
        self._event_subscription: str | None = None
        self._log_subscription: str | None = None
        self._changed = False
        self._done = False
        # Called with the bytes of every `log.appended` that is new: `logs -f --json`.
        self.on_piece: Callable[[bytes], None] | None = None
        # Called with every piece and its answer instead of `Audience.log`: notifications carry no
        # times, so that with this each piece is read with `log.read`.
        self.on_timed: Callable[[bytes, logs.LogView], None] | None = None

    def until_answer(self, name: str, params: bytes, *, limit_s: float | None) -> bytes | None:
        """Follow until the held request `name` is answered; None after `limit_s`."""
        return self._follow(name, params, lambda: False, limit_s)

    def until(self, done: Callable[[], bool], *, limit_s: float | None) -> bool:
        """Follow until `done`, asked after every event and every few seconds; False if late."""
        self._follow(None, b"", done, limit_s)
        return self._done

    def until_log_ends(self, *, limit_s: float | None) -> bool:
        """Follow until nothing more will be logged; False if that is not so after `limit_s`."""
        return self.until(lambda: self.what.log_ended, limit_s=limit_s)

    def _follow(
        self, name: str | None, params: bytes, done: Callable[[], bool], limit_s: float | None
    ) -> bytes | None:
        deadline = None if limit_s is None else time.monotonic() + limit_s
        self._done = False
        while True:
            try:
                self._subscribe()
                return self._pump(name, params, done, deadline)
            except ConnectionLost:
                self._client.reconnect()

    def _pump(
        self, name: str | None, params: bytes, done: Callable[[], bool], deadline: float | None
    ) -> bytes | None:
        ident = None if name is None else self._client.post(name, params)
        while True:
            # A check may have kept messages that arrived during its own request.
            if self._changed:
                self._changed = False
                if name is None and done():
                    self._done = True
                    return None
            left = CHECK_S if deadline is None else min(CHECK_S, deadline - time.monotonic())
            if left <= 0:
                return None
            message = self._client.receive(left)
            if message is None:
                self._changed = True
                self._audience.idle()
            elif message.method is not None:
                self._notification(message)
            elif ident is not None:
                answer = self._client.answer(message, ident)
                if answer is not None:
                    return answer

    def _subscribe(self) -> None:
        self._event_subscription = self._log_subscription = None
        what = self.what
        if what.events:
            wish = events.EventSubscribeParams(
                after=what.after, rental=what.rental, job=what.only_job, progress=True
            )
            body = self._client.once(events.SUBSCRIBE.name, encode(wish))
            subscribed = self._client.view(events.SUBSCRIBE, body)
            self._event_subscription = subscribed.subscription_id
            if what.after is None:
                what.after = subscribed.cursor
        if what.offset is not None:
            log_wish = logs.LogSubscribeParams(job=what.job, offset=what.offset)
            body = self._client.once(logs.SUBSCRIBE.name, encode(log_wish))
            self._log_subscription = self._client.view(logs.SUBSCRIBE, body).subscription_id
        self._changed = True

    def _notification(self, message: Message) -> None:
        params = b"{}" if message.params is UNSET else bytes(message.params)
        try:
            if message.method == events.PUBLISHED:
                self._event(decode(params, type=EventView))
            elif message.method == events.PROGRESS:
                self._audience.progress(decode(params, type=Progress))
            elif message.method == logs.APPENDED:
                self._appended(decode(params, type=logs.LogAppended), params)
        except DecodeError as exc:
            raise garbage("the socket", f"notification {message.method}: {exc}") from exc

    def _event(self, event: EventView) -> None:
        after = self.what.after
        if after is not None and event.cursor <= after:
            return
        self.what.after = event.cursor
        self._changed = True
        self._audience.event(event)

    def _appended(self, piece: logs.LogAppended, params: bytes) -> None:
        if self.what.offset is None or piece.subscription_id != self._log_subscription:
            return
        if self.on_piece is not None:
            self.on_piece(params)
        data = unbase64(piece.data)
        if self.on_timed is not None:
            self._catch_up(piece.offset + len(data))
        else:
            self._catch_up(piece.offset)
            self._show(piece.offset, data)
        if piece.eof:
            self.what.log_ended = True
            self._changed = True

    def _show(self, offset: int, data: bytes) -> None:
        assert self.what.offset is not None
        fresh = data[max(0, self.what.offset - offset) :]
        if fresh:
            self.what.offset += len(fresh)
            self._audience.log(fresh)

    def _catch_up(self, end: int) -> None:
        """Read what lies between the bytes shown and `end`."""
        while self.what.offset is not None and self.what.offset < end:
            if not self._read_piece(min(READ_LIMIT, end - self.what.offset)):
                # vastd dropped it for good; showing the rest beats showing nothing.
                self.what.offset = end

    def _read_piece(self, limit: int) -> bool:
        assert self.what.offset is not None
        wish = logs.LogReadParams(
            job=self.what.job,
            offset=self.what.offset,
            limit=limit,
            times=self.on_timed is not None,
        )
        body = self._client.once(logs.READ.name, encode(wish))
        piece = self._client.view(logs.READ, body)
        before = self.what.offset
        if self.on_timed is not None and piece.next_offset > before:
            self.on_timed(body, piece)
            self.what.offset = piece.next_offset
            return True
        self._show(piece.offset, unbase64(piece.data))
        return self.what.offset > before

    def finish(self) -> None:
        """Show what was recorded and logged but not yet sent, after the end is known."""
        try:
            while self.what.offset is not None and self._read_piece(READ_LIMIT):
                pass
            while self.what.events and self._read_events():
                pass
        except ConnectionLost:
            self._client.reconnect()
            self.finish()

    def _read_events(self) -> bool:
        wish = events.EventListParams(after=self.what.after or 0, rental=self.what.rental)
        body = self._client.once(events.LIST.name, encode(wish))
        page = self._client.view(events.LIST, body)
        for event in page.events:
            self._event(event)
        moved = page.cursor > (self.what.after or 0)
        self.what.after = max(page.cursor, self.what.after or 0)
        return moved or bool(page.events)


def newest_cursor(client: Client) -> int:
    """Return the cursor of the newest event: ask before the call whose events matter."""
    return client.call(events.LIST, events.EventListParams(limit=1)).cursor


def unbase64(text: str) -> bytes:
    """Return the bytes of a piece of log."""
    try:
        return a2b_base64(text)
    except Base64Error as exc:
        raise garbage("the socket", f"log data: {exc}") from exc


def gone_while_following(gone: DaemonAbsent, job: str) -> CliError:
    """Return the error for a daemon that did not come back while job `job` was followed."""
    return CliError(
        f"{gone}; job {job} goes on without it",
        hint=f"{gone.hint}; then `vastctl logs -f {job}`",
        exit_code=ExitCode.UNREACHABLE,
    )
