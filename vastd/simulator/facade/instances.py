"""Routes of contracts: create, list, read, change, destroy, logs."""

import shlex
from typing import Final

from vastd.simulator.facade import listing, mishaps
from vastd.simulator.facade.backend import Backend
from vastd.simulator.facade.http import Reply, Request
from vastd.simulator.facade.rent_order import changed_order, read_order
from vastd.simulator.facade.routes import (
    Access,
    Call,
    JsonObject,
    Route,
    Scope,
    answer,
    done,
)
from vastd.simulator.faults import FaultKind, Point
from vastd.simulator.refusals import MarketRefused, invalid_args, invalid_request

LOG_LINES: Final = 1000  # VAST_API 5.1: what the client asks for
COMMAND_CHARS: Final = 512  # VAST_API 5.2
FILTERED_BY: Final = ("actual_status", "verification", "gpu_name")  # VAST_API 4.1
COMMANDS: Final = frozenset({"ls", "rm", "du"})  # VAST_API 5.2


class InstanceRoutes:
    """Handlers of contracts. Every change tells the machines before the answer leaves."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._market = backend.market

    def table(self) -> list[Route]:
        """Return the routes."""
        read, write = Scope.INSTANCE_READ, Scope.INSTANCE_WRITE
        one, own = "/api/v0/instances/{id}/", Access.OWN_INSTANCE
        return [
            Route(method="PUT", path="/api/v0/asks/{id}/", handler=self.create, scope=write,
                  point=Point.CREATE, threshold_s=4.5, penalty_s=12.0),
            Route(method="PUT", path="/api/v0/launch_instance/", handler=self.launch,
                  scope=Scope.MISC, point=Point.CREATE, threshold_s=5.0),
            Route(method="GET", path="/api/v1/instances/", handler=self.list_page, scope=read,
                  point=Point.LIST, threshold_s=1.0),
            Route(method="GET", path="/api/v0/instances/", handler=self.retired_list, scope=read),
            Route(method="GET", path="/api/v0/instances/count/", handler=self.count, scope=read),
            Route(method="GET", path="/api/v0/instances/filters/", handler=self.filters,
                  scope=read),
            Route(method="GET", path=one, handler=self.show, scope=read, access=own,
                  point=Point.GET, threshold_s=2.0),
            Route(method="PUT", path=one, handler=self.change, scope=write, access=own,
                  point=_point_of_change, threshold_s=1.0),
            Route(method="PUT", path="/api/v0/instances/", handler=self.change_many, scope=write,
                  point=_point_of_change, threshold_s=1.0),
            Route(method="DELETE", path=one, handler=self.destroy, scope=write, access=own,
                  point=Point.DESTROY, threshold_s=3.0),
            Route(method="DELETE", path="/api/v0/instances/", handler=self.destroy_many,
                  scope=write, point=Point.DESTROY, threshold_s=3.0),
            Route(method="PUT", path="/api/v0/instances/reboot/{id}/", handler=self.reboot,
                  scope=write, threshold_s=1.0),
            Route(method="PUT", path="/api/v0/instances/recycle/{id}/", handler=self.recycle,
                  scope=write, threshold_s=1.0),
            Route(method="PUT", path="/api/v0/instances/update_template/{id}/",
                  handler=self.update, scope=write),
            Route(method="PUT", path="/api/v0/instances/bid_price/{id}/", handler=self.bid,
                  scope=write, point=Point.BID, threshold_s=5.5),
            Route(method="PUT", path="/api/v0/instances/request_logs/{id}/", handler=self.logs,
                  scope=read),
            Route(method="PUT", path="/api/v0/instances/command/{id}/", handler=self.command,
                  scope=write, threshold_s=1.5),
            Route(method="GET", path="/instance_logs/{name}/", handler=self.result,
                  access=Access.PUBLIC),
        ]  # fmt: skip

    async def create(self, call: Call) -> Reply:
        """Rent an offer."""
        return self._rent(call.instance_id, call.body())

    async def launch(self, call: Call) -> Reply:
        """Rent the first offer a search finds."""
        body = call.body()
        query = body.get("q")
        if not isinstance(query, dict):
            raise invalid_request("q: Input should be a valid dictionary")
        found = self._market.search(query).rows
        offer_id = found[0]["ask_contract_id"] if found else None
        if not isinstance(offer_id, int):
            raise MarketRefused(404, "no_offers", "No offers found for the given query.")
        return self._rent(offer_id, {name: value for name, value in body.items() if name != "q"})

    def _rent(self, offer_id: int, body: JsonObject) -> Reply:
        try:
            contract = self._market.create(offer_id, read_order(body, self._backend.templates))
        finally:
            self._backend.machines.adopt()
        return done(new_contract=contract.instance_id, instance_api_key=contract.api_key)

    async def list_page(self, call: Call) -> Reply:
        """Return one page of the list."""
        query = listing.Query(
            filters=call.query_json("select_filters"),
            order_by=call.query_json("order_by"),
            limit=call.query_json("limit"),
            after_token=call.request.query.get("after_token"),
            columns=call.query_json("select_cols"),
        )
        rows = self._flickered(self._market.instance_rows(), call)
        return answer(listing.page(rows, query))

    async def retired_list(self, call: Call) -> Reply:
        """Answer as the old list does since September 2026."""
        return mishaps.retired()

    async def filters(self, call: Call) -> Reply:
        """List what values the list can be filtered by now."""
        found = {
            tuple(row[name] for name in FILTERED_BY): None for row in self._market.instance_rows()
        }
        return done(filters=[dict(zip(FILTERED_BY, values, strict=True)) for values in found])

    async def count(self, call: Call) -> Reply:
        """Count the instances."""
        return done(count=len(self._market.instance_rows()))

    async def show(self, call: Call) -> Reply:
        """Return one row; `null` for an id that does not exist (VAST_API 4.2)."""
        row = self._market.instance_row(call.instance_id)
        shown = self._flickered([] if row is None else [row], call)
        return answer({"instances": shown[0] if shown else None})

    async def change(self, call: Call) -> Reply:
        """Start, stop or label."""
        self._change(call.instance_id, call.body())
        return done()

    async def change_many(self, call: Call) -> Reply:
        """Start or stop several; the first refusal ends it."""
        body = call.body()
        for instance_id in _ids(body.get("ids")):
            self._change(instance_id, body)
        return done(msg="")

    def _change(self, instance_id: int, body: JsonObject) -> None:
        state, label = body.get("state"), body.get("label")
        try:
            if state == "running":
                self._market.start(instance_id)
            elif state == "stopped":
                self._market.stop(instance_id)
            elif state is not None:
                raise invalid_args(f"state {state!r} is neither running nor stopped")
            if isinstance(label, str):
                self._market.set_label(instance_id, label)
            elif state is None:
                raise invalid_args("neither state nor label was given")
        finally:
            self._backend.machines.adopt()

    async def destroy(self, call: Call) -> Reply:
        """Begin the end of an instance."""
        self._market.destroy(call.instance_id)
        self._backend.machines.adopt()
        return done()

    async def destroy_many(self, call: Call) -> Reply:
        """Begin the end of several; the first refusal ends it."""
        try:
            for instance_id in _ids(call.body().get("instance_ids")):
                self._market.destroy(instance_id)
        finally:
            self._backend.machines.adopt()
        return done(msg="")

    async def reboot(self, call: Call) -> Reply:
        """Restart the container."""
        self._market.reboot(call.instance_id)
        self._backend.machines.adopt()
        return done()

    async def recycle(self, call: Call) -> Reply:
        """Make the container anew from its image."""
        self._market.recycle(call.instance_id)
        self._backend.machines.adopt()
        return done()

    async def update(self, call: Call) -> Reply:
        """Make the container anew with another image, environment, script or arguments."""
        contract = self._market.contract(call.instance_id)
        order = changed_order(contract.order, call.body(), self._backend.templates)
        self._market.update(call.instance_id, order)
        self._backend.machines.adopt()
        return done()

    async def bid(self, call: Call) -> Reply:
        """Change the bid; null lets the server pick one that wins."""
        price = call.body().get("price")
        if price is not None and (isinstance(price, bool) or not isinstance(price, int | float)):
            raise invalid_args("price must be a number")
        self._market.change_bid(call.instance_id, price)
        self._backend.machines.adopt()
        return done()

    async def logs(self, call: Call) -> Reply:
        """Make the container's log available for a moment."""
        self._market.contract(call.instance_id)
        body = call.body()
        lines = self._backend.machines.container_log(call.instance_id).splitlines()
        wanted = body.get("filter")
        if isinstance(wanted, str) and wanted:
            lines = [line for line in lines if wanted in line]
        tail = str(body.get("tail", LOG_LINES))
        lines = lines[-int(tail) :] if tail.isdigit() and int(tail) > 0 else lines
        url = self._backend.keep_result("".join(f"{line}\n" for line in lines))
        return done(result_url=url, msg="log requested")

    async def command(self, call: Call) -> Reply:
        """Run `ls`, `rm` or `du` on the instance's disk."""
        text = call.body().get("command")
        if not isinstance(text, str) or len(text) > COMMAND_CHARS:
            raise _invalid_command()
        try:
            argv = shlex.split(text)
        except ValueError as exc:
            raise _invalid_command() from exc
        if not argv or argv[0] not in COMMANDS:
            raise _invalid_command()
        self._market.contract(call.instance_id)
        printed = await self._backend.machines.run_on_disk(call.instance_id, argv)
        url = self._backend.keep_result(printed)
        return done(result_url=url, writeable_path="/var/lib/docker/", msg="command sent")

    async def result(self, call: Call) -> Reply:
        """Hand out a kept text; 404 is what S3 says before it is there."""
        text = self._backend.result(str(call.ids["name"]))
        if text is None:
            return Reply(status=404, body=b"NoSuchKey", content_type="text/plain")
        return Reply(body=text.encode(), content_type="text/plain")

    def _flickered(self, rows: list[JsonObject], call: Call) -> list[JsonObject]:
        fault = call.fault
        if fault is None or fault.kind is not FaultKind.FLICKER or not rows:
            return rows
        ids = [row["id"] for row in rows]
        chosen = fault.instance_id if fault.instance_id in ids else ids[-1]
        if fault.status is None:
            return [row for row in rows if row["id"] != chosen]
        shown = {"actual_status": fault.status}
        return [{**row, **shown} if row["id"] == chosen else row for row in rows]


def _point_of_change(request: Request) -> Point:
    # Which of three operations a PUT is shows in its body alone.
    if b'"running"' in request.body:
        return Point.START
    return Point.STOP if b'"stopped"' in request.body else Point.LABEL


def _invalid_command() -> MarketRefused:
    return MarketRefused(400, "invalid_args", "Invalid command given.")  # VAST_API 5.2


def _ids(value: object) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise invalid_request("a list of instance ids is needed")
    return value
