"""Reading the configuration: the file, then the environment, each value with its origin.

Rules
1. Nothing is guessed: an unknown table or key, a wrong type, a value out of range ends the
   start with file, line and remedy. A watchdog that was switched off by a typo costs money.
2. Values that fail are not repeated in messages: people paste keys into the wrong line.
"""

import re
import stat
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct, structs

from vastd.config import keys
from vastd.config.keys import BadValue, UnknownKey
from vastd.config.lines import line_of
from vastd.config.settings import Settings, Value
from vastd.errors import ConfigError
from vastd_protocol import paths

ENVIRONMENT: Final[Mapping[str, str]] = {"VAST_URL": "vast.url"}
MAX_FILE_BYTES: Final = 1 << 20  # guess: a hand-written file is a thousandth of it

_LINE: Final = re.compile(r"line (\d+)")


class Origin(StrEnum):
    """Who said it. Later ones win: default, file, environment, project."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    PROJECT = "project"


class Config(Struct, frozen=True, kw_only=True):
    """All settings, with where each came from."""

    value: Settings = Settings()
    path: Path  # may not exist: then nothing comes from it
    state_dir: Path
    origins: Mapping[str, Origin] = {}  # by dotted key; without an entry it is the default
    warnings: tuple[str, ...] = ()  # for people; the configuration works nevertheless

    def origin(self, key: str) -> Origin:
        """Return where the value of the dotted `key` came from."""
        return self.origins.get(key, Origin.DEFAULT)

    def get(self, key: str) -> Value:
        """Return the value of the dotted `key` as it would stand in the file."""
        table, _, name = key.partition(".")
        return keys.plain(getattr(getattr(self.value, table), name))

    def overlaid(self, values: Mapping[str, object], origin: Origin, where: str = "") -> "Config":
        """Return this configuration with `values` (by dotted key) put over it.

        Raises:
            ConfigError: a key does not exist, or cannot have that value; `where` names the
                place in the message, without it `origin` does.
        """
        where = where or str(origin)
        settings, origins = self.value, dict(self.origins)
        for typed, value in values.items():
            try:
                key = keys.find(typed)
                settings = _put(settings, key, value)
            except UnknownKey as exc:
                raise ConfigError(f"{where}: {exc}", hint=exc.hint) from exc
            except BadValue as exc:
                raise ConfigError(f"{where}: {typed}: {exc}") from exc
            origins[key.dotted] = origin
        _check_together(settings, where)
        return structs.replace(self, value=settings, origins=origins)


def load(path: Path, environ: Mapping[str, str], *, must_exist: bool = False) -> Config:
    """Read the configuration at `path`, with `environ` put over it.

    A file that does not exist means defaults, unless the user named it (`must_exist`).

    Raises:
        ConfigError: it cannot be read or used; names file, line and key.
    """
    text = read_text(path)
    if text is None and must_exist:
        raise ConfigError(
            f"{path}: no such configuration file", hint="correct --config or create it"
        )
    return parse(text or "", path, environ)


def read_text(path: Path) -> str | None:
    """Return the text of the configuration file, or None when there is none.

    Raises:
        ConfigError: it is there but cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path}: not a file, so it cannot be the configuration")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ConfigError(
            f"{path}: the configuration cannot be read: {exc.strerror}",
            hint=f"make it readable for you: chmod u+r {path}",
        ) from exc
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: more than {MAX_FILE_BYTES:,} bytes, not a configuration")
    try:
        # Some editors begin a file with a byte order mark, which TOML does not know.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text", hint="save it as UTF-8") from exc


def parse(text: str, path: Path, environ: Mapping[str, str]) -> Config:
    """Return the configuration that `text`, read from `path`, and `environ` make together.

    Raises:
        ConfigError: as `load`.
    """
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(*_syntax(text, path, exc)) from exc
    settings = Settings()
    origins: dict[str, Origin] = {}
    problems: list[tuple[int | None, str, str]] = []
    for table, content in tree.items():
        if table not in keys.tables() or not isinstance(content, dict):
            problems.append((line_of(text, (table,)), *_not_a_table(table, content)))
            continue
        for name, value in content.items():
            key = keys.all_keys().get(f"{table}.{name}")
            line = line_of(text, (table, name))
            if key is None:
                problems.append((line, *_unknown(table, name)))
                continue
            try:
                settings = _put(settings, key, value)
            except BadValue as exc:
                problems.append((line, f"{key.dotted}: {exc}", ""))
            origins[key.dotted] = Origin.FILE
    if problems:
        raise _error(path, problems)
    _check_together(settings, str(path))
    config = Config(value=settings, path=path, state_dir=_state_dir(environ), origins=origins)
    return _with_warnings(_with_environment(config, environ))


