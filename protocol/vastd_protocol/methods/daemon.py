"""`initialize`, `rpc.discover`, `daemon.*`: the daemon itself."""

from typing import Any

from msgspec import field

from vastd_protocol.method import Method, Mutation, Nothing, Params, View


class ClientInfo(View, frozen=True, kw_only=True):
    """Who calls."""

    name: str
    version: str | None = None


class InitializeParams(Params, frozen=True, kw_only=True):
    """The optional handshake; a client that skips it speaks the current version."""

    protocol_version: int
    client: ClientInfo


class DaemonInfo(View, frozen=True, kw_only=True):
    """Which daemon answers."""

    version: str
    pid: int
    started_at: str
    simulated: bool


class InitializeView(View, frozen=True, kw_only=True):
    """The handshake's answer."""

    protocol_version: int
    daemon: DaemonInfo
    warnings: list[str] = field(default_factory=list)
    # How far this computer's clock is ahead of the instants vastd tells: 0 unless it was set while
    # machines are on record. Subtract it from the clock before comparing.
    clock_ahead_s: float = 0.0


class DaemonStatusView(View, frozen=True, kw_only=True):
    """How the daemon is. `renting_locked` says why nothing new may be rented, or null."""

    daemon: DaemonInfo
    state_dir: str
    socket: str
    vast_url: str
    key_origin: str | None = None  # where the key came from; null when there is none
    rentals_live: int = 0
    jobs_active: int = 0
    dph_usd: float = 0.0
    renting_locked: str | None = None
    inventory_state: str = "unknown"
    inventory_as_of: str | None = None
    inventory_error: str | None = None
    warnings: list[str] = field(default_factory=list)


class StopParams(Mutation, frozen=True, kw_only=True):
    """Stop the daemon; machines and jobs go on."""


class StopView(View, frozen=True, kw_only=True):
    """The daemon is stopping. What it leaves running, with its price."""

    rentals_live: int
    dph_usd: float


class ReloadView(View, frozen=True, kw_only=True):
    """The configuration was read again; `at_next_start` are settings that wait for a restart."""

    changed: list[str] = field(default_factory=list)
    at_next_start: list[str] = field(default_factory=list)


INITIALIZE = Method(
    "initialize", InitializeParams, InitializeView, "Agree on the protocol version (optional)"
)
DISCOVER: Method[Nothing, dict[str, Any]] = Method(
    "rpc.discover", Nothing, dict[str, Any], "Return the OpenRPC document of this daemon"
)
STATUS = Method("daemon.status", Nothing, DaemonStatusView, "Return how the daemon is")
STOP = Method(
    "daemon.stop", StopParams, StopView, "Stop the daemon; nothing is destroyed", mutates=True
)
RELOAD = Method("daemon.reload", Nothing, ReloadView, "Read the configuration file again")

METHODS = (INITIALIZE, DISCOVER, STATUS, STOP, RELOAD)
