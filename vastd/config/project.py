"""A project's own defaults: `vastd.toml`, or `[tool.vastd]` in `pyproject.toml`, at its root.

Rules
1. The file may come from somebody else's repository. It says what the project needs and may lower
   caps; where the key goes, which keys log in, what is sent although it looks secret and how fast
   Vast is asked is not for it to say, and a cap or a time limit over the user's own does not count.
2. A file that cannot be used is an error with file and line, of calls of that project only.
3. Nothing is guessed: two files that both speak are an error.
"""

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from vastd.config import keys
from vastd.config.keys import BadValue
from vastd.config.lines import line_of
from vastd.config.load import Config, Origin
from vastd.config.settings import Profile
from vastd.errors import ConfigError

NAMES: Final = ("vastd.toml", "pyproject.toml")
MAX_FILE_BYTES: Final = 1 << 20  # guess: a hand-written file is a thousandth of it
_PYPROJECT_TABLE: Final = ("tool", "vastd")
_NAMED: Final = re.compile("vastd", re.IGNORECASE)
_LINE: Final = re.compile(r"line (\d+)")

ALLOWED: Final = frozenset(
    {
        *("defaults.image", "defaults.disk_gb", "defaults.max_runtime_s", "defaults.idle_s"),
        "defaults.profile",
        *("budget.per_job_usd", "budget.max_dph_usd"),
        *(key for key in keys.all_keys() if key.startswith(("needs.", "job."))),
    }
)
# Only ever lowered: what bounds money, and the times that end a forgotten machine.
CAPS: Final = frozenset(
    {"budget.per_job_usd", "budget.max_dph_usd", "defaults.max_runtime_s", "defaults.idle_s"}
)
MAX_DISK_GB: Final = 1000.0  # guess: 20 times the default; a disk is paid for by the hour, too
# Asked for in a project's file, and refused with the reason.
_NOT_FOR_PROJECTS: Final[Mapping[str, str]] = {
    "job.env": "it would send variables of your own shell to a rented machine; use `--env NAME`",
    "job.include": "it would send files that look secret to a rented machine; use `--include PATH`",
    "vast.url": "it would decide where your key is sent",
    "vast.api_key_file": "it would decide which of your files is read as a key",
    "defaults.ssh_key": "it would decide which of your keys logs in",
}
_SAFE_OUTPUT: Final = re.compile(r"[A-Za-z0-9_][^/*?\[\]]*+(?:/.*)?|\*\.[A-Za-z0-9_]+")
# Files that only one workflow keeps at a project's root (SCHEMAS 5 and 11.2).
_MARKS: Final = (
    (Profile.ARF, "project/budget.json"),
    (Profile.ARIS, ".aris"),
)


class ProjectFile(Struct, frozen=True, kw_only=True):
    """What a project says. `path` is None when it says nothing."""

    root: Path
    path: Path | None = None
    values: Mapping[str, object] = {}  # by dotted key
    lines: Mapping[str, int] = {}  # where each stands

    def where(self, dotted: str) -> str:
        """Return `FILE:LINE` of a key, for people."""
        name = self.path.name if self.path else ""
        line = self.lines.get(dotted)
        return f"{name}:{line}" if line else name


class Stated(Struct, frozen=True, kw_only=True):
    """The profile in force, and who said so. `origin` is None when a flag did."""

    profile: Profile
    origin: Origin | None
    source: str


def read_project(root: Path) -> ProjectFile:
    """Read what the project at `root` says of itself.

    Raises:
        ConfigError: the file is no good; names file, line and key.
    """
    found = []
    for name in NAMES:
        text = _read(root, name)
        if text is None:
            continue
        prefix = _PYPROJECT_TABLE if name == "pyproject.toml" else ()
        tree = _tables(root / name, text, prefix)
        if tree is not None:
            found.append(_project_file(root, root / name, text, tree, prefix))
    if len(found) == 2:
        raise ConfigError(
            f"{root}: both vastd.toml and pyproject.toml [tool.vastd] set defaults",
            hint="keep one of them: nothing tells which should win",
        )
    return found[0] if found else ProjectFile(root=root)


def put_over(config: Config, project: ProjectFile) -> tuple[Config, list[str]]:
    """Return `config` with the project's values over it, and warnings about caps that were kept.

    Raises:
        ConfigError: the values contradict each other.
    """
    values, warnings = dict(project.values), []
    for dotted in CAPS & values.keys():
        own, asked = config.get(dotted), values[dotted]
        assert isinstance(own, int | float)
        assert isinstance(asked, int | float)
        if asked > own:
            del values[dotted]
            warnings.append(
                f"{project.where(dotted)}: {dotted} = {asked:g} is over your own {own:g}, which "
                "stays: a project may only lower it"
            )
    return config.overlaid(values, Origin.PROJECT, where=str(project.path)), warnings


def detected_profile(root: Path) -> tuple[Profile, str] | None:
    """Return the workflow whose files lie in the project, and which file told; None: neither."""
    for profile, mark in _MARKS:
        if os.path.lexists(root / mark):
            return profile, mark
    return None


