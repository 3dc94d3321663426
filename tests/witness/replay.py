"""Replays the recorded requests at the façade itself, without the client and without a network."""

import json
from typing import Final

from msgspec import Struct

from vastd.simulator.facade.http import Reply, Request
from witness.compare import answer_of, differences
from witness.recording import NO_ROUTE, Ask, Run
from witness.scenes import FLAG_KEY, KEY, Scene

URL: Final = "http://127.0.0.1:1"


class Outcome(Struct, frozen=True, kw_only=True):
    """What a replay found; without problems the run is equal."""

    run: Run
    problems: list[str]


async def replay(run: Run) -> Outcome:
    """Send what a run in scope sent, and compare the answers with those recorded."""
    scene = Scene(run.scene, URL)
    problems: list[str] = []
    last: Reply | None = None
    for ask in run.asks:
        last = await scene.handle(_request(ask, run, scene, last))
        problems += [f"{ask.method} {ask.path}: {what}" for what in differences(ask, last)]
    return Outcome(run=run, problems=problems)


def _request(ask: Ask, run: Run, scene: Scene, before: Reply | None) -> Request:
    key = FLAG_KEY if "--api-key" in run.argv else KEY
    body = scene.real(ask.body)
    path = scene.real(ask.path)
    query = {name: scene.real(value) for name, value in ask.query.items()}
    answered = None if before is None else answer_of(before)
    if ask.path.startswith("/_s3/"):
        path = str(answered["result_url"]).removeprefix(URL)
    if "after_token" in query:
        query["after_token"] = answered["next_token"]
    return Request(
        method=ask.method,
        path=path,
        query=query,
        headers={"authorization": f"Bearer {key}"},
        body=b"" if body is None else json.dumps(body).encode(),
    )


async def without_a_clean_404(run: Run) -> list[str]:
    """Return the requests of a run without route that are not answered as they must be.

    A run may also use routes that exist; one of its requests at least must have none.
    """
    assert run.verdict == NO_ROUTE
    clean: list[bool] = []
    problems: list[str] = []
    for ask in run.asks:
        scene = Scene(run.scene, URL)
        reply = await scene.handle(_request(ask, run, scene, None))
        msg = f"no route {ask.method} {scene.real(ask.path)}"
        expected = {"success": False, "error": "not_found", "msg": msg}
        clean.append(reply.status == 404 and answer_of(reply) == expected)
        if reply.status not in (200, 400, 404):
            problems.append(f"{ask.method} {ask.path}: {reply.status}")
    return problems if any(clean) else [f"{run.argv}: no request without a route", *problems]
