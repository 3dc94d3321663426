"""One client's connection, from its first byte to its end.

Rules
1. Nothing a client sends or does ends more than its own connection.
2. Every request with an id gets exactly one answer, while somebody can read it.
3. A client that stops sending may still read: its requests go on until it hangs up.
4. When it hangs up, its reads, waits and subscriptions end; changes go on (`mutations`).

Workers take turns: one reads and answers until an answer has to wait for something; then it
gives the turn on, and waits for its next one afterwards. So a request that is answered from memory
costs no task, no scope and no second turn of the event loop: a third of our own work (measured).
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import trio
from msgspec import UNSET, Struct

from vastd.rpc.dispatch import Call, Dispatcher
from vastd.rpc.errors import RpcError, error
from vastd.rpc.first_wait import tell_first_wait
from vastd.rpc.mutations import Outcome
from vastd.rpc.outbox import ClientStalled, Outbox
from vastd.rpc.params import BadMessage, decode_params, read_request
from vastd.rpc.transport import Transport
from vastd_protocol import envelope
from vastd_protocol.envelope import MessageId, Request
from vastd_protocol.errors import ErrorCode, ErrorObject
from vastd_protocol.framing import FramingError
from vastd_protocol.method import Method, View

MAX_IN_FLIGHT: Final = 64  # guess; an editor has a handful
LAST_ANSWERS_S: Final = 1.0  # guess: for requests that came before the framing broke
MAX_SPARE: Final = 2  # guess: workers kept waiting for a turn; one serves a client that waits
UNREAD_LIMIT_BYTES: Final = 1024 * 1024  # guess: then the next request is left in the kernel

GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
_CANCELLED: Final = error(ErrorCode.CANCELLED, "cancelled")

logger = logging.getLogger(__name__)


class CancelParams(Struct, frozen=True):
    """Which request to cancel."""

    id: MessageId


# Not in the method table: it belongs to the connection, as in LSP, and has no handler.
_CANCEL: Final = Method("$/cancelRequest", CancelParams, View, "Cancel a read or a wait")
_CANCEL_PARAMS: Final = msgspec.json.Decoder(CancelParams)


class Connection:
    """A client: its requests in flight, its subscriptions, and what waits to be written."""

    def __init__(
        self,
        number: int,
        transport: Transport,
        outbox: Outbox,
        dispatcher: Dispatcher[Any],
        mutations: trio.Nursery,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._number = number
        self._transport = transport
        self._outbox = outbox
        self._dispatcher = dispatcher
        self._mutations = mutations
        self._max_in_flight = max_in_flight
        self._in_flight = 0  # requests not answered yet
        self._scopes: dict[object, trio.CancelScope] = {}  # reads by their `Call`, and streams
        self._bodies: deque[bytes] = deque()  # received, not looked at yet
        self._broken: FramingError | None = None  # what comes after `_bodies`
        self._reader: trio.CancelScope | None = None  # of the worker whose turn it is
        self._spare = trio.lowlevel.ParkingLot()  # workers waiting for a turn
        self._over = trio.Event()  # no more requests are taken
        self._changed = trio.lowlevel.ParkingLot()  # an answer or a stream ended
        self._forget: list[Callable[[], None]] = []

    @property
    def number(self) -> int:
        """Return the connection's number."""
        return self._number

    def notify(self, method: str, params: Struct) -> bool:
        """Queue a notification; False means it was dropped."""
        return self.notify_encoded(envelope.notification(method, envelope.encode(params)))

    def notify_encoded(self, body: bytes) -> bool:
        """Queue an encoded notification; False means it was dropped."""
        return self._outbox.notify(body)

    async def wait_room(self) -> None:
        """Return when `notify` will not drop the next message."""
        await self._outbox.wait_room()

    def at_close(self, forget: Callable[[], None]) -> None:
        """Call `forget` when the connection ends."""
        self._forget.append(forget)

    async def run(self) -> None:
        """Serve the client until it hangs up, breaks the framing or stalls."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, nursery)
                nursery.start_soon(self._work, nursery)
                await self._over.wait()
                nursery.start_soon(self._end_at_hangup, nursery)
                while self._in_flight or self._scopes:
                    await self._changed.park()
                await self._outbox.wait_idle()
                nursery.cancel_scope.cancel()
        finally:
            for forget in self._forget:
                forget()

    def drain(self) -> None:
        """Take no more requests, end reads and subscriptions; answer the changes under way."""
        self._over.set()
        if self._reader is not None:
            self._reader.cancel()
        for scope in self._scopes.values():
            scope.cancel()

    async def _write(self, nursery: trio.Nursery) -> None:
        try:
            await self._outbox.run()
        except ClientStalled:
            logger.warning("client reads no answers, disconnected connection=%d", self._number)
        except GONE:
            pass
        nursery.cancel_scope.cancel()

    async def _end_at_hangup(self, nursery: trio.Nursery) -> None:
        await self._transport.wait_hangup()
        nursery.cancel_scope.cancel()

    async def _work(self, nursery: trio.Nursery) -> None:
        with trio.CancelScope() as scope:
            while not self._over.is_set():
                self._reader = scope
                request = await self._next_request()
                if request is None:
                    self._reader = None
                    self._over.set()
                    return
                if scope.cancel_called:  # the stop came between reading and beginning
                    self._reader = None
                    self._reply(request.id, _CANCELLED)
                    return
                if not await self._answer(request, scope, nursery):
                    if self._bodies:
                        await trio.lowlevel.checkpoint()  # many requests in one read
                    continue
                if scope.cancel_called or len(self._spare) >= MAX_SPARE:
                    return
                await self._spare.park()

    async def _next_request(self) -> Request | None:
        """Return the next request that wants an answer or a deed; None if no more will come."""
        while True:
            while self._bodies:
                request = self._look_at(self._bodies.popleft())
                await self._outbox.wait_read(UNREAD_LIMIT_BYTES)
                if request is not None:
                    return request
                if self._bodies:
                    await trio.lowlevel.checkpoint()  # a flood of nonsense in one read
            if not await self._receive():
                return None

    async def _receive(self) -> bool:
        """Fill `_bodies`; False at the end, or when the rest cannot be understood."""
        try:
            if self._broken is None:
                self._bodies.extend(await self._transport.receive())
                return bool(self._bodies)
        except FramingError as exc:
            self._broken = exc
            self._bodies.extend(exc.bodies)
            return True  # what came before the damage is served first
        except GONE:
            return False  # the writer meets it too, or the hang-up shows
        logger.info("client broke the framing connection=%d: %s", self._number, self._broken)
        self._fail(None, error(ErrorCode.PARSE_ERROR, str(self._broken)))
        with trio.move_on_after(LAST_ANSWERS_S):
            while self._in_flight:
                await self._changed.park()
        self.drain()
        return False

    def _look_at(self, body: bytes) -> Request | None:
        """Return the request in `body`, or None after dealing with what is not for a handler."""
        try:
            request = read_request(body)
        except BadMessage as bad:
            self._fail(bad.message_id, _told(bad.error))
            return None
        if request.method == _CANCEL.name:
            self._cancel(request)
        elif request.id is UNSET and request.method.startswith("$/"):
            pass  # LSP: such notifications may be ignored (`$/setTrace`, …)
        elif self._in_flight >= self._max_in_flight:
            text = f"{self._in_flight} requests of this connection are still running"
            self._fail(request.id, error(ErrorCode.BUSY, text, retryable=True))
        else:
            return request
        return None

    async def _answer(
        self, request: Request, scope: trio.CancelScope, nursery: trio.Nursery
    ) -> bool:
        """Answer one request; return whether that took waiting, and the turn is another's."""
        call = Call(self, request.id)
        outcome: Outcome = _CANCELLED
        waited = False

        def give_turn_on() -> None:
            nonlocal waited
            waited = True
            self._reader = None
            # A change cannot be called back: `$/cancelRequest` for one is ignored.
            if not self._dispatcher.mutates(request.method):
                self._scopes[call] = scope
            if self._spare:
                self._spare.unpark()
            else:
                nursery.start_soon(self._work, nursery)

        self._in_flight += 1
        work = self._dispatcher.answer(request.method, request.params, call, self._mutations)
        try:
            outcome = await tell_first_wait(work, give_turn_on)
        finally:
            self._reply(request.id, outcome)
            self._scopes.pop(call, None)
            if isinstance(outcome, bytes):
                for run in call.streams:
                    self._start_stream(run, nursery)
            self._in_flight -= 1
            self._changed.unpark_all()
        return waited

    def _start_stream(self, run: Callable[[], Awaitable[None]], nursery: trio.Nursery) -> None:
        scope = trio.CancelScope()
        self._scopes[run] = scope
        nursery.start_soon(self._stream, run, scope, nursery)

    async def _stream(
        self, run: Callable[[], Awaitable[None]], scope: trio.CancelScope, nursery: trio.Nursery
    ) -> None:
        try:
            with scope:
                await run()
        except Exception:
            # Belongs to the edge of the request that began it (STYLE 23). The client sees the
            # connection end and asks again; going on would look as if nothing happened.
            logger.exception("subscription failed connection=%d", self._number)
            nursery.cancel_scope.cancel()
        finally:
            del self._scopes[run]
            self._changed.unpark_all()

    def _cancel(self, request: Request) -> None:
        try:
            params = decode_params(_CANCEL, _CANCEL_PARAMS, request.params)
        except RpcError as exc:
            self._fail(request.id, _told(exc))
            return
        for call, scope in self._scopes.items():
            if isinstance(call, Call) and call.message_id == params.id:
                scope.cancel()
        if request.id is not UNSET:
            self._outbox.reply(envelope.result(request.id, b"null"))

    def _reply(self, message_id: MessageId | msgspec.UnsetType, outcome: Outcome) -> None:
        if isinstance(outcome, ErrorObject):
            self._fail(message_id, outcome)
        elif message_id is not UNSET:
            self._outbox.reply(envelope.result(message_id, outcome))

    def _fail(self, message_id: MessageId | msgspec.UnsetType, told: ErrorObject) -> None:
        if message_id is not UNSET:
            self._outbox.reply(envelope.failure(message_id, told))


def _told(exc: RpcError) -> ErrorObject:
    return error(exc.code, str(exc), hint=exc.hint, retryable=exc.retryable)
