"""A Vast that answers in recorded words: state from `SmallVast`, form from the recorded runs.

Every answer is the one recorded for the same route and outcome, with the values of the state put
in; a key that was not recorded does not get through, except what VAST_API documents and the
recording left out. So the contract holds for the recorded form and not for our idea of it.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import httpx2

from support.scripted_vast import answer, respond
from support.small_vast import SmallVast

RUNS = Path(__file__).parents[1] / "data" / "official_client_requests.jsonl"
LEFT_OUT = {"storage_total_cost"}  # VAST_API 4.3; without it no one knows what a stop costs


@cache
def recorded() -> list[tuple[str, int, Any]]:
    """Return route, status and answer of every recorded request."""
    asks = [ask for line in RUNS.read_text().splitlines() for ask in json.loads(line)["requests"]]
    return [(_route(ask["method"], ask["path"]), ask["status"], ask["response"]) for ask in asks]


def _route(method: str, path: str) -> str:
    return method + " " + re.sub(r"/\d+/", "/N/", path.partition("?")[0].rstrip("/") + "/")


@cache
def success(route: str) -> Any:
    """Return the fullest answer recorded for a success of a route."""
    found = [answer for at, status, answer in recorded() if (at, status) == (route, 200)]
    found = [answer for answer in found if not _refuses(answer)]
    return max(found, key=lambda answer: len(json.dumps(answer)))


@cache
def refusal(route: str, status: int, code: str) -> Any:
    """Return the answer recorded for a refusal, of this route if there is one."""
    found = [
        (at == route, answer)
        for at, recorded_status, answer in recorded()
        if recorded_status == status and isinstance(answer, dict) and answer.get("error") == code
    ]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _refuses(given: Any) -> bool:
    return isinstance(given, dict) and given.get("success") is False


def dressed(form: Any, value: Any) -> Any:
    """Return `value` with exactly the keys of a recorded form; what it lacks is as recorded."""
    if isinstance(form, dict) and isinstance(value, dict):
        full = {key: dressed(old, value.get(key, old)) for key, old in form.items()}
        return full | {key: value[key] for key in LEFT_OUT & value.keys()}
    if isinstance(form, list) and isinstance(value, list) and form:
        return [dressed(form[0], row) for row in value]
    return value


class RecordedVast(SmallVast):
    """The state of `SmallVast`, told in recorded answers."""

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        given = await super().__call__(request)
        value = json.loads(await given.aread())
        route = _route(request.method, request.url.path)
        if given.status_code == 200:
            body = dressed(success(route), value)
        else:
            form = refusal(route, given.status_code, value["error"])
            body = value if form is None else {**form, "msg": value["msg"]}
        return respond(answer(body, given.status_code))
