"""The table of handlers: which function answers a method, and how a request reaches it.

Rules
1. A handler's types are those of its row: `handles` lets a type checker prove it.
2. Nothing a handler raises reaches the connection, except cancellation.
3. A read runs in the task that asks and ends with it; a change runs in the server's nursery
   and ends by itself, whoever is still there to hear of it.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Final, Generic, Protocol, TypeVar, overload

import msgspec
import trio
from msgspec import Raw, Struct, UnsetType

from vastd.rpc import errors
from vastd.rpc.errors import RpcError
from vastd.rpc.mutations import Answers, Mutations, Outcome
from vastd.rpc.params import decode_params, did_you_mean
from vastd_protocol import envelope
from vastd_protocol.envelope import MessageId
from vastd_protocol.errors import ErrorCode, ErrorObject
from vastd_protocol.framing import MAX_FRAME_BYTES
from vastd_protocol.method import Method

C = TypeVar("C")
P = TypeVar("P")
R = TypeVar("R")

logger = logging.getLogger(__name__)


class Peer(Protocol):
    """One connected client, as handlers and subscriptions see it."""

    @property
    def number(self) -> int:
        """Return the connection's number: unique while the daemon lives."""
        ...

    def notify(self, method: str, params: Struct) -> bool:
        """Queue a notification; False means it was dropped, the client reads too slowly."""
        ...

    def notify_encoded(self, body: bytes) -> bool:
        """Do as `notify` with a message that is encoded already (`envelope.notification`)."""
        ...

    async def wait_room(self) -> None:
        """Return when `notify` will not drop the next message."""
        ...

    def at_close(self, forget: Callable[[], None]) -> None:
        """Call `forget` when the connection ends."""
        ...


