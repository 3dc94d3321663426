"""Patterns that decide about a project's files: built-in excludes, ignore files, includes."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from vastd.errors import InvalidRequest, TransferFailed

# Never sent, wherever they are. Order of judgement: these first (REQUIREMENTS SYN-02 measured
# what happens when inclusion comes first: it sends .git, data and keys).
EXCLUDED_DIRS: Final = frozenset(
    {
        ".git", ".hg", ".svn", ".jj", ".bzr",
        "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".eggs",
        ".ipynb_checkpoints", ".cache", ".hypothesis", ".gradle", "node_modules", ".pixi",
        ".venv", ".vastd", ".vastd-incoming", ".vastd-partial",
    }
)  # fmt: skip
# Data at any depth, but a Python package may be called so too.
DATA_DIRS: Final = frozenset({"data", "wandb", "outputs"})
# What jobs produce: sent back it would pass for fresh results (the empty directory is made).
ROOT_OUTPUT_DIRS: Final = frozenset({"results"})
EXCLUDED_SUFFIXES: Final = (
    ".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".gguf", ".ggml", ".onnx", ".h5", ".keras",
    ".tflite", ".pyc", ".pyo",
)  # fmt: skip
EXCLUDED_FILES: Final = frozenset({".DS_Store", "Thumbs.db", "vast-instances.json"})
# What collecting writes there: the logs of earlier jobs are not part of the next one's code.
OWN_LOG: Final = re.compile(r"logs/j[a-z0-9]{6,}\.log")
IGNORE_FILES: Final = (".gitignore", ".vastdignore")  # in order: the later one has the last word


def compile_patterns(lines: Sequence[str], where: str) -> GitIgnoreSpec:
    """Compile gitignore lines.

    Raises:
        InvalidRequest: a line is no pattern.
    """
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as exc:
        raise InvalidRequest(f"{where} has an unreadable pattern: {exc}") from exc


def read_ignore_files(directory: Path, relative: str) -> tuple[str, GitIgnoreSpec] | None:
    """Return the patterns that hold below `directory`, with the prefix they are relative to."""
    lines: list[str] = []
    for name in IGNORE_FILES:
        try:
            lines += (directory / name).read_text("utf-8", errors="replace").splitlines()
        except (FileNotFoundError, IsADirectoryError):
            continue
        except OSError as exc:
            raise TransferFailed(f"{directory / name} could not be read: {exc.strerror}") from exc
    # As for git, a line that is no pattern matches nothing.
    usable = [line for line in lines if _is_pattern(line)]
    return (relative, GitIgnoreSpec.from_lines(usable)) if usable else None


def _is_pattern(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def is_ignored(stack: Sequence[tuple[str, GitIgnoreSpec]], path: str) -> bool:
    """Ask the ignore files from the nearest up, as git does; `path` of a directory ends in /."""
    for prefix, spec in reversed(stack):
        verdict = spec.check_file(path.removeprefix(prefix)).include
        if verdict is not None:
            return verdict
    return False


class Includes:
    """What the user named on purpose."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [p.removeprefix("./") for p in patterns]
        self._specs = [compile_patterns([p], "an include") for p in self._patterns]

    def names(self, path: str, *, inside_excluded: bool) -> bool:
        """Tell whether a pattern picks this file; bare names do not reach into excluded trees."""
        return any(
            spec.match_file(path)
            for pattern, spec in zip(self._patterns, self._specs, strict=True)
            if not inside_excluded or _is_anchored(pattern)
        )

    def names_secret(self, path: str) -> bool:
        """Tell whether a pattern names this very file, not merely a directory above it."""
        name = path.rsplit("/", 1)[-1]
        return any(
            spec.match_file(path) and _last_part_names(pattern, name)
            for pattern, spec in zip(self._patterns, self._specs, strict=True)
        )

    def may_reach(self, directory: str) -> bool:
        """Tell whether something below an excluded `directory` may be named."""
        parts = directory.strip("/").split("/")
        for pattern in self._patterns:
            if not _is_anchored(pattern):
                continue
            wanted = pattern.strip("/").split("/")
            if all(_glob_part(w) or w == p for w, p in zip(wanted, parts, strict=False)):
                return True
        return False


def _is_anchored(pattern: str) -> bool:
    return "/" in pattern


def _glob_part(part: str) -> bool:
    return any(c in part for c in "*?[")


def _last_part_names(pattern: str, name: str) -> bool:
    last = pattern.rstrip("/").rsplit("/", 1)[-1]
    if not last.strip("*"):
        return False
    return compile_patterns([last], "an include").match_file(name)
