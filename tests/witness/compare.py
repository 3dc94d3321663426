"""Whether two requests are the same, and whether an answer has the recorded one's shape."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from vastd.simulator.facade.http import Reply, Request
from witness.recording import Ask, Run
from witness.scenes import Scene

RESULT: Final = "<result>"  # a log to be fetched; its address is the server's choice
# Values that the request or the scene determines; of all others the type is compared.
DETERMINED: Final = frozenset({"success", "error", "actual_status", "intended_status", "truncated"})
# It also made these up for a machine that had not reported anything yet.
UNREPORTED: Final = {"status_msg", "gpu_util", "uptime_mins"}
# The recording server gave the same rows to every query, so here a list may be empty or not.
UNFILTERED: Final = frozenset({"offers", "filters"})
# Keys of recorded answers that the recording server made up: VAST_API 5 and 7.3 name others.
MADE_UP: Final = {
    "/api/v1/invoices/": {"amount_cents", "when"},
    "/api/v0/instances/balance/1001/": {"credit_balance", "credit_discount", "discounted_total"},
}


def request_of(ask: Ask, run: Run, scene: Scene) -> dict[str, Any]:
    """Return what of a recorded request must come again, in the market's ids."""
    real = scene.real(ask.path)
    path = RESULT if ask.path.startswith("/_s3/") else real
    query = {name: scene.real(value) for name, value in ask.query.items()}
    return _form(ask.method, path, query, scene.real(ask.body), run)


def request_seen(request: Request, run: Run, home: str) -> dict[str, Any]:
    """Return the same of a request that came."""
    path = RESULT if request.path.startswith("/instance_logs/") else request.path
    text = request.body.decode().replace(home, "$HOME")
    return _form(request.method, path, request.query, json.loads(text) if text else None, run)


def _form(method: str, path: str, query: dict[str, str], body: Any, run: Run) -> dict[str, Any]:
    query = dict(query)
    if "after_token" in query:
        query["after_token"] = "<token>"  # opaque: the server's choice
    if not {"-s", "--start_date"} & set(run.argv):  # then the span ends now
        for name in ("sdate", "edate"):
            if name in query:
                query[name] = "<time>"
        if "/charges/" in path:
            query["select_filters"] = re.sub(r"\d{10}", "<time>", query["select_filters"])
    if run.argv == ["create", "ssh-key", "-y"]:  # it makes a key first
        body = {"ssh_key": re.sub(r"AAAA\S+ \S+", "<made>", body["ssh_key"])}
    return {"method": method, "path": path, "query": query, "body": body}


def answer_of(reply: Reply) -> Any:
    """Return the decoded body: JSON if it is any, else its text."""
    try:
        return json.loads(reply.body)
    except ValueError:
        return reply.body.decode(errors="replace")


def differences(ask: Ask, reply: Reply) -> list[str]:
    """Return how an answer differs from the recorded one; extra keys are no difference."""
    if reply.status != ask.status:
        return [f"status {reply.status} instead of {ask.status}"]
    if ask.status == 429:
        return [] if _is_limit(answer_of(reply)) else ["no known form of a 429"]
    made_up = MADE_UP.get(ask.path, set())
    if "select_cols" in ask.query and "*" not in ask.query["select_cols"]:
        # It gave all columns whatever was asked for.
        wanted = set(json.loads(ask.query["select_cols"]))
        made_up = made_up | {name for row in _rows(ask.response) for name in row} - wanted
    return list(_differences(ask.response, answer_of(reply), made_up, "$"))


def _rows(response: Any) -> list[dict[str, Any]]:
    return list(response["instances"])


def _is_limit(body: Any) -> bool:
    # Three forms are documented (VAST_API 1.2); which one comes is the server's choice.
    if isinstance(body, str):
        return body == "API requests too frequent"
    return "too frequent" in body.get("detail", body.get("msg", ""))


def _differences(old: Any, new: Any, made_up: set[str], at: str) -> Iterator[str]:
    if old is None:
        return  # what it would be is not known
    if isinstance(old, dict):
        if not isinstance(new, dict):
            yield f"{at}: {type(new).__name__} instead of an object"
            return
        if "actual_status" in old and old["actual_status"] is None:
            made_up = made_up | UNREPORTED
        yield from (f"{at}.{key}: missing" for key in old if key not in {*new, *made_up})
        for key in (key for key in old if key in new and key not in made_up):
            yield from _differences(old[key], new[key], made_up, f"{at}.{key}")
        return
    if isinstance(old, list):
        may_differ = at.rpartition(".")[2] in UNFILTERED
        if not isinstance(new, list) or (bool(old) != bool(new) and not may_differ):
            yield f"{at}: {new!r:.40} instead of a list {'with' if old else 'without'} rows"
        elif old and new:
            yield from _differences(old[0], new[0], made_up, f"{at}[0]")
        return
    if _kind(old) != _kind(new):
        yield f"{at}: {new!r:.40} instead of {old!r:.40}"
    elif at.rpartition(".")[2] in DETERMINED and old != new:
        yield f"{at}: {new!r} instead of {old!r}"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__
