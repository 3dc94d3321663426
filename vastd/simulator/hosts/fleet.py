"""All instances of the simulated market as machines: each follows its contract's life.

Rules
1. The market decides, a host follows: up means a sandbox, and an sshd once it may answer.
2. Ports are bound (not listening) before the renter can see them, so that a row never names a
   port that somebody else may take; every new run of an instance gets new ones.
3. A machine that fails to start is logged and stays without sshd, as on a broken host; the
   contract goes on billing.
"""

import functools
import logging
import shlex
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from vastd.simulator.contracts import Access, Contract
from vastd.simulator.facade.backend import HostState
from vastd.simulator.faults import Faults, Point
from vastd.simulator.hosts.image import TOOLS_DIR, GpuSetup, InstanceDisk, build_disk, write_tools
from vastd.simulator.hosts.processes import wait_for_exit
from vastd.simulator.hosts.sandbox import Sandbox, SandboxFailed
from vastd.simulator.hosts.ssh import HostFacts, Sshd, open_loop, open_sshd, sftp_program
from vastd.simulator.hosts.support import Support, Walls, run_inside
from vastd.simulator.market import Market
from vastd.simulator.refusals import MarketRefused

LOG: Final = logging.getLogger(__name__)
LOOPBACK: Final = "127.0.0.1"
LONGEST_NAP_S: Final = 3600.0
LOG_TAIL_BYTES: Final = 1_000_000  # guess; Vast's logs are cut to 1000 lines by the client
COMMAND_LIMIT_S: Final = 20.0  # guess
BROKEN_GPU_TEXT: Final = "No devices were found"
ENV_NAME_CHARS: Final = 128  # guess


class Host:
    """The machine behind one contract."""

    def __init__(self, contract: Contract, directory: Path, support: Support) -> None:
        self.contract = contract
        self.directory = directory
        self.support = support
        self.sshd: Sshd | None = None
        self.sandbox: Sandbox | None = None
        self.sockets: list[socket.socket] = []
        self.disk: InstanceDisk | None = None
        self.disk_id = 0

    @property
    def log(self) -> Path:
        """What the container printed so far."""
        return self.directory / "container.log"

    def bind(self, *, keep_direct: bool = False) -> Access:
        """Take loopback ports and say where they are: the proxy's stays, the direct one changes."""
        self.release()
        shift = 1 if "jupyter" in self.contract.order.runtype else 0  # VAST_API 4.4
        old = self.contract.access
        proxy = _bound_socket(0 if old is None else old.ssh_port + shift)
        self.sockets, direct_port = [proxy], None
        if self.contract.has_direct_port:
            direct = _bound_socket(old.direct_port or 0 if old and keep_direct else 0)
            self.sockets.append(direct)
            direct_port = direct.getsockname()[1]
        return Access(
            public_ip=LOOPBACK,
            direct_port=direct_port,
            ssh_host=LOOPBACK,
            ssh_port=proxy.getsockname()[1] - shift,
        )

    def release(self) -> None:
        """Give the ports back."""
        for sock in self.sockets:
            sock.close()
        self.sockets = []

    def prepare_disk(self) -> InstanceDisk:
        """Return the disk of the current run, a fresh one after a recycle."""
        contract = self.contract
        with_nvcc = "runtime" not in contract.order.image
        gpu = gpu_setup(contract)
        if self.disk is None or self.disk_id != contract.disk_id:
            shutil.rmtree(self.directory / f"disk-{self.disk_id}", ignore_errors=True)
            self.disk_id = contract.disk_id
            self.disk = build_disk(
                self.directory / f"disk-{self.disk_id}",
                hostname=f"C.{contract.instance_id}",
                gpu=gpu,
                onstart=contract.order.onstart,
                with_nvcc=with_nvcc,
            )
        plain = self.support.walls is Walls.NONE
        workspace = str(self.disk.root / "workspace") if plain else "/workspace"
        write_tools(self.disk, gpu=gpu, with_nvcc=with_nvcc, workspace=workspace)
        return self.disk


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
            directory = self._state_dir / "instances" / str(contract.instance_id)
            directory.mkdir(parents=True, exist_ok=True)
            host = Host(contract, directory, self._support)
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
                        self._market.set_access(contract.instance_id, host.bind())
                else:
                    await self._wait_change()
        finally:
            host.release()
            with trio.CancelScope(shield=True):
                await _remove_tree(host.directory)
            self.hosts.pop(contract.instance_id, None)
            self.poke()
        LOG.info("gone instance=%d", contract.instance_id)

    async def _run(self, host: Host) -> None:
        """Carry one run of an instance, from container start to its end."""
        contract = host.contract
        run = (contract.boot_id, contract.disk_id)
        disk = host.prepare_disk()
        if self.command_tmux:
            (disk.tools / "tmux-for-commands").touch()
        name = f"C.{contract.instance_id}"
        sandbox = self._support.sandbox(
            disk, hostname=name, state_dir=self._state_dir, log=host.log
        )
        try:
            await sandbox.start(
                container_env(contract, self._facade_url, self._market.account.secrets),
                disk_full=contract.trouble.disk_full,
            )
            host.sandbox = sandbox
            LOG.info("up instance=%d run=%d", contract.instance_id, run[0])
            await self._serve(host, sandbox, disk, run)
        except SandboxFailed:
            LOG.exception("cannot start instance=%d", contract.instance_id)
            await self._until_over(host, run)
        finally:
            host.sandbox = None
            with trio.CancelScope(shield=True):
                await sandbox.stop()
            self.poke()
        LOG.info("down instance=%d run=%d", contract.instance_id, run[0])

    def _tools_seen(self, disk: InstanceDisk) -> str:
        return TOOLS_DIR if self._support.walls is Walls.SANDBOX else str(disk.tools)

    def _refuses(self, instance_id: int) -> bool:
        """Return whether this connection shall break off: a fault at `box.open`, or no network."""
        faults = self._faults
        return (
            faults is not None and faults.next(Point.BOX_OPEN, instance_id=instance_id) is not None
        )

    async def _serve(
        self, host: Host, sandbox: Sandbox, disk: InstanceDisk, run: tuple[int, int]
    ) -> None:
        contract = host.contract
        while self._is_on(host, run):
            at = contract.sshd_at()
            if at is None or at > self._market.advance():
                await self._wait_change(at)
                continue
            facts = HostFacts(
                instance_id=contract.instance_id,
                sandbox=sandbox,
                accepts=contract.accepts,
                host_key=host.directory / "host_key",
                sftp_program=sftp_program(self._tools_seen(disk)),
                refuses=functools.partial(self._refuses, contract.instance_id),
            )
            async with open_sshd(facts, host.sockets) as sshd:
                host.sshd = sshd
                self.poke()
                try:
                    await self._until_over(host, run, ssh_may_stop=True)
                finally:
                    host.sshd = None
            if self._is_on(host, run):  # sshd alone went away, as on an overloaded machine
                self._market.set_access(contract.instance_id, host.bind(keep_direct=True))

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


