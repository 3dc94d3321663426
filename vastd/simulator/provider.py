"""The provider port on the in-memory market, on virtual time: what a client of Vast would see.

Rules
1. A call is: request travels, fault decided, effect, answer travels. A cancellation, a cut or an
   outage before the effect prevents it; afterwards it only hides the answer.
2. A fault becomes the error class that a careful client concludes from it (`vastd.errors`).
"""

import random
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeVar

import trio
from msgspec import structs

from vastd.core.market import Account, Created, CreateSpec, Instance, Offer, OfferQuery, SshKey
from vastd.core.money import Micros, to_usd
from vastd.errors import (
    AuthRejected,
    BadSpec,
    ContractChanged,
    CreatedButFailed,
    NoAnswer,
    NoCredit,
    NoSuchInstance,
    OfferGone,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    Refused,
    SpendRateLimit,
)
from vastd.simulator.contracts import RentOrder
from vastd.simulator.faults import Fault, FaultKind, Faults, Point
from vastd.simulator.market import Market
from vastd.simulator.refusals import MarketRefused

T = TypeVar("T")

LATENCY_S: Final = 0.25  # guess: one way to Vast and through their gateway, mean
READS: Final = frozenset({Point.SEARCH, Point.LIST, Point.GET, Point.KEYS, Point.ACCOUNT})


class CallStage(StrEnum):
    """Where a call is when the observer is told of it."""

    ASKED = "asked"  # before the request leaves
    DONE = "done"  # the effect has happened, the answer has not arrived


class SimProvider:
    """One client of the market with one API key."""

    def __init__(
        self,
        market: Market,
        faults: Faults,
        *,
        token: str | None = None,
        latency_s: float = LATENCY_S,
        observer: Callable[[Point, CallStage], None] | None = None,
        date: Callable[[], None] | None = None,
    ) -> None:
        """Connect to a market; `token` None is the owner's key.

        `observer` is called synchronously at every stage of every call, so that a test can kill
        the daemon there; `date` when an answer arrives, because every answer tells the time.
        """
        self._market = market
        self._faults = faults
        self._token = market.account.owner_key if token is None else token
        self._latency_s = latency_s
        self._rng = random.Random(f"latency:{market.world.seed}")
        self._observer = observer
        self._date = date
        self._cut = False

    def cut(self) -> None:
        """Let no request reach the market and no answer come back any more, for good."""
        self._cut = True

    # -- the port ------------------------------------------------------------------------

    async def search_offers(self, query: OfferQuery) -> list[Offer]:
        """Return the offers that match; see the port."""
        return await self._call(
            Point.SEARCH,
            lambda fault: self._market.find_offers(query, leak=_is(fault, FaultKind.LEAK)),
        )

    async def create_instance(self, spec: CreateSpec) -> Created:
        """Rent an offer; see the port."""
        order = RentOrder(
            image=spec.image,
            disk_gb=spec.disk_gb,
            label=spec.label,
            onstart=spec.onstart,
            env=dict(spec.env),
            bid=spec.bid,
        )
        contract = await self._call(
            Point.CREATE, lambda _: self._market.create(spec.offer_id, order)
        )
        return Created(instance_id=contract.instance_id)

    async def list_instances(self) -> list[Instance]:
        """Return every instance; see the port."""
        return await self._call(
            Point.LIST, lambda fault: _flickered(self._market.instances(), fault)
        )

    async def get_instance(self, instance_id: int) -> Instance | None:
        """Return one instance, or None; see the port."""

        def read(fault: Fault | None) -> Instance | None:
            row = self._market.instance(instance_id)
            seen = [] if row is None else _flickered([row], fault)
            return seen[0] if seen else None

        return await self._call(Point.GET, read, instance_id)

    async def destroy_instance(self, instance_id: int) -> None:
        """Ask for the end; see the port."""
        await self._call(Point.DESTROY, lambda _: self._market.destroy(instance_id), instance_id)

    async def stop_instance(self, instance_id: int) -> None:
        """Ask for a stop; see the port."""
        await self._call(Point.STOP, lambda _: self._market.stop(instance_id), instance_id)

    async def start_instance(self, instance_id: int) -> None:
        """Ask for a start; see the port."""
        await self._call(Point.START, lambda _: self._market.start(instance_id), instance_id)

    async def set_label(self, instance_id: int, label: str) -> None:
        """Replace the label; see the port."""
        await self._call(
            Point.LABEL, lambda _: self._market.set_label(instance_id, label), instance_id
        )

    async def change_bid(self, instance_id: int, bid: Micros) -> None:
        """Change the bid; see the port."""
        await self._call(
            Point.BID, lambda _: self._market.change_bid(instance_id, to_usd(bid)), instance_id
        )

    async def list_ssh_keys(self) -> list[SshKey]:
        """Return the account's public keys; see the port."""
        return await self._call(
            Point.KEYS,
            lambda _: [
                SshKey(key_id=key.key_id, public_key=key.public_key)
                for key in self._market.account.ssh_keys
            ],
        )

    async def add_ssh_key(self, public_key: str) -> None:
        """Register a public key; see the port."""
        await self._call(Point.ADD_KEY, lambda _: self._market.add_ssh_key(public_key))

    async def attach_ssh_key(self, instance_id: int, public_key: str) -> None:
        """Make an instance accept a public key; see the port."""
        await self._call(
            Point.ATTACH_KEY,
            lambda _: self._market.attach_key(instance_id, public_key),
            instance_id,
        )

    async def get_account(self) -> Account:
        """Return who we are; see the port."""
        return await self._call(Point.ACCOUNT, lambda _: self._market.renter())

    # -- one call ------------------------------------------------------------------------

    async def _call(
        self, point: Point, effect: Callable[[Fault | None], T], instance_id: int | None = None
    ) -> T:
        what = f"{point}" if instance_id is None else f"{point} of instance {instance_id}"
        self._observe(point, CallStage.ASKED)
        await self._travel(what)
        fault = self._faults.next(point, instance_id=instance_id)
        if fault is not None and not fault.kind.takes_effect:
            await self._fail_before(fault, point, what)
        self._authenticate(what)
        try:
            result = effect(fault)
        except MarketRefused as refused:
            await self._return(what)
            raise translated(refused, what, creating=point is Point.CREATE) from refused
        self._observe(point, CallStage.DONE)
        await self._return(what)
        if fault is not None and (error := after_error(fault, point, what)) is not None:
            raise error
        return result

    def _observe(self, point: Point, stage: CallStage) -> None:
        if self._observer is not None:
            self._observer(point, stage)

    async def _travel(self, what: str) -> None:
        await trio.sleep(self._rng.uniform(0.5, 1.5) * self._latency_s)
        if self._cut:
            raise NoAnswer(f"{what}: this client was cut off")

    async def _return(self, what: str) -> None:
        await self._travel(what)
        if self._faults.network_is_down():
            raise NoAnswer(f"{what}: the network went down before the answer came")
        if self._date is not None:
            self._date()

    def _authenticate(self, what: str) -> None:
        if self._market.account.authenticate(self._token) is None:
            raise AuthRejected(f"{what}: vast does not accept the key", hint="set another key")

    async def _fail_before(self, fault: Fault, point: Point, what: str) -> None:
        if fault.kind is FaultKind.TIMEOUT:
            await trio.sleep(fault.hang_s)
        raise before_error(fault, point, what)


