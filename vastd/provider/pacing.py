"""How fast we may call the provider: a decorator on the port that spaces calls per endpoint.

Rules
1. Vast counts per endpoint and identity, so all callers share one `Paced`, and calls to one
   endpoint go one at a time, in the order they came.
2. An interval runs from the *end* of a call to the start of the next: Vast saw a request no
   later than we saw its answer, so network jitter cannot push two requests together.
3. After a 429 the endpoint rests for what Vast asked for, its penalty, or twice the last rest,
   whichever is longest. A call that would have to rest longer than `MAX_REST_S` is refused
   here, unsent, with what is left to wait: a caller must not hang for hours.
4. A call that never left the machine costs no interval.

Waiting in the queue counts against the caller's time limit; a write cancelled there was not
sent, but the caller cannot tell, so he treats it as of unknown outcome like any other.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Final

import trio
from msgspec import Struct, structs

from vastd.core.market import Account, Created, CreateSpec, Instance, Offer, OfferQuery, SshKey
from vastd.core.money import Micros
from vastd.errors import ConfigError, RateLimited, Unreachable
from vastd.provider.port import Provider

log = logging.getLogger(__name__)

MAX_REST_S: Final = (
    60.0  # guess: longer than any documented threshold, shorter than a human's patience
)
MAX_BACKOFF_S: Final = 60.0  # guess: the doubling stops here, unless Vast itself asks for more


class Group(StrEnum):
    """Calls that Vast counts together; the values are the keys of `[rates]`."""

    SEARCH = "search"
    CREATE = "create"
    LIST = "list"
    GET = "get"
    DESTROY = "destroy"
    CHANGE = "change"  # start, stop and label are one route
    BID = "bid"
    KEYS = "keys"
    ADD_KEY = "add_key"
    ATTACH_KEY = "attach_key"
    ACCOUNT = "account"


class Rate(Struct, frozen=True, kw_only=True):
    """At most `burst` calls in any `burst * interval_s` seconds."""

    interval_s: float
    burst: int = 1
    penalty_s: float = 0.0  # least rest after a 429


# Thresholds from Vast's OpenAPI files, snapshot 2026-08-07 (VAST_API 1.2), unless marked.
DEFAULT_RATES: Final[Mapping[Group, Rate]] = {
    # Documented as ten a minute; that the window slides is a guess.
    Group.SEARCH: Rate(interval_s=6.0, burst=10),
    # "penalty: 12" is documented without a meaning; read here as a rest after a violation.
    Group.CREATE: Rate(interval_s=4.5, penalty_s=12.0),
    Group.LIST: Rate(interval_s=1.0),
    Group.GET: Rate(interval_s=2.0),
    Group.DESTROY: Rate(interval_s=3.0),
    Group.CHANGE: Rate(interval_s=1.0),
    Group.BID: Rate(interval_s=5.5),
    Group.KEYS: Rate(interval_s=1.0),  # guess: none is published for this route
    Group.ADD_KEY: Rate(interval_s=1.0),
    Group.ATTACH_KEY: Rate(interval_s=2.0),  # guess: as published for detaching
    Group.ACCOUNT: Rate(interval_s=1.0),  # guess: none is published for this route
}


def rates_from(overrides: Mapping[str, float]) -> dict[Group, Rate]:
    """Return the default rates with the intervals of `[rates]` put in (seconds, 0 switches off).

    Raises:
        ConfigError: an unknown name, or an interval that is not a number of 0 to 3600.
    """
    rates = dict(DEFAULT_RATES)
    for name, interval_s in overrides.items():
        if name not in {str(group) for group in Group}:
            raise ConfigError(
                f"rates.{name}: no such endpoint", hint=f"known: {', '.join(sorted(Group))}"
            )
        if not 0 <= interval_s <= 3600:
            raise ConfigError(f"rates.{name}: {interval_s!r} is not a number of seconds up to 3600")
        group = Group(name)
        rates[group] = structs.replace(rates[group], interval_s=float(interval_s))
    return rates


class _Lane:
    """The queue of one endpoint: who may go, and when."""

    def __init__(self, group: Group, rate: Rate) -> None:
        self._group = group
        self._rate = rate
        self._turn = trio.Lock()  # first come, first served
        self._ended: deque[float] = deque(maxlen=rate.burst)  # trio time, oldest first
        self._resting_until = float("-inf")  # trio time
        self._refusals = 0  # 429s in a row
        self._quota = False  # the rest is the daily quota's

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        async with self._turn:
            self._refuse_long_rest()
            await trio.sleep_until(max(self._resting_until, self._next_free()))
            sent = True
            try:
                yield
            except Unreachable:
                sent = False
                raise
            except RateLimited as error:
                self._rest(error)
                raise
            else:
                self._refusals = 0
            finally:
                if sent:
                    self._ended.append(trio.current_time())

    def _next_free(self) -> float:
        if len(self._ended) < self._rate.burst:
            return float("-inf")
        return self._ended[0] + self._rate.interval_s * self._rate.burst

    def _refuse_long_rest(self) -> None:
        left_s = self._resting_until - trio.current_time()
        if left_s > MAX_REST_S:
            raise RateLimited(
                f"not sent: vast asked to leave {self._group} alone for another {left_s:.0f} s",
                retry_after_s=left_s,
                quota=self._quota,
                hint="wait, or lower the number of searches" if self._quota else "",
            )

    def _rest(self, error: RateLimited) -> None:
        self._refusals += 1
        # The exponent is bounded too: a float overflows long before the daemon gives up.
        doubled_s = self._rate.interval_s * 2 ** min(self._refusals - 1, 16)
        rest_s = max(error.retry_after_s, self._rate.penalty_s, min(doubled_s, MAX_BACKOFF_S))
        self._resting_until = max(self._resting_until, trio.current_time() + rest_s)
        self._quota = error.quota
        log.info("vast refused %s as too frequent; resting it for %.1f s", self._group, rest_s)


class Paced:
    """A `Provider` that keeps the provider's rate limits; everything else passes through."""

    def __init__(self, provider: Provider, rates: Mapping[Group, Rate] = DEFAULT_RATES) -> None:
        self._provider = provider
        self._lanes = {group: _Lane(group, rates[group]) for group in Group}

    async def search_offers(self, query: OfferQuery) -> list[Offer]:
        async with self._lanes[Group.SEARCH].turn():
            return await self._provider.search_offers(query)

    async def create_instance(self, spec: CreateSpec) -> Created:
        async with self._lanes[Group.CREATE].turn():
            return await self._provider.create_instance(spec)

    async def list_instances(self) -> list[Instance]:
        async with self._lanes[Group.LIST].turn():
            return await self._provider.list_instances()

    async def get_instance(self, instance_id: int) -> Instance | None:
        async with self._lanes[Group.GET].turn():
            return await self._provider.get_instance(instance_id)

    async def destroy_instance(self, instance_id: int) -> None:
        async with self._lanes[Group.DESTROY].turn():
            await self._provider.destroy_instance(instance_id)

    async def stop_instance(self, instance_id: int) -> None:
        async with self._lanes[Group.CHANGE].turn():
            await self._provider.stop_instance(instance_id)

    async def start_instance(self, instance_id: int) -> None:
        async with self._lanes[Group.CHANGE].turn():
            await self._provider.start_instance(instance_id)

    async def set_label(self, instance_id: int, label: str) -> None:
        async with self._lanes[Group.CHANGE].turn():
            await self._provider.set_label(instance_id, label)

    async def change_bid(self, instance_id: int, bid: Micros) -> None:
        async with self._lanes[Group.BID].turn():
            await self._provider.change_bid(instance_id, bid)

    async def list_ssh_keys(self) -> list[SshKey]:
        async with self._lanes[Group.KEYS].turn():
            return await self._provider.list_ssh_keys()

    async def add_ssh_key(self, public_key: str) -> None:
        async with self._lanes[Group.ADD_KEY].turn():
            await self._provider.add_ssh_key(public_key)

    async def attach_ssh_key(self, instance_id: int, public_key: str) -> None:
        async with self._lanes[Group.ATTACH_KEY].turn():
            await self._provider.attach_ssh_key(instance_id, public_key)

    async def get_account(self) -> Account:
        async with self._lanes[Group.ACCOUNT].turn():
            return await self._provider.get_account()