def _with_environment(config: Config, environ: Mapping[str, str]) -> Config:
    for variable, key in ENVIRONMENT.items():
        if value := environ.get(variable, ""):  # an empty variable is how shells say "unset"
            config = config.overlaid({key: value}, Origin.ENVIRONMENT, where=f"${variable}")
    return config


def _state_dir(environ: Mapping[str, str]) -> Path:
    named = environ.get("VASTD_STATE_DIR")
    return Path(named) if named else paths.state_dir()


def _put(settings: Settings, key: keys.Key, value: object) -> Settings:
    converted = keys.convert(key, value)
    if key.dotted == "vast.url" and isinstance(converted, str):
        # The API's paths begin with a slash; two in a row are another path for Vast.
        converted = converted.rstrip("/")
    table = structs.replace(getattr(settings, key.table), **{key.name: converted})
    return structs.replace(settings, **{key.table: table})


def _check_together(settings: Settings, where: str) -> None:
    timing = settings.timing
    if timing.lease_renew_s >= timing.lease_s:
        raise ConfigError(
            f"{where}: timing.lease_renew_s ({timing.lease_renew_s:g}) is not below "
            f"timing.lease_s ({timing.lease_s:g}): every lease would run out before its renewal",
            hint="a twelfth of lease_s is a good lease_renew_s",
        )


def _not_a_table(name: str, content: object) -> tuple[str, str]:
    if name in keys.tables():
        return f"{name!r} is a table", f"write [{name}] on a line of its own, its keys below"
    if not isinstance(content, dict):
        if homes := [table for table in keys.tables() if f"{table}.{name}" in keys.all_keys()]:
            return f"{name!r} stands outside of its table", f"put it below [{homes[0]}]"
        hint = keys.did_you_mean(name, keys.all_keys())
        return f"unknown key {name!r} outside of any table", hint
    return f"unknown table [{name}]", keys.did_you_mean(name, keys.tables())


def _unknown(table: str, name: str) -> tuple[str, str]:
    message = f"unknown key {name!r} in [{table}]"
    if name in {"api_key", "key", "token"}:
        return message, "a key never goes in here: name its file with vast.api_key_file"
    if elsewhere := [t for t in keys.tables() if f"{t}.{name}" in keys.all_keys()]:
        return message, f"it belongs below [{elsewhere[0]}]"
    names = [key.name for key in keys.all_keys().values() if key.table == table]
    return message, keys.did_you_mean(name, names) or f"known: {', '.join(names)}"


def _error(path: Path, problems: list[tuple[int | None, str, str]]) -> ConfigError:
    line, message, hint = problems[0]
    place = f"{path}:{line}" if line else str(path)
    rest = [str(number) for number, _, _ in problems[1:] if number]
    more = f" (more problems in line {', '.join(rest)})" if rest else ""
    return ConfigError(f"{place}: {message}{more}", hint=hint)


def _syntax(text: str, path: Path, exc: Exception) -> tuple[str]:
    found = _LINE.search(str(exc))
    line = int(found[1]) if found else max(1, len(text.splitlines()))
    reason = str(exc).partition(" (at ")[0] if isinstance(exc, ValueError) else "too deep"
    return (f"{path}:{line}: not valid TOML: {reason[:1].lower()}{reason[1:]}",)


def _with_warnings(config: Config) -> Config:
    url = urlsplit(config.value.vast.url)
    if url.scheme == "http" and not _is_loopback(url.hostname or ""):
        warning = f"vast.url is {config.value.vast.url}: the key travels unencrypted over http"
        return structs.replace(config, warnings=(*config.warnings, warning))
    return config


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
