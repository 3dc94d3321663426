"""A machine over SSH: the box port on one connection, one runner and one way for files."""

import shlex
from pathlib import Path

from vastd.core.lease import LeaseFacts, LeaseTerms
from vastd.errors import InvalidRequest
from vastd.jobs import collect, paths_copy, sync
from vastd.jobs.carrier import Carrier
from vastd.jobs.facts import parse_facts, parse_lease, parse_snapshot
from vastd.jobs.guard import core_text, guard_text, hold_arguments
from vastd.jobs.paths import check_job_id
from vastd.jobs.port import (
    BoxFacts,
    CollectOrder,
    CollectReport,
    ExecResult,
    JobOrder,
    JobSnapshot,
    Progress,
    ProjectSource,
    SyncReport,
)
from vastd.jobs.remote_shell import RemoteShell, bounded
from vastd.jobs.sync import KnownFiles
from vastd.ssh.port import SshConnection

_NONE = "-"  # how the runner is told that there is nothing
_SIGNALS = frozenset({"TERM", "KILL"})


class SshBox:
    """Implements `jobs.port.Box`; made by `SshBoxes`, lives as long as its connection."""

    def __init__(self, shell: RemoteShell, carrier: Carrier, known: KnownFiles) -> None:
        self._shell = shell
        self._carrier = carrier
        self._known = known
        self._installed = False

    @property
    def connection(self) -> SshConnection:
        return self._shell.connection

    async def probe(self) -> BoxFacts:
        body = await self._shell.call("vastd_probe", self._shell.workspace)
        return parse_facts(body, self.connection.endpoint)

    async def prepare(self) -> None:
        await self._shell.install()
        self._installed = True

    async def hold_lease(self, terms: LeaseTerms) -> LeaseFacts:
        guard = guard_text()
        # What ends the jobs needs the runner's functions, whatever becomes of the runner's file.
        whole = f"{self._shell.runner}\n{guard}"
        arguments = hold_arguments(terms, core_text(), whole, self._shell.workspace)
        body = await self._shell.call("vastd_lease_hold", *arguments, library=guard)
        return parse_lease(body)

    async def drop_lease(self) -> None:
        await self._shell.call("vastd_lease_drop", library=guard_text())

    async def push_project(self, source: ProjectSource, progress: Progress) -> SyncReport:
        await self._ensure_prepared()
        return await sync.push_project(self._shell, self._carrier, source, progress, self._known)

    async def start_job(self, order: JobOrder) -> None:
        job_id = check_job_id(order.job_id)
        environment = env_file(order.env)
        if not order.command:
            raise InvalidRequest(f"the job {job_id!r} has no command")
        await self._ensure_prepared()
        gpus = _NONE if order.gpu_indices is None else ",".join(map(str, order.gpu_indices))
        await self._shell.call(
            "vastd_start",
            self._shell.workspace,
            job_id,
            self._shell.runner_path,
            _plain_path(order.heartbeat_path),
            gpus,
            environment,
            f"exec {shlex.join(order.command)}",
        )

    async def job_snapshot(self, job_id: str) -> JobSnapshot:
        body = await self._shell.call("vastd_snapshot", self._shell.workspace, check_job_id(job_id))
        return parse_snapshot(body)

    async def read_log(self, job_id: str, offset: int, limit: int) -> bytes:
        assert offset >= 0
        return await self._shell.call(
            "vastd_log",
            self._shell.workspace,
            check_job_id(job_id),
            str(offset),
            str(limit),
            limit_bytes=limit,
        )

    async def signal_job(self, job_id: str, signal_name: str) -> None:
        assert signal_name in _SIGNALS
        await self._shell.call(
            "vastd_signal", self._shell.workspace, check_job_id(job_id), signal_name
        )

    async def collect(self, order: CollectOrder, progress: Progress) -> CollectReport:
        return await collect.collect(self._shell, self._carrier, order, progress)

    async def push_paths(self, sources: list[Path], destination: str, progress: Progress) -> int:
        return await paths_copy.push_paths(
            self._shell, self._carrier, sources, destination, progress
        )

    async def pull_paths(self, sources: list[str], destination: Path, progress: Progress) -> int:
        return await paths_copy.pull_paths(
            self._shell, self._carrier, sources, destination, progress
        )

    async def run(self, command: str, *, timeout_s: float, limit_bytes: int) -> ExecResult:
        result = await self.connection.run(
            bounded(command, timeout_s), timeout_s=timeout_s, limit_bytes=limit_bytes
        )
        return ExecResult(
            exit_code=result.exit_code,
            stdout=result.stdout,
            stderr=result.stderr,
            truncated=result.truncated,
        )

    async def _ensure_prepared(self) -> None:
        # Once per connection: a recycled machine comes with a new connection.
        if not self._installed:
            await self.prepare()


def env_file(env: dict[str, str]) -> str:
    """Return the shell lines that set a job's environment.

    Raises:
        InvalidRequest: a name is no shell variable, or a value holds a NUL.
    """
    for name, value in env.items():
        plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
        if not name or not plain:
            raise InvalidRequest(f"{name!r} cannot be the name of an environment variable")
        if "\0" in value:
            raise InvalidRequest(f"the value of {name!r} holds a NUL byte")
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items()) or ":"


def _plain_path(path: str | None) -> str:
    if not path:
        return _NONE
    if "\n" in path or "\0" in path:
        raise InvalidRequest(f"the heartbeat path {path!r} holds control characters")
    # Nothing on the machine may take it for an option.
    return path if path.startswith("/") else f"./{path}"
