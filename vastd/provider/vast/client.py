"""The provider port on Vast's REST API: which request asks for what.

Rules
1. One attempt per call; pages of one listing are part of one call.
2. What a request may carry is checked before it is sent (`orders`), so that a spec Vast would
   silently ignore or cut never costs money.
3. Nothing of an answer but what `wire` reads travels on; the instance key that a create
   returns is dropped here.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import trio

from vastd.core.market import Account, Created, CreateSpec, Instance, Offer, OfferQuery, SshKey
from vastd.core.money import Micros, to_usd
from vastd.errors import (
    ContractChanged,
    NoSuchInstance,
    OutcomeUnknown,
    ProviderError,
    Refused,
)
from vastd.provider.vast import orders, wire
from vastd.provider.vast.failures import failure_of, is_empty_key_list
from vastd.provider.vast.http import HttpRequest, Reply, VastHttp
from vastd.provider.vast.listing import Listing
from vastd.provider.vast.operations import Call, Operation

READ_TIMEOUT_S: Final = 30.0  # guess; a listing is asked for every 20 s
WRITE_TIMEOUT_S: Final = 30.0  # guess; repeating these is harmless
# Giving up early makes an answer that was on its way into an unknown outcome
# (fleet-ai/fleet-sdk#135); the official client waits 120 s.
CREATE_TIMEOUT_S: Final = 60.0
# Every page counts against the threshold of the list (1.0 s, VAST_API 1.2); 10 % for jitter.
PAGE_INTERVAL_S: Final = 1.1


class VastProvider:
    """`Provider` for one Vast account. Wrap it in `Paced`, and that in `ReadRetrying`."""

    def __init__(
        self,
        http: VastHttp,
        *,
        secrets: Sequence[str] = (),
        wall_clock: Callable[[], float] = time.time,
        page_interval_s: float = PAGE_INTERVAL_S,
    ) -> None:
        """Ask through `http`; texts in `secrets` are blotted out of whatever Vast says."""
        self._http = http
        self._secrets = tuple(secrets)
        self._wall_clock = wall_clock
        self._page_interval_s = page_interval_s

    async def search_offers(self, query: OfferQuery) -> list[Offer]:
        document = await self._ask(
            Call(operation=Operation.SEARCH),
            "POST",
            "/api/v0/bundles/",
            body=orders.search_body(query),
        )
        # Vast has its own idea of the limit, in both directions (VAST_API 2.1).
        return wire.offers_from(document, query.disk_gb)[: query.limit]

    async def create_instance(self, spec: CreateSpec) -> Created:
        call = Call(operation=Operation.CREATE, subject=f"from offer {spec.offer_id}")
        document = await self._ask(
            call,
            "PUT",
            f"/api/v0/asks/{spec.offer_id}/",
            body=orders.create_body(spec),
            hidden=orders.secrets_of(spec),
        )
        instance_id = (
            wire.identity(document, "new_contract") if isinstance(document, dict) else None
        )
        if instance_id is None:
            raise OutcomeUnknown(
                f"cannot {call}: vast reported success without the id of the instance",
                hint="an instance may exist; it is looked for by its label",
            )
        return Created(instance_id=instance_id)

    async def list_instances(self) -> list[Instance]:
        call = Call(operation=Operation.LIST)
        listing = Listing()
        while True:
            page = await self._ask(call, "GET", "/api/v1/instances/", query=listing.query())
            if listing.add(page):
                return listing.instances
            await trio.sleep(self._page_interval_s)

    async def get_instance(self, instance_id: int) -> Instance | None:
        call = Call(operation=Operation.GET, subject=str(instance_id))
        path = f"/api/v0/instances/{instance_id}/"
        try:
            document = await self._ask(call, "GET", path, query={"owner": "me"})
        except NoSuchInstance:
            return None
        if not isinstance(document, dict) or "instances" not in document:
            raise ContractChanged(f"cannot {call}: the answer holds no instance")
        row = document["instances"]
        if row is None:  # how Vast answers for a destroyed or foreign id (VAST_API 4.2)
            return None
        instance = wire.instance_from(row)
        if instance.instance_id != instance_id:
            raise ContractChanged(f"cannot {call}: got instance {instance.instance_id} instead")
        return instance

    async def destroy_instance(self, instance_id: int) -> None:
        path = f"/api/v0/instances/{instance_id}/"
        await self._ask(_on(Operation.DESTROY, instance_id), "DELETE", path, body={})

    async def stop_instance(self, instance_id: int) -> None:
        await self._change(Operation.STOP, instance_id, {"state": "stopped"})

    async def start_instance(self, instance_id: int) -> None:
        await self._change(Operation.START, instance_id, {"state": "running"})

    async def set_label(self, instance_id: int, label: str) -> None:
        await self._change(Operation.LABEL, instance_id, {"label": label})

    async def change_bid(self, instance_id: int, bid: Micros) -> None:
        orders.check_bid(bid)
        await self._ask(
            _on(Operation.BID, instance_id),
            "PUT",
            f"/api/v0/instances/bid_price/{instance_id}/",
            # A null price would let Vast pick one.
            body={"client_id": "me", "price": to_usd(bid)},
        )

    async def list_ssh_keys(self) -> list[SshKey]:
        call = Call(operation=Operation.KEYS)
        reply = await self._http.send(_request(call, "GET", "/api/v0/ssh/"))
        if is_empty_key_list(reply):
            return []
        return wire.ssh_keys_from(self._judged(call, reply))

    async def add_ssh_key(self, public_key: str) -> None:
        call = Call(operation=Operation.ADD_KEY)
        await self._add_key(call, "/api/v0/ssh/", public_key)

    async def attach_ssh_key(self, instance_id: int, public_key: str) -> None:
        call = _on(Operation.ATTACH_KEY, instance_id)
        await self._add_key(call, f"/api/v0/instances/{instance_id}/ssh/", public_key)

    async def get_account(self) -> Account:
        call = Call(operation=Operation.ACCOUNT)
        return wire.account_from(await self._ask(call, "GET", "/api/v0/users/current/"))

    async def _change(
        self, operation: Operation, instance_id: int, body: dict[str, object]
    ) -> None:
        path = f"/api/v0/instances/{instance_id}/"
        await self._ask(_on(operation, instance_id), "PUT", path, body=body)

    async def _add_key(self, call: Call, path: str, public_key: str) -> None:
        try:
            await self._ask(call, "POST", path, body={"ssh_key": public_key.strip()})
        except NoSuchInstance:
            raise
        except Refused as error:
            # guess: how Vast words a key that is there already is not documented.
            if "already" not in str(error):
                raise

    async def _ask(
        self,
        call: Call,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: dict[str, object] | None = None,
        hidden: Sequence[str] = (),
    ) -> object:
        """Send one request and return the decoded body of a success; raise as the port says."""
        reply = await self._http.send(_request(call, method, path, query=query, body=body))
        return self._judged(call, reply, hidden)

    def _judged(self, call: Call, reply: Reply, hidden: Sequence[str] = ()) -> object:
        document = wire.parse_json(reply.body)
        failure: ProviderError | None = failure_of(
            call, reply, document, now=self._wall_clock(), hidden=(*self._secrets, *hidden)
        )
        if failure is not None:
            raise failure
        return document


def _on(operation: Operation, instance_id: int) -> Call:
    return Call(operation=operation, subject=str(instance_id))


def _request(
    call: Call,
    method: str,
    path: str,
    *,
    query: dict[str, str] | None = None,
    body: dict[str, object] | None = None,
) -> HttpRequest:
    if call.operation is Operation.CREATE:
        timeout_s = CREATE_TIMEOUT_S
    else:
        timeout_s = READ_TIMEOUT_S if call.is_read else WRITE_TIMEOUT_S
    return HttpRequest(
        call=call, method=method, path=path, query=query or {}, body=body, timeout_s=timeout_s
    )
