"""Routes below `/sim/`: what only a simulator can tell and do. Guarded by the control token."""

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import trio
from msgspec import Struct, structs

from vastd.core.money import to_usd
from vastd.simulator.contracts import Contract
from vastd.simulator.facade.backend import Backend, HostState
from vastd.simulator.facade.http import Reply
from vastd.simulator.facade.routes import Access, Call, JsonObject, Route, answer, done
from vastd.simulator.faults import Fault, MachineFault
from vastd.simulator.refusals import MarketRefused, invalid_request

REQUESTS_KEPT: Final = 10_000
WAIT_LIMIT_S: Final = 600.0  # guess; longer than any boot at the usual scale


class Served(Struct, frozen=True, kw_only=True):
    """One request the façade has answered, or dropped on purpose."""

    at: float
    method: str
    path: str
    status: int  # 0: the connection was dropped


class FaultOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `POST /sim/faults` may ask for; every part is optional."""

    calls: list[Fault] = []
    machine: MachineFault | None = None
    instance_id: int | None = None  # for `machine`; None: the next instance rented
    machine_id: int | None = None  # for `machine`: the next one rented there
    network_down_s: float | None = None  # every call goes unanswered for so long


class ControlRoutes:
    """Handlers of the simulator itself."""

    def __init__(self, backend: Backend, shut_down: Callable[[], None]) -> None:
        self._backend = backend
        self._shut_down = shut_down
        self.served: deque[Served] = deque(maxlen=REQUESTS_KEPT)

    def table(self) -> list[Route]:
        """Return the routes."""
        control = Access.CONTROL
        return [
            Route(method="GET", path="/sim/status/", handler=self.status, access=control),
            Route(method="GET", path="/sim/journal/", handler=self.journal, access=control),
            Route(method="GET", path="/sim/faults/", handler=self.faults, access=control),
            Route(method="POST", path="/sim/faults/", handler=self.inject, access=control),
            Route(method="DELETE", path="/sim/faults/", handler=self.clear, access=control),
            Route(method="GET", path="/sim/wait/{id}/", handler=self.wait, access=control),
            Route(method="POST", path="/sim/drop/{id}/", handler=self.drop, access=control),
            Route(method="POST", path="/sim/foreign/", handler=self.foreign, access=control),
            Route(method="POST", path="/sim/shutdown/", handler=self.shutdown, access=control),
        ]

    async def status(self, call: Call) -> Reply:
        """Tell what lives and what it has cost."""
        market = self._backend.market
        now = market.advance()
        return answer(
            {
                "now": now,
                "seed": market.world.seed,
                "scale": market.scale,
                "live": [self._contract(c) for c in market.live_contracts()],
                "contracts_ever": len(market.all_contracts()),
                "billed_usd": to_usd(market.total_billed()),
                "credit_usd": to_usd(market.credit()),
                "requests": len(self.served),
            }
        )

    def _contract(self, contract: Contract) -> JsonObject:
        access = contract.access
        return {
            "instance_id": contract.instance_id,
            "label": contract.label,
            "stage": str(contract.stage),
            "foreign": contract.foreign,
            "created_at": contract.created_at,
            "boot_id": contract.boot_id,
            "direct_port": None if access is None else access.direct_port,
            "billed_usd": to_usd(self._backend.market.billed(contract.instance_id)),
            "usd_per_hour": to_usd(contract.meter.rate()),
        }

    async def journal(self, call: Call) -> Reply:
        """Tell which mutating calls reached the market, and every request served."""
        return answer({"market": self._backend.market.journal, "requests": list(self.served)})

    async def faults(self, call: Call) -> Reply:
        """Tell which faults wait and which have struck."""
        faults = self._backend.faults
        return answer({"pending": faults.pending(), "fired": faults.fired})

    async def inject(self, call: Call) -> Reply:
        """Add faults."""
        try:
            order = msgspec.json.decode(call.request.body, type=FaultOrder)
            for fault in order.calls:
                self._backend.faults.add(fault)
        except (msgspec.MsgspecError, ValueError) as exc:
            raise invalid_request(f"faults: {exc}") from exc
        if order.machine is not None:
            self._backend.market.afflict(
                order.machine, instance_id=order.instance_id, machine_id=order.machine_id
            )
            self._backend.machines.adopt()
        if order.network_down_s is not None:
            now = self._backend.clock()
            self._backend.faults.cut_network(now, now + order.network_down_s)
            for contract in self._backend.market.live_contracts():
                self._backend.machines.drop_connections(contract.instance_id)
        return done()

    async def clear(self, call: Call) -> Reply:
        """Forget the faults of calls; machines stay as they are."""
        self._backend.faults.clear()
        return done()

    async def wait(self, call: Call) -> Reply:
        """Answer once the machine of an instance is in the state asked for."""
        state = call.request.query.get("state", "")
        if state not in {*HostState}:
            raise invalid_request(f"state is one of {', '.join(HostState)}")
        # Who asked may be long gone, which nothing tells us before we answer.
        with trio.move_on_after(WAIT_LIMIT_S) as scope:
            await self._backend.machines.wait_for(call.instance_id, HostState(state))
        if scope.cancelled_caught:
            raise MarketRefused(408, "timeout", f"instance {call.instance_id} is not {state}")
        return done(row=self._backend.market.instance_row(call.instance_id))

    async def drop(self, call: Call) -> Reply:
        """Break an instance's SSH connections; its processes go on."""
        return done(dropped=self._backend.machines.drop_connections(call.instance_id))

    async def foreign(self, call: Call) -> Reply:
        """Let the account hold an instance that nobody here rented."""
        label = call.body().get("label")
        contract = self._backend.market.add_foreign(label=label if isinstance(label, str) else None)
        return done(new_contract=contract.instance_id)

    async def shutdown(self, call: Call) -> Reply:
        """End the simulator, and every machine with it."""
        return structs.replace(done(), then=self._shut_down)
