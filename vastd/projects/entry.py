"""One entry of `vast-instances.json`: what other tools may read of a rented machine.

The format is SCHEMAS section 1, the words of `status` are section 14: `loading`, `running` and
`destroyed` are understood by every reader; the others say what those three cannot.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from vastd.core.money import Micros, to_usd

Json = Mapping[str, object]

RETENTION_S: Final = 7 * 86_400.0  # REQUIREMENTS C-15

LOADING: Final = "loading"
RUNNING: Final = "running"
DESTROYING: Final = "destroying"
DESTROYED: Final = "destroyed"
STOPPED: Final = "stopped"
UNKNOWN: Final = "unknown"

_COMING: Final = frozenset({"planned", "creating", "booting", "verifying"})
_USABLE: Final = frozenset({"ready", "busy", "collecting"})
# Vast's words (VAST_API 8) for a machine that is on its way up again.
_RISING: Final = frozenset(
    {"created", "loading", "scheduling", "rebooting", "restarting", "recycling"}
)
# … and for one that exists, may bill storage, and does not run.
_IDLE: Final = frozenset({"exited", "stopped", "frozen", "offline"})

HINT_KEY: Final = "vastd"  # in the state directory's file alone; other readers pass it over

REQUIRED_KEYS: Final = (
    "instance_id",
    "offer_id",
    "gpu_name",
    "num_gpus",
    "dph",
    "ssh_url",
    "ssh_host",
    "ssh_port",
    "created_at",
    "status",
    "experiment",
    "estimated_hours",
    "estimated_cost",
)
EXTRA_KEYS: Final = (
    "experiments",
    "image",
    "label",
    "ssh_user",
    "proxy_url",
    "destroyed_at",
    "actual_cost",
    HINT_KEY,
)


class StateEntry(Struct, frozen=True, kw_only=True):
    """What the state file needs to know of one rental that has, or had, an instance.

    Instants are epoch seconds, money is micro-dollars.
    """

    instance_id: int
    offer_id: int
    gpu_name: str  # Vast's own name, with spaces
    num_gpus: int
    dph: Micros  # per hour: the instance's billed rate; the offer's until it is known
    created_at: float
    phase: str  # of the rental: `core.rental.Phase`
    provider_status: str | None = None  # raw, of the last listing; None: none since the start
    project: Path | None = None  # its root; None: only the state directory's file shows it
    ssh_host: str | None = None  # None until an endpoint is known
    ssh_port: int | None = None
    ssh_user: str = "root"
    proxy_url: str | None = None
    experiments: tuple[str, ...] = ()  # names of the jobs launched on it, oldest first
    estimated_hours: float = 0.0
    image: str | None = None
    label: str | None = None
    ended_at: float | None = None  # absence was proven; None while it may exist
    actual_cost: Micros | None = None  # None until it ended
    hint: Json | None = None  # for ourselves, if the store is lost (`projects.hints`)


def status_word(phase: str, provider_status: str | None) -> str:
    """Return the `status` of a rental in `phase` whose machine Vast reports as given.

    `running` needs both: we proved the machine, and Vast's last word is that it runs. Nothing
    but a proven end is ever called `destroyed`.
    """
    if phase == "gone":
        return DESTROYED
    if phase == "destroying":
        return DESTROYING
    if phase in _COMING:
        return LOADING
    status = (provider_status or "").strip().lower()
    if phase in _USABLE:
        if status in {"", RUNNING}:  # before the first listing our last proof stands
            return RUNNING
        if status in _RISING:
            return LOADING
        return status if status in _IDLE else UNKNOWN
    return STOPPED if phase == "stopped" else UNKNOWN


def expired(entry: StateEntry, now: float) -> bool:
    """Return whether the machine ended so long ago that the file need not show it any more."""
    return entry.ended_at is not None and now - entry.ended_at > RETENTION_S


def to_json(entry: StateEntry) -> dict[str, object]:
    """Return the entry as it stands in the file: all required keys, extras where known."""
    ended = entry.ended_at if entry.phase == "gone" else None
    extras: dict[str, object] = {
        "experiments": list(entry.experiments),
        "image": entry.image,
        "label": entry.label,
        "ssh_user": entry.ssh_user,
        "proxy_url": entry.proxy_url,
        "destroyed_at": None if ended is None else instant(ended),
        HINT_KEY: entry.hint or None,
        "actual_cost": None if entry.actual_cost is None else to_usd(entry.actual_cost),
    }
    return {
        "instance_id": entry.instance_id,
        "offer_id": entry.offer_id,
        "gpu_name": entry.gpu_name.strip().replace(" ", "_"),
        "num_gpus": entry.num_gpus,
        "dph": to_usd(entry.dph),
        **_endpoint(entry),
        "created_at": instant(entry.created_at),
        "status": status_word(entry.phase, entry.provider_status),
        "experiment": entry.experiments[-1] if entry.experiments else None,
        "estimated_hours": entry.estimated_hours,
        "estimated_cost": to_usd(round(entry.dph * entry.estimated_hours)),
        **{key: value for key, value in extras.items() if value is not None},
    }


def instant(epoch_s: float) -> str:
    """Return an instant as RFC 3339 in UTC with `Z`, to the second."""
    return datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _endpoint(entry: StateEntry) -> dict[str, object]:
    host = (entry.ssh_host or "").strip()  # Vast's addresses have come with a newline
    if not host or entry.ssh_port is None:
        # Readers expect a text and a number; empty ones cannot be mistaken for an address.
        return {"ssh_url": "", "ssh_host": "", "ssh_port": 0}
    shown = f"[{host}]" if ":" in host else host
    return {
        "ssh_url": f"ssh://{entry.ssh_user}@{shown}:{entry.ssh_port}",
        "ssh_host": host,
        "ssh_port": entry.ssh_port,
    }
