"""The moving parts of the simulated market: time, contracts, GPUs, bids and money.

Rules
1. There is no task and no timer. `advance` carries out all planned events up to the clock, in
   order of time, each at its own time; whoever reads must call it first.
2. Credit is what was deposited minus the sum of all bills, nothing else.
"""

import hashlib
import random
from collections.abc import Callable
from typing import Final

from vastd.core.money import SECONDS_PER_HOUR, Micros
from vastd.simulator.accounts import MarketAccount
from vastd.simulator.agenda import Agenda
from vastd.simulator.contracts import Contract, RentOrder, Stage
from vastd.simulator.guards import SimGuard, lease_in
from vastd.simulator.machines import Chunk, Machine
from vastd.simulator.shelf import Shelf

BID_STEP_PERCENT: Final = 105  # guess: what it takes to beat another bidder
ID_GAP: Final = 40  # guess: other people rent between two of our rentals


class World:
    """Everything that changes by itself. Deterministic from seed, clock and calls."""

    def __init__(
        self,
        *,
        seed: int,
        clock: Callable[[], float],
        scale: float,
        machines: list[Machine],
        account: MarketAccount,
        deposited: Micros,
        first_offer_id: int,
        first_instance_id: int,
    ) -> None:
        self.seed = seed
        self.scale = scale
        self.account = account
        self.machines = {machine.machine_id: machine for machine in machines}
        self.shelf = Shelf(machines, first_offer_id)
        self.agenda = Agenda()
        self.contracts: dict[int, Contract] = {}  # by instance id, ascending, ended ones too
        self.live: dict[int, Contract] = {}  # by instance id, ascending
        self.models_guards = False  # whether `onstart` is understood instead of run
        self.floors: dict[int, Micros] = {}  # machine id -> going bid per GPU and hour, if moved
        self._clock = clock
        self._now = clock()
        self._deposited = int(deposited)
        self._settled = 0  # the bills of ended contracts
        self._broke = False
        self._next_instance_id = first_instance_id
        self._gaps = random.Random(f"instance-ids:{seed}")

    # -- time ----------------------------------------------------------------------------

    def advance(self) -> float:
        """Carry out everything planned up to the clock; return the time, epoch seconds."""
        # A clock that was set back must not make bills shrink.
        now = max(self._now, self._clock())
        while (at := self.next_event_at()) is not None and at <= now:
            self._now = max(self._now, at)
            self._carry_out(self._now)
        self._now = now
        return now

    def next_event_at(self) -> float | None:
        """Return when the next planned event is due, epoch seconds, or None."""
        times = [at for c in self.live.values() if (at := c.next_at()) is not None]
        times += [c.machine.end_at for c in self.live.values() if not c.ended]
        guards = [c.guard for c in self.live.values() if c.guard is not None]
        times += [at for guard in guards if (at := guard.next_at()) is not None]
        times += [at for at in (self.agenda.next_at(), self._broke_at()) if at is not None]
        return min(times, default=None)

    def _broke_at(self) -> float | None:
        rate = sum(c.meter.rate() for c in self.live.values())
        if self._broke or rate == 0:
            return None
        # Rounded up to a microsecond; every meter rounds up too: due means at or below zero.
        left = max(0, self._deposited - self.spent(self._now))
        return self._now - (-left * SECONDS_PER_HOUR * 1_000_000 // rate) / 1_000_000

    def _carry_out(self, now: float) -> None:
        self.agenda.run_due(now)
        for contract in list(self.live.values()):
            while contract.step_due(now):
                pass
            if contract.guard is not None:
                contract.guard.step(now)
            if not contract.ended and contract.machine.end_at <= now:
                contract.ended = True
                contract.halt(now, message="the contract of the host has ended")
        if not self._broke and self.credit(now) <= 0:
            self._broke = True
            for contract in self.live.values():
                contract.halt(now, message="account credit is used up")
        self.settle(now)

    def settle(self, now: float) -> None:
        """Bring shelf, bids, queue and the list of the living in line with the contracts."""
        for contract in list(self.live.values()):
            self._sync_shelf(contract)
            if not contract.alive:
                del self.live[contract.instance_id]
                self._settled += contract.meter.total(now)
                self.account.revoke_api_key(contract.api_key)
        for contract in list(self.live.values()):
            self._settle_bid(contract, now)
        for contract in list(self.live.values()):
            if contract.queued and self.may_start(contract):
                self.begin(contract, now)

    # -- money ---------------------------------------------------------------------------

    def spent(self, now: float) -> Micros:
        """Return the sum of all bills."""
        return Micros(self._settled + sum(c.meter.total(now) for c in self.live.values()))

    def credit(self, now: float) -> Micros:
        """Return what is left; it falls below zero while storage goes on."""
        return Micros(self._deposited - self.spent(now))

    def deposit(self, amount: Micros, now: float) -> None:
        """Add money; what was stopped stays stopped (VAST_API 7.2)."""
        self._deposited += amount
        self._broke = self.credit(now) <= 0

    def drain(self, now: float) -> None:
        """Let all credit be gone: the next look at the world finds it at zero."""
        self._deposited = int(self.spent(now))

    # -- GPUs and bids -------------------------------------------------------------------

    def may_start(self, contract: Contract) -> bool:
        """Return whether the GPUs of a stopped contract are free and it can be paid."""
        shelf, me = self.shelf, contract.instance_id
        bid_wins = contract.bid is None or contract.bid >= self.floor(contract.chunk)
        return (
            bid_wins
            and not self._broke
            and not contract.ended
            and not shelf.rivals(contract.chunk, apart_from=me)
            and not shelf.taken(contract.chunk, apart_from=me)
        )

    def begin(self, contract: Contract, now: float) -> None:
        """Start a stopped contract and take its GPUs."""
        contract.start(now)
        self._sync_shelf(contract)

    def outbid(self, contract: Contract, now: float) -> None:
        """Take the GPUs from a bidder at once, without a warning (VAST_API 8.2 no. 7)."""
        keeps = contract.trouble.outbid_keeps_intent
        if keeps is None:
            keeps = contract.machine.outbid_keeps_intent
        contract.halt(now, keep_intent=keeps)
        contract.outbid = True
        self._sync_shelf(contract)

    def floor(self, chunk: Chunk) -> Micros:
        """Return the going bid per hour for a chunk."""
        machine = chunk.machine
        per_gpu = self.floors.get(machine.machine_id, machine.min_bid_micros_h)
        return Micros(per_gpu * chunk.num_gpus)

    def floor_for_new(self, chunk: Chunk) -> Micros:
        """Return what a new bid must reach: a bidder who is there must be beaten too."""
        bids = [self.live[i].bid or 0 for i in self.shelf.rivals(chunk)]
        beaten = max((bid * BID_STEP_PERCENT // 100 + 1 for bid in bids), default=0)
        return Micros(max(self.floor(chunk), beaten))

    def _sync_shelf(self, contract: Contract) -> None:
        holds = self.shelf.holds(contract.instance_id)
        if holds and not contract.holds_gpus:
            self.shelf.release(contract.instance_id)
        elif contract.holds_gpus and not holds:
            self.shelf.hold(
                contract.instance_id, contract.chunk, interruptible=contract.bid is not None
            )

    def _settle_bid(self, contract: Contract, now: float) -> None:
        if contract.bid is None:
            return
        wins = contract.bid >= self.floor(contract.chunk)
        if contract.holds_gpus and contract.stage is not Stage.DESTROYING and not wins:
            self.outbid(contract, now)
        elif contract.outbid and wins and self.may_start(contract):
            self.begin(contract, now)

    # -- contracts -----------------------------------------------------------------------

    def new_contract(
        self, offer_id: int, chunk: Chunk, order: RentOrder, now: float, *, foreign: bool
    ) -> Contract:
        """Write a contract; it does not boot yet."""
        self._next_instance_id += self._gaps.randrange(1, ID_GAP)
        instance_id = self._next_instance_id
        token = hashlib.sha256(f"instance-key:{self.seed}:{instance_id}".encode()).hexdigest()
        self.account.add_api_key(f"instance {instance_id}", token=token, instance_id=instance_id)
        contract = Contract(
            instance_id=instance_id,
            offer_id=offer_id,
            chunk=chunk,
            order=order,
            api_key=token,
            created_at=now,
            scale=self.scale,
            keys=[key.public_key for key in self.account.ssh_keys],
            foreign=foreign,
        )
        if self.models_guards and (lease_s := lease_in(order.onstart)) is not None:
            contract.guard = SimGuard(contract, lease_s)
        self.contracts[instance_id] = self.live[instance_id] = contract
        return contract
