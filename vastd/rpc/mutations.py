"""Requests that change something: each `request_id` is carried out once (CONTRACT 3).

Rules
1. A change runs in the server's nursery. A client that leaves does not stop it, and a repeat
   that comes meanwhile waits for the same outcome.
2. Only success is remembered: after an error the same `request_id` may try again.
3. The same `request_id` with another method or other parameters is refused, never guessed at.
4. A kill between a change and its answer must not make a repeat change more. `Context.commit` stores
   both in one transaction; what rents keeps its `request_id` in its record; everything else gives
   the same state again when it is repeated. `tests/rpc/test_repeats.py` has the table.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import trio
from msgspec import Raw, Struct

from vastd.errors import VastdError
from vastd.rpc.errors import RpcError, error
from vastd_protocol.errors import ErrorCode, ErrorObject
from vastd_protocol.method import Mutation

if TYPE_CHECKING:
    from vastd.rpc.dispatch import Call

MAX_REQUEST_ID_CHARS: Final = 200  # guess; a UUID has 36

Outcome = bytes | ErrorObject
"""An encoded result, or the error to send instead."""

logger = logging.getLogger(__name__)


class Answers(Protocol):
    """Where answers to changes are kept (7 days), so that a repeat after a restart finds them."""

    def get(self, request_id: str) -> bytes | None:
        """Return what was stored under `request_id`, or None."""
        ...

    def put(self, request_id: str, method: str, body: bytes) -> None:
        """Store `body`; durable on return."""
        ...


class Sealed(Struct, frozen=True, kw_only=True):
    """A stored answer with what it answers."""

    fingerprint: str
    result: Raw


class Running(Struct, kw_only=True):
    """A change under way."""

    fingerprint: str
    done: trio.Event
    outcome: Outcome


_STOPPED: Final = error(
    ErrorCode.CANCELLED,
    "vastd is stopping and did not finish this",
    hint="repeat it with the same request_id when vastd runs again",
    retryable=True,
)


class Mutations:
    """Run changes, each `request_id` once. One per daemon."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._running: dict[str, Running] = {}  # by request_id

    @staticmethod
    def identify(method: str, params: object, call: "Call") -> None:
        """Note in `call` what the request is: its `request_id`, and a fingerprint of the rest.

        Raises:
            RpcError: the `request_id` is empty or too long.
        """
        if not isinstance(params, Mutation):
            return
        call.request_id = params.request_id
        # Of the decoded parameters: spacing, field order and spelled-out defaults do not count.
        text = msgspec.json.encode(params, order="deterministic")
        call.fingerprint = f"{method}:{hashlib.sha256(text).hexdigest()}"
        if params.request_id is not None and not 0 < len(params.request_id) <= MAX_REQUEST_ID_CHARS:
            raise RpcError(
                ErrorCode.INVALID_PARAMS,
                f"{method}: request_id must have 1 to {MAX_REQUEST_ID_CHARS} characters",
            )

    @staticmethod
    def seal(fingerprint: str, result: bytes) -> bytes:
        """Return the bytes to store for an answer."""
        return msgspec.json.encode(Sealed(fingerprint=fingerprint, result=Raw(result)))

    async def once(
        self,
        method: str,
        call: "Call",
        change: Callable[[], Awaitable[Outcome]],
        nursery: trio.Nursery,
    ) -> Outcome:
        """Return the outcome of `change`, or of the first request with the same id.

        Raises:
            RpcError: the id was used for another request.
        """
        request_id = call.request_id
        if request_id is not None:
            if (running := self._running.get(request_id)) is not None:
                _check(request_id, running.fingerprint, call.fingerprint)
                await running.done.wait()
                return running.outcome
            if (stored := self._answers.get(request_id)) is not None:
                sealed = msgspec.json.decode(stored, type=Sealed)
                _check(request_id, sealed.fingerprint, call.fingerprint)
                return bytes(sealed.result)
        running = Running(fingerprint=call.fingerprint, done=trio.Event(), outcome=_STOPPED)
        if request_id is not None:
            self._running[request_id] = running
        nursery.start_soon(self._carry_out, method, request_id, change, running)
        await running.done.wait()
        return running.outcome

    async def _carry_out(
        self,
        method: str,
        request_id: str | None,
        change: Callable[[], Awaitable[Outcome]],
        running: Running,
    ) -> None:
        try:
            outcome = await change()
            if request_id is not None and isinstance(outcome, bytes):
                self._remember(method, request_id, running.fingerprint, outcome)
            running.outcome = outcome
        finally:
            if request_id is not None:
                del self._running[request_id]
            running.done.set()

    def _remember(self, method: str, request_id: str, fingerprint: str, result: bytes) -> None:
        try:
            if self._answers.get(request_id) is None:
                self._answers.put(request_id, method, self.seal(fingerprint, result))
        except VastdError as exc:
            # The change is made; an answer that could not be kept must not look like a failure.
            logger.error(  # noqa: TRY400  # a full disk is no bug: its reason is enough
                "answer not stored method=%s request_id=%r: %s", method, request_id, exc
            )
        except Exception:
            logger.exception("answer not stored method=%s request_id=%r", method, request_id)


def _check(request_id: str, first: str, repeat: str) -> None:
    if first == repeat:
        return
    was = first.partition(":")[0]
    now = repeat.partition(":")[0]
    what = f"for {was}" if was != now else f"for {was} with other parameters"
    raise RpcError(
        ErrorCode.INVALID_REQUEST,
        f"request_id {request_id!r} was already used {what}",
        hint="use a new request_id for a new request",
    )