class Call:
    """One request under way, for handlers that need more than its parameters."""

    def __init__(self, peer: Peer, message_id: MessageId | UnsetType) -> None:
        self.peer: Final = peer
        self.message_id: Final = message_id
        self.request_id: str | None = None  # None: not a change, or the client sent none
        self.streams: Final[list[Callable[[], Awaitable[None]]]] = []
        self.fingerprint = ""

    def stream(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run `run` on this connection once the answer is sent; never if it is an error.

        It ends with the connection. This is how a subscription's first notification cannot
        come before the client knows the subscription.
        """
        self.streams.append(run)

    @property
    def method(self) -> str:
        """Return the method of a change; empty for a read."""
        return self.fingerprint.partition(":")[0]

    def seal(self, result: Struct) -> bytes:
        """Return what to store under `request_id`, for a handler that stores its answer in the
        transaction of the change. The dispatcher stores every other answer afterwards."""
        return Mutations.seal(self.fingerprint, envelope.encode(result))


class Handler(Generic[C, P, R]):
    """A handler with its row. Calling it calls the function, so tests need no server."""

    def __init__(self, method: Method[P, R], run: Callable[..., Awaitable[R]]) -> None:
        self.method: Final = method
        self._run: Final = run
        self.takes_call: Final = len(inspect.signature(run).parameters) == 3
        self.decoder: Final = msgspec.json.Decoder(method.params)
        self.__doc__ = run.__doc__

    async def __call__(self, ctx: C, params: P, call: Call | None = None) -> R:
        """Answer one request."""
        if self.takes_call:
            return await self._run(ctx, params, call)
        return await self._run(ctx, params)


class Registrar(Generic[P, R]):
    """What `handles(METHOD)` returns: makes a `Handler` of a function whose types fit."""

    def __init__(self, method: Method[P, R]) -> None:
        self._method = method

    @overload
    def __call__(self, run: Callable[[C, P], Awaitable[R]]) -> Handler[C, P, R]: ...
    @overload
    def __call__(self, run: Callable[[C, P, Call], Awaitable[R]]) -> Handler[C, P, R]: ...
    def __call__(self, run: Callable[..., Awaitable[R]]) -> Handler[Any, P, R]:
        """Tie `run` to the method."""
        return Handler(self._method, run)


def handles(method: Method[P, R]) -> Registrar[P, R]:
    """Make the decorated `async def h(ctx, params)` the handler of `method`.

    A third parameter `call: Call` is passed to functions that have one.
    """
    return Registrar(method)


def collect(*modules: ModuleType) -> list[Handler[Any, Any, Any]]:
    """Return every handler that `modules` define, in the order of their names."""
    return [
        found
        for module in modules
        for _, found in sorted(vars(module).items())
        if isinstance(found, Handler)
    ]


class Dispatcher(Generic[C]):
    """Answer requests with the handlers given. One per daemon; holds no connection."""

    def __init__(self, ctx: C, handlers: Iterable[Handler[C, Any, Any]], answers: Answers) -> None:
        self._ctx = ctx
        self._handlers: dict[str, Handler[C, Any, Any]] = {}
        for handler in handlers:
            name = handler.method.name
            assert name not in self._handlers, f"two handlers for {name}"
            self._handlers[name] = handler
        self.mutations: Final = Mutations(answers)

    @property
    def handlers(self) -> Mapping[str, Handler[C, Any, Any]]:
        """Return the handlers by method name."""
        return self._handlers

    def mutates(self, name: str) -> bool:
        """Return whether method `name` changes something, so that it cannot be cancelled."""
        handler = self._handlers.get(name)
        return handler is not None and handler.method.mutates

    async def answer(
        self, name: str, raw: Raw | UnsetType, call: Call, nursery: trio.Nursery
    ) -> Outcome:
        """Answer one request: the encoded result, or the error to send.

        A change is started in `nursery` and waited for; being cancelled ends only the wait.
        """
        mutates = self.mutates(name)
        return await guarded(lambda: self._run(name, raw, call, nursery), name, call, mutates)

    async def _run(
        self, name: str, raw: Raw | UnsetType, call: Call, nursery: trio.Nursery
    ) -> Outcome:
        handler = self._handlers.get(name)
        if handler is None:
            raise self._unknown(name)
        params = decode_params(handler.method, handler.decoder, raw)
        if not handler.method.mutates:
            return encode_result(name, await handler(self._ctx, params, call))
        self.mutations.identify(name, params, call)

        async def change() -> Outcome:
            async def run() -> Outcome:
                return encode_result(name, await handler(self._ctx, params, call))

            return await guarded(run, name, call, mutates=True)

        return await self.mutations.once(name, call, change, nursery)

    def _unknown(self, name: str) -> RpcError:
        text = f"no method {name!r}{did_you_mean(name, self._handlers)}"
        return RpcError(ErrorCode.METHOD_NOT_FOUND, text, hint="rpc.discover lists all methods")


def encode_result(name: str, result: object) -> bytes:
    """Return `result` as JSON (NaN and infinity become null).

    Raises:
        RpcError: no client could read an answer of this size.
    """
    body = envelope.encode(result)
    if len(body) > MAX_FRAME_BYTES - 1024:  # room for the envelope around it
        raise RpcError(
            ErrorCode.INVALID_REQUEST,
            f"{name}: the answer has {len(body)} bytes, over the limit of {MAX_FRAME_BYTES}",
            hint="ask for less: a filter, a limit or an offset",
        )
    return body


async def guarded(
    run: Callable[[], Awaitable[Outcome]], name: str, call: Call, mutates: bool
) -> Outcome:
    """Return what `run` returns or, whatever it raises, the error to send. The edge of a request."""
    try:
        return await run()
    except Exception as exc:  # noqa: BLE001 - the edge of one request (STYLE 23)
        return _told(exc, name, call, mutates)
    except BaseExceptionGroup as group:
        # Letting the whole group out would end the daemon for an error of one request.
        ends, rest = errors.split_ends(group)
        if rest is not None:
            _told(rest, name, call, mutates)
        raise ends from None


def _told(exc: Exception, name: str, call: Call, mutates: bool) -> ErrorObject:
    told = errors.describe(exc, mutates=mutates)
    if told is None:
        logger.error(
            "request failed method=%s id=%r request_id=%r connection=%d",
            name,
            call.message_id,
            call.request_id,
            call.peer.number,
            exc_info=exc,
        )
        return errors.INTERNAL
    logger.debug("request refused method=%s id=%r: %s", name, call.message_id, told.message)
    return told
