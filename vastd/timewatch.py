"""What the supervisor does about time: a suspend, a clock that was set, its own network gone.

Rules (I7)
1. After a suspend or a missed time Vast is asked first: no limit ends anything before a listing
   attempt that began later is over. Silence is judged anew from then on.
2. A clock that was set moves no limit (`core/timekeeping.py`); it is told, and listed at once.
3. While our own network seems down, nobody's silence counts; when it is back, it begins anew.
"""

import logging
import math
from typing import Final

from msgspec import structs

from vastd.core import events as ev
from vastd.core.observed import Sighting
from vastd.core.own_network import down_since
from vastd.core.timekeeping import STEP_S
from vastd.errors import StoreError
from vastd.poller import Poller
from vastd.shell import Shell

_log = logging.getLogger(__name__)

LATE_S: Final = 30.0  # guess: no healthy loop is late by that much


class TimeWatch:
    """Looks at the clocks and the network before each look of the supervisor."""

    def __init__(self, shell: Shell, poller: Poller, look_every_s: float) -> None:
        self._shell = shell
        self._poller = poller
        self._look_every_s = look_every_s
        self._judge_from = -math.inf  # a listing must have begun later before a limit ends anything

    def look(self, looked_at: float) -> bool:
        """Notice what happened to time since `looked_at`; return whether waits are void."""
        shell = self._shell
        rented = bool(shell.ledger.live())
        waiting = any(not job.finished for job in shell.ledger.jobs.values())
        jumps = shell.clock.look(free=not rented and not waiting, rented=rented)
        now = shell.wall_clock()
        for jump, by_s in jumps:
            self._tell(ev.ClockJumped(at=now, jump=jump, by_s=round(by_s, 3)))
        late_s = now - looked_at
        slept = late_s > self._look_every_s + LATE_S
        if slept and not jumps:
            self._tell(ev.ClockJumped(at=now, jump="slept", by_s=round(late_s, 3)))
        moved = slept or late_s < -STEP_S
        if moved:
            shell.observed.restart_watch(now)
            self._judge_from = now
        if moved or jumps:
            self._poller.hurry()
        self._look_at_network(now)
        return moved

    def _look_at_network(self, now: float) -> None:
        shell = self._shell
        world = shell.observed.world
        since, before = down_since(world, shell.ledger.live()), world.network_down_since
        if (since is None) == (before is None):
            return
        shell.observed.world = structs.replace(world, network_down_since=since)
        if since is not None:
            self._tell(ev.NetworkLost(at=now, since=since))
        elif before is not None:
            shell.observed.restart_watch(now)
            self._judge_from = now
            self._poller.hurry()
            self._tell(ev.NetworkBack(at=now, since=before))

    def may_act(self) -> bool:
        """Return whether the time may be used at all: after a reboot nobody vouches for it before
        Vast has answered. Until then no machine could be reached either."""
        listed = self._shell.observed.world.inventory.as_of is not None
        return listed or not self._shell.clock.uncertain

    def may_end(self) -> bool:
        """Return whether a limit that is over may end a machine now (rule 1)."""
        return self._poller.over_begun_at >= self._judge_from

    def sighting(self, rental_id: str) -> Sighting:
        """Return what may be concluded from: while our network is down no silence is long."""
        world = self._shell.observed.world
        seen = world.of(rental_id)
        if world.network_down_since is None or seen.unreachable_since is None:
            return seen
        return structs.replace(seen, unreachable_since=self._shell.wall_clock())

    def _tell(self, event: ev.DaemonEvent) -> None:
        try:
            self._shell.ledger.commit(event)
        except StoreError as exc:
            _log.error("%s not recorded: %s", ev.kind(event), exc)
