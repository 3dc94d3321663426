"""From the bytes of a request to typed parameters, and every way this can fail, in words.

Rules
1. Absent, `null`, `[]`, `[null]` and `{}` are the same: Emacs and vscode-jsonrpc send the
   others. `[{…}]` is one object sent by position, as vscode-jsonrpc does.
2. A field nobody knows is an error that names it and the field probably meant.
"""

import difflib
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.inspect import DictType, Field, ListType, StructType, Type, UnionType, type_info

from vastd.rpc.errors import RpcError
from vastd_protocol.envelope import MessageId, Request
from vastd_protocol.errors import ErrorCode
from vastd_protocol.method import Method

P = TypeVar("P")

# msgspec's sentences (0.23); a changed wording only loses the suggestion, never the error.
_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.+?)`")
_MISSING_FIELD: Final = re.compile(r"Object missing required field `(.+?)`")
_PLACE: Final = re.compile(r" - at `\$\.?(.*)`$")
_STEP: Final = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_MAX_ID: Final = 2**63  # beyond it msgspec cannot write the id back


class BadMessage(Exception):
    """A body that is no request; `message_id` is null where it could not be read."""

    def __init__(self, error: RpcError, message_id: MessageId = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.message_id = message_id


class _Id(msgspec.Struct, frozen=True):
    id: int | str | None = None


_REQUEST: Final = msgspec.json.Decoder(Request)
_ID: Final = msgspec.json.Decoder(_Id)


def read_request(body: bytes) -> Request:
    """Return the request in `body`.

    Raises:
        BadMessage: no JSON, a batch, or JSON that is no request; answer it, go on reading.
    """
    try:
        request = _REQUEST.decode(body)
    except msgspec.ValidationError as exc:
        raise _no_request(body, str(exc)) from exc
    except (msgspec.DecodeError, RecursionError) as exc:
        raise BadMessage(RpcError(ErrorCode.PARSE_ERROR, f"not JSON: {exc}")) from exc
    if isinstance(request.id, int) and not -_MAX_ID <= request.id < _MAX_ID:
        raise BadMessage(RpcError(ErrorCode.INVALID_REQUEST, "id: beyond 64 bits"))
    return request


def _no_request(body: bytes, reason: str) -> BadMessage:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as exc:
        return BadMessage(RpcError(ErrorCode.PARSE_ERROR, f"not JSON: {exc}"))
    if body.lstrip()[:1] == b"[":
        return BadMessage(
            RpcError(
                ErrorCode.INVALID_REQUEST,
                "batches are not supported",
                hint="send the requests one by one; they run side by side",
            )
        )
    message_id: MessageId = None
    try:
        message_id = _ID.decode(body).id
    except msgspec.ValidationError:
        reason = "id: expected int, str or null"
    if isinstance(message_id, int) and not -_MAX_ID <= message_id < _MAX_ID:
        message_id = None
    error = RpcError(ErrorCode.INVALID_REQUEST, f"not a JSON-RPC 2.0 request: {_plain(reason)}")
    return BadMessage(error, message_id)


def decode_params(
    method: Method[P, Any], decoder: msgspec.json.Decoder[P], raw: Raw | UnsetType
) -> P:
    """Return `raw` as the parameters of `method`; `decoder` is one for `method.params`.

    Raises:
        RpcError: INVALID_PARAMS with the place, and the field that was probably meant.
    """
    try:
        return decoder.decode(_as_object(method.name, raw))
    except msgspec.ValidationError as exc:
        raise _explain(method, str(exc)) from exc
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"{method.name}: {exc}") from exc


def _as_object(name: str, raw: Raw | UnsetType) -> bytes:
    if raw is UNSET:
        return b"{}"
    text = bytes(raw).strip()
    if text[:1] == b"[":
        items = msgspec.json.decode(text, type=list[Raw])
        if len(items) > 1:
            raise RpcError(
                ErrorCode.INVALID_PARAMS, f"{name}: params must be one object, got {len(items)}"
            )
        text = bytes(items[0]).strip() if items else b"null"
    return b"{}" if text == b"null" else text


def _explain(method: Method[P, Any], reason: str) -> RpcError:
    found = _PLACE.search(reason)
    place = found.group(1) if found else ""
    if unknown := _UNKNOWN_FIELD.search(reason):
        fields = [field.encode_name for field in _fields(method.params, place)]
        name = unknown.group(1)
        where = f" in {place}" if place else ""
        text = f"{method.name}: unknown field {name!r}{where}{did_you_mean(name, fields)}"
        hint = f"fields: {', '.join(sorted(fields))}" if fields else "it takes no fields"
        return RpcError(ErrorCode.INVALID_PARAMS, text, hint=hint)
    return RpcError(ErrorCode.INVALID_PARAMS, f"{method.name}: {_plain(reason)}")


def _plain(reason: str) -> str:
    found = _PLACE.search(reason)
    text = reason[: found.start()] if found else reason
    if missing := _MISSING_FIELD.search(text):
        text = f"missing required field {missing.group(1)!r}"
    text = text[:1].lower() + text[1:].replace("`", "").replace(" | ", " or ")
    return f"{found.group(1)}: {text}" if found and found.group(1) else text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean '…'?` for the closest of `known`, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _fields(params: type[Any], place: str) -> tuple[Field, ...]:
    """Return the fields of the object at `place` (`needs`, `rows[3].x`), or nothing."""
    here: Type | None = type_info(params)
    for step in _STEP.findall(place):
        here = _inside(here, step)
    found = _struct(here)
    return found.fields if found else ()


def _inside(here: Type | None, step: str) -> Type | None:
    if step.startswith("["):
        options = here.types if isinstance(here, UnionType) else (here,)
        for option in options:
            if isinstance(option, ListType):
                return option.item_type
            if isinstance(option, DictType):
                return option.value_type
        return None
    found = _struct(here)
    fields = found.fields if found else ()
    return next((field.type for field in fields if field.encode_name == step), None)


def _struct(here: Type | None) -> StructType | None:
    options = here.types if isinstance(here, UnionType) else (here,)
    return next((option for option in options if isinstance(option, StructType)), None)
