"""Changing settings in the configuration file; comments and order in it stay."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vastd import files
from vastd.config import keys
from vastd.config.keys import BadValue, Key, UnknownKey
from vastd.config.load import Config, parse, read_text
from vastd.config.settings import Value
from vastd.config.views import PATH_SOURCES
from vastd.errors import ConfigError, InvalidRequest

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def set_values(path: Path, changes: Mapping[str, Value], environ: Mapping[str, str]) -> Config:
    """Write every `key = value` into the file at `path`; return the configuration it makes.

    A value of None removes the key, so that its default counts again. A text is read as the
    setting needs it: "20" is a number for a number. All are written at once or none: the whole
    result is checked before, so the file may be repaired through here, but never broken.

    Raises:
        InvalidRequest: there is no such setting, it cannot have that value, or it is named twice.
        ConfigError: the file cannot be read or written, or something else in it is wrong.
    """
    found: dict[str, tuple[Key, Value]] = {}
    for typed, value in changes.items():
        key = _find(typed)
        if key.dotted in found:
            raise InvalidRequest(
                f"{key.dotted} is named twice", hint="say which value it shall have"
            )
        found[key.dotted] = key, _checked(key, value)
    document = _document(path)
    for key, value in found.values():
        _change(document, key, value)
    text = document.as_string()
    config = parse(text, path, environ)
    _write(path, text)
    return config


def _find(typed: str) -> Key:
    if typed in PATH_SOURCES:
        variable, _ = PATH_SOURCES[typed]
        raise InvalidRequest(
            f"{typed} cannot be set here: it says where things are found",
            hint=f"set ${variable} for vastd and vastctl",
        )
    try:
        return keys.find(typed)
    except UnknownKey as exc:
        raise InvalidRequest(str(exc), hint=exc.hint) from exc


def _checked(key: Key, value: Value) -> Value:
    if value is None:
        return None
    if isinstance(value, str):
        value = keys.read_text(key, value)
    try:
        value = keys.plain(keys.convert(key, value))
    except BadValue as exc:
        raise InvalidRequest(f"{key.dotted}: {exc}") from exc
    # 20 is what the user typed, and reads better in the file than 20.0.
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return value


def _document(path: Path) -> "TOMLDocument":
    # Imported here: only this rare request needs it, and a daemon at rest should stay small.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    text = read_text(path) or ""
    try:
        return tomlkit.parse(text)
    except TOMLKitError as exc:
        parse(text, path, {})  # says it better, with the line
        raise ConfigError(f"{path}: cannot be changed: {exc}", hint="edit it by hand") from exc


def _change(document: "TOMLDocument", key: Key, value: Value) -> None:
    import tomlkit

    table = document.get(key.table)
    if value is None:
        if isinstance(table, dict):
            table.pop(key.name, None)
        return
    if table is None:
        table = tomlkit.table()
        document[key.table] = table
    if not isinstance(table, dict):
        raise ConfigError(f"{key.table!r} in the configuration is not a table")
    table[key.name] = value


def _write(path: Path, text: str) -> None:
    try:
        # Configurations are often links into a repository of dotfiles: write what is linked.
        target = path.resolve()
        files.make_private_dir(target.parent)
        files.write_atomic(target, text.encode(), mode=None if target.exists() else 0o600)
    except OSError as exc:
        raise ConfigError(
            f"{path}: the configuration cannot be written: {exc.strerror}",
            hint="make the file and its directory writable for you",
        ) from exc
