"""Carrying files to and from one machine: by rsync when both ends have it, else over SFTP.

Rules
1. Both ways take the same list of names and leave the same tree.
2. Both resume: rsync from its partial directory, SFTP from the length of its partial file.
3. Neither is believed: whoever calls compares checksums afterwards.
"""

import logging
import os
import posixpath
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from vastd.errors import TransferFailed
from vastd.jobs.parallel import for_each
from vastd.jobs.port import Progress
from vastd.jobs.remote_files import RemoteFile
from vastd.jobs.remote_shell import RemoteShell
from vastd.jobs.rsync import RsyncJob, RsyncLink, RsyncUnusable, copy, local_rsync_works
from vastd.jobs.selection import SelectedFile
from vastd.ssh.port import SftpFiles, Upload

logger = logging.getLogger(__name__)

_SFTP_WORKERS: Final = 16  # guess: hides round trips of small files, few open files
_RESUMED_FROM_BYTES: Final = 1024 * 1024  # guess: smaller files cost less than asking for them
_PARTIAL_SUFFIX: Final = ".vastd-part"
# Up to this, SFTP is done before rsync has begun: logging in again takes a dozen round trips, a
# file over SFTP five, and 16 files share them.
_FEW_FILES: Final = 32
_FEW_BYTES: Final = 1024 * 1024  # guess: above it, rsync's saving of what did not change may pay


class Sent(Struct, frozen=True, kw_only=True):
    """What a copy did: how many files went, by "rsync" or "sftp"."""

    files: int
    method: str


class Carrier:
    """The way for files between here and one machine; remembers which method works."""

    def __init__(self, shell: RemoteShell, link: RsyncLink, *, use_rsync: bool | None) -> None:
        self._shell = shell
        self._link = link
        self._use_rsync = use_rsync  # None until both ends were asked

    async def method(self) -> str:
        """Return "rsync" or "sftp", asking both ends the first time."""
        if self._use_rsync is None:
            there = await self._shell.pipe("command -v rsync >/dev/null")
            self._use_rsync = there.exit_code == 0 and await local_rsync_works()
        return "rsync" if self._use_rsync else "sftp"

    async def send(
        self,
        local_root: Path,
        remote_root: str,
        files: Sequence[SelectedFile],
        step: str,
        progress: Progress,
        *,
        compare: bool = False,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
        few_by_sftp: bool = False,
    ) -> Sent:
        """Copy files to the same names below an existing remote directory.

        `compare` sends again what sizes and times call equal. `meanwhile` is done before anything
        is copied, while rsync connects (`rsync.copy`). `few_by_sftp` sends a few small files, all
        of them, over the connection that is open already.
        """
        meter = _Meter(step, files, progress)
        if few_by_sftp and _are_few(files):
            try:
                return await self._send_by_sftp(remote_root, files, meter, meanwhile)
            except TransferFailed as exc:
                if await self.method() != "rsync":
                    raise
                logger.info("sftp failed with this machine, going on with rsync: %s", exc)
        if files and await self.method() == "rsync":
            job = self._job_to(remote_root, local_root, files, step)
            try:
                sent = await copy(self._link, job, progress, compare=compare, meanwhile=meanwhile)
                return Sent(files=sent, method="rsync")
            except RsyncUnusable as exc:
                self._give_up_rsync(exc)
                meanwhile = None  # it was done
        return await self._send_by_sftp(remote_root, files, meter, meanwhile)

    def _job_to(
        self, remote_root: str, local_root: Path, files: Sequence[SelectedFile], step: str
    ) -> RsyncJob:
        return RsyncJob(
            source=f"{local_root}/",
            target=self._link.place(remote_root),
            names=[os.fsencode(file.path) for file in files],
            total_bytes=sum(file.bytes for file in files),
            step=step,
            keep_modes=True,
        )

    async def fetch(
        self,
        remote_root: str,
        local_root: Path,
        files: Sequence[RemoteFile],
        step: str,
        progress: Progress,
    ) -> None:
        """Copy files below a remote directory to the same names below a local one."""
        if files and await self.method() == "rsync":
            job = RsyncJob(
                source=self._link.place(remote_root),
                target=f"{local_root}/",
                names=[file.name for file in files],
                total_bytes=sum(file.bytes for file in files),
                step=step,
            )
            try:
                await copy(self._link, job, progress, compare=True)
            except RsyncUnusable as exc:
                self._give_up_rsync(exc)
            else:
                return
        await self._fetch_by_sftp(remote_root, local_root, files, _Meter(step, files, progress))

    def _give_up_rsync(self, reason: RsyncUnusable) -> None:
        logger.info("rsync is no use with this machine, going on over sftp: %s", reason)
        self._use_rsync = False

    async def _send_by_sftp(
        self,
        remote_root: str,
        files: Sequence[SelectedFile],
        meter: "_Meter",
        meanwhile: Callable[[], Awaitable[None]] | None,
    ) -> Sent:
        if not files:
            if meanwhile is not None:
                await meanwhile()
            return Sent(files=0, method=await self.method())

        async def directories() -> None:
            parents = [posixpath.dirname(file.path) for file in files]
            await make_dirs(self._shell, remote_root, parents)

        steps = [directories] if meanwhile is None else [meanwhile, directories]
        await for_each(steps, lambda step: step(), len(steps))
        async with self._shell.connection.open_sftp() as sftp:

            async def send_one(file: SelectedFile) -> None:
                await _upload(sftp, os.fsencode(remote_root), file, meter.add)

            await for_each(files, send_one, _SFTP_WORKERS)
        return Sent(files=len(files), method="sftp")

    async def _fetch_by_sftp(
        self, remote_root: str, local_root: Path, files: Sequence[RemoteFile], meter: "_Meter"
    ) -> None:
        if not files:
            return
        async with self._shell.connection.open_sftp() as sftp:

            async def fetch_one(file: RemoteFile) -> None:
                await _download(sftp, os.fsencode(remote_root), local_root, file, meter.add)

            await for_each(files, fetch_one, _SFTP_WORKERS)


