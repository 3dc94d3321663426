"""The boxes port on virtual time: machines of the in-memory market as seen over SSH.

Rules
1. An operation is: way there, fault decided, machine still up, effect, way back. A failure on the
   way back leaves the effect in place, exactly as a broken SSH connection does.
2. A connection belongs to one run of one container; after a stop, reboot or loss it is closed.
"""

import base64
import hashlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import trio
from msgspec import Struct

from vastd.errors import (
    SshAuthRejected,
    SshClosed,
    SshError,
    SshHostKeyChanged,
    SshRefused,
    SshTimeout,
)
from vastd.jobs.port import Box, BoxJobState, BoxTarget, Endpoint, JobOrder, Route
from vastd.simulator.box import SimBox
from vastd.simulator.box_disk import SimDisk
from vastd.simulator.box_jobs import SimJob
from vastd.simulator.contracts import Contract
from vastd.simulator.faults import Fault, FaultKind, Faults, Point
from vastd.simulator.guards import SimGuard
from vastd.simulator.market import Market
from vastd.simulator.stages import Stage
from vastd.ssh.endpoints import endpoints, prefer

T = TypeVar("T")

LATENCY_S: Final = 0.08  # guess: one way to a machine, mean
CONNECT_TIMEOUT_S: Final = 15.0  # guess: what a client waits for an answer to SYN
CLOCK_SKEW_S: Final = 150.0  # machines' clocks may be minutes off (port, rule 3); guess


class JobRecord(Struct, frozen=True, kw_only=True):
    """The truth about one job that was started, for tests."""

    job_id: str
    instance_id: int
    state: BoxJobState
    started_at: float  # true epoch seconds, not the machine's
    ended_at: float | None  # None while it runs
    exit_code: int | None
    outputs: dict[str, str]  # path -> SHA-256 of everything it wrote
    collected: dict[str, str]  # path -> SHA-256 of what was brought home
    disk_exists: bool  # whether its files can still be collected

    @property
    def all_home(self) -> bool:
        """Whether every output was brought home unchanged."""
        return all(self.collected.get(path) == sha for path, sha in self.outputs.items())


