"""The shape of a route, what handlers receive and return, and how a path finds its route."""

import re
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct, field

from vastd.simulator.accounts import ApiKey
from vastd.simulator.facade.http import Reply, Request
from vastd.simulator.faults import Fault, FaultKind, Point
from vastd.simulator.refusals import MarketRefused, invalid_request

JsonObject = dict[str, object]
_DECODER: Final = msgspec.json.Decoder()
_ENCODER: Final = msgspec.json.Encoder()


class Scope(StrEnum):
    """What a key must be allowed to (VAST_API 6.1)."""

    MISC = "misc"
    INSTANCE_READ = "instance_read"
    INSTANCE_WRITE = "instance_write"
    USER_READ = "user_read"
    USER_WRITE = "user_write"
    BILLING_READ = "billing_read"


class Access(StrEnum):
    """Who may call a route."""

    ANYONE = "anyone"  # a key that is sent must be good all the same
    KEY = "key"
    OWN_INSTANCE = "own_instance"  # an instance key too, for its own instance
    CONTROL = "control"  # the control token of this simulator
    PUBLIC = "public"  # keys are not even looked at


class Call(Struct, frozen=True, kw_only=True):
    """One request on its way through a handler."""

    request: Request
    ids: dict[str, int | str]  # the parts of the path that are names in braces
    key: ApiKey | None
    fault: Fault | None = None  # one that changes what a handler answers

    @property
    def instance_id(self) -> int:
        value = self.ids["id"]
        assert isinstance(value, int)
        return value

    def body(self) -> JsonObject:
        """Return the JSON object of the body; an empty body is an empty object.

        Raises:
            MarketRefused: it is something else.
        """
        if not self.request.body.strip():
            return {}
        try:
            value = _DECODER.decode(self.request.body)
        except msgspec.DecodeError as exc:
            raise invalid_request("Invalid json body") from exc
        if not isinstance(value, dict):
            raise invalid_request("Invalid json body")
        return value

    def query_json(self, name: str) -> object:
        """Return the JSON value of a query parameter, or None when it is absent.

        Raises:
            MarketRefused: it is no JSON.
        """
        text = self.request.query.get(name)
        if text is None:
            return None
        try:
            value: object = _DECODER.decode(text)
        except msgspec.DecodeError as exc:
            raise invalid_request(f"{name}: invalid json") from exc
        return value

    def struck_by(self, kind: FaultKind) -> bool:
        """Return whether this call is to go wrong in that way."""
        return self.fault is not None and self.fault.kind is kind


Handler = Callable[[Call], Awaitable[Reply]]
PointOf = Callable[[Request], Point | None]


class Route(Struct, frozen=True, kw_only=True):
    """One line of the table."""

    method: str
    path: str  # with a trailing slash; `{id}` is a number, `{name}` a word
    handler: Handler
    access: Access = Access.KEY
    scope: Scope = Scope.MISC
    point: Point | PointOf | None = None  # where faults strike; None: nowhere
    threshold_s: float = 0.0  # VAST_API 1.2: the least time between two calls
    penalty_s: float = 0.0  # more, after a violation
    burst: int = 1  # calls that may come at once

    def point_of(self, request: Request) -> Point | None:
        """Return where faults may strike this request."""
        if self.point is None or isinstance(self.point, Point):
            return self.point
        return self.point(request)


class Match(Struct, frozen=True, kw_only=True):
    """A route and the values of its path."""

    route: Route
    ids: dict[str, int | str] = field(default_factory=dict)


class Router:
    """Finds routes. A path matches with and without its trailing slash (VAST_API 1)."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = [(route, re.compile(_pattern(route.path))) for route in routes]

    def find(self, method: str, path: str) -> Match | None:
        """Return the first route that fits, or None."""
        for route, pattern in self._routes:
            found = pattern.fullmatch(path) if route.method == method else None
            if found is not None:
                ids = {
                    name: int(text) if name.endswith("id") else text
                    for name, text in found.groupdict().items()
                }
                return Match(route=route, ids=ids)
        return None


def _pattern(path: str) -> str:
    def group(found: re.Match[str]) -> str:
        name = found[1]
        # Longer numbers than any id would only cost time.
        return (
            f"(?P<{name}>[0-9]{{1,18}})" if name.endswith("id") else f"(?P<{name}>[A-Za-z0-9._-]+)"
        )

    return re.sub(r"\\{(\w+)\\}", group, re.escape(path.rstrip("/"))) + "/?"


def answer(value: object, status: int = 200) -> Reply:
    """Return a JSON reply."""
    return Reply(status=status, body=_ENCODER.encode(value))


def done(**extra: object) -> Reply:
    """Return the usual success."""
    return answer({"success": True, **extra})


def refusal(exc: MarketRefused) -> Reply:
    """Return a refusal of the market as the live service sends it."""
    return answer(exc.body(), exc.status)
