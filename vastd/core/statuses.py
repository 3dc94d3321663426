"""What Vast's words for an instance mean in each phase of its rental: one table, and it is total.

A word that was never seen counts as pending: guessing that a machine is dead would end it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from vastd.core.market import InstanceStatus
from vastd.core.rental import Phase


class Standing(StrEnum):
    """What kind of word `actual_status` is (VAST_API 8.1)."""

    PENDING = "pending"  # on its way to running, or a word we do not know
    UP = "up"
    DOWN = "down"  # no container, the disk kept
    LOST = "lost"  # nobody hears the machine


class Reading(StrEnum):
    """What a row means for its rental. Whether it is believed at once is the caller's business."""

    WAIT = "nothing to do yet"
    RUNS = "it runs"
    FAILS = "it will not run"
    STOPS = "its container stopped"


_I = InstanceStatus
_STANDING: Final[Mapping[str, Standing]] = {
    _I.CREATED: Standing.PENDING,
    _I.LOADING: Standing.PENDING,
    _I.REBOOTING: Standing.PENDING,
    _I.RESTARTING: Standing.PENDING,
    _I.RECYCLING: Standing.PENDING,
    _I.SCHEDULING: Standing.PENDING,
    _I.RUNNING: Standing.UP,
    _I.EXITED: Standing.DOWN,
    _I.STOPPED: Standing.DOWN,
    _I.FROZEN: Standing.PENDING,  # paused with its memory held, and billed: the limits end it
    _I.OFFLINE: Standing.LOST,
    _I.UNKNOWN: Standing.LOST,
}

_R, _S = Reading, Standing
# WAI-06: exited, unknown and offline never become running by themselves.
_BOOT: Final = {_S.PENDING: _R.WAIT, _S.UP: _R.RUNS, _S.DOWN: _R.FAILS, _S.LOST: _R.FAILS}
_PROOF: Final = {**_BOOT, _S.UP: _R.WAIT}  # SSH and GPU are being proven
# A lost machine may come back with its job: silence is the watchdogs' matter.
_USED: Final = {_S.PENDING: _R.WAIT, _S.UP: _R.WAIT, _S.DOWN: _R.STOPS, _S.LOST: _R.WAIT}
_STILL: Final = {_S.PENDING: _R.WAIT, _S.UP: _R.RUNS, _S.DOWN: _R.WAIT, _S.LOST: _R.WAIT}
_NONE: Final = dict.fromkeys(Standing, _R.WAIT)  # no instance yet, or it is being ended

READINGS: Final[Mapping[Phase, Mapping[Standing, Reading]]] = {
    Phase.PLANNED: _NONE,
    Phase.CREATING: _NONE,
    Phase.BOOTING: _BOOT,
    Phase.VERIFYING: _PROOF,
    Phase.READY: _USED,
    Phase.BUSY: _USED,
    Phase.COLLECTING: _USED,
    Phase.STOPPED: _STILL,
    Phase.DESTROYING: _NONE,
    Phase.GONE: _NONE,
}


def is_known(status: str | None) -> bool:
    """Return whether the word is one we have seen; None is "accepted, nothing reported yet"."""
    return status is None or status in _STANDING


def standing(status: str | None, intended: str | None = None) -> Standing:
    """Return what kind of word it is. A machine that Vast does not mean to run is down, whatever
    it says, unless it still runs: a lost host stays `offline` although its stop was accepted."""
    found = _STANDING.get(status or "", Standing.PENDING)
    if intended == InstanceStatus.STOPPED and found is not Standing.UP:
        return Standing.DOWN
    return found


def reading(phase: Phase, status: str | None, intended: str | None = None) -> Reading:
    """Return what a row with that status means for a rental in `phase`."""
    return READINGS[phase][standing(status, intended)]