class SimBoxes:
    """The door to all simulated machines, with one SSH identity."""

    def __init__(
        self,
        market: Market,
        faults: Faults,
        clock: Callable[[], float],
        *,
        identity: str = "vastd",
        latency_s: float = LATENCY_S,
    ) -> None:
        """Open the door; `identity` names the key, and the same name is the same key."""
        self._market = market
        self._faults = faults
        self._clock = clock
        self._identity = identity
        self._latency_s = latency_s
        self._rng = random.Random(f"box-latency:{market.world.seed}")
        self._cut = False
        self._connections: dict[int, Connection] = {}  # by instance id
        self._disks: dict[tuple[int, int], SimDisk] = {}  # by instance id and disk id
        self._jobs: dict[tuple[int, int, str], SimJob] = {}  # by instance id, disk id, job id
        market.world.models_guards = True
        self.opened = 0  # connections made, for tests of sharing
        self.tried: list[tuple[int, Route]] = []  # by instance id, in order of time

    def cut(self) -> None:
        """Let nothing reach a machine any more, for good: the daemon is dead."""
        self._cut = True

    def reborn(self) -> "SimBoxes":
        """Return the door of a daemon that was started again: same machines, no connections."""
        other = SimBoxes(
            self._market,
            self._faults,
            self._clock,
            identity=self._identity,
            latency_s=self._latency_s,
        )
        other._disks, other._jobs = self._disks, self._jobs
        return other

    # -- the port ------------------------------------------------------------------------

    def open(self, target: BoxTarget) -> AbstractAsyncContextManager[Box]:
        """Connect or join the open connection; see the port."""
        return self._open(target)

    @asynccontextmanager
    async def _open(self, target: BoxTarget) -> AsyncIterator[Box]:
        self._market.advance()
        connection = self._connections.get(target.instance_id)
        if connection is None or not connection.usable():
            connection = await self._connect(target)
            self._connections[target.instance_id] = connection
        yield SimBox(connection)

    async def forget(self, instance_id: int) -> None:
        """Close the connection to an instance, if any."""
        connection = self._connections.pop(instance_id, None)
        if connection is not None:
            connection.closed = True
        await trio.lowlevel.checkpoint()

    def public_key(self) -> str:
        """Return the public half of the identity we use, as one OpenSSH line."""
        seed = hashlib.sha256(f"identity:{self._identity}".encode()).digest()
        blob = b"\0\0\0\x0bssh-ed25519" + b"\0\0\0\x20" + seed
        return f"ssh-ed25519 {base64.b64encode(blob).decode()} {self._identity}"

    # -- connecting ----------------------------------------------------------------------

    async def _connect(self, target: BoxTarget) -> "Connection":
        instance_id = target.instance_id
        what = f"ssh to instance {instance_id}"
        await self.travel(what)
        fault = self._faults.next(Point.BOX_OPEN, instance_id=instance_id)
        if fault is not None:
            await self._fail_to_connect(fault, what)
        contract = self._market.find(instance_id)
        if contract is None or not contract.alive or contract.stage is Stage.OFFLINE:
            await trio.sleep(CONNECT_TIMEOUT_S)
            raise SshTimeout(f"{what}: nobody answers at its addresses")
        ready_at = contract.sshd_at()
        if ready_at is None or self._market.advance() < ready_at:
            raise SshRefused(f"{what}: connection refused")
        if not contract.accepts(self.public_key()):
            raise SshAuthRejected(
                f"{what}: the key was not accepted", hint="attach the key to the instance"
            )
        endpoint = self._endpoint(target, contract, what)
        await self.travel(what)
        if self._faults.network_is_down():
            raise SshClosed(f"{what}: the connection broke while it was made")
        self.opened += 1
        return Connection(self, contract, endpoint)

    async def _fail_to_connect(self, fault: Fault, what: str) -> None:
        match fault.kind:
            case FaultKind.HOST_KEY:
                raise SshHostKeyChanged(f"{what}: it shows another host key than before")
            case FaultKind.AUTH_401 | FaultKind.AUTH_404:
                raise SshAuthRejected(f"{what}: the key was not accepted")
            case FaultKind.LOSE_REQUEST | FaultKind.TIMEOUT:
                await trio.sleep(min(fault.hang_s, CONNECT_TIMEOUT_S))
                raise SshTimeout(f"{what}: nobody answered")
            case _:
                raise SshRefused(f"{what}: connection refused")

    def _endpoint(self, target: BoxTarget, contract: Contract, what: str) -> Endpoint:
        """Return the first way that leads to sshd; every try is counted in `tried`."""
        refused = []
        for endpoint in prefer(endpoints(target.instance), target.first):
            self.tried.append((contract.instance_id, endpoint.route))
            direct = endpoint.route is Route.DIRECT
            stale = direct and endpoint.port != contract.direct_port
            if not stale and not (direct and contract.trouble.direct_refused):
                return endpoint
            refused.append(endpoint.route)
        why = f"{', '.join(refused)} refused" if refused else "the row names no address"
        raise SshRefused(f"{what}: no way leads to it ({why})")

    async def travel(self, what: str) -> None:
        """Spend the time of one way to a machine.

        Raises:
            SshClosed: this door was cut off.
        """
        await trio.sleep(self._rng.uniform(0.5, 1.5) * self._latency_s)
        if self._cut:
            raise SshClosed(f"{what}: this client was cut off")

    # -- what is on the machines ---------------------------------------------------------

    def now(self) -> float:
        """Return the true time, with the market brought up to it."""
        return self._market.advance()

    def fault(self, point: Point, instance_id: int) -> Fault | None:
        """Return the fault that strikes an operation, consuming it."""
        return self._faults.next(point, instance_id=instance_id)

    def network_is_down(self) -> bool:
        """Return whether our own network is down."""
        return self._faults.network_is_down()

    def disk(self, contract: Contract) -> SimDisk:
        """Return the disk an instance has now."""
        return self._disks.setdefault((contract.instance_id, contract.disk_id), SimDisk())

    def jobs_on(self, contract: Contract) -> list[SimJob]:
        """Return the jobs of the disk an instance has now, oldest first."""
        place = (contract.instance_id, contract.disk_id)
        return [job for (*where, _), job in self._jobs.items() if tuple(where) == place]

    def job(self, contract: Contract, job_id: str) -> SimJob | None:
        """Return a job of the disk an instance has now."""
        return self._jobs.get((contract.instance_id, contract.disk_id, job_id))

    def guard(self, contract: Contract, lease_s: float) -> SimGuard:
        """Return the guard of a machine, started by us if its start script did not."""
        if contract.guard is None:
            guard = SimGuard(contract, lease_s)
            guard.came_up(self.now())
            contract.guard = guard  # not before it has a lease: time itself asks it
        contract.guard.end_jobs = partial(self._end_jobs, contract)
        return contract.guard

    def _end_jobs(self, contract: Contract, term_at: float, kill_at: float) -> float:
        """Do what the guard does to the jobs of the container's run."""
        running = [
            job
            for job in self.jobs_on(contract)
            if job.boot_id == contract.boot_id and job.ended_at(term_at) is None
        ]
        for job in running:
            job.signal("TERM", term_at)
            job.signal("KILL", kill_at)
        return max((job.planned_end() for job in running), default=term_at)

    def start(self, contract: Contract, order: JobOrder) -> SimJob:
        """Start a job unless it was started on this disk before."""
        key = (contract.instance_id, contract.disk_id, order.job_id)
        if key not in self._jobs:
            if contract.guard is not None:
                contract.guard.uncollected.add(order.job_id)  # as the runner notes it
            self._jobs[key] = SimJob(order, contract, self.now(), pid=1_000 + len(self._jobs))
            self._tell_load(contract)
        return self._jobs[key]

    def signal(self, contract: Contract, job_id: str, name: str) -> None:
        """Signal a job; nothing happens when there is none or it has ended."""
        job = self.job(contract, job_id)
        if job is not None:
            job.signal(name, self.now())
            self._tell_load(contract)

    def _tell_load(self, contract: Contract) -> None:
        # What the listing shows as `gpu_util` follows from when the last job of this run ends.
        jobs = [job for job in self.jobs_on(contract) if job.boot_id == contract.boot_id]
        contract.busy_until = max((job.planned_end() for job in jobs), default=0.0)

    def skew_s(self, contract: Contract) -> float:
        """Return how far the machine's clock is ahead of the true one."""
        machine_id = contract.machine.machine_id
        rng = random.Random(f"skew:{self._market.world.seed}:{machine_id}")
        return round(rng.uniform(-CLOCK_SKEW_S, CLOCK_SKEW_S), 3)

    # -- truth for tests -----------------------------------------------------------------

    def ledger(self) -> list[JobRecord]:
        """Return every job that was ever started, oldest first."""
        now = self.now()
        return [
            JobRecord(
                job_id=job.order.job_id,
                instance_id=job.contract.instance_id,
                state=job.state(now),
                started_at=job.started_at,
                ended_at=job.ended_at(now),
                exit_code=job.exit_code(now),
                outputs=job.output_hashes(now),
                collected=dict(job.collected),
                disk_exists=job.contract.alive and job.disk_id == job.contract.disk_id,
            )
            for job in self._jobs.values()
        ]

    def finished_jobs(self) -> list[JobRecord]:
        """Return the jobs that ended with an exit code, oldest first."""
        return [record for record in self.ledger() if record.state is BoxJobState.EXITED]


