"""Bringing the project directory on a machine in step with the one at home.

Rules
1. A file on the machine is removed only if an earlier sync of ours placed it, it left the
   selection, and it still has the content we gave it: what a job made or changed stays.
2. What we place is on record on the machine before the copy begins, so a cut copy leaves
   nothing that a later one does not know as ours.
3. Done means: every selected file there has the checksum of the one here.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from msgspec import structs

from vastd.errors import TransferFailed
from vastd.jobs.carrier import Carrier, make_dirs
from vastd.jobs.digest import sha256_of
from vastd.jobs.parallel import for_each
from vastd.jobs.port import Progress, ProjectSource, SyncReport
from vastd.jobs.remote_files import hash_files, remove_files
from vastd.jobs.remote_shell import RemoteShell
from vastd.jobs.selection import SelectedFile, Selection, select

STEP: Final = "sync"
_ROUNDS: Final = 3  # a file edited during the copy is sent again, but not for ever
_MANIFEST_LIMIT_BYTES: Final = 64 * 1024 * 1024  # a million lines
# Read and hashed while rsync connects, and far within its time-out: a slow disk gives 50 MB/s.
_WHILE_CONNECTING_BYTES: Final = 500_000_000
_NAMED_IN_ERRORS: Final = 5

Manifest = Mapping[bytes, str]
"""SHA-256 by name: what we placed in the project directory."""


async def push_project(
    shell: RemoteShell, carrier: Carrier, source: ProjectSource, progress: Progress
) -> SyncReport:
    """Make the remote project directory hold what `select` picks, and prove it.

    Raises:
        SshError: the way broke; repeat to resume.
        TransferFailed: too large, unreadable, a full disk, or it does not match in the end.
    """
    selection = await select(source)
    root = source.root.resolve()
    remote_root = f"{shell.workspace}/project"
    record = _Record(shell, remote_root, selection)
    sender = _Sender(shell, carrier, root, remote_root, progress)
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
        method=await carrier.method(),
    )


class _Record:
    """What the machine knows as ours: as earlier syncs left it, and as this one announces it."""

    def __init__(self, shell: RemoteShell, remote_root: str, selection: Selection) -> None:
        self._shell = shell
        self._remote_root = remote_root
        self._selection = selection
        self.sums: dict[str, str] = {}  # of the selected files here, by path
        self.before: dict[bytes, str] = {}
        self.announced: dict[bytes, str] = {}

    async def announce(self) -> None:
        """Put on record there what is going to be placed; the directories exist then (rule 2)."""
        await for_each([self._hash_here, self._look_there], lambda step: step(), 2)
        self.announced = {**self.before, **_by_name(self.sums)}
        await _write_manifest(self._shell, self.announced)

    async def _hash_here(self) -> None:
        for file in self._selection.files:
            self.sums[file.path] = await sha256_of(file.source)

    async def _look_there(self) -> None:
        await make_dirs(self._shell, self._remote_root, self._selection.empty_dirs)
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
    ) -> None:
        self._shell = shell
        self._carrier = carrier
        self._root = root
        self._remote_root = remote_root
        self._progress = progress
        self.sums: dict[str, str] = {}  # by path: what both sides hold

    async def send_until_equal(self, files: list[SelectedFile], record: _Record) -> int:
        """Copy, compare, and copy again what differs; return how many files were copied."""
        small = 0 < sum(file.bytes for file in files) <= _WHILE_CONNECTING_BYTES
        by_rsync = await self._carrier.method() == "rsync"
        meanwhile = record.announce if small and by_rsync else None
        if meanwhile is None:
            await record.announce()
        self.sums = record.sums
        # rsync finds out by itself what differs
        pending = files if by_rsync else await self._differing(files)
        sent = 0
        for round_number in range(_ROUNDS):
            sent += await self._carrier.send(
                self._root,
                self._remote_root,
                pending,
                STEP,
                self._progress,
                compare=round_number > 0,
                meanwhile=meanwhile if round_number == 0 else None,
            )
            pending = await self._differing(files)
            if not pending:
                return sent
            # Perhaps they were edited after we read them: compare with what is here now.
            pending = [_look_again(file) for file in pending]
            for file in pending:
                self.sums[file.path] = await sha256_of(file.source)
        raise TransferFailed(
            f"{len(pending)} files on the machine differ from those here after {_ROUNDS} copies: "
            f"{_named(file.path for file in pending)}",
            hint="stop what writes to them, or look for a full disk on the machine",
        )

    async def _differing(self, files: list[SelectedFile]) -> list[SelectedFile]:
        names = [os.fsencode(file.path) for file in files]
        total = sum(file.bytes for file in files)
        there = await hash_files(self._shell, self._remote_root, names, total)
        return [f for f in files if there.get(os.fsencode(f.path)) != self.sums[f.path]]


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
