"""The blocking RPC client: one call at a time, messages in between kept, repeats made safe.

Rules
1. A mutating call carries a `request_id`; after a lost connection the same bytes are sent again,
   and the daemon answers what it answered before.
2. Every wait is bounded: by the caller, by `--timeout`, or by `reconnect_s`.
3. `once`, `post` and `receive` never reconnect, because that would lose subscriptions unseen.
4. With a `greeting` each new connection begins with the handshake, and what spends waits for it.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType
from msgspec.json import decode, encode

from vastctl.errors import AnswerLate, CliError, ConnectionLost, DaemonAbsent
from vastctl.greeting import HELLO_ID, SPENDS, Greeting
from vastctl.link import Link, garbage
from vastd_protocol.envelope import MessageId, request
from vastd_protocol.errors import ErrorCode, ExitCode, exit_code
from vastd_protocol.method import Method

P = TypeVar("P")
R = TypeVar("R")

CALL_S: Final = 60.0  # guess; vastd answers at once, but a search waits for Vast's pacing
LONG_S: Final = 86_400.0  # held requests: the work behind them has its own limits
RECONNECT_S: Final = 20.0  # guess; a restarted daemon listens within a second or two
FIRST_PAUSE_S: Final = 0.05  # guess
LONGEST_PAUSE_S: Final = 1.0  # guess
HELLO_S: Final = 2.0  # guess; the handshake was answered with the request before it, or never
MAX_FRUITLESS: Final = 30  # guess; connections in a row that broke before a message came
MAX_REPEATS: Final = 3  # guess; a request that kills the daemon each time must not go on for ever

# After these a lost answer may mean that something bills.
_SPENDING: Final = frozenset({"job.submit", "job.retry", "rental.create", "rental.destroy"})


class Message(Struct, frozen=True, kw_only=True):
    """Anything the daemon sends; parts are decoded when their kind is known."""

    id: MessageId = None
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    method: str | None = None  # set: a notification
    params: Raw | UnsetType = UNSET


class _ErrorData(Struct, frozen=True, kw_only=True):
    hint: str | None = None
    exit_code: int | None = None


class _Error(Struct, frozen=True, kw_only=True):
    code: int = ErrorCode.INTERNAL_ERROR
    message: str = ""
    data: Raw | UnsetType = UNSET


class DaemonError(CliError):
    """vastd answered with an error; `code` is its code on the wire."""

    def __init__(self, body: bytes) -> None:
        try:
            error = decode(body, type=_Error)
        except DecodeError:
            error = _Error(message=f"an unreadable error: {body[:200]!r}")
        try:
            data = decode(error.data, type=_ErrorData) if error.data is not UNSET else _ErrorData()
        except DecodeError:
            data = _ErrorData()
        self.code = error.code
        hint = data.hint or ""
        if error.code == ErrorCode.METHOD_NOT_FOUND and not hint:
            hint = "vastctl and vastd differ in version: compare them with `vastctl version`"
        code = data.exit_code
        super().__init__(
            error.message or f"vastd answered error {error.code}",
            hint=hint,
            exit_code=code if code is not None and 0 < code < 256 else exit_code(error.code),
            wire=body,
        )


def new_request_id() -> str:
    """Return a fresh idempotency key."""
    return os.urandom(16).hex()


class Client:
    """A connection that is opened at the first call and opened again when it broke."""

    def __init__(
        self,
        connect: Callable[[], Link],
        *,
        timeout_s: float | None = None,
        note: Callable[[str], None] = lambda _text: None,
        reconnect_s: float = RECONNECT_S,
        greeting: Greeting | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connect = connect
        self._note = note
        self._clock = clock
        self._pause = pause
        self._link: Link | None = None
        self._waiting: deque[Message] = deque()  # notifications that came before an answer
        self._last_id = 0
        self._heard_at = clock()
        self._fruitless = 0
        self.timeout_s = timeout_s  # `--timeout`; None: each call's own limit
        self.reconnect_s = reconnect_s
        self.greeting = greeting  # None: nobody is greeted

    def raw(
        self,
        method: Method[P, R],
        params: P,
        *,
        limit_s: float = CALL_S,
        on_message: Callable[[Message], None] | None = None,
    ) -> bytes:
        """Return the bytes of the result; repeat the call if the connection breaks.

        Raises:
            DaemonError: vastd answered with an error.
            AnswerLate: no answer within `--timeout`, or `limit_s`.
            ConnectionLost: it broke and did not come back, or a repeat is not safe.
        """
        repeatable = not method.mutates or bool(getattr(params, "request_id", None))
        body = encode(params)
        for attempt in range(MAX_REPEATS + 1):
            try:
                return self.once(method.name, body, limit_s=limit_s, on_message=on_message)
            except ConnectionLost as lost:
                if not repeatable or attempt == MAX_REPEATS:
                    raise self._unsettled(method.name, str(lost)) from lost
                try:
                    self.reconnect()
                except DaemonAbsent as gone:
                    raise self._unsettled(method.name, str(gone)) from gone
        raise AssertionError("unreachable: the last attempt returns or raises")

    def call(
        self,
        method: Method[P, R],
        params: P,
        *,
        limit_s: float = CALL_S,
        on_message: Callable[[Message], None] | None = None,
    ) -> R:
        """Return the decoded result; raises as `raw`."""
        return self.view(method, self.raw(method, params, limit_s=limit_s, on_message=on_message))

    def view(self, method: Method[P, R], body: bytes) -> R:
        """Decode a result of `method`."""
        try:
            return decode(body, type=method.result)
        except DecodeError as exc:
            raise garbage("the socket", f"the result of {method.name}: {exc}") from exc

    def once(
        self,
        name: str,
        params: bytes,
        *,
        limit_s: float = CALL_S,
        on_message: Callable[[Message], None] | None = None,
    ) -> bytes:
        """Send one request and return the bytes of its result, without any repeat."""
        limit = self.timeout_s if self.timeout_s is not None else limit_s
        deadline = self._clock() + limit
        ident = self.post(name, params)
        while True:
            message = self._read(max(deadline - self._clock(), 0.0))
            if message is None:
                raise AnswerLate(f"vastd did not answer {name} within {limit:g} s")
            if message.id == ident:
                # Said before the answer is shown or refused: another version may be the reason.
                self._hear_greeting(HELLO_S)
            if message.method is not None:
                if on_message is None:
                    self._waiting.append(message)
                else:
                    on_message(message)
            elif (answer := self.answer(message, ident)) is not None:
                return answer
            else:
                self._waiting.append(message)  # of a held request: whoever posted it reads on

    def post(self, name: str, params: bytes) -> int:
        """Send a request without waiting; return the id its answer will carry."""
        if self._link is None:
            self._link = self._connect()
            self._heard_at = self._clock()
            self._greet()
        if self.greeting is not None and name in SPENDS:
            if not self._hear_greeting(self.timeout_s or CALL_S):
                raise AnswerLate("vastd did not answer the handshake, so nothing was sent")
            self.greeting.require(name)
        self._last_id += 1
        try:
            self._link.send(request(self._last_id, name, params))
        except ConnectionLost:
            self.close()
            raise
        return self._last_id

    def _greet(self) -> None:
        if self.greeting is None or self._link is None:
            return
        try:
            self._link.send(self.greeting.request())
        except ConnectionLost:
            self.close()
            raise

    def _hear_greeting(self, limit_s: float) -> bool:
        """Read until the handshake is answered, keeping the rest; False if it is not in time."""
        deadline = self._clock() + limit_s
        while self.greeting is not None and self.greeting.pending:
            message = self._next(max(deadline - self._clock(), 0.0))
            if message is None:
                return False
            if not self._is_greeting(message):
                self._waiting.append(message)
        return True

    def _is_greeting(self, message: Message) -> bool:
        if self.greeting is None or message.id != HELLO_ID:
            return False
        result = None if message.result is UNSET else bytes(message.result)
        self.greeting.hear(result, None if message.error is UNSET else bytes(message.error))
        return True

    def answer(self, message: Message, ident: int) -> bytes | None:
        """Return the result if `message` answers request `ident`, None if it is another's."""
        if message.error is not UNSET:
            # An error without id answers a request that could not even be read.
            if message.id in (ident, None):
                error = DaemonError(bytes(message.error))
                if error.code == ErrorCode.CANCELLED:
                    # We cancel nothing: a daemon that ends gives its held requests back.
                    raise ConnectionLost("vastd is ending")
                raise error
            return None
        if message.id != ident:
            return None  # the late answer of a request we gave up
        return b"null" if message.result is UNSET else bytes(message.result)

    def receive(self, timeout_s: float | None) -> Message | None:
        """Return the next message, kept ones first; None after `timeout_s`."""
        return self._waiting.popleft() if self._waiting else self._read(timeout_s)

    def _read(self, timeout_s: float | None) -> Message | None:
        """Return the next message that is not the answer to the handshake."""
        end = None if timeout_s is None else self._clock() + timeout_s
        while True:
            message = self._next(timeout_s)
            if message is None or not self._is_greeting(message):
                return message
            timeout_s = None if end is None else max(end - self._clock(), 0.0)

    def _next(self, timeout_s: float | None) -> Message | None:
        if self._link is None:
            raise ConnectionLost("there is no connection to vastd")
        try:
            body = self._link.receive(timeout_s)
        except ConnectionLost:
            self.close()
            raise
        if body is None:
            return None
        self._heard_at = self._clock()
        self._fruitless = 0
        try:
            return decode(body, type=Message)
        except DecodeError as exc:
            self.close()
            raise garbage("the socket", str(exc)) from exc

    def reconnect(self) -> None:
        """Connect again, for at most `reconnect_s` after the daemon was last heard.

        Raises:
            DaemonAbsent: it did not come back in time.
        """
        self.close()
        self._fruitless += 1
        if self._fruitless > MAX_FRUITLESS:
            raise DaemonAbsent(
                "vastd closes every connection before it answers",
                hint="its log says why: `vastctl daemon logs`",
            )
        self._note("lost the connection to vastd; trying to reach it again")
        deadline = max(self._heard_at, self._clock() - self.reconnect_s / 2) + self.reconnect_s
        pause = FIRST_PAUSE_S
        while True:
            self._pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
            try:
                self._link = self._connect()
            except DaemonAbsent:
                if self._clock() >= deadline:
                    raise
            else:
                with suppress(ConnectionLost):  # then the next request meets it, and counts it
                    self._greet()
                self._note("connected to vastd again")
                return

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._waiting.clear()
        if self._link is not None:
            self._link.close()
            self._link = None

    def _unsettled(self, name: str, why: str) -> ConnectionLost:
        if name in _SPENDING:
            return ConnectionLost(
                f"{name} was sent and its answer is lost, it may have been carried out: {why}",
                exit_code=ExitCode.UNCONFIRMED,
            )
        return ConnectionLost(f"no answer to {name}: {why}")
