"""What `vast-instances.json` remembers of our rentals for the day on which the store is lost.

Rules
1. It is a hint: that a machine exists and is ours is known only from Vast and its label (I8, I9).
2. What cannot be meant is left out, field by field: the file may be old, or edited by hand.
"""

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from vastd.projects import state_file
from vastd.projects.entry import HINT_KEY

_log = logging.getLogger(__name__)

MAX_OUTPUTS: Final = 100  # guess; more paths than any job names
_MAX_S: Final = 365 * 86_400.0  # no machine is rented for longer than a year
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")  # CONTRACT 2


class Hint(Struct, frozen=True, kw_only=True):
    """What was on record of one rental. None: nothing that can be used."""

    name: str | None = None
    project: str | None = None  # absolute, and there
    profile: str | None = None
    max_runtime_s: float | None = None
    budget_usd: float | None = None
    idle_s: float | None = None
    outputs: tuple[str, ...] = ()  # of jobs whose results were not home


def read(state_dir: Path) -> dict[tuple[int, str], Hint]:
    """Return the hints of the state file, by instance id and label; nothing if it is unreadable."""
    path = state_dir / state_file.NAME
    try:
        data = state_file.read(path)
        entries = [] if data is None else state_file.decode(data, path)
    except (OSError, state_file.Unreadable) as exc:
        _log.warning("no hints about lost records: %s", exc)
        return {}
    found: dict[tuple[int, str], Hint] = {}
    for entry in entries:
        if not isinstance(entry, Mapping):
            continue
        instance_id, label, told = entry.get("instance_id"), entry.get("label"), entry.get(HINT_KEY)
        if isinstance(instance_id, int) and isinstance(label, str) and isinstance(told, Mapping):
            found[instance_id, label] = _hint(told)
    return found


def _hint(told: Mapping[str, object]) -> Hint:
    name, project = _text(told, "name"), _text(told, "project")
    outputs = told.get("outputs")
    return Hint(
        name=name if name is not None and _NAME.fullmatch(name) else None,
        project=project if project is not None and _is_project(project) else None,
        profile=_text(told, "profile"),
        max_runtime_s=_number(told, "max_runtime_s", _MAX_S),
        budget_usd=_number(told, "budget_usd", 1e6),
        idle_s=_number(told, "idle_s", _MAX_S),
        outputs=tuple(
            path for path in (outputs if isinstance(outputs, list) else [])[:MAX_OUTPUTS]
            if isinstance(path, str) and path
        ),
    )  # fmt: skip


def _text(told: Mapping[str, object], key: str) -> str | None:
    value = told.get(key)
    return value if isinstance(value, str) and 0 < len(value) <= 4096 else None


def _is_project(path: str) -> bool:
    return os.path.isabs(path) and "\0" not in path and os.path.isdir(path)


def _number(told: Mapping[str, object], key: str, most: float) -> float | None:
    value = told.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value <= most else None


def as_json(hint: Hint) -> dict[str, object]:
    """Return the hint as it stands in the file: what is known."""
    made: dict[str, object] = msgspec.to_builtins(hint)
    return {key: value for key, value in made.items() if value not in (None, [], ())}
