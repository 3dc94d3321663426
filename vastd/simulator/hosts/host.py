"""The machine behind one contract: its ports, its disk, its sandbox."""

import logging
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from vastd.simulator import flaws
from vastd.simulator.contracts import Access, Contract
from vastd.simulator.hosts.image import TOOLS_DIR, GpuSetup, InstanceDisk, build_disk, write_tools
from vastd.simulator.hosts.processes import wait_for_exit
from vastd.simulator.hosts.sandbox import Sandbox
from vastd.simulator.hosts.ssh import Sshd
from vastd.simulator.hosts.support import Support, Walls

LOG: Final = logging.getLogger(__name__)
LOOPBACK: Final = "127.0.0.1"
BROKEN_GPU_TEXT: Final = "No devices were found"
ENV_NAME_CHARS: Final = 128  # guess


class Host:
    """The machine behind one contract."""

    def __init__(self, contract: Contract, state_dir: Path, support: Support) -> None:
        """Make the machine's directory below `state_dir`; nothing runs and no port is taken."""
        self.contract = contract
        self.directory = state_dir / "instances" / str(contract.instance_id)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._state_dir = state_dir
        self.support = support
        self.sshd: Sshd | None = None
        self.sandbox: Sandbox | None = None
        self.sockets: list[socket.socket] = []
        self._disk: InstanceDisk | None = None
        self._disk_id = 0

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

    @property
    def answering(self) -> list[socket.socket]:
        """The ports at which sshd shall answer: the proxy's, and the direct one unless it refuses."""
        return self.sockets[:1] if self.contract.trouble.direct_refused else self.sockets

    def release(self) -> None:
        """Give the ports back."""
        for sock in self.sockets:
            sock.close()
        self.sockets = []

    async def start(self, env: Mapping[str, str], *, command_tmux: bool = False) -> None:
        """Bring up the container of the current run, on a fresh disk after a recycle.

        Raises:
            SandboxFailed, OSError: it is not up.
        """
        disk = await self._disk_of_this_run()
        if command_tmux:
            (disk.tools / "tmux-for-commands").touch()
        self.sandbox = self.support.sandbox(
            disk,
            hostname=f"C.{self.contract.instance_id}",
            state_dir=self._state_dir,
            log=self.log,
        )
        await self.sandbox.start(env, disk_full=self.contract.trouble.disk_full)

    async def stop(self) -> None:
        """End every process of the instance; nothing happens when it is down."""
        if self.sandbox is not None:
            sandbox, self.sandbox = self.sandbox, None
            await sandbox.stop()

    @property
    def tools_inside(self) -> str:
        """Where the instance sees our scripts."""
        assert self._disk is not None
        return TOOLS_DIR if self.support.walls is Walls.SANDBOX else str(self._disk.tools)

    async def _disk_of_this_run(self) -> InstanceDisk:
        contract = self.contract
        with_nvcc = "runtime" not in contract.order.image
        gpu = gpu_setup(contract)
        if self._disk is None or self._disk_id != contract.disk_id:
            await remove_tree(self.directory / f"disk-{self._disk_id}")
            self._disk_id = contract.disk_id
            self._disk = build_disk(
                self.directory / f"disk-{self._disk_id}",
                hostname=f"C.{contract.instance_id}",
                gpu=gpu,
                onstart=contract.order.onstart,
                with_nvcc=with_nvcc,
            )
        plain = self.support.walls is Walls.NONE
        workspace = str(self._disk.root / "workspace") if plain else "/workspace"
        write_tools(self._disk, gpu=gpu, with_nvcc=with_nvcc, workspace=workspace)
        return self._disk


def gpu_setup(contract: Contract) -> GpuSetup:
    """Return what nvidia-smi shows on the machine of a contract, wrong or broken cards too."""
    machine, trouble = contract.machine, contract.trouble
    return GpuSetup(
        name=trouble.wrong_gpu or machine.gpu.nvidia_name,
        count=contract.chunk.num_gpus,
        memory_mib=flaws.gpu_ram_mb(contract),
        driver_version=machine.driver_version,
        cuda_version=f"{flaws.cuda(contract):.1f}",
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
    return name.isascii() and name.isidentifier() and len(name) <= ENV_NAME_CHARS


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


async def remove_tree(directory: Path) -> None:
    """Delete an instance's files, also where a job took the permission to."""
    process = subprocess.Popen(  # noqa: ASYNC220 - forks in a millisecond
        ["/bin/sh", "-c", 'chmod -R u+rwX -- "$1"; rm -rf -- "$1"', "sh", str(directory)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    await wait_for_exit(process)
