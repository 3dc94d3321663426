"""Which offers exist right now, under which ids, and whether they can be rented.

Rules
1. An offer id is used up by a rental: when the GPUs are free again, every chunk that shared one of
   them comes back under a new id (VAST_API 2.1: ids are ephemeral).
2. A chunk that needs a taken GPU stays known under its id, rented and not rentable.
"""

from collections.abc import Iterable

from vastd.simulator.machines import Chunk, Machine
from vastd.simulator.offers import chunks_of


class Shelf:
    """All offers of a market, by offer id."""

    def __init__(self, machines: Iterable[Machine], first_id: int) -> None:
        self.offers: dict[int, Chunk] = {}  # ids ascend, newest last
        self._next_id = first_id
        self._holders: dict[int, Chunk] = {}  # instance id -> what it holds
        self._bidders: set[int] = set()  # instance ids among the holders that can be outbid
        self._strangers: set[int] = set()  # machine ids taken by other renters
        self._dark: set[int] = set()  # machine ids out of contact
        for machine in machines:
            for chunk in chunks_of(machine):
                self._list(chunk)

    def _list(self, chunk: Chunk) -> None:
        self.offers[self._next_id] = chunk
        self._next_id += 1

    def hold(self, instance_id: int, chunk: Chunk, *, interruptible: bool) -> None:
        """Take GPUs off the shelf for an instance."""
        self._holders[instance_id] = chunk
        if interruptible:
            self._bidders.add(instance_id)

    def release(self, instance_id: int) -> None:
        """Give the GPUs of an instance back: what shared them is listed anew."""
        chunk = self._holders.pop(instance_id, None)
        self._bidders.discard(instance_id)
        if chunk is not None:
            self._relist(chunk)

    def holds(self, instance_id: int) -> bool:
        return instance_id in self._holders

    def occupy(self, machine_id: int) -> None:
        """Let other renters take whatever is free on a machine."""
        self._strangers.add(machine_id)

    def vacate(self, machine_id: int) -> None:
        """Let other renters leave a machine."""
        if machine_id in self._strangers:
            self._strangers.remove(machine_id)
            for chunk in [c for c in self.offers.values() if c.machine.machine_id == machine_id]:
                if chunk.num_gpus == chunk.machine.num_gpus:
                    self._relist(chunk)

    def darken(self, machine_id: int) -> None:
        """Take the offers of a machine that fell out of contact off the market."""
        self._dark.add(machine_id)

    def lighten(self, machine_id: int) -> None:
        """Offer a machine again."""
        self._dark.discard(machine_id)

    def withdraw(self, offer_id: int) -> None:
        """Take one offer away for good; nothing happens when it is gone already."""
        self.offers.pop(offer_id, None)

    def _relist(self, chunk: Chunk) -> None:
        stale = [offer_id for offer_id, other in self.offers.items() if other.overlaps(chunk)]
        for offer_id in stale:
            self._list(self.offers.pop(offer_id))

    def rivals(self, chunk: Chunk, *, apart_from: int | None = None) -> list[int]:
        """Return the instances that hold a GPU of `chunk`, oldest first."""
        return [
            instance_id
            for instance_id, held in self._holders.items()
            if instance_id != apart_from and held.overlaps(chunk)
        ]

    def taken(self, chunk: Chunk, *, apart_from: int | None = None) -> bool:
        """Return whether nobody can have `chunk` now: others hold it, or the machine is lost."""
        machine_id = chunk.machine.machine_id
        return machine_id in self._strangers | self._dark or any(
            rival not in self._bidders for rival in self.rivals(chunk, apart_from=apart_from)
        )
