"""One open way to a simulated machine: the operations of the box port."""

import posixpath
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vastd.core.lease import LeaseFacts, LeaseTerms
from vastd.errors import HardwareMismatch, RemoteCommandFailed, TransferFailed
from vastd.jobs.port import (
    BoxFacts,
    BoxJobState,
    CollectedFile,
    CollectOrder,
    CollectReport,
    ExecResult,
    GpuFacts,
    JobOrder,
    JobSnapshot,
    Progress,
    ProjectSource,
    SyncReport,
)
from vastd.simulator import box_disk, flaws
from vastd.simulator.box_disk import PROJECT_ROOT
from vastd.simulator.faults import Fault, FaultKind, Point

if TYPE_CHECKING:  # a cycle only for the type checker: connections make boxes
    from vastd.simulator.boxes import Connection

BYTES_PER_MBIT: Final = 125_000


class SimBox:
    """A machine as one connection sees it. Implements `vastd.jobs.port.Box`."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._contract = connection.contract
        self._boxes = connection.boxes

    # -- looking -------------------------------------------------------------------------

    async def probe(self) -> BoxFacts:
        """Prove that commands run and GPUs answer; see the port."""
        return await self._connection.carry_out(Point.BOX_PROBE, lambda _: self._facts())

    def _facts(self) -> BoxFacts:
        contract, machine = self._contract, self._contract.machine
        if contract.trouble.broken_gpu:
            raise HardwareMismatch(
                f"instance {contract.instance_id}: nvidia-smi could not talk to the driver"
            )
        gpu = GpuFacts(
            name=contract.trouble.wrong_gpu or machine.gpu.nvidia_name,
            memory_mib=flaws.gpu_ram_mb(contract),
            memory_used_mib=3,
            util_percent=0.0,
            driver_version=machine.driver_version,
        )
        return BoxFacts(
            route=self._connection.endpoint.route,
            endpoint=self._connection.endpoint,
            gpus=[gpu] * contract.chunk.num_gpus,
            cuda_version=str(flaws.cuda(contract)),
            toolkit_version=None,
            disk_free_bytes=self._disk_free(),
            has_rsync=True,
            has_tmux=True,
            box_clock=self._boxes.now() + self._boxes.skew_s(contract),
        )

    def _disk_free(self) -> int:
        if self._contract.trouble.disk_full:
            return 0
        size = round(flaws.disk_gb(self._contract) * 1_000_000_000)
        return max(0, size - self._boxes.disk(self._contract).used_bytes())

    async def prepare(self) -> None:
        """Make the workspace; see the port."""

        def effect(_: Fault | None) -> None:
            if self._contract.trouble.disk_full:
                raise RemoteCommandFailed(
                    f"prepare on instance {self._contract.instance_id}: no space left on device",
                    exit_code=1,
                    stderr="mkdir: cannot create directory: No space left on device",
                )

        await self._connection.carry_out(Point.BOX_PREPARE, effect)

    async def hold_lease(self, terms: LeaseTerms) -> LeaseFacts:
        """Renew the lease; see the port."""

        def effect(_: Fault | None) -> LeaseFacts:
            now = self._boxes.now()
            guard = self._boxes.guard(self._contract, terms.lease_s)
            guard.renew(terms, now)
            return guard.facts(now, self._boxes.skew_s(self._contract))

        return await self._connection.carry_out(Point.BOX_LEASE, effect)

    async def drop_lease(self) -> None:
        """Call the guard off; see the port."""

        def effect(_: Fault | None) -> None:
            self._contract.guard = None

        await self._connection.carry_out(Point.BOX_LEASE, effect)

    def _require_space(self, what: str) -> None:
        if self._contract.trouble.disk_full:
            raise TransferFailed(
                f"{what} on instance {self._contract.instance_id}: no space left on device"
            )

    # -- the project ---------------------------------------------------------------------

    async def push_project(self, source: ProjectSource, progress: Progress) -> SyncReport:
        """Bring the project on the machine in step with the local one; see the port."""
        files, secrets = box_disk.read_project(source)
        total = sum(map(len, files.values()))
        progress("sync", 0, total, "bytes")
        stored = self._boxes.disk(self._contract)
        changed = {
            name: data
            for name, data in files.items()
            if stored.files.get(f"{PROJECT_ROOT}/{name}") != data
        }

        def effect(fault: Fault | None) -> int:
            self._require_space("sync")
            _require_whole(fault, "sync")
            return sum(stored.put(f"{PROJECT_ROOT}/{name}", data) for name, data in files.items())

        sent = await self._connection.carry_out(
            Point.BOX_PUSH, effect, transfer_s=self._down_s(changed.values())
        )
        progress("sync", total, total, "bytes")
        return SyncReport(files=len(files), bytes=total, files_sent=sent, secrets_kept=secrets)

    def _down_s(self, blobs: Iterable[bytes]) -> float:
        speed = self._contract.machine.inet_down_mbps * BYTES_PER_MBIT
        return sum(map(len, blobs)) / speed

    def _up_s(self, blobs: Iterable[bytes]) -> float:
        speed = self._contract.machine.inet_up_mbps * BYTES_PER_MBIT
        return sum(map(len, blobs)) / speed

    # -- the job -------------------------------------------------------------------------

    async def start_job(self, order: JobOrder) -> None:
        """Start the job detached, once; see the port."""
        await self._connection.carry_out(
            Point.BOX_START_JOB, lambda _: self._boxes.start(self._contract, order)
        )

    async def job_snapshot(self, job_id: str) -> JobSnapshot:
        """Look at the job; see the port."""

        def effect(_: Fault | None) -> JobSnapshot:
            now, skew = self._boxes.now(), self._boxes.skew_s(self._contract)
            job = self._boxes.job(self._contract, job_id)
            if job is None:
                return JobSnapshot(
                    state=BoxJobState.ABSENT,
                    box_clock=now + skew,
                    disk_free_bytes=self._disk_free(),
                )
            return job.snapshot(now, skew, self._disk_free())

        return await self._connection.carry_out(Point.BOX_SNAPSHOT, effect)

    async def read_log(self, job_id: str, offset: int, limit: int) -> bytes:
        """Return a piece of the job's log; see the port."""

        def effect(_: Fault | None) -> bytes:
            job = self._boxes.job(self._contract, job_id)
            return b"" if job is None else job.log(self._boxes.now(), offset, limit)

        return await self._connection.carry_out(Point.BOX_READ_LOG, effect)

    async def signal_job(self, job_id: str, signal_name: str) -> None:
        """Send TERM or KILL; see the port."""
        await self._connection.carry_out(
            Point.BOX_SIGNAL, lambda _: self._boxes.signal(self._contract, job_id, signal_name)
        )

    # -- results -------------------------------------------------------------------------

    def _project_files(self) -> dict[str, bytes]:
        now = self._boxes.now()
        files = self._boxes.disk(self._contract).below(PROJECT_ROOT)
        for job in self._boxes.jobs_on(self._contract):
            files.update(job.outputs(now))
        return files

    async def collect(self, order: CollectOrder, progress: Progress) -> CollectReport:
        """Bring outputs home; see the port."""
        found, missing = box_disk.select(self._project_files(), order.outputs)
        total = sum(map(len, found.values()))
        progress("collect", 0, total, "bytes")
        keep_as = order.job_id or "collect"

        def effect(fault: Fault | None) -> list[CollectedFile]:
            if fault is not None and fault.kind is FaultKind.DISK_FULL:
                raise TransferFailed(f"cannot write below {str(order.destination)!r}: disk full")
            _require_whole(fault, "collect")
            return [
                box_disk.write_local(order.destination, name, data, keep_as)
                for name, data in sorted(found.items())
            ]

        files = await self._connection.carry_out(
            Point.BOX_COLLECT, effect, transfer_s=self._up_s(found.values())
        )
        # Home counts only what the caller was told of: a lost answer means collecting again.
        for job in self._boxes.jobs_on(self._contract):
            mine = job.outputs(self._boxes.now())
            job.collected.update({file.path: file.sha256 for file in files if file.path in mine})
        progress("collect", total, total, "bytes")
        return CollectReport(files=files, missing=missing, bytes=total)

    # -- copying by hand -----------------------------------------------------------------

    async def push_paths(self, sources: list[Path], destination: str, progress: Progress) -> int:
        """Copy local files to an absolute remote directory; see the port."""
        root = box_disk.safe_destination(destination)
        files: dict[str, bytes] = {}
        for source in sources:
            files.update(box_disk.read_tree(source))
        total = sum(map(len, files.values()))
        progress("push", 0, total, "bytes")

        def effect(fault: Fault | None) -> None:
            self._require_space("push")
            _require_whole(fault, "push")
            for name, data in files.items():
                self._boxes.disk(self._contract).put(posixpath.join(root, name), data)

        await self._connection.carry_out(
            Point.BOX_COPY, effect, transfer_s=self._down_s(files.values())
        )
        progress("push", total, total, "bytes")
        return total

    async def pull_paths(self, sources: list[str], destination: Path, progress: Progress) -> int:
        """Copy remote files into a local directory; see the port."""
        project = {f"{PROJECT_ROOT}/{name}": data for name, data in self._project_files().items()}
        everything = {**self._boxes.disk(self._contract).files, **project}
        wanted = [posixpath.join(PROJECT_ROOT, source) for source in sources]
        files: dict[str, bytes] = {}
        for path in wanted:
            parent = posixpath.dirname(posixpath.normpath(path)).rstrip("/") + "/"
            found, missing = box_disk.select(everything, [path])
            if missing:
                raise TransferFailed(f"{path!r} does not exist on the machine")
            files.update({name.removeprefix(parent): data for name, data in found.items()})
        total = sum(map(len, files.values()))
        progress("pull", 0, total, "bytes")

        def effect(fault: Fault | None) -> None:
            _require_whole(fault, "pull")
            for name, data in files.items():
                box_disk.write_local(destination, name, data, "pull")

        await self._connection.carry_out(
            Point.BOX_COPY, effect, transfer_s=self._up_s(files.values())
        )
        progress("pull", total, total, "bytes")
        return total

    # -- commands ------------------------------------------------------------------------

    async def run(self, command: str, *, timeout_s: float, limit_bytes: int) -> ExecResult:
        """Run one of the few commands a machine in memory knows; see the port."""

        def effect(_: Fault | None) -> ExecResult:
            code, out, err = self._execute(command)
            return ExecResult(
                exit_code=code,
                stdout=out[:limit_bytes],
                stderr=err[:limit_bytes],
                truncated=len(out) > limit_bytes or len(err) > limit_bytes,
            )

        return await self._connection.carry_out(Point.BOX_RUN, effect)

    def _execute(self, command: str) -> tuple[int, bytes, bytes]:
        try:
            argv = shlex.split(command)
        except ValueError as exc:
            return 2, b"", f"sh: {exc}\n".encode()
        match argv:
            case [] | ["true"]:
                return 0, b"", b""
            case ["false"]:
                return 1, b"", b""
            case ["exit", code] if code.isdecimal():
                return int(code) % 256, b"", b""
            case ["echo", *words]:
                return 0, (" ".join(words) + "\n").encode(), b""
            case ["hostname"]:
                return 0, f"C.{self._contract.instance_id}\n".encode(), b""
            case ["cat", path]:
                path = posixpath.join(PROJECT_ROOT, path)
                data = self._boxes.disk(self._contract).files.get(path)
                if data is None:
                    return 1, b"", f"cat: {path}: No such file or directory\n".encode()
                return 0, data, b""
            case ["nvidia-smi", *_]:
                gpus = self._facts().gpus
                lines = [f"{gpu.name}, {gpu.memory_mib} MiB\n" for gpu in gpus]
                return 0, "".join(lines).encode(), b""
            case _:
                return 127, b"", f"sh: {argv[0]}: command not found\n".encode()


def _require_whole(fault: Fault | None, what: str) -> None:
    if fault is not None and fault.kind is FaultKind.TRUNCATED_PAGE:
        raise TransferFailed(f"{what}: a file arrived short, its checksum does not match")
