"""The lease keeper: renews the lease of every machine that works, beside what else is done there.

Rules
1. It only renews. That a lease cannot be renewed ends nothing here: the machine does that itself.
2. What shortens or lengthens a lease (a job, a deadline, results that came home) is told at once.
3. Time is the longer of what wall clock and monotonic clock say: neither a clock that was set
   back nor a suspend may let a lease run out.
"""

import logging
import math
from typing import Final

import trio

from vastd.core import lease
from vastd.core.observed import LeaseSeen
from vastd.core.rental import Phase, Rental
from vastd.effects.launch import reached, unreached
from vastd.effects.lease import hold, terms
from vastd.effects.verify import target
from vastd.errors import GuardNotArmed, SshError, VastdError
from vastd.shell import Shell

_log = logging.getLogger(__name__)

RENEW_TIMEOUT_S: Final = 120.0  # guess: a renewal that hangs longer is a lost connection
LOOK_SPACING_S: Final = 1.0  # guess: nothing about a lease is in more of a hurry
# Others are verified, greeted or ended: those who do that renew, or want no renewal.
RENEWED: Final = frozenset({Phase.READY, Phase.BUSY, Phase.COLLECTING})


class LeaseKeeper:
    """Keeps all leases. Run it in a nursery."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._under_way: set[str] = set()
        self._tried: dict[str, float] = {}  # by rental_id, on trio's clock
        self._told: dict[str, float] = {}  # the same instant, if that try succeeded

    async def run(self) -> None:
        """Renew what is due, for ever."""
        async with trio.open_nursery() as nursery:
            while True:
                wait_s = self._look(nursery)
                with trio.move_on_after(wait_s):
                    await self._shell.ledger.wait_changed()
                await trio.sleep(LOOK_SPACING_S)

    def _look(self, nursery: trio.Nursery) -> float:
        """Start what is due; return for how long nothing else will be."""
        shell, wait_s = self._shell, math.inf
        for rental in shell.ledger.live():
            rental_id = rental.rental_id
            seen = shell.observed.world.of(rental_id)
            if rental.phase not in RENEWED or seen.instance is None:
                continue
            if rental_id in self._under_way:
                continue
            due_in_s = self._due_in_s(rental, seen.lease)
            if due_in_s <= 0:
                self._under_way.add(rental_id)
                nursery.start_soon(self._renew, rental_id)
            else:
                wait_s = min(wait_s, due_in_s)
        return wait_s

    def _due_in_s(self, rental: Rental, seen: LeaseSeen | None) -> float:
        shell, clock = self._shell, trio.current_time()
        told, tried = self._told.get(rental.rental_id), self._tried.get(rental.rental_id)
        failed = tried is not None and tried != told
        spacing_s = shell.limits.ssh_spacing_s if failed else LOOK_SPACING_S
        not_before_s = 0.0 if tried is None else tried + spacing_s - clock
        now = shell.wall_clock()
        # Of a clock that was set back nothing can be learnt about the time that has passed.
        if seen is None or seen.unarmed is not None or now < seen.at:
            return not_before_s
        if lease.is_urgent(seen.told, seen.at, terms(shell, rental), now):
            return not_before_s
        passed_s = max(now - seen.at, 0.0 if told is None else clock - told)
        return max(shell.limits.lease.renew_s - passed_s, not_before_s)

    async def _renew(self, rental_id: str) -> None:
        shell = self._shell
        began = self._tried[rental_id] = trio.current_time()
        try:
            with trio.fail_after(RENEW_TIMEOUT_S):
                rental = shell.ledger.rental(rental_id)
                async with shell.boxes.open(target(shell, rental)) as box:
                    await hold(shell, rental, box)
            self._told[rental_id] = began
            reached(shell, rental_id)
        except GuardNotArmed as exc:
            _log.error("rental=%s %s", rental_id, exc)
        except SshError as exc:
            _log.info("rental=%s lease not renewed: %s", rental_id, exc)
            if shell.ledger.rental(rental_id).phase in RENEWED:
                unreached(shell, rental_id, exc)
        except VastdError as exc:
            # Such as a key that cannot be read any more: one machine must not end the daemon.
            _log.error("rental=%s lease not renewed: %s", rental_id, exc)
        except trio.TooSlowError:
            _log.info("rental=%s lease not renewed within %.0f s", rental_id, RENEW_TIMEOUT_S)
        finally:
            self._under_way.discard(rental_id)
            shell.ledger.wake()
