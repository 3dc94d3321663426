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
# Names for what can go wrong once -> the order the simulator understands (`POST /sim/faults`).
FAULTS: Final[dict[str, dict[str, object]]] = {
    "offer-gone": {"calls": [{"point": "create", "kind": "offer_gone"}]},
    "create-request-lost": {"calls": [{"point": "create", "kind": "lose_request"}]},
    "create-answer-lost": {"calls": [{"point": "create", "kind": "lose_answer"}]},
    "create-error-after": {"calls": [{"point": "create", "kind": "http_500_after"}]},
    "destroy-request-lost": {"calls": [{"point": "destroy", "kind": "lose_request"}]},
    "destroy-answer-lost": {"calls": [{"point": "destroy", "kind": "lose_answer"}]},
    "rate-limited": {"calls": [{"point": "list", "kind": "http_429"}]},
    "list-truncated": {"calls": [{"point": "list", "kind": "truncated_page"}]},
    "list-html": {"calls": [{"point": "list", "kind": "html"}]},
    "list-flicker": {"calls": [{"point": "list", "kind": "flicker"}]},
    "search-error": {"calls": [{"point": "search", "kind": "http_500"}]},
    "wrong-gpu": {"machine": {"kind": "wrong_gpu"}},
    "broken-gpu": {"machine": {"kind": "broken_gpu"}},
    "ssh-key-missing": {"machine": {"kind": "ssh_auth", "healed_by_attach": True}},
}


class Service(Struct, frozen=True, kw_only=True):
    """How to reach the simulator; from `<state>/simulator/service.json`."""

    url: str
    control_token: str
    pid: int | None = None


class _Live(Struct, frozen=True, kw_only=True):
    foreign: bool = False


class _Status(Struct, frozen=True, kw_only=True):
    live: list[_Live]


def find_service(state: Path) -> Service | None:
    """Return the simulator that belongs to `state`, None if there is none."""
    try:
        return decode((state / "simulator" / "service.json").read_bytes(), type=Service)
    except (OSError, DecodeError):
        return None


def live_contracts(service: Service) -> int:
    """Return how many contracts of ours the simulator still bills.

    Raises:
        CliError: it does not answer, or not with its status.
    """
    body = _request(service, "GET", "/sim/status")
    try:
        status = decode(body, type=_Status)
    except DecodeError as exc:
        raise CliError(f"the simulator's status cannot be understood: {exc}") from exc
    return sum(1 for contract in status.live if not contract.foreign)


def inject(service: Service, name: str) -> None:
    """Let the fault `name` strike once."""
    _request(service, "POST", "/sim/faults", FAULTS[name])


def end(service: Service) -> None:
    """End the simulator and everything it runs."""
    try:
        _request(service, "POST", "/sim/shutdown")
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
