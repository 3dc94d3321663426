"""Builders for tests of the simulator's façade and of the machines one can SSH into."""

import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from vastd.simulator.facade.app import Facade
from vastd.simulator.facade.backend import Backend, Machines, NoMachines
from vastd.simulator.facade.http import Reply, Request
from vastd.simulator.faults import Faults
from vastd.simulator.hosts.image import GpuSetup
from vastd.simulator.market import Market

EPOCH = 1_800_000_000.0
CONTROL_TOKEN = "control"

RTX_4090 = GpuSetup(
    name="NVIDIA GeForce RTX 4090",
    count=2,
    memory_mib=24564,
    driver_version="550.54.15",
    cuda_version="12.4",
    compute_cap=890,
    power_w=450,
)


class SetClock:
    """A wall clock that stands still until told."""

    def __init__(self, now: float = EPOCH) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class SmallFacade:
    """A façade over a market without machines, called without a network."""

    def __init__(
        self,
        *,
        machines: Machines | None = None,
        rate_limits: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.clock = SetClock()
        read = clock or self.clock
        self.market = Market(7, read, scale=1.0)
        self.faults = Faults(read)
        self.backend = Backend(self.market, self.faults, machines or NoMachines(), read)
        self.backend.url = "http://127.0.0.1:1"
        self.stopped = 0
        self.facade = Facade(
            self.backend,
            control_token=CONTROL_TOKEN,
            shut_down=self._stop,
            rate_limits=rate_limits,
        )
        self.key: str | None = self.market.account.owner_key

    def _stop(self) -> None:
        self.stopped += 1

    async def raw(self, method: str, path: str, body: bytes = b"", **query: str) -> Reply:
        headers = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
        return await self.facade.handle(
            Request(method=method, path=path, query=query, headers=headers, body=body)
        )

    async def call(
        self, method: str, path: str, body: object = None, **query: str
    ) -> tuple[int, object]:
        """Return status and decoded JSON."""
        data = b"" if body is None else msgspec.json.encode(body)
        reply = await self.raw(method, path, data, **query)
        return reply.status, msgspec.json.decode(reply.body)

    def free_offer(self) -> int:
        row = self.market.search({"num_gpus": {"eq": 1}, "direct_port_count": {"gt": 0}}).rows[0]
        offer_id = row["id"]
        assert isinstance(offer_id, int)
        return offer_id

    async def rent(self, label: str = "a", **more: object) -> int:
        """Rent a free offer and return the instance id."""
        body = {"image": "ubuntu:22.04", "disk": 10, "label": label, **more}
        status, reply = await self.call("PUT", f"/api/v0/asks/{self.free_offer()}/", body)
        assert status == 200, reply
        assert isinstance(reply, dict)
        instance_id = reply["new_contract"]
        assert isinstance(instance_id, int)
        return instance_id


class Finished(msgspec.Struct, frozen=True):
    """A program that ended."""

    code: int
    out: bytes
    err: bytes


async def run_program(argv: list[str], stdin: bytes = b"") -> Finished:
    """Run a program of this machine to its end."""
    done = await trio.run_process(
        argv, stdin=stdin, capture_stdout=True, capture_stderr=True, check=False
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def make_ssh_key(path: Path) -> str:
    """Make a key pair and return the public line."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True
    )
    return path.with_suffix(".pub").read_text().strip()


class SshClient:
    """The plain OpenSSH client, pointed at one instance."""

    def __init__(self, identity: Path, port: int, user: str = "root") -> None:
        self.options = [
            "-F", "/dev/null", "-i", str(identity), "-o", "IdentitiesOnly=yes",
            "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-o", "LogLevel=ERROR", "-o", "BatchMode=yes",
        ]  # fmt: skip
        self.port = port
        self.target = f"{user}@127.0.0.1"

    def argv(self, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        return ["ssh", *self.options, *options, "-p", str(self.port), self.target, *command]

    @property
    def rsh(self) -> str:
        """For `rsync -e`."""
        return " ".join(["ssh", *self.options, "-p", str(self.port)])

    async def run(
        self, *command: str, stdin: bytes = b"", options: tuple[str, ...] = ()
    ) -> Finished:
        return await run_program(self.argv(*command, options=options), stdin)


@asynccontextmanager
async def program_running(argv: list[str]) -> AsyncIterator[trio.Process]:
    """Run a program beside the block; it is killed at the end."""
    process = await trio.lowlevel.open_process(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                await stream.aclose()
