"""Where the Vast API key comes from, and how it stays hidden.

Rules
1. The places are tried in a fixed order (CONTRACT 1) and the one that was used is named: a
   stale key in a second place has been taken for the right one (skypilot-org/skypilot#9362).
2. The text of a key leaves a `Secret` only through `reveal`, called where the header is made.
"""

import logging
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from vastd.errors import ConfigError

log = logging.getLogger(__name__)

ENV_NAME: Final = "VAST_API_KEY"
CREDENTIAL_NAME: Final = "vast_api_key"  # systemd `LoadCredential=vast_api_key:…`
_CREDENTIAL: Final = f"systemd credential {CREDENTIAL_NAME}"
SUFFIX_CHARS: Final = 4
# A full Vast key has about 64 characters (VAST_API 1). Below this the suffix would give away
# too much of a short key; guess.
SUFFIX_MIN_KEY_CHARS: Final = 16
MAX_KEY_FILE_BYTES: Final = 4096  # guess: a file larger than this is not a key file


class Secret:
    """Text that no repr, format, JSON encoder or pickle shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text. Call it only where it goes on the wire."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> str:
        raise TypeError("a secret cannot be pickled")


class Key(Struct, frozen=True, kw_only=True):
    """An API key, and what may be said about it."""

    secret: Secret
    origin: str  # for people: "environment variable VAST_API_KEY", "file /home/u/…"
    suffix: str  # last characters; empty when the key is too short to show any


class _Place(Struct, frozen=True):
    """One place to look: `text` is None when there is nothing, `note` says why."""

    origin: str
    text: str | None = None
    note: str = ""


def make_key(text: str, origin: str) -> Key:
    """Return `text` as a key, without the white space around it.

    Raises:
        ConfigError: it cannot be an API key; the message names `origin`, never the text.
    """
    text = text.strip()
    # Anything else would break out of the HTTP header or be mangled in it.
    if not text or not all("!" <= char <= "~" for char in text):
        raise ConfigError(
            f"the vast api key from {origin} is not one line of printable characters",
            hint=f"put the key alone into {origin}; keys are at https://cloud.vast.ai/manage-keys/",
        )
    suffix = text[-SUFFIX_CHARS:] if len(text) >= SUFFIX_MIN_KEY_CHARS else ""
    return Key(secret=Secret(text), origin=origin, suffix=suffix)


def find_key(*, api_key_file: Path | None = None, environ: Mapping[str, str], home: Path) -> Key:
    """Return the key of the first place that holds one.

    Order: `api_key_file` of the configuration, `$VAST_API_KEY`, the file of the official
    client, its older file, the systemd credential. A configured file is the user's explicit
    word: if it cannot be used, no other place is tried.

    Raises:
        ConfigError: no place holds a key (the message lists every one), or one cannot be used.
    """
    if api_key_file is not None:
        place = _from_file(_expand(api_key_file, home))
        if place.text is None:
            raise ConfigError(
                f"api_key_file: {place.origin} cannot be used: {place.note}",
                hint="correct `api_key_file` in the configuration, or remove it",
            )
        return make_key(place.text, place.origin)
    looked_at: list[str] = []
    for place in _places(environ, home):
        if place.text is not None:
            return make_key(place.text, place.origin)
        looked_at.append(f"{place.origin} ({place.note})")
    raise ConfigError(
        f"no vast api key found; looked at {', '.join(looked_at)}",
        hint=f"set {ENV_NAME}, or write the key to one of these files (mode 600)",
    )


def _places(environ: Mapping[str, str], home: Path) -> Iterator[_Place]:
    """Yield every implicit place in order; lazily, so that no file is read needlessly."""
    origin = f"environment variable {ENV_NAME}"
    from_env = environ.get(ENV_NAME)
    if from_env is None:
        yield _Place(origin, note="not set")
    elif not from_env.strip():
        # The official client sends an empty bearer token here; that can only be an accident.
        yield _Place(origin, note="empty")
    else:
        yield _Place(origin, from_env)
    yield _from_file(_xdg_config(environ, home) / "vastai" / "vast_api_key")
    yield _from_file(home / ".vast_api_key")
    directory = environ.get("CREDENTIALS_DIRECTORY")
    if directory:
        # systemd guards it with an ACL, which shows as group bits.
        place = _from_file(Path(directory) / CREDENTIAL_NAME, guarded=True)
        # Its path lies in memory that nobody can edit; the name is what the unit says.
        yield structs.replace(place, origin=_CREDENTIAL)
    else:
        yield _Place(_CREDENTIAL, note="none passed")


def _xdg_config(environ: Mapping[str, str], home: Path) -> Path:
    configured = environ.get("XDG_CONFIG_HOME", "")
    # The XDG base directory rules: a relative path is to be ignored.
    return Path(configured) if os.path.isabs(configured) else home / ".config"


def _expand(path: Path, home: Path) -> Path:
    parts = path.parts
    if parts and parts[0] == "~":
        return home.joinpath(*parts[1:])
    return path


def _from_file(path: Path, *, guarded: bool = False) -> _Place:
    origin = f"file {path}"
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_KEY_FILE_BYTES + 1)
    except FileNotFoundError:
        return _Place(origin, note="does not exist")
    except OSError as error:
        # Going on to the next place may find another account's key, so it is said aloud.
        log.warning("cannot read the api key in %s: %s", origin, error.strerror)
        return _Place(origin, note=f"unreadable: {error.strerror}")
    if len(data) > MAX_KEY_FILE_BYTES:
        return _Place(origin, note="too large to be a key file")
    text = data.decode("utf-8", "replace")
    if not text.strip():
        return _Place(origin, note="empty")
    if not guarded and mode & (stat.S_IRWXG | stat.S_IRWXO):
        log.warning("%s can be read by others; `chmod 600` it", origin)
    return _Place(origin, text)
