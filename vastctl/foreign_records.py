"""Reading files that tell of rented machines: a hand-kept `vast-instances.json`, or an `export`.

Rules
1. The file is only read: keys nobody here knows stay where they are.
2. A file that is no JSON is refused with the line; one bad entry costs only itself.
3. Numbers and dates that cannot be meant are left out, not believed; control characters in texts
   are made visible, so that no record carries them on.
"""

import json
import math
import os
import stat
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from vastctl.errors import CliError, UsageError
from vastctl.screen import one_line
from vastctl.whole_file import kind_of
from vastd_protocol.methods.record import Record

STATE_FILE: Final = "vast-instances.json"
EXPORT: Final = "vastd-export"
MAX_FILE_BYTES: Final = 64 << 20  # guess: 200,000 events; as objects it takes ten times that
_MAX_TEXT: Final = 500  # characters of any one field; guess
_MAX_ID: Final = 2**53  # what every reader of JSON holds exactly; Vast's have 8 digits
_MAX_NAMES: Final = 1000  # experiments of one machine; guess
_YEARS: Final = range(2000, 2101)  # guess; nobody rented a GPU before


class Read:
    """What a file tells: its records, and in words what is wrong with other entries."""

    def __init__(self, path: str, kind: str) -> None:
        self.path = path
        self.kind = kind
        self.records: list[Record] = []
        self.problems: list[str] = []
        self.ids: set[int] = set()


def read_file(named: str) -> Read:
    """Return the records in a file, or in the state file of a directory.

    Raises:
        UsageError: there is no such file.
        CliError: it is not what can be read here; says in which line.
    """
    path = os.path.join(named, STATE_FILE) if os.path.isdir(named) else named
    document = _parse(path)
    if isinstance(document, list):
        return _state_file(path, document)
    if isinstance(document, dict) and document.get("format") == EXPORT:
        return _export(path, document)
    raise CliError(
        f"{path!r} is neither a list of instances nor an export of vastd",
        hint=f"it must be a {STATE_FILE} or what `vastctl export` wrote",
    )


def _parse(path: str) -> object:
    data = _read(path)
    try:
        return json.loads(data)
    except json.JSONDecodeError as exc:
        raise CliError(
            f"{path!r} is no JSON: line {exc.lineno}, column {exc.colno}: {exc.msg.lower()}",
            hint="mend that line; nothing was changed",
        ) from exc
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise CliError(f"{path!r} is no JSON: line {line} is not UTF-8") from exc
    except (RecursionError, MemoryError) as exc:
        raise CliError(f"{path!r} is nested too deeply to be read") from exc
    except ValueError as exc:  # a number of more digits than Python reads
        raise CliError(f"{path!r} cannot be read: {exc}") from exc


def _read(path: str) -> bytes:
    """Return what is in a file. A pipe or a device is none: it may never end."""
    try:
        # Not waiting for a writer: the open itself would hang on a pipe.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise UsageError(
                    f"{path!r} is {kind_of(mode)}, not a file",
                    hint="write what it gives into a file, and import that",
                )
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(
            f"there is no {path!r}", hint=f"name a {STATE_FILE}, its directory, or an export"
        ) from None
    except OSError as exc:
        raise CliError(f"cannot read {path!r}: {exc.strerror}") from exc
    if len(data) > MAX_FILE_BYTES:
        raise CliError(
            f"{path!r} is larger than {MAX_FILE_BYTES:,} bytes",
            hint="an export becomes smaller with `vastctl export --since 90d`",
        )
    return data


def _state_file(path: str, entries: Sequence[object]) -> Read:
    found = Read(path, STATE_FILE)
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            found.problems.append(f"entry {number} is no object")
            continue
        instance_id = _id(entry.get("instance_id"))
        if instance_id is None:
            found.problems.append(f"entry {number} has no instance_id that is a number")
            continue
        launched = entry.get("experiments")
        names = [launched] if isinstance(launched, str) else launched
        named = names if isinstance(names, list) else [entry.get("experiment")]
        record = Record(
            instance_id=instance_id,
            status=_text(entry, "status"),
            gpu_name=_text(entry, "gpu_name"),
            num_gpus=_count(entry.get("num_gpus")),
            dph_usd=_number(entry, "dph"),
            cost_usd=_number(entry, "actual_cost"),
            created_at=_date(entry, "created_at"),
            ended_at=_date(entry, "destroyed_at"),
            offer_id=_id(entry.get("offer_id")),
            label=_text(entry, "label"),
            image=_text(entry, "image"),
            project=_shown(os.path.dirname(os.path.abspath(path))),
            experiments=[
                _shown(name) for name in named[:_MAX_NAMES] if isinstance(name, str) and name
            ],
        )
        _add(found, record, f"entry {number}")
    return found


def _export(path: str, document: Mapping[str, object]) -> Read:
    found = Read(path, "export")
    if document.get("version") != 1:
        raise CliError(
            f"{path!r} is an export of version {document.get('version')!r}; version 1 is known here",
            hint="export it with this version of vastctl, or import it with a newer one",
        )
    listed = document.get("rentals")
    for number, entry in enumerate(listed if isinstance(listed, list) else [], 1):
        if not isinstance(entry, Mapping):
            found.problems.append(f"rental {number} is no object")
            continue
        instance_id = _id(entry.get("instance_id"))
        if instance_id is None:
            continue  # it never had a machine: a create that Vast refused
        record = Record(
            instance_id=instance_id,
            name=_text(entry, "name"),
            rental_id=_text(entry, "rental_id"),
            status=_text(entry, "phase"),
            gpu_name=_text(entry, "gpu_name"),
            num_gpus=_count(entry.get("num_gpus")),
            dph_usd=_number(entry, "dph_usd"),
            cost_usd=_number(entry, "cost_usd"),
            created_at=_date(entry, "created_at"),
            ended_at=_date(entry, "ended_at"),
            end_reason=_text(entry, "end_reason"),
            offer_id=_id(entry.get("offer_id")),
            label=_text(entry, "label"),
            image=_text(entry, "image"),
            project=_text(entry, "project"),
        )
        _add(found, record, f"rental {number}")
    return found


def _add(found: Read, record: Record, where: str) -> None:
    if record.instance_id in found.ids:
        found.problems.append(f"{where}: instance {record.instance_id} is there twice")
        return
    found.ids.add(record.instance_id)
    found.records.append(record)


def _id(value: object) -> int | None:
    """Return an id; readers of the state file also accept it as a text (SCHEMAS 1)."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_ID:
        return value
    return None


def _count(value: object) -> int | None:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10_000
        else None
    )


def _text(entry: Mapping[str, object], key: str) -> str | None:
    value = entry.get(key)
    return _shown(value) if isinstance(value, str) and value else None


def _shown(text: str) -> str:
    # A lone surrogate, which JSON can hold, cannot be sent on.
    whole = text[:_MAX_TEXT].encode(errors="replace").decode()
    return one_line(whole)[:_MAX_TEXT]


def _date(entry: Mapping[str, object], key: str) -> str | None:
    """Return an instant as it is written there, if it is one."""
    text = _text(entry, key)
    try:
        known = text is not None and datetime.fromisoformat(text).year in _YEARS
    except ValueError:
        return None
    return text if known else None


def _number(entry: Mapping[str, object], key: str) -> float | None:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value < 1e9 else None
