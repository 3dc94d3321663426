"""What of a project is sent to a machine: a sorted list of files, decided before any copy.

Order of judgement for each file
1. Version control, caches, virtualenvs, data, weights and earlier results stay home.
2. What the user excludes, then `.gitignore` and `.vastdignore`, nested ones too.
3. What looks like a secret stays home and is reported.
4. What the user includes by name goes, whatever 1 and 2 say; a secret only if the pattern
   names the file itself.
5. A link goes as a copy of what it points to, and only if that goes too.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct, field
from pathspec import GitIgnoreSpec

from vastd.errors import InvalidRequest, TransferFailed
from vastd.jobs.patterns import (
    DATA_DIRS,
    EXCLUDED_DIRS,
    EXCLUDED_FILES,
    EXCLUDED_SUFFIXES,
    OWN_LOG,
    ROOT_OUTPUT_DIRS,
    Includes,
    compile_patterns,
    is_ignored,
    read_ignore_files,
)
from vastd.jobs.port import ProjectSource
from vastd.jobs.secrecy import SNIFF_BYTES, holds_secret, looks_secret, may_hold_secret

MAX_PROJECT_BYTES: Final = 3_000_000_000  # issue 2: "a project of 3 GB" is refused
_BIGGEST_SHOWN: Final = 3


class SelectedFile(Struct, frozen=True, kw_only=True):
    """One file to send. `path` is relative to the project, with forward slashes."""

    path: str
    source: Path  # the file itself, links resolved
    bytes: int
    mode: int  # permission bits
    mtime: float


class Selection(Struct, frozen=True, kw_only=True):
    """`files` sorted by path, unique. `empty_dirs` exist at home without anything to send."""

    files: list[SelectedFile]
    empty_dirs: list[str] = field(default_factory=list)
    secrets_kept: list[str] = field(default_factory=list)  # sorted

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


async def select(source: ProjectSource) -> Selection:
    """Decide what of the project is sent.

    Raises:
        InvalidRequest: the root is no directory, or a pattern is unreadable.
        TransferFailed: too large (the message names the biggest directories), or unreadable.
    """
    root = source.root.resolve()
    if not root.is_dir():
        raise InvalidRequest(f"the project {str(source.root)!r} is not a directory")
    walk = _Walk(root, Includes(source.include), compile_patterns(source.exclude, "an exclude"))
    await walk.enter("", [], excluded=False)
    walk.resolve_links()
    files = sorted(walk.files.values(), key=lambda file: file.path)
    _check_size(root, files)
    return Selection(
        files=files, empty_dirs=sorted(walk.empty_dirs), secrets_kept=sorted(walk.secrets_kept)
    )


class _Walk:
    def __init__(self, root: Path, includes: Includes, excludes: GitIgnoreSpec) -> None:
        self._root = root
        self._includes = includes
        self._excludes = excludes
        self._links: list[str] = []
        self.files: dict[str, SelectedFile] = {}
        self.empty_dirs: list[str] = []
        self.secrets_kept: list[str] = []

    async def enter(
        self, relative: str, ignores: list[tuple[str, GitIgnoreSpec]], *, excluded: bool
    ) -> None:
        """Judge a directory's entries; `relative` is empty or ends in a slash."""
        await trio.lowlevel.checkpoint()  # a large tree must not hold up the daemon
        directory = self._root / relative
        own = read_ignore_files(directory, relative)
        ignores = ignores if own is None else [*ignores, own]
        before = len(self.files)
        entries = list(_scan(directory))
        for entry in entries:
            path = relative + entry.name
            if entry.is_symlink():
                # Judged like the file it may be; what it points to is looked at later.
                if self._goes(path, ignores, excluded, entry):
                    self._links.append(path)
            elif entry.is_dir():
                await self._enter_child(path + "/", ignores, excluded, entry)
            elif entry.is_file() and self._goes(path, ignores, excluded, entry):
                self.files[path] = selected_file(path, Path(entry.path))
        if relative and not excluded and not entries and len(self.files) == before:
            self.empty_dirs.append(relative.rstrip("/"))

    async def _enter_child(
        self,
        path: str,
        ignores: list[tuple[str, GitIgnoreSpec]],
        excluded: bool,
        entry: os.DirEntry[str],
    ) -> None:
        if path.rstrip("/") in ROOT_OUTPUT_DIRS:
            self.empty_dirs.append(path.rstrip("/"))
        excluded = (
            excluded
            or _excluded_dir(path, Path(entry.path))
            or self._excludes.match_file(path)
            or is_ignored(ignores, path)
        )
        if not excluded or self._includes.may_reach(path):
            await self.enter(path, ignores, excluded=excluded)

    def _goes(
        self,
        path: str,
        ignores: list[tuple[str, GitIgnoreSpec]],
        excluded: bool,
        entry: os.DirEntry[str],
    ) -> bool:
        named = self._includes.names(path, inside_excluded=excluded)
        if excluded and not named:
            return False
        if _is_secret(path, entry) and not self._includes.names_secret(path):
            self.secrets_kept.append(path)
            return False
        if named:
            return True
        name = entry.name
        if name in EXCLUDED_FILES or name.lower().endswith(EXCLUDED_SUFFIXES):
            return False
        if OWN_LOG.fullmatch(path):
            return False
        return not self._excludes.match_file(path) and not is_ignored(ignores, path)

    def resolve_links(self) -> None:
        """Add a copy for each link whose target goes; links in copies are not followed again."""
        chosen = dict(self.files)
        for link in self._links:
            try:
                target = (self._root / link).resolve(strict=True).relative_to(self._root)
            except (OSError, ValueError, RuntimeError):
                continue  # dangling, circular, or out of the project
            wanted = target.as_posix()
            if wanted in chosen:
                self.files[link] = selected_file(link, chosen[wanted].source)
                continue
            if link.startswith(wanted + "/") or wanted == ".":
                continue  # it points at a directory it lies in
            for path, file in chosen.items():
                if path.startswith(wanted + "/"):
                    copy = link + path[len(wanted) :]
                    self.files[copy] = selected_file(copy, file.source)


