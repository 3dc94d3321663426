"""All instances of the simulated market as machines: each follows its contract's life.

Rules
1. The market decides, a host follows: up means a sandbox, and an sshd once it may answer.
2. Ports are bound (not listening) before the renter can see them, so that a row never names a
   port that somebody else may take; every new run of an instance gets new ones.
3. A machine that fails to start is logged and stays without sshd, as on a broken host; the
   contract goes on billing.
"""

import contextlib
import functools
import logging
import os
import shlex
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from vastd.simulator.contracts import Contract
from vastd.simulator.facade.backend import HostState
from vastd.simulator.faults import Faults, Point
from vastd.simulator.hosts.host import Host, container_env, remove_tree
from vastd.simulator.hosts.sandbox import SandboxFailed
from vastd.simulator.hosts.ssh import HostFacts, open_loop, open_sshd, sftp_program
from vastd.simulator.hosts.support import Support, run_inside
from vastd.simulator.market import Market
from vastd.simulator.refusals import MarketRefused

LOG: Final = logging.getLogger(__name__)
LONGEST_NAP_S: Final = 3600.0
LOG_TAIL_BYTES: Final = 1_000_000  # guess; Vast's logs are cut to 1000 lines by the client
COMMAND_LIMIT_S: Final = 20.0  # guess
AUTHORIZED: Final = "root/root/.ssh/authorized_keys"  # below the instance's directory
AUTHORIZED_MAX_BYTES: Final = 64 * 1024  # guess; a key has a hundred bytes


