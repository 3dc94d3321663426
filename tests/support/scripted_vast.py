"""A Vast that answers from a script and remembers what it was asked."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from msgspec import Struct

from vastd.provider.keys import Key, make_key
from vastd.provider.vast.client import VastProvider
from vastd.provider.vast.http import VastHttp

SECRET = "0123456789abcdef" * 4
NOW = 1_790_000_000.0


class Asked(Struct, frozen=True):
    """One request as it arrived; `body` is decoded, None when there was none."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


def a_key(text: str = SECRET) -> Key:
    return make_key(text, "a test")


class Answer(Struct, frozen=True):
    """One answer of a script, as bytes."""

    status: int
    body: bytes
    headers: dict[str, str]


class _Body(httpx2.AsyncByteStream):
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._data


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status, data, dict(headers or {}))


def respond(given: Answer) -> httpx2.Response:
    """Return the answer as it comes off a socket: not read yet."""
    return httpx2.Response(given.status, headers=given.headers, stream=_Body(given.body))


class ScriptedVast:
    """Give the answers of `script` in turn, the last one for ever; raise what is an exception."""

    def __init__(self, script: Sequence[Any]) -> None:
        self._script = list(script)
        self.asked: list[Asked] = []

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        content = await request.aread()
        self.asked.append(
            Asked(
                request.method,
                request.url.path,
                dict(request.url.params),
                json.loads(content) if content else None,
                {name.lower(): value for name, value in request.headers.items()},
            )
        )
        step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(step, Exception):
            raise step
        return respond(step if isinstance(step, Answer) else answer(step))


@asynccontextmanager
async def scripted(
    *script: Any, base_url: str = "https://vast.example", page_interval_s: float = 0.0
) -> AsyncIterator[tuple[VastProvider, ScriptedVast]]:
    """Give a `VastProvider` whose Vast answers with `script`."""
    vast = ScriptedVast(script)
    async with VastHttp(
        key=a_key(), base_url=base_url, version="1.2.3", transport=httpx2.MockTransport(vast)
    ) as http:
        yield (
            VastProvider(
                http,
                secrets=(SECRET,),
                wall_clock=lambda: NOW,
                page_interval_s=page_interval_s,
            ),
            vast,
        )