def gpu_setup(contract: Contract) -> GpuSetup:
    """Return what nvidia-smi shows on the machine of a contract, wrong or broken cards too."""
    machine, trouble = contract.machine, contract.trouble
    return GpuSetup(
        name=trouble.wrong_gpu or machine.gpu.nvidia_name,
        count=contract.chunk.num_gpus,
        memory_mib=machine.gpu_ram_mb,
        driver_version=machine.driver_version,
        cuda_version=f"{machine.cuda_max_good:.1f}",
        compute_cap=machine.gpu.compute_cap,
        power_w=machine.gpu.max_power_w,
        error=BROKEN_GPU_TEXT if trouble.broken_gpu else "",
    )


def container_env(contract: Contract, facade_url: str, secrets: dict[str, str]) -> dict[str, str]:
    """Return the variables of the container's first process (VAST_API 13)."""
    access = contract.access
    env = {
        **secrets,
        **{k: v for k, v in contract.order.env.items() if _is_variable(k)},
        "CONTAINER_ID": str(contract.instance_id),
        "CONTAINER_API_KEY": contract.api_key,
        "VAST_CONTAINERLABEL": f"C.{contract.instance_id}",
        "PUBLIC_IPADDR": LOOPBACK,
        "GPU_COUNT": str(contract.chunk.num_gpus),
        "SSH_PUBLIC_KEY": "\n".join(contract.keys),
        "DATA_DIRECTORY": "/workspace/",
    }
    if access is not None and access.direct_port is not None:
        env["VAST_TCP_PORT_22"] = str(access.direct_port)
    if facade_url:
        env["VAST_URL"] = facade_url  # where the instance key works; real machines need no such
    return env


def _is_variable(name: str) -> bool:
    # Ports, volumes and host names come in the same object (VAST_API 3.1: "-p 80:80").
    return name.isidentifier() and len(name) <= ENV_NAME_CHARS


def _bound_socket(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    if port:
        # Only for a port we held ourselves: with port 0 it could pick one that is merely bound.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((LOOPBACK, port))
        except OSError:
            LOG.warning("port %d was taken meanwhile, using another", port)
        else:
            return sock
        sock.close()
        return _bound_socket(0)
    sock.bind((LOOPBACK, 0))
    return sock


async def _remove_tree(directory: Path) -> None:
    """Delete an instance's files, also where a job took the permission to."""
    process = subprocess.Popen(  # noqa: ASYNC220 - forks in a millisecond
        ["/bin/sh", "-c", 'chmod -R u+rwX -- "$1"; rm -rf -- "$1"', "sh", str(directory)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    await wait_for_exit(process)