def _are_few(files: Sequence[SelectedFile]) -> bool:
    return len(files) <= _FEW_FILES and sum(file.bytes for file in files) <= _FEW_BYTES


async def make_dirs(shell: RemoteShell, root: str, directories: Sequence[str]) -> None:
    """Make directories below a remote root, and the root."""
    names = sorted({os.fsencode(name) for name in directories if name})
    listed = b"".join(b"./" + name + b"\0" for name in [b".", *names])
    answer = await shell.pipe(
        'mkdir -p "$1" && cd "$1" && xargs -0 mkdir -p --', root, stdin=listed
    )
    if answer.exit_code != 0:
        raise TransferFailed(
            f"directories below {root!r} could not be made on the machine: "
            f"{answer.stderr[:200].decode(errors='replace')!r}",
            hint="look for a full disk, or a file where a directory is needed",
        )


class _Meter:
    """Adds up the bytes of several copies at once."""

    def __init__(
        self, step: str, files: Sequence[SelectedFile | RemoteFile], progress: Progress
    ) -> None:
        self._step = step
        self._total = sum(file.bytes for file in files)
        self._done = 0
        self._progress = progress

    def add(self, count: int) -> None:
        self._done += count
        self._progress(self._step, min(self._done, self._total), self._total, "bytes")


async def _upload(
    sftp: SftpFiles, root: bytes, file: SelectedFile, progress: Callable[[int], None]
) -> None:
    target = root.rstrip(b"/") + b"/" + os.fsencode(file.path)
    partial = target + os.fsencode(_PARTIAL_SUFFIX)
    held = 0
    if file.bytes >= _RESUMED_FROM_BYTES:
        held = await sftp.size(partial) or 0
    offset = held if held <= file.bytes else 0
    progress(offset)
    order = Upload(
        source=file.source,
        partial=partial,
        target=target,
        offset=offset,
        mode=file.mode,
        mtime=file.mtime,
    )
    await sftp.upload(order, progress)


async def _download(
    sftp: SftpFiles,
    root: bytes,
    local_root: Path,
    file: RemoteFile,
    progress: Callable[[int], None],
) -> None:
    target = local_root / os.fsdecode(file.name)
    partial = target.with_name(target.name + _PARTIAL_SUFFIX)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        held = partial.stat().st_size if partial.exists() else 0
        offset = held if held <= file.bytes else 0
        progress(offset)
        await sftp.download(root.rstrip(b"/") + b"/" + file.name, partial, offset, progress)
        os.utime(partial, (file.mtime, file.mtime))
        partial.replace(target)
    except OSError as exc:
        raise TransferFailed(f"{str(target)!r} could not be written: {exc.strerror}") from exc