def _is(fault: Fault | None, kind: FaultKind) -> bool:
    return fault is not None and fault.kind is kind


def _flickered(listing: list[Instance], fault: Fault | None) -> list[Instance]:
    if fault is None or fault.kind is not FaultKind.FLICKER or not listing:
        return listing
    ids = [row.instance_id for row in listing]
    chosen = fault.instance_id if fault.instance_id in ids else ids[-1]
    if fault.status is None:
        return [row for row in listing if row.instance_id != chosen]
    return [
        structs.replace(row, status=fault.status) if row.instance_id == chosen else row
        for row in listing
    ]


def before_error(fault: Fault, point: Point, what: str) -> ProviderError:
    """Return what a client concludes from a fault that kept the call from happening."""
    match fault.kind:
        case FaultKind.HTTP_429:
            return RateLimited(
                f"{what}: vast answered 429, requests too frequent",
                retry_after_s=fault.retry_after_s,
            )
        case FaultKind.HTTP_410:
            if point is Point.CREATE:
                return OfferGone(f"{what}: vast answered 410, the offer is gone")
            return ContractChanged(f"{what}: vast answered 410, the endpoint is retired")
        case FaultKind.AUTH_404 | FaultKind.AUTH_401:
            return AuthRejected(f"{what}: vast does not accept the key ({fault.kind})")
        case FaultKind.OFFER_GONE:
            return OfferGone(f"{what}: the offer is gone")
        case FaultKind.NO_CREDIT:
            return NoCredit(f"{what}: the account lacks credit")
        case FaultKind.SPEND_RATE:
            return SpendRateLimit(f"{what}: a young account rents too fast")
        case FaultKind.LOSE_REQUEST | FaultKind.TIMEOUT:
            return NoAnswer(f"{what}: no answer ({fault.kind})")
        case _:
            return OutcomeUnknown(f"{what}: no trustworthy answer ({fault.kind})")


def after_error(fault: Fault, point: Point, what: str) -> ProviderError | None:
    """Return what a client concludes from a bad answer to a call that happened, if anything."""
    match fault.kind:
        case FaultKind.FLICKER | FaultKind.LEAK:
            return None  # the answer looks good
        case FaultKind.NULL if point in READS:
            return ContractChanged(f"{what}: vast answered null, a shape we do not know")
        case FaultKind.LOSE_ANSWER:
            return NoAnswer(f"{what}: no answer ({fault.kind})")
        case _:
            return OutcomeUnknown(f"{what}: no trustworthy answer ({fault.kind})")


def translated(refused: MarketRefused, what: str, *, creating: bool) -> ProviderError:
    """Return our error for a refusal of the market."""
    text = f"{what}: vast answered {refused.code}: {refused.msg}"
    made = refused.extra.get("new_contract")
    if isinstance(made, int):
        return CreatedButFailed(text, instance_id=made)
    if "no_such_ask" in refused.msg or refused.code == "no_such_ask":
        return OfferGone(text)
    match refused.code:
        case "insufficient_credit":
            return NoCredit(text)
        case "spend_rate_limit":
            return SpendRateLimit(text)
        case "no_such_instance":
            return NoSuchInstance(text)
        case "invalid_args" | "invalid_price" | "invalid_request" | "label_too_long" if creating:
            return BadSpec(text)
        case _:
            return Refused(text)
