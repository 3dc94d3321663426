"""JSON-RPC 2.0 messages as typed structs, and the one way to encode and decode them.

`id` may be a string or an integer, also 0 (vscode-jsonrpc starts there). Absent means a
notification; an explicit null is kept apart from absent, because it must be answered.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from vastd_protocol.errors import ErrorObject

MessageId = int | str | None


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call, or a notification when `id` is unset."""

    method: str
    id: MessageId | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    jsonrpc: Literal["2.0"] | None = None


class OutRequest(Struct, frozen=True, kw_only=True):
    """A call as a client of ours sends it."""

    jsonrpc: str
    id: MessageId
    method: str
    params: Raw


class Notification(Struct, frozen=True, kw_only=True):
    """A message without an answer."""

    jsonrpc: str
    method: str
    params: Raw


class Reply(Struct, frozen=True, kw_only=True):
    """An answer as received: exactly one of `result` and `error` is set."""

    id: MessageId = None
    result: Raw | UnsetType = UNSET
    error: ErrorObject | UnsetType = UNSET
    method: str | UnsetType = UNSET  # set: this is a notification, not an answer
    params: Raw | UnsetType = UNSET
    jsonrpc: str | None = None


class OutResult(Struct, frozen=True, kw_only=True):
    """A successful answer as sent."""

    jsonrpc: str
    id: MessageId
    result: Raw


class OutError(Struct, frozen=True, kw_only=True):
    """A failed answer as sent."""

    jsonrpc: str
    id: MessageId
    error: ErrorObject


encode = msgspec.json.encode
decode = msgspec.json.decode


def request(message_id: MessageId, method: str, params: bytes) -> bytes:
    """Return the bytes of a call."""
    return encode(OutRequest(jsonrpc="2.0", id=message_id, method=method, params=Raw(params)))


def notification(method: str, params: bytes) -> bytes:
    """Return the bytes of a notification."""
    return encode(Notification(jsonrpc="2.0", method=method, params=Raw(params)))


def result(message_id: MessageId, body: bytes) -> bytes:
    """Return the bytes of a successful answer."""
    return encode(OutResult(jsonrpc="2.0", id=message_id, result=Raw(body)))


def failure(message_id: MessageId, error: ErrorObject) -> bytes:
    """Return the bytes of a failed answer."""
    return encode(OutError(jsonrpc="2.0", id=message_id, error=error))
