"""`vast-instances.json`: the view of our rentals that other tools read (DESIGN D4).

Rules
1. The ledger is the truth, this file is a projection of it: nothing is ever read back into it.
2. Other programs write here too. Entries of instances that are not ours and unknown keys of
   ours stay as they are; a file we cannot read is moved aside, never overwritten.
3. A file that cannot be written costs a warning, not the daemon.
"""

import os
import stat
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from vastd import files
from vastd.projects.entry import EXTRA_KEYS, REQUIRED_KEYS, Json, StateEntry, expired, to_json

NAME: Final = "vast-instances.json"
MAX_FILE_BYTES: Final = 16 << 20  # guess: some 20,000 entries; beyond it is not this file
_OURS: Final = frozenset(REQUIRED_KEYS + EXTRA_KEYS)


class Warned(Struct, frozen=True, kw_only=True):
    """A state file that is not as it should be; the others were written nevertheless."""

    path: Path
    message: str


class Unreadable(Exception):
    """The file is there and is not a list of entries."""


class StateFiles:
    """The state file in the state directory, and the one in each project with rentals."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._projects: set[Path] = set()
        self._tidied: set[Path] = set()

    def write(
        self, entries: Sequence[StateEntry], now: float, *, forget: Collection[int] = ()
    ) -> list[Warned]:
        """Bring every file up to date with `entries`: all rentals that have or had an instance.

        Ended ones are shown for seven days, unless `forget` (instance ids) says otherwise; keep
        passing them until then, or they stay in the files as if they were somebody else's.
        Call it at every change: files whose text would not change are not touched.
        """
        gone = {e.instance_id for e in entries if e.ended_at is not None}
        dropped = {e.instance_id for e in entries if expired(e, now)} | (gone & set(forget))
        self._projects |= {e.project for e in entries if e.project is not None}
        warnings = self._bring_up_to_date(self._state_dir, entries, dropped, now)
        for project in sorted(self._projects):
            # What is remembered for vastd itself is not for a file that may be shared.
            its_own = [structs.replace(e, hint=None) for e in entries if e.project == project]
            warnings += self._bring_up_to_date(project, its_own, dropped, now)
        return warnings

    def _bring_up_to_date(
        self, directory: Path, entries: Sequence[StateEntry], dropped: Collection[int], now: float
    ) -> list[Warned]:
        path = directory / NAME
        warnings: list[Warned] = []
        try:
            try:
                data = read(path)
                present = [] if data is None else decode(data, path)
            except Unreadable as exc:
                aside = _move_aside(path, now)
                text = f"{exc}, so it was moved to {aside.name} and written anew"
                warnings.append(Warned(path=path, message=text))
                data, present = None, []
            merged = merge(present, entries, dropped)
            # A project that never had an entry gets no file.
            if data is not None or merged or directory == self._state_dir:
                self._put(path, data, render(merged))
        except OSError as exc:
            text = f"the state file cannot be written: {exc.strerror or exc}"
            warnings.append(Warned(path=path, message=text))
        return warnings

    def _put(self, path: Path, before: bytes | None, after: bytes) -> None:
        if before == after:
            return
        if path not in self._tidied:
            files.remove_leftovers(path)
            self._tidied.add(path)
        files.write_atomic(path, after)


def merge(
    present: Sequence[object], entries: Sequence[StateEntry], dropped: Collection[int]
) -> list[object]:
    """Return what the file shall hold: what is `present`, with ours put in their places.

    Known ids are replaced where they stand, new ones follow in order of creation.
    """
    ours = {
        e.instance_id: to_json(e)
        for e in sorted(entries, key=lambda e: (e.created_at, e.instance_id))
        if e.instance_id not in dropped
    }
    merged: list[object] = []
    placed: set[int] = set()
    for item in present:
        instance_id = _id_of(item)
        if instance_id is None:
            merged.append(item)
        elif instance_id in ours:
            if instance_id not in placed:  # a second entry of one instance helps nobody
                merged.append({**ours[instance_id], **_foreign_keys(item)})
                placed.add(instance_id)
        elif instance_id not in dropped:
            merged.append(item)
    return merged + [entry for instance_id, entry in ours.items() if instance_id not in placed]


def render(items: Sequence[object]) -> bytes:
    """Return the text of the file: indented, because people read it as well."""
    return msgspec.json.format(msgspec.json.encode(items), indent=2) + b"\n"


def read(path: Path) -> bytes | None:
    """Return what is in the file at `path`, or None when there is none.

    Raises:
        Unreadable: something is there that cannot be this file.
        OSError: it cannot be read.
    """
    try:
        # Without O_NONBLOCK a pipe that lies here would hold up the daemon for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if path.is_symlink():
            raise Unreadable(f"{path} is a link to nothing") from None
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unreadable(f"{path} is not a file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise Unreadable(f"{path} is larger than {MAX_FILE_BYTES:,} bytes")
    return data


def decode(data: bytes, path: Path) -> list[object]:
    """Return the entries in `data`, read from `path`.

    Raises:
        Unreadable: it is not a list in JSON.
    """
    try:
        return msgspec.json.decode(data, type=list[object])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise Unreadable(f"{path} is not a list in JSON") from exc


def _id_of(item: object) -> int | None:
    """Return the instance id of an entry; readers also accept it as a text, so do we."""
    value = item.get("instance_id") if isinstance(item, Mapping) else None
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _foreign_keys(item: object) -> Json:
    assert isinstance(item, Mapping)  # it has an instance id
    return {key: value for key, value in item.items() if key not in _OURS}


def _move_aside(path: Path, now: float) -> Path:
    """Rename what cannot be read, never over anything else, and return its new path."""
    stamp = datetime.fromtimestamp(int(now), UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.broken-{stamp}")
    count = 1
    while os.path.lexists(aside):
        count += 1
        aside = path.with_name(f"{path.name}.broken-{stamp}-{count}")
    os.rename(path, aside)
    return aside
