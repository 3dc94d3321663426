"""The way of a request through the façade: route, key, limit, fault, handler, answer.

Rules
1. Every request ends in an answer or in a fault that was ordered; a bug is a logged 500.
2. Faults strike before the key is checked, as a gateway does.
"""

import hmac
import logging
from collections.abc import Callable
from typing import Final

from vastd.simulator.accounts import ApiKey
from vastd.simulator.facade import mishaps
from vastd.simulator.facade.account import AccountRoutes
from vastd.simulator.facade.api_keys import ApiKeyRoutes
from vastd.simulator.facade.backend import Backend
from vastd.simulator.facade.bills import BillRoutes
from vastd.simulator.facade.control import ControlRoutes, Served
from vastd.simulator.facade.http import Ending, Reply, Request
from vastd.simulator.facade.instances import InstanceRoutes
from vastd.simulator.facade.limits import RateLimits
from vastd.simulator.facade.offers import OfferRoutes
from vastd.simulator.facade.routes import Access, Call, Match, Router, answer, refusal
from vastd.simulator.facade.templates import TemplateRoutes
from vastd.simulator.faults import Fault
from vastd.simulator.refusals import MarketRefused

LOG: Final = logging.getLogger(__name__)
CONTROL_HEADER: Final = "x-control-token"


class Facade:
    """Answers requests as Vast would."""

    def __init__(
        self,
        backend: Backend,
        *,
        control_token: str,
        shut_down: Callable[[], None],
        rate_limits: bool = False,
    ) -> None:
        self._backend = backend
        self._control_token = control_token
        self._control = ControlRoutes(backend, shut_down)
        self._limits = RateLimits(backend.clock, enabled=rate_limits)
        self._struck = 0
        self.last_request_at = backend.clock()
        self._router = Router(
            [
                *OfferRoutes(backend).table(),
                *BillRoutes(backend).table(),
                *InstanceRoutes(backend).table(),
                *AccountRoutes(backend).table(),
                *ApiKeyRoutes(backend).table(),
                *TemplateRoutes(backend).table(),
                *self._control.table(),
            ]
        )

    @property
    def served(self) -> list[Served]:
        """Every request so far, oldest first (the last ten thousand)."""
        return list(self._control.served)

    async def handle(self, request: Request) -> Reply:
        """Answer one request."""
        self.last_request_at = self._backend.clock()
        try:
            reply = await self._handle(request)
        except MarketRefused as exc:
            reply = refusal(exc)
        except Exception:  # the edge: one request (STYLE 23)
            LOG.exception("bug in %s %s", request.method, request.path)
            reply = mishaps.server_error()
        status = 0 if reply.ending is Ending.DROPPED else reply.status
        self._control.served.append(
            Served(at=self.last_request_at, method=request.method, path=request.path, status=status)
        )
        LOG.debug("%s %s -> %d", request.method, request.path, status)
        return reply

    async def _handle(self, request: Request) -> Reply:
        match = self._router.find(request.method, request.path)
        if match is None:
            return self._unknown(request)
        fault = self._strike(match, request)
        if fault is not None:
            offer_id = match.ids.get("id", 0)
            early = await mishaps.instead(
                fault, count=self._struck, offer_id=offer_id if isinstance(offer_id, int) else 0
            )
            if early is not None:
                return early
        key, refused = self._authorize(match, request)
        if refused is not None:
            return refused
        wait = self._limits.wait_s(match.route, _identity(request, key))
        if wait > 0:
            self._struck += 1
            return mishaps.too_frequent(match.route.threshold_s, form=self._struck)
        call = Call(request=request, ids=match.ids, key=key, fault=fault)
        try:
            reply = await match.route.handler(call)
        except MarketRefused as exc:
            reply = refusal(exc)
        return reply if fault is None else mishaps.afterwards(fault, reply)

    def _unknown(self, request: Request) -> Reply:
        # Also a known path with another method: what is not modelled never looks half modelled.
        msg = f"no route {request.method} {request.path}"
        return answer({"success": False, "error": "not_found", "msg": msg}, 404)

    def _strike(self, match: Match, request: Request) -> Fault | None:
        point = match.route.point_of(request)
        if point is None:
            return None
        # The number in the path of a create is an offer's.
        number = None if "asks" in match.route.path else match.ids.get("id")
        fault = self._backend.faults.next(
            point, instance_id=number if isinstance(number, int) else None
        )
        if fault is not None:
            self._struck += 1
            LOG.info("fault %s at %s: %s %s", fault.kind, point, request.method, request.path)
        return fault

    def _authorize(self, match: Match, request: Request) -> tuple[ApiKey | None, Reply | None]:
        route = match.route
        if route.access is Access.PUBLIC:
            return None, None
        if route.access is Access.CONTROL:
            shown = request.headers.get(CONTROL_HEADER) or _bearer(request) or ""
            if hmac.compare_digest(shown.encode(), self._control_token.encode()):
                return None, None
            return None, mishaps.auth_error(403, "the control token is wrong or missing")
        token = _bearer(request) or request.query.get("api_key")
        if token is None:
            if route.access is Access.ANYONE:
                return None, None
            return None, mishaps.auth_error(403, "This action requires login.")
        key = self._backend.market.account.authenticate(token)
        if key is None:
            return None, mishaps.auth_error(404)
        return key, _not_permitted(match, key)


def _not_permitted(match: Match, key: ApiKey) -> Reply | None:
    route = match.route
    if key.instance_id is not None:
        own = route.access is Access.OWN_INSTANCE and match.ids.get("id") == key.instance_id
        allowed = own or route.access is Access.ANYONE
    else:
        allowed = key.permissions is None or str(route.scope) in key.permissions
    if allowed:
        return None
    return refusal(MarketRefused(403, "not_authorized", "This key may not do that."))


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def _identity(request: Request, key: ApiKey | None) -> str:
    return "nobody" if key is None else key.token
