"""How a scripted fault looks on the wire: before its effect, or after it.

The decision that a fault strikes is `vastd.simulator.faults`; here is only its expression.
"""

from collections.abc import Callable
from typing import Final

import trio
from msgspec import structs

from vastd.simulator import refusals
from vastd.simulator.facade.http import Ending, Reply
from vastd.simulator.facade.routes import answer, refusal
from vastd.simulator.faults import Fault, FaultKind

PLAIN: Final = "text/plain"
TOO_FREQUENT: Final = "API requests too frequent"
GATEWAY_PAGE: Final = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad"
    b" Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)
NO_ANSWER: Final = Reply(ending=Ending.DROPPED)


def too_frequent(threshold_s: float, *, form: int, retry_after_s: float | None = None) -> Reply:
    """Return a 429 in one of the three forms that were seen (VAST_API 1.2)."""
    detail = f"{TOO_FREQUENT} endpoint threshold={threshold_s:g}"
    headers = {} if retry_after_s is None else {"Retry-After": f"{retry_after_s:g}"}
    match form % 3:
        case 0:
            reply = Reply(status=429, body=TOO_FREQUENT.encode(), content_type=PLAIN)
        case 1:
            reply = answer({"detail": detail}, 429)
        case _:
            reply = answer({"success": False, "error": "rate_limit_exceeded", "msg": detail}, 429)
    return structs.replace(reply, headers=headers)


def auth_error(status: int, msg: str = "Invalid user key") -> Reply:
    """Return the answer to a key that is not accepted."""
    return answer({"success": False, "error": "auth_error", "msg": msg}, status)


def retired() -> Reply:
    """Return the answer of an endpoint that was switched off."""
    body = {
        "success": False,
        "error": "deprecated_endpoint",
        "msg": "This endpoint was retired; use /api/v1/instances/.",
    }
    return answer(body, 410)


def server_error() -> Reply:
    """Return what a gateway says when the service behind it broke."""
    return Reply(status=500, body=b"Internal Server Error", content_type=PLAIN)


async def instead(fault: Fault, *, count: int, offer_id: int) -> Reply | None:
    """Return what comes instead of the effect, or None when the effect happens."""
    match fault.kind:
        case FaultKind.LOSE_REQUEST:
            return NO_ANSWER
        case FaultKind.TIMEOUT:
            await trio.sleep(fault.hang_s)
            return NO_ANSWER
        case FaultKind.HTTP_429:
            return too_frequent(3.0, form=count, retry_after_s=fault.retry_after_s)
        case FaultKind.HTTP_500:
            return server_error()
        case FaultKind.HTTP_410:
            return retired()
        case FaultKind.AUTH_404:
            return auth_error(404)
        case FaultKind.AUTH_401:
            return auth_error(401)
        case FaultKind.HTML:
            return Reply(status=502, body=GATEWAY_PAGE, content_type="text/html")
        case FaultKind.OFFER_GONE:
            return refusal(refusals.no_such_ask(offer_id))
        case FaultKind.NO_CREDIT:
            return refusal(refusals.insufficient_credit())
        case FaultKind.SPEND_RATE:
            return refusal(refusals.spend_rate_limit())
        case _:
            return None


_AFTERWARDS: Final[dict[FaultKind, Callable[[Reply], Reply]]] = {
    FaultKind.LOSE_ANSWER: lambda _: NO_ANSWER,
    FaultKind.HTTP_500_AFTER: lambda _: server_error(),
    FaultKind.EMPTY_BODY: lambda _: Reply(body=b""),
    FaultKind.NULL: lambda _: Reply(body=b"null"),
    FaultKind.TRUNCATED_PAGE: lambda reply: structs.replace(
        reply, body=reply.body[: len(reply.body) // 2]
    ),
}


def afterwards(fault: Fault, reply: Reply) -> Reply:
    """Return what arrives of `reply`, whose effect has happened."""
    change = _AFTERWARDS.get(fault.kind)
    return reply if change is None else change(reply)
