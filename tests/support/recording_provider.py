"""A provider that does nothing but write down when it was called, and answer from a script."""

from collections.abc import Sequence
from typing import Any

import trio

from vastd.core.market import Account, Created, CreateSpec, Instance, Offer, OfferQuery, SshKey
from vastd.core.money import Micros


class RecordingProvider:
    """`times[name]` are the trio times of the calls; `script[name]` are errors to raise in turn.

    A None in a script is a success. Every call takes `takes_s`.
    """

    def __init__(
        self, script: dict[str, Sequence[Exception | None]] | None = None, takes_s: float = 0.0
    ) -> None:
        self._script = {name: list(steps) for name, steps in (script or {}).items()}
        self._takes_s = takes_s
        self.times: dict[str, list[float]] = {}
        self.running = 0
        self.most_at_once = 0

    async def _called(self, name: str, value: Any = None) -> Any:
        self.times.setdefault(name, []).append(trio.current_time())
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await trio.sleep(self._takes_s)
        finally:
            self.running -= 1
        steps = self._script.get(name)
        error = steps.pop(0) if steps else None
        if error is not None:
            raise error
        return value

    async def search_offers(self, query: OfferQuery) -> list[Offer]:
        return await self._called("search", [])

    async def create_instance(self, spec: CreateSpec) -> Created:
        return await self._called("create", Created(instance_id=1))

    async def list_instances(self) -> list[Instance]:
        return await self._called("list", [])

    async def get_instance(self, instance_id: int) -> Instance | None:
        return await self._called("get")

    async def destroy_instance(self, instance_id: int) -> None:
        await self._called("destroy")

    async def stop_instance(self, instance_id: int) -> None:
        await self._called("stop")

    async def start_instance(self, instance_id: int) -> None:
        await self._called("start")

    async def set_label(self, instance_id: int, label: str) -> None:
        await self._called("label")

    async def change_bid(self, instance_id: int, bid: Micros) -> None:
        await self._called("bid")

    async def list_ssh_keys(self) -> list[SshKey]:
        return await self._called("keys", [])

    async def add_ssh_key(self, public_key: str) -> None:
        await self._called("add_key")

    async def attach_ssh_key(self, instance_id: int, public_key: str) -> None:
        await self._called("attach_key")

    async def get_account(self) -> Account:
        return await self._called("account", Account())
