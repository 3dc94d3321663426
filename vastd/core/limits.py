"""The intervals and limits that decisions use, as plain numbers of seconds.

The daemon fills them from the configuration (`[timing]`, `[defaults]`, `[budget]`); the
defaults here are the documented ones (CONTRACT 5), so that tests can state only what matters.
"""

from typing import Final

from msgspec import Struct

from vastd.core.money import Micros

LABEL_SEARCH_S: Final = 120.0  # DESIGN I2: how long a lost create is looked for
LATE_ARRIVAL_S: Final = 86_400.0  # DESIGN I2: a late arrival is ended on sight for 24 h
PROOFS_WHEN_ENDING: Final = 2  # DESIGN I3: complete listings that must agree
PROOFS_WHEN_ACTIVE: Final = 3  # VAST_API 8.2: rows flicker; three readings before acting
READINGS_TO_BELIEVE: Final = 3  # VAST_API 8.2, statuses after boot
READINGS_TO_BELIEVE_BOOT: Final = 2  # REQUIREMENTS WAI-06
PROOF_SPACING_S: Final = 2.0  # VAST_API 16.3: list calls at least 2 s apart
COLLECT_TRIES: Final = 5  # guess: then the machine is held and the user told
STOP_REPEAT_S: Final = 300.0  # guess: an accepted stop that is not seen is asked for again
DESTROY_BACKOFF_CAP_S: Final = 300.0  # guess: often enough to matter, rare enough for Vast


class Caps(Struct, frozen=True, kw_only=True):
    """What all machines together may cost, in micro-dollars; None: no such cap (CONTRACT 5)."""

    per_day: Micros | None = None
    per_project: Micros | None = None
    per_month: Micros | None = None


class LeaseRules(Struct, frozen=True, kw_only=True):
    """What a machine's own guard is told (DESIGN D8)."""

    lease_s: float = 3600.0
    renew_s: float = 300.0
    while_busy: str = "deadline"  # or "lease_s"
    on_expiry: str = "stop_if_uncollected"  # or "destroy"
    required: bool = True  # a machine without a guard is not used
    salvage: str = ""


class Limits(Struct, frozen=True, kw_only=True):
    """One consistent set of limits; replaced as a whole when the configuration is reloaded."""

    list_interval_busy_s: float = 20.0
    list_interval_idle_s: float = 60.0
    boot_warn_s: float = 300.0
    boot_timeout_s: float = 600.0
    ssh_budget_s: float = 300.0
    ssh_spacing_s: float = 15.0
    settle_s: float = 30.0
    destroy_retry_s: float = 30.0
    destroy_shout_s: float = 600.0
    heartbeat_stale_factor: float = 2.0
    idle_warn_s: float = 1200.0
    grace_s: float = 60.0
    attempts: int = 3
    warn_percent: float = 80.0
    end_at_zero_credit: bool = True
    caps: Caps = Caps()
    lease: LeaseRules = LeaseRules()
