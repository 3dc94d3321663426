"""What an answer of Vast that is not a success lets us conclude: one pure function.

Rules
1. The first question is money: an id of a new contract in whatever answer to a create means
   that an instance exists.
2. The text decides, not the HTTP status: a wrong key answers 401, 403 or 404, a taken offer
   400, 404 or 410, and a refusal may come with 200 (VAST_API 1.1, 3.3).
3. "Not found" counts only as Vast's own JSON about an instance. A bare 404 may come from a
   proxy, a retired route or a wrong key, and must not end the record of a paid machine (I11).
4. What cannot be read is `OutcomeUnknown`: for a read nothing was learnt, for a write it may
   have happened. A read answered in JSON of another shape is `ContractChanged`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from vastd.errors import (
    AuthRejected,
    BadSpec,
    ContractChanged,
    CreatedButFailed,
    NoCredit,
    NoSuchInstance,
    NotPermitted,
    OfferGone,
    OutcomeUnknown,
    ProviderError,
    Refused,
    SpendRateLimit,
)
from vastd.provider.vast import limits
from vastd.provider.vast.http import Reply
from vastd.provider.vast.operations import ON_INSTANCE, Call, Operation
from vastd.provider.vast.wire import UNREADABLE, identity, parse_json

MAX_QUOTE_CHARS: Final = 300  # guess: enough for every message of Vast seen so far
# Shorter texts are no secrets, and blotting them out would make messages unreadable.
MIN_HIDDEN_CHARS: Final = 6

# Substrings, in lower case, of `error` and `msg` (VAST_API 1.1, 6; vast-ai/vast-cli#465).
AUTH_MARKS: Final = (
    "auth_error",
    "invalid user key",
    "session expired",
    "requires login",
    "please log in",
    "two factor authentication",
)
PERMISSION_MARKS: Final = ("not_authorized", "not your own", "error 403/")
CREDIT_MARKS: Final = ("insufficient_credit", "lacks credit")
SPEC_MARKS: Final = (
    "invalid_args",
    "invalid_request",
    "invalid_price",
    "no_ssh_key",
    "input should be",
    "label_too_long",
    "error 400/",
)
_BY_SPEC: Final = frozenset({Operation.SEARCH, Operation.CREATE, Operation.BID})
ABSENT_MARKS: Final = ("no_such_instance", "no such instance", "instance not found")

BILLING_HINT: Final = "add credit at https://cloud.vast.ai/billing/"
KEY_HINT: Final = "check the key with `vastctl doctor`"


class _Answer(Struct, frozen=True):
    """An unsuccessful answer, read as far as it can be."""

    status: int
    document: object  # decoded JSON, or UNREADABLE
    code: str  # `error`, lower case; empty when absent
    said: str  # everything textual, lower case, to be searched
    quoted: str  # for people, without secrets

    @property
    def fields(self) -> Mapping[str, object]:
        return self.document if isinstance(self.document, dict) else {}

    def says(self, marks: Sequence[str]) -> bool:
        return any(mark in self.said for mark in marks)


def failure_of(
    call: Call, reply: Reply, document: object, *, now: float, hidden: Sequence[str] = ()
) -> ProviderError | None:
    """Return the error that `reply` stands for, or None when it is a success to be decoded.

    `document` is its body as `wire.parse_json` read it, and `now` is the wall clock in epoch seconds, for reset times. Texts in `hidden` are blotted
    out of the message. A 2xx answer whose body is unreadable is an error too.
    """
    if 200 <= reply.status < 300 and _succeeded(call, document):
        return None
    answer = _read(reply, document, hidden)
    for judge in (
        _new_contract,
        _offer_gone,
        _unreadable_success,
        _too_often,
        _server_trouble,
        _key_trouble,
        _money,
        _retired,
        _absent,
        _refused,
    ):
        error = judge(call, answer, reply, now)
        if error is not None:
            return error
    return _unknown(call, answer)


def is_empty_key_list(reply: Reply) -> bool:
    """Whether a 404 to the list of SSH keys says that there are none (VAST_API 6).

    Any JSON object that does not speak of the account key counts: reading too much into it
    only makes us add our key again.
    """
    document = parse_json(reply.body)
    answer = _read(reply, document, ())
    return reply.status == 404 and isinstance(document, dict) and not answer.says(AUTH_MARKS)


def _succeeded(call: Call, document: object) -> bool:
    """Whether a 2xx body claims success, or is a bare payload without that word."""
    if document is UNREADABLE or document is None:
        return False
    if not isinstance(document, dict):
        return call.is_read  # a list of keys; any other shape is judged by the decoder
    success = document.get("success")
    if success is None:
        # Some endpoints drop the word; then a text in `error` is the failure.
        return not (isinstance(document.get("error"), str) and document["error"])
    return str(success).lower() in ("true", "1")


def _read(reply: Reply, document: object, hidden: Sequence[str]) -> _Answer:
    texts: list[str] = []
    code = ""
    if isinstance(document, dict):
        error = document.get("error")
        code = error.lower() if isinstance(error, str) else ""
        texts = [
            str(document[name])
            for name in ("error", "msg", "message", "detail")
            if document.get(name) not in (None, "", True, False)
        ]
    elif document is UNREADABLE:
        text = reply.body[: 4 * MAX_QUOTE_CHARS].decode("utf-8", "replace").strip()
        texts = [text] if text else []
    elif isinstance(document, str):
        texts = [document]
    said = ": ".join(texts)
    return _Answer(
        status=reply.status,
        document=document,
        code=code,
        said=said.lower(),
        quoted=_quote(reply, said, document, hidden),
    )


def _quote(reply: Reply, said: str, document: object, hidden: Sequence[str]) -> str:
    for text in sorted(hidden, key=len, reverse=True):
        if len(text) >= MIN_HIDDEN_CHARS:
            said = said.replace(text, "[hidden]")
    # A page of HTML, or escape sequences for the user's terminal, help nobody.
    said = "".join(char if char.isprintable() else " " for char in said)
    said = " ".join(said.split())[:MAX_QUOTE_CHARS]
    if document is UNREADABLE:
        if not reply.body.strip():
            said = "an empty body"
        elif said.startswith("<"):
            said = "a web page"
        else:
            said = f"not JSON: {said}"
    elif not said:
        said = f"a {type(document).__name__} without a message"
    return f"vast answered {reply.status} ({said})"


# -- judges: each returns an error, or None when it has nothing to say ---------------------


def _new_contract(call: Call, answer: _Answer, _reply: Reply, _now: float) -> ProviderError | None:
    """Find the instance of a failed create: a low bid leaves a stopped one (dstack#4036)."""
    if call.operation is not Operation.CREATE:
        return None
    for fields in (answer.fields, *answer.fields.values()):
        if not isinstance(fields, Mapping) or fields.get("new_contract") is None:
            continue
        instance_id = identity(fields, "new_contract")
        if instance_id is None:
            return OutcomeUnknown(
                f"cannot {call}: {answer.quoted}, with a new_contract that is no id",
                hint="an instance may exist; it is looked for by its label",
            )
        return CreatedButFailed(
            f"{call} failed and left instance {instance_id}: {answer.quoted}",
            instance_id=instance_id,
            hint="destroy it: it bills for storage",
        )
    return None


def _offer_gone(call: Call, answer: _Answer, _reply: Reply, _now: float) -> ProviderError | None:
    """Vast's own word for a taken offer, under 400, 404 or 410 and in either field."""
    if call.operation is Operation.CREATE and answer.says(("no_such_ask",)):
        return OfferGone(f"cannot {call}: {answer.quoted}", hint="take the next offer")
    return None


def _unreadable_success(
    call: Call, answer: _Answer, _reply: Reply, _now: float
) -> ProviderError | None:
    if not 200 <= answer.status < 300 or isinstance(answer.document, dict):
        return None
    return OutcomeUnknown(f"cannot {call}: {answer.quoted}")


def _too_often(call: Call, answer: _Answer, reply: Reply, now: float) -> ProviderError | None:
    # Looked at first, because young accounts get it under 429 as well as 400.
    if "spend_rate_limit" in answer.said:
        return SpendRateLimit(
            f"cannot {call}: {answer.quoted}",
            hint=f"young accounts may rent only so fast: wait, or {BILLING_HINT}",
        )
    if limits.is_rate_limit(answer.status, answer.said):
        return limits.rate_limited(call, reply, answer.said, answer.quoted, now)
    return None


def _server_trouble(
    call: Call, answer: _Answer, _reply: Reply, _now: float
) -> ProviderError | None:
    # 408 and 425 come from gateways: the request may be running behind them.
    if answer.status >= 500 or answer.status in (408, 425):
        return OutcomeUnknown(f"cannot {call}: {answer.quoted}")
    return None


def _key_trouble(call: Call, answer: _Answer, _reply: Reply, _now: float) -> ProviderError | None:
    if answer.status == 401 or answer.says(AUTH_MARKS):
        return AuthRejected(f"cannot {call}: {answer.quoted}", hint=KEY_HINT)
    if answer.fields and (answer.status == 403 or answer.says(PERMISSION_MARKS)):
        return NotPermitted(
            f"cannot {call}: {answer.quoted}",
            hint="the key needs the permissions misc, instance_read, instance_write and user_read",
        )
    return None


def _money(call: Call, answer: _Answer, _reply: Reply, _now: float) -> ProviderError | None:
    # A bare 411 is a proxy that misses a Content-Length; Vast's own comes as JSON.
    if answer.says(CREDIT_MARKS) or (answer.status == 411 and answer.fields):
        return NoCredit(f"cannot {call}: {answer.quoted}", hint=BILLING_HINT)
    return None


def _retired(call: Call, answer: _Answer, reply: Reply, _now: float) -> ProviderError | None:
    """An endpoint that is gone (410 since 2026-09, skypilot#10517) or lives elsewhere."""
    if answer.says(("deprecated_endpoint",)) or (answer.status == 410 and call.is_read):
        return ContractChanged(
            f"cannot {call}: {answer.quoted}", hint="this endpoint is retired: update vastd"
        )
    if 300 <= answer.status < 400:
        target = reply.headers.get("location", "nowhere")[:MAX_QUOTE_CHARS].split("?")[0]
        text = f"cannot {call}: vast answered {answer.status}, a redirection to {target!r}"
        hint = "set vast.url to the address Vast is at now"
        return ContractChanged(text, hint=hint) if call.is_read else OutcomeUnknown(text, hint=hint)
    return None


def _absent(call: Call, answer: _Answer, _reply: Reply, _now: float) -> ProviderError | None:
    if call.operation not in ON_INSTANCE or not answer.fields:
        return None
    # `not_found` is Vast's other word for it, but other things can be not found under 400.
    named = answer.status == 404 and answer.code in ("not_found", "invalid_id")
    if named or answer.says(ABSENT_MARKS):
        return NoSuchInstance(f"cannot {call}: {answer.quoted}")
    return None


def _refused(call: Call, answer: _Answer, _reply: Reply, _now: float) -> ProviderError | None:
    """The plain no: Vast's own JSON with a reason in it."""
    said_no = answer.fields.get("success") is False or bool(answer.said)
    if not answer.fields or not said_no or call.operation is Operation.LIST:
        return None
    text = f"cannot {call}: {answer.quoted}"
    if call.operation in _BY_SPEC and answer.says(SPEC_MARKS):
        return BadSpec(text, hint="correct the request: every offer would refuse it")
    if call.operation is Operation.START and "resources_unavailable" in answer.said:
        return Refused(text, hint="the gpu is taken; stop the instance, or it may start later")
    if 200 <= answer.status < 300:
        # A create that is denied in a way nobody has described may have made something.
        return OutcomeUnknown(text) if call.operation is Operation.CREATE else Refused(text)
    # A framework's own 404 speaks of the route, not of the thing.
    return None if answer.status == 404 and not answer.code else Refused(text)


def _unknown(call: Call, answer: _Answer) -> ProviderError:
    text = f"cannot {call}: {answer.quoted}"
    if not call.is_read:
        return OutcomeUnknown(text)
    if answer.code == "invalid_token" or (answer.document is UNREADABLE and answer.status != 404):
        return OutcomeUnknown(text)  # pages moved under us, or a gateway spoke: ask again
    return ContractChanged(text, hint="vast answers in a way this version does not know")
