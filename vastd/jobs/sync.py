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
from vastd.jobs.port import Progress, ProjectSource, SyncReport
from vastd.jobs.remote_files import hash_files, remove_files
from vastd.jobs.remote_shell import RemoteShell
from vastd.jobs.selection import SelectedFile, select

STEP: Final = "sync"
_ROUNDS: Final = 3  # a file edited during the copy is sent again, but not for ever
_MANIFEST_LIMIT_BYTES: Final = 64 * 1024 * 1024  # a million lines
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
    sums = {file.path: await sha256_of(file.source) for file in selection.files}
    await make_dirs(shell, remote_root, selection.empty_dirs)
    before = await _read_manifest(shell)
    chosen = {os.fsencode(path): digest for path, digest in sums.items()}
    await _write_manifest(shell, {**before, **chosen})

    sender = _Sender(shell, carrier, root, remote_root, progress)
    sent = await sender.send_until_equal(selection.files, sums)
    await _remove_stale(shell, remote_root, before, sender.sums)
    await _write_manifest(shell, {os.fsencode(p): digest for p, digest in sender.sums.items()})
    total = sum(file.bytes for file in selection.files)
    progress(STEP, total, total, "bytes")
    return SyncReport(
        files=len(selection.files),
        bytes=total,
        files_sent=sent,
        secrets_kept=selection.secrets_kept,
        method=await carrier.method(),
    )


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

    async def send_until_equal(self, files: list[SelectedFile], sums: dict[str, str]) -> int:
        """Copy, compare, and copy again what differs; return how many files were copied."""
        self.sums = dict(sums)
        pending = files
        if await self._carrier.method() == "sftp":
            pending = await self._differing(files)  # rsync finds out by itself
        sent = 0
        for round_number in range(_ROUNDS):
            sent += await self._carrier.send(
                self._root,
                self._remote_root,
                pending,
                STEP,
                self._progress,
                compare=round_number > 0,
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
