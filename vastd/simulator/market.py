"""The simulated Vast as a renter calls it: search, rent, manage, look, pay.

Rules
1. Every public method first brings the world up to date, so a market needs no task.
2. The truth for tests is here: who lives, what was billed, which calls arrived (`journal`).
3. Calls are refused with `MarketRefused` as the live service words it; lost calls and bad answers
   are the business of whoever stands in front (`provider`, the façade).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from vastd.core.money import from_usd, to_usd
from vastd.simulator import refusals
from vastd.simulator.accounts import MarketAccount
from vastd.simulator.afflictions import Afflictions
from vastd.simulator.billing import BillKind
from vastd.simulator.contracts import Access, Contract, RentOrder, Stage
from vastd.simulator.faults import MachineFault
from vastd.simulator.market_view import MarketView, SearchResult
from vastd.simulator.offers import draw_machines
from vastd.simulator.orders import check_order
from vastd.simulator.refusals import MarketRefused
from vastd.simulator.world import World

__all__ = ["JournalEntry", "Market", "MarketSettings", "SearchResult"]

LABEL_CHARS: Final = 1024  # VAST_API 5: the label route
MIN_BID_USD_H: Final = 0.001  # VAST_API 5: change bid
MAX_BID_USD_H_PER_GPU: Final = 32.0  # VAST_API 5: change bid


class MarketSettings(Struct, frozen=True, kw_only=True):
    """What can be chosen about a market beside its seed."""

    machines: int = 125  # about 300 offers
    credit_usd: float = 100.0
    user_id: int = 424_242
    email: str = "renter@example.com"
    first_instance_id: int = 20_000_000
    first_offer_id: int = 30_000_000


class JournalEntry(Struct, frozen=True, kw_only=True):
    """One mutating call that reached the market."""

    at: float  # epoch seconds
    kind: str  # create destroy stop start reboot recycle update label bid attach_key detach_key …
    label: str | None = None
    offer_id: int | None = None
    instance_id: int | None = None
    refused: str | None = None  # the code of the refusal; None when it was done


class Market(MarketView):
    """One market and its one renter. Deterministic from seed, clock and calls."""

    def __init__(
        self,
        seed: int,
        clock: Callable[[], float],
        *,
        scale: float = 1.0,
        settings: MarketSettings | None = None,
    ) -> None:
        """Open a market; `scale` shortens boot, pull and destroy, nothing else."""
        self.settings = settings or MarketSettings()
        self.journal: list[JournalEntry] = []
        account = MarketAccount(
            seed=seed, user_id=self.settings.user_id, email=self.settings.email, clock=clock
        )
        super().__init__(
            World(
                seed=seed,
                clock=clock,
                scale=scale,
                machines=draw_machines(seed, self.settings.machines, clock()),
                account=account,
                deposited=from_usd(self.settings.credit_usd),
                first_offer_id=self.settings.first_offer_id,
                first_instance_id=self.settings.first_instance_id,
            )
        )
        self._afflictions = Afflictions(self.world)

    # -- changing contracts --------------------------------------------------------------

    def create(self, offer_id: int, order: RentOrder) -> Contract:
        """Rent an offer.

        Raises:
            MarketRefused: nothing was made, unless `extra` holds `new_contract`.
        """
        now = self.world.advance()
        refused: str | None = None
        instance_id: int | None = None
        try:
            contract = self._create(offer_id, order, now)
            instance_id = contract.instance_id
        except MarketRefused as exc:
            refused, made = exc.code, exc.extra.get("new_contract")
            instance_id = made if isinstance(made, int) else None
            raise
        finally:
            self.journal.append(
                JournalEntry(
                    at=now,
                    kind="create",
                    label=order.label,
                    offer_id=offer_id,
                    instance_id=instance_id,
                    refused=refused,
                )
            )
        return contract

    def _create(
        self, offer_id: int, order: RentOrder, now: float, *, foreign: bool = False
    ) -> Contract:
        world = self.world
        chunk = world.shelf.offers.get(offer_id)
        if chunk is None or chunk.machine.end_at <= now or world.shelf.taken(chunk):
            raise refusals.no_such_ask(offer_id)
        check_order(order, chunk)
        if world.credit(now) <= 0:
            raise refusals.insufficient_credit()
        floor = world.floor_for_new(chunk)
        contract = world.new_contract(offer_id, chunk, order, now, foreign=foreign)
        if order.bid is not None and order.bid < floor:
            contract.halt(now)
            raise refusals.bid_too_low(contract.instance_id)
        if order.target_state == "stopped":
            contract.halt(now)
            return contract
        for rival in world.shelf.rivals(chunk):
            world.outbid(world.live[rival], now)
        contract.plan_boot(now, Stage.ACCEPTED)
        world.settle(now)
        if not foreign:
            self._afflictions.take(contract, now)
        return contract

    @contextmanager
    def _change(self, kind: str, instance_id: int) -> Iterator[tuple[Contract, float]]:
        now = self.world.advance()
        refused: str | None = None
        label: str | None = None
        try:
            contract = self.contract(instance_id)
            label = contract.label
            yield contract, now
            self.world.settle(now)
        except MarketRefused as exc:
            refused = exc.code
            raise
        finally:
            self.journal.append(
                JournalEntry(
                    at=now, kind=kind, label=label, instance_id=instance_id, refused=refused
                )
            )

    def destroy(self, instance_id: int) -> None:
        """Begin the end of an instance; again while it is ending changes nothing.

        Raises:
            MarketRefused: there is no such instance (any more).
        """
        with self._change("destroy", instance_id) as (contract, now):
            if contract.stage is not Stage.DESTROYING:
                contract.destroy(now)

    def stop(self, instance_id: int) -> None:
        """Stop an instance, or cancel a queued start.

        Raises:
            MarketRefused: there is no such instance.
        """
        with self._change("stop", instance_id) as (contract, now):
            contract.stop(now)

    def start(self, instance_id: int) -> None:
        """Start a stopped instance; nothing happens when it runs or boots.

        Raises:
            MarketRefused: no such instance, no credit, the host's contract has ended, or the GPUs
                are taken: then the start stays queued until a stop.
        """
        with self._change("start", instance_id) as (contract, now):
            if contract.stage is Stage.DESTROYING:
                raise refusals.no_such_instance(instance_id)
            if self.world.credit(now) <= 0:
                raise refusals.insufficient_credit()
            if contract.ended:
                raise refusals.invalid_args("the contract of the host has ended")
            if contract.stage is Stage.OFFLINE:
                contract.intended = contract.next_state = "running"
            elif contract.stage is Stage.STOPPING or not contract.holds_gpus:
                self._start(contract, now)

    def _start(self, contract: Contract, now: float) -> None:
        if contract.stage is not Stage.STOPPING and self.world.may_start(contract):
            self.world.begin(contract, now)
            return
        contract.queued, contract.intended = True, "running"
        raise refusals.resources_unavailable()

    def reboot(self, instance_id: int, *, recycle: bool = False) -> None:
        """Restart the container; `recycle` also replaces its file system.

        Raises:
            MarketRefused: there is no such instance, or it is not running.
        """
        with self._change("recycle" if recycle else "reboot", instance_id) as (contract, now):
            if contract.stage is not Stage.RUNNING:
                raise refusals.invalid_args(f"instance {instance_id} is not running")
            contract.reboot(now, recycle=recycle)

    def recycle(self, instance_id: int) -> None:
        """Re-create the container from its image. Raises as `reboot` does."""
        self.reboot(instance_id, recycle=True)

    def update(self, instance_id: int, order: RentOrder) -> None:
        """Re-create the container as another order says; disk and bid stay.

        Raises:
            MarketRefused: no such instance, it is not running, or the order cannot be met.
        """
        with self._change("update", instance_id) as (contract, now):
            check_order(order, contract.chunk)
            if contract.stage is not Stage.RUNNING:
                raise refusals.invalid_args(f"instance {instance_id} is not running")
            contract.order = order
            contract.reboot(now, recycle=True)

    def set_label(self, instance_id: int, label: str) -> None:
        """Replace the label.

        Raises:
            MarketRefused: no such instance, or the label is too long.
        """
        with self._change("label", instance_id) as (contract, _):
            if len(label) > LABEL_CHARS:
                raise MarketRefused(400, "label_too_long", f"label exceeds {LABEL_CHARS}")
            contract.label = label

    def change_bid(self, instance_id: int, usd_h: float | None) -> None:
        """Change the bid; None takes the lowest that wins.

        Raises:
            MarketRefused: no such instance, it is on demand, or the price is out of range.
        """
        with self._change("bid", instance_id) as (contract, now):
            if contract.bid is None:
                raise refusals.invalid_args("the instance is not interruptible")
            floor = self.world.floor(contract.chunk)
            bid = floor if usd_h is None else from_usd(usd_h)
            highest = MAX_BID_USD_H_PER_GPU * contract.chunk.num_gpus
            if not MIN_BID_USD_H <= to_usd(bid) <= highest:
                raise MarketRefused(400, "invalid_price", f"price must be at most {highest}")
            contract.change_bid(bid, now)

    def attach_key(self, instance_id: int, public_key: str) -> None:
        """Make an instance accept a public key.

        Raises:
            MarketRefused: no such instance, or no key.
        """
        with self._change("attach_key", instance_id) as (contract, _):
            if len(public_key.split()) < 2:
                raise MarketRefused(400, "no_ssh_key", "No valid ssh key was given.")
            contract.attach(public_key)

    def detach_key(self, instance_id: int, key_id: int) -> None:
        """Make an instance accept a public key no more; ids are those of `MarketAccount.key_id`.

        Raises:
            MarketRefused: no such instance, or it does not have the key.
        """
        with self._change("detach_key", instance_id) as (contract, _):
            for public_key in contract.keys:
                if self.account.key_id(public_key) == key_id:
                    contract.keys.remove(public_key)
                    return
            raise MarketRefused(404, "no_such_ssh_key", f"The instance has no key {key_id}.")

    def add_ssh_key(self, public_key: str) -> int:
        """Register a key with the account: instances created later accept it. Return its id.

        Raises:
            MarketRefused: it is no public key.
        """
        now = self.world.advance()
        key = self.account.add_ssh_key(public_key)
        self.journal.append(JournalEntry(at=now, kind="add_key"))
        return key.key_id

    # -- the world around ----------------------------------------------------------------

    def add_foreign(self, *, label: str | None = None, offer_id: int | None = None) -> Contract:
        """Let the account hold an instance that we did not rent (the first offer that is free).

        Raises:
            MarketRefused: that offer is gone.
        """
        now = self.world.advance()
        if offer_id is None:
            free = (i for i, c in self.world.shelf.offers.items() if not self.world.shelf.taken(c))
            offer_id = next(free)
        return self._create(
            offer_id, RentOrder(image="ubuntu:22.04", label=label), now, foreign=True
        )

    def afflict(
        self,
        fault: MachineFault,
        *,
        instance_id: int | None = None,
        machine_id: int | None = None,
    ) -> None:
        """Let a machine fault befall an instance, or the next one rented (on that machine).

        Raises:
            MarketRefused: there is no such instance.
        """
        now = self.world.advance()
        if instance_id is None:
            self._afflictions.wait(fault, machine_id)
        else:
            self._afflictions.strike(self.contract(instance_id), fault, now)

    def occupy(self, machine_id: int) -> None:
        """Let other renters take every GPU of a machine that is free now or becomes free."""
        self.world.advance()
        self.world.shelf.occupy(machine_id)

    def vacate(self, machine_id: int) -> None:
        """Let other renters leave a machine: its offers come back under new ids."""
        now = self.world.advance()
        self.world.shelf.vacate(machine_id)
        self.world.settle(now)

    def set_min_bid(self, machine_id: int, usd_h_per_gpu: float) -> None:
        """Move the going bid of a machine: who bids less is outbid, who was outbid may resume."""
        now = self.world.advance()
        self.world.floors[machine_id] = from_usd(usd_h_per_gpu)
        self.world.settle(now)

    def withdraw(self, offer_id: int) -> None:
        """Let a host take an offer off the market."""
        self.world.shelf.withdraw(offer_id)

    def set_access(self, instance_id: int, access: Access | None) -> None:
        """Say where a real sshd of an instance listens; None goes back to made-up addresses.

        Raises:
            MarketRefused: there is no such instance.
        """
        self.contract(instance_id).access = access

    def charge_traffic(self, instance_id: int, *, up_bytes: int = 0, down_bytes: int = 0) -> None:
        """Bill traffic of an instance, seen from the instance.

        Raises:
            MarketRefused: there is no such instance.
        """
        contract, now = self.contract(instance_id), self.world.advance()
        machine, meter = contract.machine, contract.meter
        meter.charge_traffic(BillKind.UPLOAD, up_bytes, machine.inet_up_usd_gb, now)
        meter.charge_traffic(BillKind.DOWNLOAD, down_bytes, machine.inet_down_usd_gb, now)

    def deposit(self, usd: float) -> None:
        """Add credit; instances that were stopped stay stopped (VAST_API 7.2)."""
        self.world.deposit(from_usd(usd), self.world.advance())