class Fleet:
    """The hosts of all contracts that were handed over with `adopt`."""

    def __init__(
        self,
        market: Market,
        support: Support,
        state_dir: Path,
        nursery: trio.Nursery,
        facade_url: str = "",
        faults: Faults | None = None,
    ) -> None:
        self._market = market
        self._support = support
        self._state_dir = state_dir
        self._nursery = nursery
        self._facade_url = facade_url
        self._faults = faults
        self._news = trio.Event()
        self.hosts: dict[int, Host] = {}  # by instance id, ascending
        self.command_tmux = False  # Vast's login tmux swallows commands too (SSH-10)

    def poke(self) -> None:
        """Let every host look at its contract again."""
        self._news.set()
        self._news = trio.Event()

    def adopt(self) -> None:
        """Give every new contract of the renter a host, and let all look again.

        Called before the answer of a mutating call leaves: the first row a client sees already
        holds the real ports.
        """
        for contract in self._market.live_contracts():
            if contract.foreign or contract.instance_id in self.hosts:
                continue
            host = Host(contract, self._state_dir, self._support)
            self._market.set_access(contract.instance_id, host.bind())
            self.hosts[contract.instance_id] = host
            self._nursery.start_soon(self._follow, host)
        self.poke()

    def drop_connections(self, instance_id: int) -> int:
        """Break all SSH connections of an instance; return how many. Its processes go on."""
        host = self.hosts.get(instance_id)
        if host is None or host.sshd is None:
            return 0
        count = len(host.sshd.connections)
        host.sshd.drop_connections()
        return count

    async def wait_for(self, instance_id: int, state: HostState) -> None:
        """Wait until the machine of an instance is in that state; for ever if it never is."""
        while not self._is_in(state, self.hosts.get(instance_id)):
            await self._wait_change()

    def _is_in(self, state: HostState, host: Host | None) -> bool:
        match state:
            case HostState.SSH:
                return host is not None and host.sshd is not None
            case HostState.DOWN:
                return host is None or (host.sandbox is None and not host.contract.is_up)
            case HostState.GONE:
                return host is None

    def container_log(self, instance_id: int) -> str:
        """Return the end of what the container printed; empty when nothing."""
        host = self.hosts.get(instance_id)
        if host is None or not host.log.exists():
            return ""
        with host.log.open("rb") as file:
            file.seek(max(0, host.log.stat().st_size - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")

    async def run_on_disk(self, instance_id: int, argv: list[str]) -> str:
        """Run a program in an instance and return the beginning of what it printed.

        Raises:
            MarketRefused: it has no running container.
        """
        host = self.hosts.get(instance_id)
        if host is None or host.sandbox is None:
            raise MarketRefused(400, "invalid_container", "The container is not running.")
        with tempfile.TemporaryFile() as output, trio.move_on_after(COMMAND_LIMIT_S):
            await run_inside(host.sandbox, shlex.join(argv), output=output)
            output.seek(0)
            return output.read(LOG_TAIL_BYTES).decode(errors="replace")
        return ""

    async def _wait_change(self, *also_at: float | None) -> None:
        """Wait for a poke, the market's next planned change, or one of the given times.

        On return the market is up to date.
        """
        news = self._news
        now = self._market.advance()
        times = [at for at in (self._market.next_change_at(), *also_at) if at is not None]
        delay = min([LONGEST_NAP_S, *(at - now for at in times)])
        with trio.move_on_after(max(0.0, delay)):
            await news.wait()
        self._market.advance()

    async def _follow(self, host: Host) -> None:
        contract = host.contract
        try:
            while contract.alive:
                if contract.is_up:
                    await self._run(host)
                    if contract.alive:
                        self._announce(host, keep_direct=False)
                else:
                    await self._wait_change()
        finally:
            host.release()
            with trio.CancelScope(shield=True):
                await remove_tree(host.directory)
            self.hosts.pop(contract.instance_id, None)
            self.poke()
        LOG.info("gone instance=%d", contract.instance_id)

    def _announce(self, host: Host, *, keep_direct: bool) -> None:
        """Tell the market where the next run will answer."""
        # The call advances the market, which may end the contract in that very moment.
        with contextlib.suppress(MarketRefused):
            access = host.bind(keep_direct=keep_direct)
            self._market.set_access(host.contract.instance_id, access)

    async def _run(self, host: Host) -> None:
        """Carry one run of an instance, from container start to its end."""
        contract = host.contract
        run = (contract.boot_id, contract.disk_id)
        try:
            await host.start(
                container_env(contract, self._facade_url, self._market.account.secrets),
                command_tmux=self.command_tmux,
            )
            LOG.info("up instance=%d run=%d", contract.instance_id, run[0])
            await self._serve(host, run)
        except (SandboxFailed, OSError):
            LOG.exception("trouble with instance=%d", contract.instance_id)
            await self._until_over(host, run)
        finally:
            with trio.CancelScope(shield=True):
                await host.stop()
            self.poke()
        LOG.info("down instance=%d run=%d", contract.instance_id, run[0])

    def _refuses(self, instance_id: int) -> bool:
        """Return whether this connection shall break off: a fault at `box.open`, or no network."""
        faults = self._faults
        return (
            faults is not None and faults.next(Point.BOX_OPEN, instance_id=instance_id) is not None
        )

    async def _serve(self, host: Host, run: tuple[int, int]) -> None:
        """Let sshd answer whenever it should, until the run is over."""
        contract, sandbox = host.contract, host.sandbox
        assert sandbox is not None
        while self._is_on(host, run):
            at = contract.sshd_at()
            if at is None or at > self._market.advance():
                await self._wait_change(at)
                continue
            facts = HostFacts(
                instance_id=contract.instance_id,
                sandbox=sandbox,
                accepts=functools.partial(_lets_in, contract, host.directory / AUTHORIZED),
                host_key=host.directory / "host_key",
                sftp_program=sftp_program(host.tools_inside),
                refuses=functools.partial(self._refuses, contract.instance_id),
            )
            async with open_sshd(facts, host.answering) as sshd:
                host.sshd = sshd
                self.poke()
                try:
                    await self._until_over(host, run, ssh_may_stop=True)
                finally:
                    host.sshd = None
            if self._is_on(host, run):  # sshd alone went away, as on an overloaded machine
                self._announce(host, keep_direct=True)

    def _is_on(self, host: Host, run: tuple[int, int]) -> bool:
        contract = host.contract
        return contract.is_up and (contract.boot_id, contract.disk_id) == run

    async def _until_over(
        self, host: Host, run: tuple[int, int], *, ssh_may_stop: bool = False
    ) -> None:
        """Wait until the run is over, or sshd must stop answering."""
        while self._is_on(host, run):
            at = host.contract.sshd_at()
            if ssh_may_stop and (at is None or at > self._market.advance()):
                return
            await self._wait_change()


@asynccontextmanager
async def open_fleet(
    market: Market,
    support: Support,
    state_dir: Path,
    *,
    facade_url: str = "",
    faults: Faults | None = None,
) -> AsyncIterator[Fleet]:
    """Run hosts within the block; leaving ends every process of every instance."""
    async with open_loop(), trio.open_nursery() as nursery:
        fleet = Fleet(market, support, state_dir, nursery, facade_url, faults)
        try:
            yield fleet
        finally:
            nursery.cancel_scope.cancel()


def _lets_in(contract: Contract, authorized: Path, key: str) -> bool:
    """Return whether sshd accepts a key: Vast's own, or one that onstart or the user wrote there."""
    if contract.accepts(key):
        return True
    if contract.trouble.ssh_rejects_keys:
        return False
    try:
        # The file is the instance's to replace; a link must not make us read anything else.
        handle = os.open(authorized, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            lines = file.read(AUTHORIZED_MAX_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return False
    return any(line.split()[:2] == key.split()[:2] for line in lines)
