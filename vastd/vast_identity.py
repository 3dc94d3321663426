"""Which Vast the rentals on record belong to: an address, or the simulated one.

Elsewhere nobody knows our machines, and a listing without them would be taken for their end while
they go on billing. So a start at another Vast is refused while something is rented.

Rules
1. The note is on disk before anything can be rented, and changes only while nothing is.
2. Without a note (a state directory of an older version, or a user who removed it because Vast
   itself has moved) the address in force is believed.
3. The simulator has a new port at every start: all of it is one Vast.
"""

import logging
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from vastd.errors import ConfigError, StoreError
from vastd.files import write_atomic

_log = logging.getLogger(__name__)

NAME: Final = "vast-address"
SIMULATED: Final = "simulated"
MAX_NOTE_BYTES: Final = 4096  # guess: an address is a fiftieth of it


def vast_identity(url: str, *, simulated: bool) -> str:
    """Return what tells one Vast from another, however its address is spelled."""
    if simulated:
        return SIMULATED
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def hold_to(state_dir: Path, identity: str, live: int, *, uncertain: bool) -> None:
    """Note that rentals belong to `identity` from now on, or refuse.

    `live` rentals are on record. `uncertain` is whether there may be others: the store was lost.

    Raises:
        ConfigError: they belong to another Vast; nothing was changed.
        StoreError: the note cannot be read, or cannot be made before something is rented.
    """
    path = state_dir / NAME
    noted = _read(path)
    if noted == identity:
        return
    if noted is not None and (live or uncertain):
        raise _elsewhere(path, noted, identity, live)
    try:
        write_atomic(path, f"{identity}\n".encode(), mode=0o600)
    except OSError as exc:
        if live:
            # What is rented must be looked after; the note is made at a start with room for it.
            _log.warning("%s is not written: %s", path, exc.strerror)
            return
        raise StoreError(
            f"cannot write {path}: {exc.strerror}",
            hint="vastd notes which Vast it rents from before it rents: make room, or writable",
        ) from exc


def _elsewhere(path: Path, noted: str, identity: str, live: int) -> ConfigError:
    what = f"{live} rentals on record are" if live else "what the lost store knew was"
    back = "start vastd with --simulate" if noted == SIMULATED else f"set vast.url to {noted}"
    if identity == SIMULATED:
        back = f"start vastd without --simulate ({noted})"
    return ConfigError(
        f"{what} of {_shown(noted)}, and this start is for {_shown(identity)}: there they would "
        "look as if they had ended, while they go on billing",
        hint=f"{back}, and end them there; if both are the same Vast, remove {path}",
    )


def _shown(identity: str) -> str:
    return "the simulated Vast" if identity == SIMULATED else f"the Vast at {identity}"


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_NOTE_BYTES).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StoreError(f"cannot read {path}: {exc.strerror}") from exc
    return text or None
