"""What the handlers stand on: the market, the machines behind it, and files to be fetched later."""

import secrets
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Protocol

import trio

from vastd.simulator.faults import Faults
from vastd.simulator.market import Market
from vastd.simulator.templates import Templates

RESULTS_KEPT: Final = 64  # result files; a client fetches each within seconds


class HostState(StrEnum):
    """What one can wait for."""

    SSH = "ssh"  # sshd answers
    DOWN = "down"  # nothing runs, the disk may be there
    GONE = "gone"  # neither contract nor disk


class Machines(Protocol):
    """The machines behind the contracts, as far as a request can concern them."""

    def adopt(self) -> None:
        """Look at all contracts again; new ones get their ports before this returns."""
        ...

    def drop_connections(self, instance_id: int) -> int:
        """Break all SSH connections of an instance; return how many."""
        ...

    async def wait_for(self, instance_id: int, state: HostState) -> None:
        """Wait until the machine of an instance is in that state; for ever if it never is."""
        ...

    def container_log(self, instance_id: int) -> str:
        """Return what the container printed, oldest line first; empty when nothing."""
        ...

    async def run_on_disk(self, instance_id: int, argv: list[str]) -> str:
        """Run a program on an instance's disk and return what it printed.

        Raises:
            MarketRefused: the instance has no running container.
        """
        ...


class NoMachines:
    """A market whose instances are only rows."""

    def adopt(self) -> None:
        return

    def drop_connections(self, instance_id: int) -> int:
        return 0

    async def wait_for(self, instance_id: int, state: HostState) -> None:
        await trio.lowlevel.checkpoint()

    def container_log(self, instance_id: int) -> str:
        return ""

    async def run_on_disk(self, instance_id: int, argv: list[str]) -> str:
        return ""


class Backend:
    """One simulated Vast."""

    def __init__(
        self, market: Market, faults: Faults, machines: Machines, clock: Callable[[], float]
    ) -> None:
        self.market = market
        self.faults = faults
        self.machines = machines
        self.clock = clock
        self.templates = Templates()
        self.url = ""  # where we are reached; known once the port is
        self._results: dict[str, str] = {}

    def keep_result(self, text: str) -> str:
        """Keep a text for a client to fetch without a key; return its unguessable URL."""
        name = f"{secrets.token_hex(24)}.log"
        self._results[name] = text
        while len(self._results) > RESULTS_KEPT:
            del self._results[next(iter(self._results))]
        return f"{self.url}/instance_logs/{name}"

    def result(self, name: str) -> str | None:
        """Return a kept text, or None."""
        return self._results.get(name)
