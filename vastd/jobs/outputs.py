"""Which files on a machine a job's declared outputs mean, and what they are called at home."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from vastd.jobs.paths import check_output
from vastd.jobs.remote_files import shell_glob

DEFAULT_OUTPUTS: Final = ("results/", "*.log")  # REQUIREMENTS COL-01
_PROJECT: Final = "project"
_LOGS: Final = "logs"


class Outputs:
    """The declared outputs of one collection, relative to the workspace on the machine."""

    def __init__(self, declared: Sequence[str], job_id: str | None) -> None:
        """`declared` are paths or globs in the project; empty means the default ones.

        Raises:
            UnsafePath: one of them does not lie in the project.
        """
        self._declared = list(declared) or list(DEFAULT_OUTPUTS)
        self._patterns = [check_output(pattern) for pattern in self._declared]
        self._job_log = None if job_id is None else f"{_LOGS}/{job_id}.log"

    def shell_words(self) -> list[str]:
        """Return where to look, in shell syntax, relative to the workspace."""
        words = [shell_glob(f"{_PROJECT}/{_before_deep(pattern)}") for pattern in self._patterns]
        if self._job_log is not None:
            words.append(shell_glob(self._job_log))
        return words

    def wanted(self, name: str) -> bool:
        """Tell whether a listed file is an output; `**` finds more than it asks for."""
        return name == self._job_log or any(
            _matches(pattern, name.removeprefix(f"{_PROJECT}/")) for pattern in self._patterns
        )

    def home_name(self, name: str) -> str:
        """Return where a file goes, relative to the destination, which mirrors the project."""
        if name == self._job_log:
            return name
        home = name.removeprefix(f"{_PROJECT}/")
        # The project may have a file of the name the job's log takes.
        return f"{home}.project" if home == self._job_log else home

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the declared outputs, as declared, that no listed file belongs to."""
        homes = [name.removeprefix(f"{_PROJECT}/") for name in names]
        return [
            declared
            for declared, pattern in zip(self._declared, self._patterns, strict=True)
            if not any(_matches(pattern, home) for home in homes)
            # The job's log is what `*.log` hopes for; it lies beside the project.
            and not (self._job_log in names and pattern == "*.log")
        ]


def _matches(pattern: str, name: str) -> bool:
    """Match as the shell does, segment by segment; a match of a directory takes all below."""
    wanted, parts = pattern.split("/"), name.split("/")
    if "**" in wanted:
        return _matches_deep(wanted, parts)
    return len(parts) >= len(wanted) and all(
        _matches_part(w, p) for w, p in zip(wanted, parts, strict=False)
    )


def _matches_deep(wanted: list[str], parts: list[str]) -> bool:
    if not wanted:
        return True
    if wanted[0] == "**":
        return any(_matches_deep(wanted[1:], parts[n:]) for n in range(len(parts)))
    return (
        bool(parts) and _matches_part(wanted[0], parts[0]) and _matches_deep(wanted[1:], parts[1:])
    )


def _matches_part(wanted: str, part: str) -> bool:
    # As in the shell, a star does not find hidden files.
    if part.startswith(".") and not wanted.startswith("."):
        return False
    # fnmatch negates with ! only.
    return fnmatchcase(part, re.sub(r"\[\^", "[!", wanted))


def _before_deep(pattern: str) -> str:
    """Return the part of a pattern in front of `**`, which the plain shell does not know."""
    parts = pattern.split("/")
    return "/".join(parts[: parts.index("**")]) if "**" in parts else pattern
