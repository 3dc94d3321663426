"""The box port: what vastd does on a rented machine, as meaning rather than shell commands.

Implemented over SSH by `jobs.ssh_box` and on virtual time by the simulator, so that the
supervisor and its effects are the same code in production and in simulation tests.

Rules
1. Every operation may be repeated: starting a job twice starts it once, collecting twice
   copies what is missing.
2. Every failure to reach the machine is an `SshError`; it says nothing about the job.
3. Times named `box_…` are epoch seconds on the *machine's* clock, which may be minutes off.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from vastd.core.lease import LeaseFacts, LeaseTerms
from vastd.core.market import Instance

Progress = Callable[[str, int, int | None, str], None]
"""`(step, done, total, unit)`: called often, must not block; `total` is None when unknown."""


class Route(StrEnum):
    """How we reach the machine's sshd."""

    DIRECT = "direct"
    PROXY = "proxy"


class Endpoint(Struct, frozen=True, kw_only=True):
    """One address at which the instance's sshd may answer."""

    host: str
    port: int
    user: str = "root"
    route: Route


class BoxTarget(Struct, frozen=True, kw_only=True):
    """Which machine is meant, and where it may answer."""

    rental_id: str
    instance_id: int
    instance: Instance  # the newest row seen; endpoints are computed from it
    first: Route | None = None  # which way worked on this machine before


class GpuFacts(Struct, frozen=True, kw_only=True):
    """One line of `nvidia-smi`."""

    name: str
    memory_mib: int
    memory_used_mib: int | None = None
    util_percent: float | None = None
    driver_version: str | None = None


class BoxFacts(Struct, frozen=True, kw_only=True):
    """What the machine says of itself at verification."""

    route: Route
    endpoint: Endpoint
    gpus: list[GpuFacts]
    cuda_version: str | None = None  # as nvidia-smi shows it: driver level
    toolkit_version: str | None = None  # nvcc; None on runtime images
    disk_free_bytes: int
    has_rsync: bool
    has_tmux: bool
    box_clock: float


class JobOrder(Struct, frozen=True, kw_only=True):
    """What to start. `env` goes into a file of mode 0600 on the machine, never into argv."""

    job_id: str
    command: list[str]  # argv, run from the project directory
    env: dict[str, str] = field(default_factory=dict)
    heartbeat_path: str | None = None  # on the machine; relative to the project directory
    gpu_indices: list[int] | None = None  # None: all


class BoxJobState(StrEnum):
    """What the runner's files say; never what the multiplexer says."""

    ABSENT = "absent"  # no such job was ever started here
    RUNNING = "running"
    EXITED = "exited"  # `exit_code` is known
    DIED = "died"  # the process is gone and left no exit code (SIGKILL, reboot)


class Heartbeat(Struct, frozen=True, kw_only=True):
    """The job's own sign of life (SCHEMAS 9). NaN and partial files yield None fields."""

    epoch: float | None = None
    step: int | None = None
    loss: float | None = None
    timestamp: str | None = None


class JobSnapshot(Struct, frozen=True, kw_only=True):
    """One look at a job. `box_clock` is taken in the same look."""

    state: BoxJobState
    box_clock: float
    pid: int | None = None
    exit_code: int | None = None  # 128 + n when signal n ended it
    box_started_at: float | None = None
    box_ended_at: float | None = None
    log_bytes: int = 0  # size of the log on the machine
    heartbeat: Heartbeat | None = None
    box_heartbeat_at: float | None = None  # mtime of the heartbeat file
    gpu_util: float | None = None  # percent, mean over GPUs
    disk_free_bytes: int | None = None


class ProjectSource(Struct, frozen=True, kw_only=True):
    """What to send: a local directory, minus what must stay home."""

    root: Path
    include: list[str] = field(default_factory=list)  # named on purpose, even if secret-looking
    exclude: list[str] = field(default_factory=list)  # gitignore patterns on top of the defaults


class SyncReport(Struct, frozen=True, kw_only=True):
    """What a sync did. `secrets_kept` lists files that stayed home because they look secret."""

    files: int
    bytes: int
    files_sent: int
    secrets_kept: list[str] = field(default_factory=list)
    method: str = "rsync"  # or "sftp"


