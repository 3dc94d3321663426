"""Carries machine faults out: what each does to a contract, when it begins and when it ends."""

from functools import partial
from typing import Final

from msgspec import Struct

from vastd.core.money import Micros
from vastd.simulator.contracts import Contract, Stage
from vastd.simulator.faults import BOOT_SAYS, MachineFault, MachineFaultKind
from vastd.simulator.world import World

BOOT_FAULTS: Final = frozenset(
    {MachineFaultKind.BOOT_STUCK, MachineFaultKind.BOOT_ERROR, MachineFaultKind.SLOW_BOOT}
)
# Properties of the machine from the start, whatever runs on it.
STANDING_FAULTS: Final = BOOT_FAULTS | {
    MachineFaultKind.WRONG_GPU,
    MachineFaultKind.BROKEN_GPU,
    MachineFaultKind.SSH_AUTH,
    MachineFaultKind.LOW_VRAM,
    MachineFaultKind.OLD_DRIVER,
    MachineFaultKind.SMALL_DISK,
    MachineFaultKind.DIRECT_REFUSED,
    MachineFaultKind.ODD_STATUS,
}
# What befalls a machine while it boots, some seconds after it was made.
DURING_BOOT: Final = frozenset({MachineFaultKind.OUTBID_BOOT, MachineFaultKind.VANISH_BOOT})
DURING_BOOT_S: Final = 5.0  # guess: within the boot of every machine
# Kinds that are one property of the machine, called as the fault is.
FLAGS: Final = frozenset(
    {
        MachineFaultKind.BROKEN_GPU,
        MachineFaultKind.LOW_VRAM,
        MachineFaultKind.OLD_DRIVER,
        MachineFaultKind.SMALL_DISK,
        MachineFaultKind.DIRECT_REFUSED,
        MachineFaultKind.ODD_STATUS,
    }
)
FOR_EVER_S: Final = 1e9  # some thirty years
OUTBID_PERCENT: Final = 150  # guess: the new going price in terms of the old bid


class Pending(Struct, frozen=True, kw_only=True):
    """A fault that waits for a contract: the next one, or the next one on a machine."""

    fault: MachineFault
    machine_id: int | None = None


