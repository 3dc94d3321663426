"""The guard of a machine in memory: what `jobs/guard_core.sh` does there, on virtual time.

As a service the simulator runs the real scripts; in memory nothing runs, so the same rules are
computed: the lease ran out, TERM, the grace time, then a stop or the end.
"""

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from vastd.core.lease import LeaseFacts, LeaseTerms, OnExpiry

if TYPE_CHECKING:  # a cycle only for the type checker: contracts know their guard
    from vastd.simulator.contracts import Contract

_STARTED_BY_ONSTART: Final = re.compile(r"guard_core\.sh (\d+) ")


def lease_in(onstart: str) -> float | None:
    """Return the lease with which a start script starts a guard, or None when it starts none."""
    found = _STARTED_BY_ONSTART.search(onstart)
    return float(found[1]) if found else None


class SimGuard:
    """The guard on one contract's machine. All times are true ones, not the machine's clock."""

    def __init__(self, contract: "Contract", lease_s: float) -> None:
        self._contract = contract
        self._lease_s = lease_s
        self._disk_id = 0  # a new disk knows nothing of an old lease
        self._settled_boot = 0  # the run of the container that was ended already
        self._winding_down_until: float | None = None
        self.expires_at = -math.inf
        self.hard_at = math.inf
        self.on_expiry = OnExpiry.STOP_IF_UNCOLLECTED
        self.grace_s = 60.0
        self.uncollected: set[str] = set()
        # Given when to TERM and when to KILL, returns when the last job is over.
        self.end_jobs: Callable[[float, float], float] = lambda term_at, _: term_at

    def came_up(self, at: float) -> None:
        """A run of the container begins: there is a lease in which it can be reached."""
        if self._disk_id != self._contract.disk_id:
            self._disk_id = self._contract.disk_id
            self.expires_at = -math.inf
            self.uncollected = set()
        self.hard_at = math.inf
        self._winding_down_until = None
        self.expires_at = max(self.expires_at, at + self._lease_s)

    def renew(self, terms: LeaseTerms, at: float) -> None:
        """Take a renewal."""
        self._lease_s = terms.lease_s
        self.expires_at = at + terms.for_s
        self.hard_at = at + terms.hard_s
        self.on_expiry, self.grace_s = terms.on_expiry, terms.grace_s
        self.uncollected |= set(terms.uncollected)
        self.uncollected -= set(terms.settled)

    def facts(self, at: float, skew_s: float) -> LeaseFacts:
        """Return what the machine says of it; `skew_s` is how far its clock is ahead."""
        return LeaseFacts(
            box_clock=at + skew_s,
            box_expiry=self.expires_at + skew_s,
            box_hard=None if math.isinf(self.hard_at) else self.hard_at + skew_s,
            on_expiry=self.on_expiry,
            uncollected=tuple(sorted(self.uncollected)),
            guard_pid=99,
            instance=str(self._contract.instance_id),
            has_key=True,
            tool="curl",
        )

    def next_at(self) -> float | None:
        """Return when it will do something, or None."""
        if not self._contract.is_up or self._settled_boot == self._contract.boot_id:
            return None
        if self._winding_down_until is not None:
            return self._winding_down_until
        return min(self.expires_at, self.hard_at)

    def step(self, now: float) -> None:
        """Do what is due."""
        due = self.next_at()
        if due is None or due > now:
            return
        if self._winding_down_until is None:
            self._winding_down_until = max(now, self.end_jobs(now, now + self.grace_s))
            if self._winding_down_until > now:
                return
        self._winding_down_until = None
        if min(self.expires_at, self.hard_at) > now:
            return  # a renewal came meanwhile
        self._settled_boot = self._contract.boot_id
        if self.uncollected and self.on_expiry is OnExpiry.STOP_IF_UNCOLLECTED:
            self._contract.stop(now)
        else:
            self._contract.destroy(now)
