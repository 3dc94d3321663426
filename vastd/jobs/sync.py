"""Bringing the project directory on a machine in step with the one at home.

Rules
1. A file on the machine is removed only if an earlier sync of ours placed it, it left the
   selection, and it still has the content we gave it: what a job made or changed stays.
2. What we place is on record on the machine before the copy begins, so a cut copy leaves
   nothing that a later one does not know as ours.
3. Done means: every selected file there has the checksum of the one here. A checksum may be known
   from an earlier sync, for the very file it was computed of (`known_sums`).
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct, structs

from vastd.errors import TransferFailed
from vastd.jobs.carrier import Carrier, make_dirs
from vastd.jobs.known_sums import LocalSums
from vastd.jobs.parallel import for_each
from vastd.jobs.port import Progress, ProjectSource, SyncReport
from vastd.jobs.remote_files import hash_files, remove_files
from vastd.jobs.remote_shell import RemoteShell
from vastd.jobs.remote_sums import RemoteSums
from vastd.jobs.selection import SelectedFile, Selection, select

STEP: Final = "sync"
_ROUNDS: Final = 3  # a file edited during the copy is sent again, but not for ever
_MANIFEST_LIMIT_BYTES: Final = 64 * 1024 * 1024  # a million lines
# Read and hashed while rsync connects, and far within its time-out: a slow disk gives 50 MB/s.
_WHILE_CONNECTING_BYTES: Final = 500_000_000
_NAMED_IN_ERRORS: Final = 5

Manifest = Mapping[bytes, str]
"""SHA-256 by name: what we placed in the project directory."""


class KnownFiles(Struct, frozen=True, kw_only=True):
    """The checksums of earlier syncs; empty ones cost time, nothing else."""

    here: LocalSums
    there: RemoteSums


async def push_project(
    shell: RemoteShell,
    carrier: Carrier,
    source: ProjectSource,
    progress: Progress,
    known: KnownFiles,
) -> SyncReport:
    """Make the remote project directory hold what `select` picks, and prove it.

    Raises:
        SshError: the way broke; repeat to resume.
        TransferFailed: too large, unreadable, a full disk, or it does not match in the end.
    """
    selection = await select(source)
    root = source.root.resolve()
    remote_root = f"{shell.workspace}/project"
    record = _Record(shell, remote_root, selection, known.here)
    sender = _Sender(shell, carrier, root, remote_root, progress, known)
    sent = await sender.send_until_equal(selection.files, record)
    await _remove_stale(shell, remote_root, record.before, sender.sums)
    if (placed := _by_name(sender.sums)) != record.announced:
        await _write_manifest(shell, placed)
    total = sum(file.bytes for file in selection.files)
    progress(STEP, total, total, "bytes")
    return SyncReport(
        files=len(selection.files),
        bytes=total,
        files_sent=sent,
        secrets_kept=selection.secrets_kept,
        method=sender.method,
    )


class _Record:
    """What the machine knows as ours: as earlier syncs left it, and as this one announces it."""

    def __init__(
        self, shell: RemoteShell, remote_root: str, selection: Selection, known: LocalSums
    ) -> None:
        self._shell = shell
        self._remote_root = remote_root
        self._selection = selection
        self._known = known
        self.sums: dict[str, str] = {}  # of the selected files here, by path
        self.before: dict[bytes, str] = {}
        self.announced: dict[bytes, str] = {}

    async def gather(self, *others: Callable[[], Awaitable[None]]) -> None:
        """Hash the files here and read the record there, beside other work; the directories
        exist then."""
        steps = [self._hash_here, self._make_dirs, self._read, *others]
        await for_each(steps, lambda step: step(), len(steps))

    async def announce(self) -> None:
        """Put on record there what is going to be placed (rule 2)."""
        self.announced = {**self.before, **_by_name(self.sums)}
        if self.announced != self.before:
            await _write_manifest(self._shell, self.announced)

    async def _hash_here(self) -> None:
        for file in self._selection.files:
            self.sums[file.path] = await self._known.of(file.source)

    async def _make_dirs(self) -> None:
        await make_dirs(self._shell, self._remote_root, self._selection.empty_dirs)

    async def _read(self) -> None:
        self.before = await _read_manifest(self._shell)


def _by_name(sums: Mapping[str, str]) -> dict[bytes, str]:
    return {os.fsencode(path): digest for path, digest in sums.items()}


class _Sender:
    def __init__(
        self,
        shell: RemoteShell,
        carrier: Carrier,
        root: Path,
        remote_root: str,
        progress: Progress,
        known: KnownFiles,
    ) -> None:
        self._shell = shell
        self._carrier = carrier
        self._root = root
        self._remote_root = remote_root
        self._progress = progress
        self._known = known
        self._there: dict[bytes, str] = {}  # what the machine's files are proved to hold
        self.sums: dict[str, str] = {}  # by path: what both sides hold
        self.method = ""  # how files were copied last

    async def send_until_equal(self, files: list[SelectedFile], record: _Record) -> int:
        """Copy, compare, and copy again what differs; return how many files were copied."""
        self.sums = record.sums
        by_rsync = await self._carrier.method() == "rsync"
        if by_rsync and not self._known.there.knows(self._remote_root):
            sent = await self._send_unseen(files, record)
            await self._prove(files)
        else:
            sent = await self._send_known(files, record)
        for _ in range(_ROUNDS - 1):
            # Perhaps they were edited after we read them: compare with what is here now.
            pending = [_look_again(file) for file in self._differing(files)]
            if not pending:
                break
            for file in pending:
                self.sums[file.path] = await self._known.here.of(file.source)
            sent += await self._send(pending)
            await self._prove(pending)
        if not (pending := self._differing(files)):
            return sent
        raise TransferFailed(
            f"{len(pending)} files on the machine differ from those here after {_ROUNDS} copies: "
            f"{_named(file.path for file in pending)}",
            hint="stop what writes to them, or look for a full disk on the machine",
        )

    async def _send_unseen(self, files: list[SelectedFile], record: _Record) -> int:
        """Let rsync find out what differs, and hash and announce while it connects."""

        async def announce() -> None:
            await record.gather()
            await record.announce()

        if sum(file.bytes for file in files) <= _WHILE_CONNECTING_BYTES:
            return await self._send(files, announce, compare=False)
        await announce()
        return await self._send(files, compare=False)

    async def _send_known(self, files: list[SelectedFile], record: _Record) -> int:
        """Send what is known to differ, which is little as a rule."""
        await record.gather(lambda: self._recall(files))
        pending = self._differing(files)
        sent = await self._send(pending, record.announce)
        await self._prove(pending)
        return sent

    async def _send(
        self,
        files: list[SelectedFile],
        meanwhile: Callable[[], Awaitable[None]] | None = None,
        *,
        compare: bool = True,
    ) -> int:
        done = await self._carrier.send(
            self._root,
            self._remote_root,
            files,
            STEP,
            self._progress,
            compare=compare,
            meanwhile=meanwhile,
            # Only what is known to differ: rsync would find out what to leave alone.
            few_by_sftp=compare,
        )
        self.method = done.method
        return done.files

    async def _recall(self, files: list[SelectedFile]) -> None:
        self._there = await self._known.there.recall(
            self._shell, self._remote_root, *_named_with_size(files)
        )

    async def _prove(self, files: list[SelectedFile]) -> None:
        """Read what the machine holds of them now."""
        names, total = _named_with_size(files)
        proved = await self._known.there.read(self._shell, self._remote_root, names, total)
        for name in names:
            self._there.pop(name, None)
        self._there |= proved

    def _differing(self, files: list[SelectedFile]) -> list[SelectedFile]:
        return [f for f in files if self._there.get(os.fsencode(f.path)) != self.sums[f.path]]


def _named_with_size(files: list[SelectedFile]) -> tuple[list[bytes], int]:
    return [os.fsencode(file.path) for file in files], sum(file.bytes for file in files)


def _look_again(file: SelectedFile) -> SelectedFile:
    try:
        status = file.source.stat()
    except OSError as exc:
        raise TransferFailed(
            f"{str(file.source)!r} went away during the copy: {exc.strerror}"
        ) from exc
    return structs.replace(file, bytes=status.st_size, mtime=status.st_mtime)


async def _remove_stale(
    shell: RemoteShell, remote_root: str, before: Manifest, now: Mapping[str, str]
) -> None:
    kept = {os.fsencode(path) for path in now}
    gone = [name for name in before if name not in kept]
    there = await hash_files(shell, remote_root, gone, 0)
    await remove_files(shell, remote_root, [n for n in gone if there.get(n) == before[n]])


async def _read_manifest(shell: RemoteShell) -> dict[bytes, str]:
    """Return the record of earlier syncs; a line we cannot read is no licence to remove."""
    answer = await shell.pipe(
        'cat "$1" 2>/dev/null', _manifest_path(shell), limit_bytes=_MANIFEST_LIMIT_BYTES
    )
    manifest: dict[bytes, str] = {}
    for line in answer.body.decode("ascii", errors="replace").splitlines():
        digest, blank, name = line.partition(" ")
        if blank and len(digest) == 64 and name:
            manifest[unquote_to_bytes(name)] = digest
    return manifest


async def _write_manifest(shell: RemoteShell, manifest: Manifest) -> None:
    lines = "".join(f"{digest} {quote(name)}\n" for name, digest in sorted(manifest.items()))
    answer = await shell.pipe(
        'mkdir -p "${1%/*}" && cat >"$1.tmp" && mv -f "$1.tmp" "$1"',
        _manifest_path(shell),
        stdin=lines.encode(),
    )
    if answer.exit_code != 0:
        raise TransferFailed(
            "the record of what was sent could not be written on the machine: "
            f"{answer.stderr[:200].decode(errors='replace')!r}",
            hint="look for a full disk there",
        )


def _manifest_path(shell: RemoteShell) -> str:
    return f"{shell.workspace}/.vastd/sync/project"


def _named(paths: Iterable[str]) -> str:
    names = list(paths)
    more = f" and {len(names) - _NAMED_IN_ERRORS} more" if len(names) > _NAMED_IN_ERRORS else ""
    return ", ".join(names[:_NAMED_IN_ERRORS]) + more