class Afflictions:
    """All machine faults of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: list[Pending] = []

    def strike(self, contract: Contract, fault: MachineFault, now: float) -> None:
        """Let a fault befall an existing contract `after_s` from now."""
        if fault.after_s <= 0:
            self._begin(contract, fault, now)
        else:
            self._plan(contract, fault, now)

    def _plan(self, contract: Contract, fault: MachineFault, now: float) -> None:
        # Even without a delay it happens on its own: not in the middle of another change.
        self._world.agenda.plan(now + fault.after_s, partial(self._begin, contract, fault))

    def wait(self, fault: MachineFault, machine_id: int | None) -> None:
        """Let a fault befall the next contract (on that machine)."""
        self._waiting.append(Pending(fault=fault, machine_id=machine_id))

    def take(self, contract: Contract, now: float) -> None:
        """Give a new contract the faults that wait for it.

        The same kind waits for one contract each, so two waiting host losses hit two rentals.
        """
        seen: set[MachineFaultKind] = set()
        for pending in list(self._waiting):
            fault = pending.fault
            fits = pending.machine_id in (None, contract.machine.machine_id)
            if not fits or fault.kind in seen:
                continue
            seen.add(fault.kind)
            self._waiting.remove(pending)
            if fault.kind in STANDING_FAULTS:
                self._begin(contract, fault, now)
            elif fault.kind in DURING_BOOT:
                at = now + fault.after_s + DURING_BOOT_S
                self._world.agenda.plan(at, partial(self._begin, contract, fault))
            else:
                contract.on_first_run.append(partial(self._plan, contract, fault))

    def _begin(self, contract: Contract, fault: MachineFault, at: float) -> None:
        if not contract.alive:
            return
        trouble = contract.trouble
        match fault.kind:
            case MachineFaultKind.BOOT_STUCK:
                trouble.boot_stuck = Stage(fault.stuck_in)
                contract.replan_boot(at)
            case MachineFaultKind.BOOT_ERROR:
                trouble.boot_error = fault.message or BOOT_SAYS["gpu_error"]
                contract.replan_boot(at)
            case MachineFaultKind.SLOW_BOOT:
                trouble.slow_boot = fault.factor
                contract.replan_boot(at)
            case MachineFaultKind.HOST_LOSS:
                self._world.shelf.darken(contract.machine.machine_id)
                for neighbour in self._on_machine_of(contract):
                    neighbour.lose_host(at)
            case MachineFaultKind.VANISH | MachineFaultKind.VANISH_BOOT:
                contract.vanish(at)
            case MachineFaultKind.OUTBID | MachineFaultKind.OUTBID_BOOT:
                trouble.outbid_keeps_intent = fault.keeps_intent
                self._raise_floor(contract)
            case MachineFaultKind.CREDIT_ZERO:
                self._world.drain(at)
            case MachineFaultKind.PRICE_DRIFT:
                contract.change_price(fault.factor, at)
            case MachineFaultKind.WRONG_GPU:
                trouble.wrong_gpu = fault.gpu
            case MachineFaultKind.SSH_REFUSED:
                trouble.ssh_refused_until = at + (fault.for_s or FOR_EVER_S)
            case MachineFaultKind.SSH_AUTH:
                trouble.ssh_rejects_keys, trouble.attach_heals = True, fault.healed_by_attach
            case MachineFaultKind.DISK_FULL:
                trouble.disk_full = True
            case kind if kind in FLAGS:
                setattr(trouble, kind, True)
        self._world.settle(at)
        if fault.for_s is not None:
            self._world.agenda.plan(at + fault.for_s, partial(self._end, contract, fault))

    def _on_machine_of(self, contract: Contract) -> list[Contract]:
        machine_id = contract.machine.machine_id
        return [c for c in self._world.live.values() if c.machine.machine_id == machine_id]

    def _raise_floor(self, contract: Contract) -> None:
        machine = contract.machine
        bid = contract.bid or self._world.floor(contract.chunk)
        self._world.floors[machine.machine_id] = Micros(
            bid * OUTBID_PERCENT // 100 // contract.chunk.num_gpus + 1
        )

    def _end(self, contract: Contract, fault: MachineFault, at: float) -> None:
        trouble = contract.trouble
        match fault.kind:
            case MachineFaultKind.BOOT_STUCK:
                trouble.boot_stuck = None
                contract.replan_boot(at)
            case MachineFaultKind.BOOT_ERROR:
                trouble.boot_error = None
                contract.replan_boot(at)
            case MachineFaultKind.SLOW_BOOT:
                trouble.slow_boot = 1.0
            case MachineFaultKind.HOST_LOSS:
                self._world.shelf.lighten(contract.machine.machine_id)
                for neighbour in self._on_machine_of(contract):
                    neighbour.regain_host(at)
            case MachineFaultKind.OUTBID | MachineFaultKind.OUTBID_BOOT:
                self._world.floors.pop(contract.machine.machine_id, None)
            case MachineFaultKind.WRONG_GPU:
                trouble.wrong_gpu = None
            case MachineFaultKind.SSH_AUTH:
                trouble.ssh_rejects_keys = False
            case MachineFaultKind.DISK_FULL:
                trouble.disk_full = False
            case MachineFaultKind.BROKEN_GPU:
                trouble.broken_gpu = False
            case MachineFaultKind.PRICE_DRIFT:
                contract.change_price(1.0, at)
            case (
                MachineFaultKind.VANISH
                | MachineFaultKind.SSH_REFUSED
                | MachineFaultKind.CREDIT_ZERO
            ):
                pass  # gone for good; the refusal ends by its own time; credit comes by a deposit
        self._world.settle(at)