def _scan(directory: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except OSError as exc:
        raise TransferFailed(
            f"the directory {str(directory)!r} could not be read: {exc.strerror}",
            hint="fix its permissions or exclude it",
        ) from exc


def _excluded_dir(path: str, directory: Path) -> bool:
    parts = path.rstrip("/").split("/")
    name = parts[-1]
    if name in EXCLUDED_DIRS or name.endswith(".egg-info"):
        return True
    if len(parts) == 1 and name in ROOT_OUTPUT_DIRS:
        return True
    if name in DATA_DIRS and not (directory / "__init__.py").exists():
        return True
    marks = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")  # virtualenv, conda, caches by standard
    return any((directory / mark).exists() for mark in marks)


def _is_secret(path: str, entry: os.DirEntry[str]) -> bool:
    if looks_secret(path):
        return True
    try:
        # Of a link only the name counts here: what it points to is judged under its own.
        if not entry.is_file(follow_symlinks=False) or not may_hold_secret(
            path, entry.stat().st_size
        ):
            return False
        with Path(entry.path).open("rb") as file:
            return holds_secret(file.read(SNIFF_BYTES))
    except OSError as exc:
        raise TransferFailed(
            f"the file {entry.path!r} could not be read: {exc.strerror}",
            hint="fix its permissions or exclude it",
        ) from exc


def selected_file(path: str, source: Path) -> SelectedFile:
    """Describe the file at `source` as one to send under the name `path`."""
    status = source.stat()
    return SelectedFile(
        path=path,
        source=source,
        bytes=status.st_size,
        mode=status.st_mode & 0o777,
        mtime=status.st_mtime,
    )


def _check_size(root: Path, files: list[SelectedFile]) -> None:
    total = sum(file.bytes for file in files)
    if total < MAX_PROJECT_BYTES:
        return
    sizes: dict[str, int] = {}
    for file in files:
        head = file.path.rsplit("/", 1)[0] + "/" if "/" in file.path else file.path
        sizes[head] = sizes.get(head, 0) + file.bytes
    biggest = sorted(sizes.items(), key=lambda item: -item[1])[:_BIGGEST_SHOWN]
    shown = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in biggest)
    raise TransferFailed(
        f"the project {str(root)!r} has {total / 1e9:.1f} GB to send; the limit is "
        f"{MAX_PROJECT_BYTES / 1e9:.0f} GB; biggest: {shown}",
        hint="put data and weights into .vastdignore, or copy them with `vastctl push`",
    )
