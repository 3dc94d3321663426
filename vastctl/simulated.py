"""The simulator's own door: is anything rented there, inject a fault, end it (DESIGN D7)."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from vastctl.errors import CliError

REQUEST_S: Final = 10.0  # guess; it is on loopback
# Names for what can go wrong -> where and how, in the simulator's terms.
FAULTS: Final[dict[str, tuple[str, str]]] = {
    "offer-gone": ("create", "offer_gone"),
    "create-request-lost": ("create", "lose_request"),
    "create-answer-lost": ("create", "lose_answer"),
    "create-error-after": ("create", "http_500_after"),
    "destroy-request-lost": ("destroy", "lose_request"),
    "destroy-answer-lost": ("destroy", "lose_answer"),
    "rate-limited": ("list", "http_429"),
    "list-truncated": ("list", "truncated_page"),
    "list-html": ("list", "html"),
    "list-flicker": ("list", "flicker"),
    "search-error": ("search", "http_500"),
}


class Service(Struct, frozen=True, kw_only=True):
    """How to reach the simulator; from `<state>/simulator/service.json`."""

    url: str
    control_token: str
    pid: int | None = None


class _Status(Struct, frozen=True, kw_only=True):
    live_contracts: int | None = None


def find_service(state: Path) -> Service | None:
    """Return the simulator that belongs to `state`, None if there is none."""
    try:
        return decode((state / "simulator" / "service.json").read_bytes(), type=Service)
    except (OSError, DecodeError):
        return None


def live_contracts(service: Service) -> int:
    """Return how many contracts the simulator still bills.

    Raises:
        CliError: it does not answer, or not with a number.
    """
    body = _request(service, "GET", "/sim/status")
    try:
        count = decode(body, type=_Status).live_contracts
    except DecodeError:
        count = None
    if count is None:
        raise CliError(f"the simulator's status cannot be understood: {body[:200]!r}")
    return count


def inject(service: Service, name: str) -> None:
    """Let the fault `name` strike once."""
    point, kind = FAULTS[name]
    _request(service, "POST", "/sim/faults", {"point": point, "kind": kind})


def end(service: Service) -> None:
    """End the simulator and everything it runs."""
    try:
        _request(service, "POST", "/sim/stop")
    except CliError:
        if service.pid is not None:
            with suppress(OSError):
                os.kill(service.pid, signal.SIGTERM)


def _request(service: Service, verb: str, path: str, body: object = None) -> bytes:
    from http.client import HTTPException
    from urllib.request import ProxyHandler, Request, build_opener

    request = Request(  # the address is the simulator's own file
        service.url.rstrip("/") + path,
        method=verb,
        data=None if verb == "GET" else encode({} if body is None else body),
        headers={
            "Authorization": f"Bearer {service.control_token}",
            "Content-Type": "application/json",
        },
    )
    try:
        # No proxy: the simulator is on loopback, whatever the environment says.
        with build_opener(ProxyHandler({})).open(request, timeout=REQUEST_S) as answer:
            return bytes(answer.read())
    except (OSError, HTTPException, ValueError) as exc:
        raise CliError(f"the simulator does not answer {verb} {path}: {exc}") from exc
