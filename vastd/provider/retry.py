"""A decorator on the port that repeats reads which taught us nothing; writes go through once.

Rules
1. Only reads are repeated. A repeated create can rent twice (I2); ending a machine is
   repeated by the supervisor, who records every attempt.
2. Repeating cannot help with a rejected key, a changed contract, a bad request or the daily
   quota: those are raised at once.
3. It belongs outside `Paced`, so that every attempt waits its turn.
"""

import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from vastd.core.market import Account, Created, CreateSpec, Instance, Offer, OfferQuery, SshKey
from vastd.core.money import Micros
from vastd.errors import OutcomeUnknown, ProviderError, RateLimited, Unreachable
from vastd.provider.port import Provider

log = logging.getLogger(__name__)

ATTEMPTS: Final = 3  # as the official client 1.9.1
FIRST_DELAY_S: Final = 0.5  # guess: its 0.15 s all fall within one gateway hiccup
GROWTH: Final = 3.0  # guess
MAX_DELAY_S: Final = 8.0  # guess: a listing that is later than this is retried by the next tick
# A longer rest is left to the caller, who may have something better to do.
MAX_RETRY_AFTER_S: Final = 30.0  # guess

T = TypeVar("T")


class ReadRetrying:
    """A `Provider` whose reads are tried up to `attempts` times; `rng` spreads the delays."""

    def __init__(self, provider: Provider, *, rng: random.Random, attempts: int = ATTEMPTS) -> None:
        assert attempts >= 1
        self._provider = provider
        self._random = rng
        self._attempts = attempts

    async def _read(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(1, self._attempts):
            try:
                return await call()
            except (OutcomeUnknown, Unreachable, RateLimited) as error:
                delay_s = self._delay_s(attempt, error)
                if delay_s is None:
                    raise
                log.debug(
                    "%s failed (attempt %d of %d), again in %.1f s: %s",
                    name, attempt, self._attempts, delay_s, error,
                )  # fmt: skip
                await trio.sleep(delay_s)
        return await call()

    def _delay_s(self, attempt: int, error: ProviderError) -> float | None:
        """Return the seconds to wait before the next attempt, or None when there is to be none."""
        longest_s = min(FIRST_DELAY_S * GROWTH ** (attempt - 1), MAX_DELAY_S)
        delay_s = longest_s * self._random.uniform(0.5, 1.0)
        if isinstance(error, RateLimited):
            if error.quota or error.retry_after_s > MAX_RETRY_AFTER_S:
                return None
            delay_s = max(delay_s, error.retry_after_s)
        return delay_s

    async def search_offers(self, query: OfferQuery) -> list[Offer]:
        return await self._read("search", lambda: self._provider.search_offers(query))

    async def create_instance(self, spec: CreateSpec) -> Created:
        return await self._provider.create_instance(spec)

    async def list_instances(self) -> list[Instance]:
        return await self._read("list", self._provider.list_instances)

    async def get_instance(self, instance_id: int) -> Instance | None:
        return await self._read(
            f"get {instance_id}", lambda: self._provider.get_instance(instance_id)
        )

    async def destroy_instance(self, instance_id: int) -> None:
        await self._provider.destroy_instance(instance_id)

    async def stop_instance(self, instance_id: int) -> None:
        await self._provider.stop_instance(instance_id)

    async def start_instance(self, instance_id: int) -> None:
        await self._provider.start_instance(instance_id)

    async def set_label(self, instance_id: int, label: str) -> None:
        await self._provider.set_label(instance_id, label)

    async def change_bid(self, instance_id: int, bid: Micros) -> None:
        await self._provider.change_bid(instance_id, bid)

    async def list_ssh_keys(self) -> list[SshKey]:
        return await self._read("list ssh keys", self._provider.list_ssh_keys)

    async def add_ssh_key(self, public_key: str) -> None:
        await self._provider.add_ssh_key(public_key)

    async def attach_ssh_key(self, instance_id: int, public_key: str) -> None:
        await self._provider.attach_ssh_key(instance_id, public_key)

    async def get_account(self) -> Account:
        return await self._read("account", self._provider.get_account)
