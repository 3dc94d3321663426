"""The settings by dotted key: finding one by what a user typed, and judging a value for it."""

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import msgspec
from msgspec import Struct, inspect, structs

from vastd.config.settings import Settings, Value

UNITS: Final[tuple[tuple[str, str], ...]] = (
    ("_s", " of seconds"),
    ("_gb", " of GB"),
    ("_usd", " of dollars"),
    ("_percent", " of percent"),
)
SHOWN_CHARS: Final = 60  # guess: enough to recognise a word one typed


class Key(Struct, frozen=True, kw_only=True):
    """One setting. `default` is as it would stand in the file; None: the key is left out."""

    table: str
    name: str
    type: object  # with its range, as msgspec wants it
    default: Value
    source: str

    @property
    def dotted(self) -> str:
        """The key as users write it, as in `timing.settle_s`."""
        return f"{self.table}.{self.name}"


class BadValue(Exception):
    """A value a setting cannot have; the text says what it may be. Caught inside this package."""


class UnknownKey(Exception):
    """No such setting; `hint` names a near one, or is empty. Caught inside this package."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@cache
def all_keys() -> Mapping[str, Key]:
    """Return every setting by dotted key, in the order of the tables."""
    keys = {}
    for table in structs.fields(Settings):
        struct = table.default
        assert isinstance(struct, Struct)
        for field in structs.fields(struct):
            source = field.type.__metadata__[-1].extra["source"]
            key = Key(
                table=table.name,
                name=field.name,
                type=field.type,
                default=plain(getattr(struct, field.name)),
                source=source,
            )
            keys[key.dotted] = key
    return keys


@cache
def tables() -> tuple[str, ...]:
    """Return the names of all tables, in order."""
    return tuple(dict.fromkeys(key.table for key in all_keys().values()))


def find(typed: str) -> Key:
    """Return the setting a user means: its dotted key, or its bare name where that is unique.

    Raises:
        UnknownKey: there is none, or several tables have it.
    """
    keys = all_keys()
    if typed in keys:
        return keys[typed]
    bare = [key for key in keys.values() if key.name == typed]
    if len(bare) == 1:
        return bare[0]
    if bare:
        names = ", ".join(key.dotted for key in bare)
        raise UnknownKey(f"{typed!r} is in several tables", f"say which: {names}")
    shown = typed[:SHOWN_CHARS]
    raise UnknownKey(f"no setting is called {shown!r}", did_you_mean(shown, keys))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the nearest of `known`, or an empty string."""
    known = list(known)
    # Users forget the table as often as they misspell the key: compare the last part as well.
    tails = {name.rpartition(".")[2]: name for name in known}
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.7)
    if not near:
        found = difflib.get_close_matches(word.rpartition(".")[2], tails, n=1, cutoff=0.7)
        near = [tails[name] for name in found]
    return f"did you mean {near[0]!r}?" if near else ""


def convert(key: Key, value: object) -> object:
    """Return `value` as the Struct holds it.

    Raises:
        BadValue: it has the wrong type or is out of range.
    """
    # TOML knows inf and nan: every number has a range here, which refuses both.
    try:
        return msgspec.convert(value, key.type)
    except msgspec.ValidationError as exc:
        raise BadValue(f"expected {expected(key)}, got {_shown(key, value)}") from exc


def read_text(key: Key, text: str) -> Value:
    """Return what `text`, typed on a command line, means for `key`: a number, a word, a list.

    A text that cannot be read comes back as it is: `convert` then says what was expected.
    """
    kind = _kind(key)
    match kind:
        case inspect.BoolType() if text.lower() in {"true", "yes", "on", "false", "no", "off"}:
            return text.lower() in {"true", "yes", "on"}
        case inspect.IntType() | inspect.FloatType():
            for number in (int, float):
                try:
                    return number(text)
                except ValueError:
                    continue
            return text
        case inspect.VarTupleType():
            return [part.strip() for part in text.split(",") if part.strip()]
        case _:
            return text


def plain(value: object) -> Value:
    """Return a Struct's value as TOML and JSON hold it."""
    built = msgspec.to_builtins(value)
    if isinstance(built, tuple):
        built = list(built)
    assert built is None or isinstance(built, str | int | float | bool | list)
    return built


def expected(key: Key) -> str:
    """Return what `key` may hold, in words."""
    kind = _kind(key)
    match kind:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"a whole number{_range(kind)}"
        case inspect.FloatType():
            unit = next((text for suffix, text in UNITS if key.name.endswith(suffix)), "")
            if key.table == "rates":
                unit = " of seconds"
            return f"a number{unit}{_range(kind)}"
        case inspect.EnumType() | inspect.LiteralType():
            return "one of " + ", ".join(repr(choice) for choice in choices(key))
        case inspect.VarTupleType():
            if key.name == "outputs":
                return 'a list of paths inside the project such as "results/"'
            return 'a list of web origins such as "http://localhost:3000"'
        case _:
            return {
                "url": "an http or https address without user, query and fragment",
                "image": "an image name without spaces, at most 1,024 characters",
                "gpu_name": "the name of a GPU such as RTX_4090",
                "heartbeat": "a path inside the project",
                "checkpoint": "a path inside the project",
                "salvage": "a shell command on one line",
            }.get(key.name, "the path of a file")


def choices(key: Key) -> list[str]:
    """Return the words `key` may be, or nothing when it is not a closed set."""
    match _kind(key):
        case inspect.EnumType(cls=cls):
            return [str(member.value) for member in cls]
        case inspect.LiteralType(values=values):
            return [str(value) for value in values]
        case _:
            return []


def _kind(key: Key) -> inspect.Type:
    info = inspect.type_info(key.type)
    while isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(info, inspect.UnionType):
        info = next(t for t in info.types if not isinstance(t, inspect.NoneType))
    while isinstance(info, inspect.Metadata):
        info = info.type
    return info


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    low = f" from {kind.ge:,.12g}" if kind.ge is not None else ""
    low = f" above {kind.gt:,.12g}" if kind.gt is not None else low
    return f"{low} to {kind.le:,.12g}" if kind.le is not None else low


def _shown(key: Key, value: object) -> str:
    # Texts are not repeated unless the set is closed: people paste keys into the wrong line.
    words = choices(key)
    if isinstance(value, str):
        if words:
            hint = did_you_mean(value, words)
            return f"{value[:SHOWN_CHARS]!r}{'; ' + hint if hint else ''}"
        return "another text" if _is_text(key) else "a text"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value!r}"[:SHOWN_CHARS]
    return {dict: "a table", list: "a list", type(None): "nothing"}.get(type(value), "a date")


def _is_text(key: Key) -> bool:
    return isinstance(_kind(key), inspect.StrType)
