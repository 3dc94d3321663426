"""Bringing a job's outputs home, verified on both sides; the machine may be destroyed after.

Rules
1. A file counts only when the SHA-256 the machine computed is the one computed here.
2. What changes or appears during the copy is listed and copied again, a few times; a log
   that keeps growing is taken as it was at one moment.
3. Names from the machine are data: one that climbs out ends the collection.
"""

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Final

import trio

from vastd.errors import TransferFailed
from vastd.jobs.carrier import Carrier
from vastd.jobs.outputs import Outputs
from vastd.jobs.paths import check_job_id
from vastd.jobs.placement import Placement
from vastd.jobs.port import CollectedFile, CollectOrder, CollectReport, Progress
from vastd.jobs.remote_files import RemoteFile, hash_files, list_files
from vastd.jobs.remote_shell import RemoteShell

STEP: Final = "collect"
_ROUNDS: Final = 4  # guess: one copy, one for what appeared meanwhile, and some patience
_SYNC_TIMEOUT_S: Final = 60.0  # guess; only a slow disk needs more, and it goes on anyway
_NAMED_IN_ERRORS: Final = 5


async def collect(
    shell: RemoteShell, carrier: Carrier, order: CollectOrder, progress: Progress
) -> CollectReport:
    """Copy every declared output that exists, verify it, and list those that do not.

    On return the files are on disk, not only in memory.

    Raises:
        SshError: the way broke; repeat to resume.
        TransferFailed: something could not be verified or written: keep the machine.
        UnsafePath: an output, a name from the machine, or a local link leads elsewhere.
    """
    job_id = None if order.job_id is None else check_job_id(order.job_id)
    outputs = Outputs(order.outputs, job_id)
    placement = Placement(order.destination, f"before-{job_id or 'collect'}")
    placement.prepare()
    gatherer = _Gatherer(shell, carrier, outputs, placement, progress)
    listed = await gatherer.gather()
    placement.finish()
    await flush_to_disk(order.destination)
    files = [gatherer.home[file.name] for file in listed]
    total = sum(file.bytes for file in files)
    progress(STEP, total, total, "bytes")
    return CollectReport(
        files=sorted(files, key=lambda file: file.path),
        missing=outputs.missing([os.fsdecode(file.name) for file in listed]),
        bytes=total,
        earlier=await _earlier(shell, job_id, listed),
    )


async def _earlier(shell: RemoteShell, job_id: str | None, listed: list[RemoteFile]) -> int:
    """Return how many files an earlier job or the project left: both times are the machine's."""
    if job_id is None:
        return 0
    path = f"{shell.workspace}/.vastd/jobs/{job_id}/started_at"
    answer = await shell.pipe('cat -- "$1" 2>/dev/null', path)
    began = answer.body.strip()
    if not began.isdigit():
        return 0  # it never started there, so nobody can say
    return sum(1 for file in listed if file.mtime < int(began))


class _Gatherer:
    def __init__(
        self,
        shell: RemoteShell,
        carrier: Carrier,
        outputs: Outputs,
        placement: Placement,
        progress: Progress,
    ) -> None:
        self._shell = shell
        self._carrier = carrier
        self._outputs = outputs
        self._placement = placement
        self._progress = progress
        self._seen: dict[bytes, tuple[int, int]] = {}  # size and time of the verified state
        self.home: dict[bytes, CollectedFile] = {}  # by remote name

    async def gather(self) -> list[RemoteFile]:
        """Copy until a fresh listing shows nothing new; return that listing."""
        for _ in range(_ROUNDS):
            listed = await self._list()
            fresh = [f for f in listed if self._seen.get(f.name) != (f.bytes, f.mtime)]
            if not fresh:
                return listed
            await self._bring_home(fresh)
        # A file that was verified once and changes again is home as it was at that moment.
        lost = [os.fsdecode(file.name) for file in listed if file.name not in self.home]
        if lost:
            raise TransferFailed(
                f"{len(lost)} files could not be verified after {_ROUNDS} copies: "
                f"{', '.join(lost[:_NAMED_IN_ERRORS])}",
                hint="the machine keeps them: end the job that writes to them, or check that "
                "they can be read there, then collect again",
            )
        return listed

    async def _list(self) -> list[RemoteFile]:
        found = await list_files(self._shell, self._shell.workspace, self._outputs.shell_words())
        return [file for file in found if self._outputs.wanted(os.fsdecode(file.name))]

    async def _bring_home(self, files: list[RemoteFile]) -> None:
        names = [file.name for file in files]
        total = sum(file.bytes for file in files)
        sums = await hash_files(self._shell, self._shell.workspace, names, total)
        away = [f for f in files if f.name in sums and not await self._is_home(f, sums[f.name])]
        self._placement.check_space(sum(file.bytes for file in away))
        await self._carrier.fetch(
            self._shell.workspace, self._placement.staging, away, STEP, self._progress
        )
        for file in away:
            staged = self._placement.staging / os.fsdecode(file.name)
            if await self._placement.accept(staged, file.bytes, sums[file.name]):
                await self._placement.place(staged, self._home_name(file))
                self._note(file, sums[file.name])
            else:
                # The next round starts from nothing instead of from a wrong beginning.
                with contextlib.suppress(OSError):
                    staged.unlink(missing_ok=True)

    async def _is_home(self, file: RemoteFile, digest: str) -> bool:
        if not await self._placement.is_home(self._home_name(file), file.bytes, digest):
            return False
        self._note(file, digest)
        return True

    def _note(self, file: RemoteFile, digest: str) -> None:
        self._seen[file.name] = (file.bytes, file.mtime)
        self.home[file.name] = CollectedFile(
            path=self._home_name(file), bytes=file.bytes, sha256=digest
        )

    def _home_name(self, file: RemoteFile) -> str:
        return self._outputs.home_name(os.fsdecode(file.name))


async def flush_to_disk(directory: Path) -> None:
    """Ask for everything written there to reach the disk, in a process, for it may take long."""
    with trio.move_on_after(_SYNC_TIMEOUT_S), contextlib.suppress(OSError):
        await trio.run_process(
            ["sync", "-f", str(directory)], check=False, stderr=subprocess.DEVNULL
        )