def _read(root: Path, name: str) -> str | None:
    """Return the text of a file of the project; None when there is none.

    Raises:
        ConfigError: it is no plain file of this project, too large, or no text.
    """
    path = root / name
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root.resolve()):
            raise ConfigError(
                f"{path}: it is a link out of the project, and is not read",
                hint="put the file itself there",
            )
        # Opened by its real name, without waiting: a pipe with that name must not hold vastd.
        handle = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check_file(path, os.fstat(handle))
            with open(handle, "rb", closefd=False) as file:
                data = file.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(handle)
    except (FileNotFoundError, NotADirectoryError):
        # Whoever made a link here wants its target to be read; a pyproject.toml is not ours alone.
        if name == NAMES[0] and path.is_symlink():
            raise ConfigError(
                f"{path}: it is a link to {os.readlink(path)!r}, and there is nothing",
                hint="correct the link, or remove it",
            ) from None
        return None
    except (OSError, RuntimeError) as exc:  # RuntimeError: links in a circle
        raise ConfigError(f"{path}: it cannot be read: {exc}", hint="make it readable") from exc
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: more than {MAX_FILE_BYTES:,} bytes, so it is not read")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text", hint="save it as UTF-8") from exc


def _check_file(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(f"{path}: not a file, so it cannot hold the project's defaults")
    # In a directory others may write to, such as /tmp, the file may be anybody's.
    me = os.geteuid()
    if info.st_uid not in (0, me) and me != 0:
        raise ConfigError(
            f"{path}: it belongs to another user (id {info.st_uid}), so it is not read",
            hint="make it yours, or work in a directory of your own",
        )


def _tables(path: Path, text: str, prefix: tuple[str, ...]) -> dict[str, object] | None:
    """Return the tables that are meant for us, or None when there are none."""
    try:
        tree: object = tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        # Most projects have a pyproject.toml, and most of them say nothing to us. One that cannot
        # be read and has our name somewhere may: TOML has many ways to write a table.
        if prefix and "vastd" not in text.lower():
            return None
        found = _LINE.search(str(exc))
        line = int(found[1]) if found else max(1, text.count("\n") + 1)
        raise ConfigError(f"{path}:{line}: not valid TOML", hint="correct it, or move it") from exc
    for name in prefix:
        if isinstance(tree, dict) and name not in tree:
            _check_spelling(path, text, tree, prefix)
        tree = tree.get(name) if isinstance(tree, dict) else None
    if tree is None:
        return None
    if not isinstance(tree, dict):
        line_number = line_of(text, prefix) or 1
        raise ConfigError(f"{path}:{line_number}: {'.'.join(prefix)} must be a table")
    return tree


def _check_spelling(
    path: Path, text: str, tree: Mapping[str, object], prefix: tuple[str, ...]
) -> None:
    """Refuse `[Tool.vastd]` and `[tool.VastD]`: nothing in them would count, and nobody be told."""
    for name, content in tree.items():
        ours = name.lower() == prefix[-1]
        if name.lower() == prefix[0] and isinstance(content, dict):
            ours = any(inner.lower() == prefix[-1] for inner in content)
        if ours:
            line = _NAMED.search(text)
            number = 1 if line is None else text.count("\n", 0, line.start()) + 1
            raise ConfigError(
                f"{path}:{number}: {name!r} is not read: names in TOML have small and large letters",
                hint=f"write it [{'.'.join(prefix)}]",
            )


def _project_file(
    root: Path, path: Path, text: str, tree: Mapping[str, object], prefix: tuple[str, ...]
) -> ProjectFile:
    values: dict[str, object] = {}
    lines: dict[str, int] = {}
    for table, content in tree.items():
        line = line_of(text, (*prefix, table)) or 1
        if not isinstance(content, dict):
            raise ConfigError(
                f"{path}:{line}: {table[:60]!r} is not in a table",
                hint="the tables of a project are [defaults], [needs], [job] and [budget]",
            )
        for name, value in content.items():
            dotted = f"{table}.{name}"
            lines[dotted] = line_of(text, (*prefix, table, name)) or line
            values[dotted] = _judged(f"{path}:{lines[dotted]}", dotted, value)
    return ProjectFile(root=root, path=path, values=values, lines=lines)


def _judged(where: str, dotted: str, value: object) -> object:
    """Return `value` if a project may set `dotted` to it."""
    known = keys.all_keys()
    if dotted not in ALLOWED:
        shown = dotted[:80]
        if dotted in known or dotted in _NOT_FOR_PROJECTS:
            why = _NOT_FOR_PROJECTS.get(dotted, "it is yours, and belongs into your configuration")
            raise ConfigError(f"{where}: a project may not set {shown}: {why}")
        hint = keys.did_you_mean(shown, sorted(ALLOWED))
        raise ConfigError(f"{where}: unknown key {shown!r}", hint=hint)
    try:
        found = keys.plain(keys.convert(known[dotted], value))
    except BadValue as exc:
        raise ConfigError(f"{where}: {dotted}: {exc}") from exc
    if dotted == "job.outputs":
        _check_outputs(where, found)
    if dotted == "defaults.disk_gb" and isinstance(found, int | float) and found > MAX_DISK_GB:
        raise ConfigError(
            f"{where}: defaults.disk_gb: a project may ask for at most {MAX_DISK_GB:g} GB",
            hint="name more yourself with `--disk GB`",
        )
    return found


def _check_outputs(where: str, outputs: object) -> None:
    """Refuse outputs that would let a machine write `.git/hooks` or `.envrc` at home, which run
    here without anybody starting them."""
    assert isinstance(outputs, list)
    for output in outputs:
        if not _SAFE_OUTPUT.fullmatch(output) or ".." in output.split("/"):
            raise ConfigError(
                f"{where}: job.outputs: a project names directories and files that are not hidden, "
                "or `*.SUFFIX`",
                hint="name anything else yourself with `--output`",
            )
