"""The files on a simulated machine, and how they come home as real files."""

import fnmatch
import hashlib
import posixpath
from pathlib import Path
from typing import Final

import pathspec

from vastd.errors import TransferFailed, UnsafePath
from vastd.jobs.port import CollectedFile, ProjectSource

PROJECT_ROOT: Final = "/workspace/project"  # where the code goes on every machine
MEMORY_CAP_BYTES: Final = 64_000_000  # guess: files of a simulated machine live in our memory
# A short form of what a real sync keeps home; the full list belongs to it.
KEPT_HOME: Final = (".git/", ".venv/", "venv/", "__pycache__/", "node_modules/", ".cache/")
SECRET_NAMES: Final = (".env", ".env.*", "*.pem", "*.key", "id_rsa*", "id_ed25519*", "credentials")


class SimDisk:
    """A file system: absolute path -> content. Lost with its instance or by a recycle."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def used_bytes(self) -> int:
        return sum(map(len, self.files.values()))

    def put(self, path: str, data: bytes) -> bool:
        """Write a file; return whether that changed anything.

        Raises:
            TransferFailed: the simulated machine is full.
        """
        if self.files.get(path) == data:
            return False
        if self.used_bytes() + len(data) > MEMORY_CAP_BYTES:
            raise TransferFailed(
                f"the simulated machine holds at most {MEMORY_CAP_BYTES} bytes in memory"
            )
        self.files[path] = data
        return True

    def below(self, root: str) -> dict[str, bytes]:
        """Return all files below a directory (or the file itself): relative path -> content."""
        if root in self.files:
            return {posixpath.basename(root): self.files[root]}
        prefix = root.rstrip("/") + "/"
        return {
            path.removeprefix(prefix): data
            for path, data in self.files.items()
            if path.startswith(prefix)
        }


def select(files: dict[str, bytes], patterns: list[str]) -> tuple[dict[str, bytes], list[str]]:
    """Return the files that match paths, directories or globs, and the patterns without any."""
    found: dict[str, bytes] = {}
    missing: list[str] = []
    for pattern in patterns:
        clean = posixpath.normpath(pattern)
        hits = {
            path: data
            for path, data in files.items()
            if clean == "."
            or path == clean
            or path.startswith(clean + "/")
            or fnmatch.fnmatchcase(path, clean)
        }
        found.update(hits)
        if not hits:
            missing.append(pattern)
    return found, missing


def safe_destination(destination: str) -> str:
    """Return the normalised absolute directory.

    Raises:
        UnsafePath: writing there breaks the machine, or it is not absolute.
    """
    path = posixpath.normpath(destination)
    if not path.startswith("/") or path.strip("/") in ("", "root"):
        raise UnsafePath(f"{destination!r} is not a directory to copy to", hint="use /workspace/…")
    return "/" + path.lstrip("/")


def read_project(source: ProjectSource) -> tuple[dict[str, bytes], list[str]]:
    """Return what a sync sends (relative path -> content) and the secrets that stay home.

    Raises:
        TransferFailed: the directory cannot be read.
    """
    if not source.root.is_dir():
        raise TransferFailed(f"{str(source.root)!r} is not a directory")
    excluded = pathspec.GitIgnoreSpec.from_lines([*KEPT_HOME, *source.exclude])
    files: dict[str, bytes] = {}
    secrets: list[str] = []
    for path in sorted(source.root.rglob("*")):
        name = path.relative_to(source.root).as_posix()
        if not path.is_file() or excluded.match_file(name):
            continue
        looks_secret = any(fnmatch.fnmatchcase(path.name, secret) for secret in SECRET_NAMES)
        if looks_secret and name not in source.include:
            secrets.append(name)
            continue
        files[name] = read_local(path)
    return files, secrets


def read_tree(source: Path) -> dict[str, bytes]:
    """Return a local file or directory as a copy names it: its own name comes first.

    Raises:
        TransferFailed: it does not exist or cannot be read.
    """
    if not source.is_dir():
        return {source.name: read_local(source)}
    return {
        f"{source.name}/{path.relative_to(source).as_posix()}": read_local(path)
        for path in sorted(source.rglob("*"))
        if path.is_file()
    }


def read_local(path: Path) -> bytes:
    """Return a local file.

    Raises:
        TransferFailed: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as exc:
        raise TransferFailed(f"cannot read {str(path)!r}: {exc.strerror}") from exc


def write_local(root: Path, name: str, data: bytes, keep_as: str) -> CollectedFile:
    """Write a file below `root`, keep another one that is there, and prove what was written.

    Raises:
        TransferFailed: it cannot be written, or reads back differently.
        UnsafePath: it would lie outside `root`.
    """
    target = root / name
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise UnsafePath(f"{name!r} lies outside {str(root)!r}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and target.read_bytes() != data:
            target.rename(target.with_name(f"{target.name}.before-{keep_as}"))
        target.write_bytes(data)
        written = target.read_bytes()
    except OSError as exc:
        raise TransferFailed(f"cannot write {str(target)!r}: {exc.strerror}") from exc
    if written != data:
        raise TransferFailed(f"{str(target)!r} does not read back as it was written")
    return CollectedFile(path=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
