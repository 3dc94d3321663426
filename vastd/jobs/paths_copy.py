"""Copying single files and directories to and from a machine, as `push` and `pull` do.

Unlike the project sync, everything below a named directory goes: data and weights too. What
looks like a secret goes only when the file itself is named.
"""

import logging
import os
import posixpath
from pathlib import Path
from typing import Final

import trio
from msgspec import structs

from vastd.errors import InvalidRequest, NotFound, TransferFailed, UnsafePath
from vastd.jobs.carrier import Carrier, make_dirs
from vastd.jobs.digest import sha256_of
from vastd.jobs.paths import check_destination
from vastd.jobs.placement import Placement
from vastd.jobs.port import Progress
from vastd.jobs.remote_files import RemoteFile, hash_files, list_files, shell_glob
from vastd.jobs.remote_shell import RemoteShell
from vastd.jobs.secrecy import looks_secret
from vastd.jobs.selection import SelectedFile, selected_file

logger = logging.getLogger(__name__)

_ROUNDS: Final = 2  # the second sends again what did not match
_KEEP_AS: Final = "before-pull"


async def push_paths(
    shell: RemoteShell,
    carrier: Carrier,
    sources: list[Path],
    destination: str,
    progress: Progress,
) -> int:
    """Copy local files and directories into a remote directory, verified; return bytes.

    Raises:
        UnsafePath: a destination that would break the machine, also behind a link there.
        InvalidRequest: a source does not exist.
        TransferFailed: what arrived does not match.
    """
    target = check_destination(destination)
    listed = [(source.absolute().parent, await _below(source.absolute())) for source in sources]
    await _check_behind_links(shell, target)
    await make_dirs(shell, target, [])
    await _check_behind_links(shell, target)
    total = 0
    for root, files in listed:
        await _send_verified(shell, carrier, root, target, files, progress)
        total += sum(file.bytes for file in files)
    return total


async def pull_paths(
    shell: RemoteShell,
    carrier: Carrier,
    sources: list[str],
    destination: Path,
    progress: Progress,
) -> int:
    """Copy remote files and directories into a local directory, verified; return bytes.

    A relative source lies in the project directory. Nothing local is deleted.

    Raises:
        NotFound: a source does not exist on the machine.
        TransferFailed: a file could not be verified or written.
    """
    placement = Placement(destination, _KEEP_AS)
    placement.prepare()
    total = 0
    for source in sources:
        path = posixpath.normpath(posixpath.join(f"{shell.workspace}/project", source))
        root, name = posixpath.split(path)
        if not name:
            raise InvalidRequest(f"{source!r} is no file or directory one can copy")
        files = await list_files(shell, root, [shell_literal(name)])
        if not files:
            raise NotFound(f"there is no file at {source!r} on the machine")
        await _fetch_verified(shell, carrier, root, files, placement, progress)
        total += sum(file.bytes for file in files)
    placement.finish()
    return total


def shell_literal(name: str) -> str:
    """Return one path component as a shell word without any pattern in it."""
    return "./" + "".join(f"'{c}'" if c in "*?[]" else shell_glob(c)[2:] for c in name)


async def _below(source: Path) -> list[SelectedFile]:
    """Return a file, or every regular file below a directory, named from its parent."""
    files = _alone(source)
    if files is None:
        files = []
        for directory, _, names in os.walk(source, onerror=_unreadable):
            await trio.lowlevel.checkpoint()
            files += _in_directory(source, Path(directory), names)
    return files


def _alone(source: Path) -> list[SelectedFile] | None:
    if source.is_file():
        return [selected_file(source.name, source)]
    if not source.is_dir():
        raise InvalidRequest(f"there is no file or directory {str(source)!r}")
    return None


def _in_directory(source: Path, directory: Path, names: list[str]) -> list[SelectedFile]:
    files: list[SelectedFile] = []
    for file in (directory / name for name in sorted(names)):
        path = file.relative_to(source.parent).as_posix()
        # As in a project, links do not lead out of what was named.
        leads_out = file.is_symlink() and not file.resolve().is_relative_to(source.resolve())
        if not file.is_file() or leads_out:
            continue
        if looks_secret(path):
            logger.warning("push: %s looks like a secret and stays; name it to send it", path)
            continue
        files.append(selected_file(path, file))
    return files


def _unreadable(exc: OSError) -> None:
    raise TransferFailed(f"{exc.filename!r} could not be read: {exc.strerror}") from exc


async def _check_behind_links(shell: RemoteShell, target: str) -> None:
    """Judge where the directory really lies, or where its nearest existing parent does."""
    answer = await shell.pipe(
        'd=$1; while [ ! -d "$d" ]; do r="/${d##*/}$r"; d=${d%/*}; d=${d:-/}; done; '
        'cd "$d" && p=$(pwd -P) && printf "%s%s\\n%s\\n" "${p%/}" "$r" "$HOME"',
        target,
    )
    lines = answer.body.decode(errors="surrogateescape").splitlines()
    if answer.exit_code != 0 or len(lines) != 2:
        raise TransferFailed(f"the directory {target!r} cannot be entered on the machine")
    real, home = lines
    check_destination(real or "/")
    if real.rstrip("/") == home.rstrip("/"):
        raise UnsafePath(f"refused to copy into the home directory {home!r} of the machine")


async def _send_verified(
    shell: RemoteShell,
    carrier: Carrier,
    root: Path,
    target: str,
    files: list[SelectedFile],
    progress: Progress,
) -> None:
    pending = files
    for round_number in range(_ROUNDS):
        sums = {f.path: await sha256_of(f.source) for f in pending}
        await carrier.send(root, target, pending, "push", progress, compare=round_number > 0)
        names = [os.fsencode(file.path) for file in pending]
        there = await hash_files(shell, target, names, sum(file.bytes for file in pending))
        pending = [
            structs.replace(f, bytes=f.source.stat().st_size)
            for f in pending
            if there.get(os.fsencode(f.path)) != sums[f.path]
        ]
        if not pending:
            return
    raise TransferFailed(
        f"{len(pending)} files differ on the machine after the copy, among them {pending[0].path!r}",
        hint="look for a full disk there, or for a program that writes to them, and repeat",
    )


async def _fetch_verified(
    shell: RemoteShell,
    carrier: Carrier,
    root: str,
    files: list[RemoteFile],
    placement: Placement,
    progress: Progress,
) -> None:
    pending = files
    for _ in range(_ROUNDS):
        size = sum(file.bytes for file in pending)
        sums = await hash_files(shell, root, [file.name for file in pending], size)
        placement.check_space(size)
        await carrier.fetch(root, placement.staging, pending, "pull", progress)
        left: list[RemoteFile] = []
        for file in pending:
            name = os.fsdecode(file.name)
            staged = placement.staging / name
            digest = sums.get(file.name)
            if digest is None or not await placement.accept(staged, file.bytes, digest):
                staged.unlink(missing_ok=True)
                left.append(file)
            elif not await placement.is_home(name, file.bytes, digest):
                await placement.place(staged, name)
        pending = left
        if not pending:
            return
    raise TransferFailed(
        f"{len(pending)} files changed during the copy, among them {pending[0].name!r}",
        hint="end what writes to them and repeat",
    )