class CollectOrder(Struct, frozen=True, kw_only=True):
    """What to bring home: paths or globs relative to the remote project directory.

    `destination` mirrors the remote project directory. Local files are never deleted; one that
    differs is kept beside the new one as `NAME.before-JOB_ID`.
    """

    job_id: str | None
    outputs: list[str]
    destination: Path


class CollectedFile(Struct, frozen=True, kw_only=True):
    """One file that is home, the same on both sides."""

    path: str  # relative to the destination
    bytes: int
    sha256: str


class CollectReport(Struct, frozen=True, kw_only=True):
    """A collection that was verified. `missing` lists declared outputs that do not exist there;
    `earlier` counts files that were there, as they are, before the job began."""

    files: list[CollectedFile]
    missing: list[str] = field(default_factory=list)
    bytes: int = 0
    earlier: int = 0


class ExecResult(Struct, frozen=True, kw_only=True):
    """The end of one remote command."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False


class Box(Protocol):
    """An open way to one machine."""

    async def probe(self) -> BoxFacts:
        """Prove that commands run and GPUs answer (nvidia-smi plus a sentinel line).

        Raises:
            SshError: not reachable, or commands do not run.
            HardwareMismatch: nvidia-smi does not work there.
        """
        ...

    async def prepare(self) -> None:
        """Make the workspace, install the runner, switch off the login tmux. Repeatable."""
        ...

    async def hold_lease(self, terms: LeaseTerms) -> LeaseFacts:
        """Tell the machine's guard its lease, starting the guard if it does not run; return what is
        in force there, read back.

        Raises:
            SshError: unknown whether the lease was renewed; repeat.
        """
        ...

    async def drop_lease(self) -> None:
        """Call the machine's guard off, also for its next starts: somebody else answers for it.

        Raises:
            SshError: unknown whether it was.
        """
        ...

    async def push_project(self, source: ProjectSource, progress: Progress) -> SyncReport:
        """Bring the project directory on the machine in step with `source`.

        Raises:
            SshError: the way broke; repeat to resume.
            TransferFailed: what arrived does not match, or the disk is full.
        """
        ...

    async def start_job(self, order: JobOrder) -> None:
        """Start the job detached, once. On return its runner has recorded a pid.

        Raises:
            SshError: unknown whether it started; look with `job_snapshot`, then repeat.
        """
        ...

    async def job_snapshot(self, job_id: str) -> JobSnapshot:
        """Look at the job's files, its process and its heartbeat."""
        ...

    async def read_log(self, job_id: str, offset: int, limit: int) -> bytes:
        """Return up to `limit` bytes of the job's log from byte `offset`; empty at the end."""
        ...

    async def signal_job(self, job_id: str, signal_name: str) -> None:
        """Send TERM or KILL to the job's whole process group; nothing happens if it is gone."""
        ...

    async def collect(self, order: CollectOrder, progress: Progress) -> CollectReport:
        """Bring outputs home and verify size and SHA-256 of every file on both sides.

        Raises:
            SshError: the way broke; repeat to resume.
            TransferFailed: a file does not match or cannot be written: keep the machine.
        """
        ...

    async def push_paths(self, sources: list[Path], destination: str, progress: Progress) -> int:
        """Copy local files or directories to an absolute remote directory; return bytes.

        Raises:
            UnsafePath: `/`, `/root` or anything that normalises to them.
        """
        ...

    async def pull_paths(self, sources: list[str], destination: Path, progress: Progress) -> int:
        """Copy remote files or directories into a local directory; never deletes; return bytes."""
        ...

    async def run(self, command: str, *, timeout_s: float, limit_bytes: int) -> ExecResult:
        """Run one shell command without input and return its capped output."""
        ...


class Boxes(Protocol):
    """The door to all machines. Connections are kept and shared per instance."""

    def open(self, target: BoxTarget) -> AbstractAsyncContextManager[Box]:
        """Connect (direct first, then proxy) or join the open connection.

        Entering makes one attempt per endpoint and raises the `SshError` of the last one.
        """
        ...

    async def forget(self, instance_id: int) -> None:
        """Close the connection to an instance, if any; called before destroy and on new ports."""
        ...

    def public_key(self) -> str:
        """Return the public half of the identity we use, as one OpenSSH line."""
        ...