class Connection:
    """An open way to one run of one container."""

    def __init__(self, boxes: SimBoxes, contract: Contract, endpoint: Endpoint) -> None:
        self.boxes = boxes
        self.contract = contract
        self.endpoint = endpoint
        self.closed = False
        self._boot_id = contract.boot_id

    def usable(self) -> bool:
        """Return whether the container it was made to is still up and it was not closed."""
        return not self.closed and self.contract.is_up and self.contract.boot_id == self._boot_id

    async def carry_out(
        self, point: Point, effect: Callable[[Fault | None], T], *, transfer_s: float = 0.0
    ) -> T:
        """Let `effect` happen on the machine; `transfer_s` passes before the answer is complete.

        Raises:
            SshError: the way broke; the effect may have happened.
        """
        boxes, instance_id = self.boxes, self.contract.instance_id
        what = f"{point.removeprefix('box.')} on instance {instance_id}"
        await boxes.travel(what)
        self._require_up(what)
        fault = boxes.fault(point, instance_id)
        if fault is not None and not self._passes(fault):
            await self._fail(fault, what)
        result = effect(fault)
        await trio.sleep(transfer_s)
        await boxes.travel(what)
        self._require_up(what)
        if boxes.network_is_down():
            await self._break(SshClosed(f"{what}: the network went down"))
        if fault is not None and fault.kind is FaultKind.LOSE_ANSWER:
            await self._break(SshClosed(f"{what}: the connection broke before the answer came"))
        return result

    def _passes(self, fault: Fault) -> bool:
        # These are expressed by the effect itself, or after it.
        kinds = (FaultKind.LOSE_ANSWER, FaultKind.DISK_FULL, FaultKind.TRUNCATED_PAGE)
        return fault.kind in kinds

    def _require_up(self, what: str) -> None:
        self.boxes.now()
        if not self.usable():
            self.closed = True
            raise SshClosed(f"{what}: the connection was closed")

    async def _fail(self, fault: Fault, what: str) -> None:
        if fault.kind in (FaultKind.LOSE_REQUEST, FaultKind.TIMEOUT):
            await trio.sleep(fault.hang_s if fault.kind is FaultKind.TIMEOUT else 0.0)
            await self._break(SshTimeout(f"{what}: nobody answered"))
        await self._break(SshClosed(f"{what}: the connection broke"))

    async def _break(self, error: SshError) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()
        raise error
