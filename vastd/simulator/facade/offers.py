"""Routes that search: offers and the catalogue of cards."""

from typing import Final

from vastd.simulator.facade.backend import Backend
from vastd.simulator.facade.http import Reply
from vastd.simulator.facade.routes import Access, Call, Handler, JsonObject, Route, Scope, answer
from vastd.simulator.faults import FaultKind, Point
from vastd.simulator.refusals import invalid_request

SEARCHES_AT_ONCE: Final = 10  # VAST_API 1.2: ten searches a minute
SEARCH_WINDOW_S: Final = 60.0


class OfferRoutes:
    """Handlers of searches."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def table(self) -> list[Route]:
        """Return the routes."""
        return [
            _search_route("POST", "/api/v0/bundles/", self.bundles, Access.ANYONE),
            _search_route("GET", "/api/v0/bundles/", self.bundles_by_query, Access.ANYONE),
            _search_route("PUT", "/api/v0/search/asks/", self.asks, Access.KEY),
            _search_route("GET", "/api/v0/search/asks/", self.asks_by_query, Access.KEY),
            Route(
                method="GET",
                path="/api/v0/gpu_names/unique/",
                handler=self.gpu_names,
                access=Access.PUBLIC,
            ),
        ]

    async def bundles(self, call: Call) -> Reply:
        """Search with Vast's defaults; the body itself is the filter object."""
        return answer({"offers": self._search(call, call.body(), defaults=True)})

    async def bundles_by_query(self, call: Call) -> Reply:
        """Search with the filter object in `q`."""
        return answer({"offers": self._search(call, _filters(call), defaults=True)})

    async def asks(self, call: Call) -> Reply:
        """Search without defaults; filters are under `q`."""
        body = call.body()
        extra = sorted(set(body) - {"q", "select_cols"})
        if extra:
            raise invalid_request(f"{extra[0]}: Extra inputs are not permitted")
        filters = body.get("q", {})
        if not isinstance(filters, dict):
            raise invalid_request("q: Input should be a valid dictionary")
        offers = self._search(call, filters, defaults=False)
        return answer({"success": True, "offers": offers})

    async def asks_by_query(self, call: Call) -> Reply:
        """Search without defaults, with the filter object in the query."""
        offers = self._search(call, _filters(call), defaults=False)
        return answer({"success": True, "offers": offers})

    async def gpu_names(self, call: Call) -> Reply:
        """List the cards on the market."""
        return answer({"gpu_names": self._backend.market.gpu_names()})

    def _search(self, call: Call, filters: JsonObject, *, defaults: bool) -> list[JsonObject]:
        leak = call.struck_by(FaultKind.LEAK)
        return self._backend.market.search(filters, defaults=defaults, leak=leak).rows


def _search_route(method: str, path: str, handler: Handler, access: Access) -> Route:
    return Route(
        method=method,
        path=path,
        handler=handler,
        access=access,
        scope=Scope.MISC,
        point=Point.SEARCH,
        threshold_s=SEARCH_WINDOW_S,
        burst=SEARCHES_AT_ONCE,
    )


def _filters(call: Call) -> JsonObject:
    value = call.query_json("q")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_request("q: Input should be a valid dictionary")
    return value
