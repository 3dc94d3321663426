"""The poller: one complete listing per cycle serves every rental (WAI-08).

It is the only source of absence, of billed rates and of Vast's statuses. What it cannot get is
recorded as *unknown*, and nothing is concluded from it (I11).
"""

import logging
import math
from collections.abc import Sequence
from typing import Final

import trio
from msgspec import structs

from vastd.core import events as ev
from vastd.core import reconcile, stopped
from vastd.core.boot_watchdogs import boot_ends_at
from vastd.core.credit import read_again_at
from vastd.core.limits import PROOFS_WHEN_ENDING
from vastd.core.market import Instance
from vastd.core.money import Micros
from vastd.core.rental import Phase
from vastd.credit import FRESH_S, Reading
from vastd.effects.destroy import end_surplus
from vastd.errors import (
    AuthRejected,
    IllegalTransition,
    NoAnswer,
    NoSuchInstance,
    ProviderError,
    StoreError,
    Unreachable,
)
from vastd.shell import Shell
from vastd.spending import credit_look

_log = logging.getLogger(__name__)

LISTING_TIMEOUT_S: Final = 120.0  # guess: many pages, one second apart
READ_TIMEOUT_S: Final = 30.0  # guess; without an answer more listings decide
CREDIT_FRESH_S: Final = 10.0  # guess: it may have been used up since the listing before
BACKOFF_CAP_S: Final = 60.0  # REQUIREMENTS WAI-09


class Poller:
    """Owns the listing. `attempted` is set after the first attempt, good or bad."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._last_begun_at = -math.inf
        self._failures = 0
        self._hurry = trio.Event()
        self._one_at_a_time = trio.Lock()
        self.attempted = trio.Event()
        self.over_begun_at = -math.inf  # when the newest attempt that is over began
        self.steps = 0  # grows whenever something was done, so that a standstill can be seen

    def hurry(self) -> None:
        """List now instead of at the next interval."""
        self._hurry.set()

    async def run(self) -> None:
        """List for ever."""
        while True:
            self.steps += 1
            await self.poll()
            await self._pause()

    async def poll(self) -> bool:
        """Make one listing attempt and apply what it taught; return whether it was complete."""
        # Two at once would count one glitch as two proofs of absence, and apply events twice.
        async with self._one_at_a_time:
            return await self._poll()

    async def _poll(self) -> bool:
        shell = self._shell
        begun_at, mark = shell.wall_clock(), trio.current_time()
        self._last_begun_at = begun_at
        self.steps += 1
        self._hurry = trio.Event()
        try:
            with trio.fail_after(LISTING_TIMEOUT_S):
                rows = await shell.provider.list_instances()
        except ProviderError as exc:
            silent = isinstance(exc, (Unreachable, NoAnswer))
            self._failed(str(exc), auth=isinstance(exc, AuthRejected), unanswered=silent)
            return False
        except trio.TooSlowError:
            why = f"no complete listing within {LISTING_TIMEOUT_S:.0f} s"
            self._failed(why, auth=False, unanswered=True)
            return False
        finally:
            # The answer itself may have corrected the clock after a reboot: an instant that never
            # was would be compared with true ones for as long as it lies ahead.
            begun_at = min(begun_at, shell.wall_clock() - (trio.current_time() - mark))
            self._last_begun_at = self.over_begun_at = begun_at
            self.attempted.set()
        self._failures = 0
        credit = await self._credit(rows)
        diff = reconcile.diff(
            shell.ledger.rentals,
            shell.observed.world,
            rows,
            owner8=shell.owner8,
            begun_at=begun_at,
            now=shell.wall_clock(),
            limits=shell.limits,
            credit=credit,
        )
        # No await lies between reading the world for `diff` and replacing it here, so that no
        # observation of an effect is lost.
        shell.observed.world = diff.world
        await self._apply(diff)
        self._show_boots()
        for instance_id in diff.surplus:
            self.steps += 1
            await end_surplus(shell, instance_id)
        shell.ledger.wake()
        return True

    async def _credit(self, rows: Sequence[Instance]) -> Micros | None:
        """Ask for the account's credit when it is time, or when a machine stands still that nobody
        stopped: then it is returned, because it may be the reason. None: not asked, or not known."""
        shell, now = self._shell, self._shell.wall_clock()
        if stopped.unasked(shell.ledger.rentals.values(), rows):
            return (await self._look_at_credit(CREDIT_FRESH_S)).credit
        held = shell.credit.reading
        ahead = credit_look(shell, now)
        zero = None if ahead is None else ahead.zero_at
        due = held is None or now >= read_again_at(held.at, zero)
        if due and any(rental.may_have_instance for rental in shell.ledger.live()):
            await self._look_at_credit(FRESH_S)
        return None

    async def _look_at_credit(self, fresh_s: float) -> Reading:
        shell = self._shell
        return await shell.credit.look(shell.provider, shell.wall_clock, fresh_s=fresh_s)

    def _show_boots(self) -> None:
        """Tell watching clients how long each machine has been booting, of how long it may."""
        shell = self._shell
        now = shell.wall_clock()
        for rental in shell.ledger.rentals.values():
            if rental.phase is Phase.BOOTING:
                seen = shell.observed.world.of(rental.rental_id)
                waited = now - rental.phase_since
                limit = boot_ends_at(rental, seen, shell.limits) - rental.phase_since
                rid = rental.rental_id
                shell.progress("boot", round(waited), round(limit), "seconds", rid, None)

    async def _apply(self, diff: reconcile.Diff) -> None:
        for event in diff.events:
            self.steps += 1
            if isinstance(event, ev.FoundAbsent) and not await self._agrees(event):
                continue
            try:
                self._shell.ledger.commit(event)
            except IllegalTransition:
                # One bad row of one rental must not stop the others; it comes again next time.
                _log.exception("rental=%s listing", event.rental_id)
            except StoreError as exc:
                _log.error("rental=%s listing: %s", event.rental_id, exc)

    async def _agrees(self, event: ev.FoundAbsent) -> bool:
        """Ask for the one instance too: what hides a row from two listings in a row (a glitch of
        the listing) hardly hides it from the single read as well.

        Without an answer to that, twice as many listings must agree.
        """
        shell = self._shell
        rental = shell.ledger.rental(event.rental_id)
        if rental.instance_id is None:
            return True
        try:
            with trio.fail_after(READ_TIMEOUT_S):
                found = await shell.provider.get_instance(rental.instance_id)
        except NoSuchInstance:
            return True
        except (ProviderError, trio.TooSlowError) as exc:
            _log.info("rental=%s single read: %s", rental.rental_id, exc)
            return shell.observed.world.of(rental.rental_id).absences >= 2 * PROOFS_WHEN_ENDING
        if found is not None:
            _log.warning("rental=%s is missing from listings and yet exists", rental.rental_id)
            shell.observed.note(rental.rental_id, absences=0, absent_since=None)
        return found is None

    def _failed(self, why: str, *, auth: bool, unanswered: bool) -> None:
        shell = self._shell
        self._failures += 1
        inventory = shell.observed.world.inventory
        since = inventory.failing_since
        shell.observed.world = structs.replace(
            shell.observed.world,
            inventory=structs.replace(
                inventory,
                error=why,
                auth_failed=auth,
                unanswered=unanswered,
                failing_since=shell.wall_clock() if since is None else since,
            ),
        )
        _log.warning("listing failed (%d in a row): %s", self._failures, why)
        shell.ledger.wake()

    async def _pause(self) -> None:
        """Sleep until the next listing is due; every change of the ledger may bring it forward."""
        shell = self._shell
        while True:
            due = reconcile.next_listing_at(
                shell.ledger.rentals.values(),
                shell.observed.world,
                shell.limits,
                self._last_begun_at,
            )
            if self._failures:
                backoff = shell.limits.list_interval_busy_s * 2 ** min(self._failures - 1, 6)
                due = self._last_begun_at + min(backoff, BACKOFF_CAP_S)
            wait_s = due - shell.wall_clock()
            if wait_s <= 0 or self._hurry.is_set():
                return
            with trio.move_on_after(wait_s):
                await _first(shell, self._hurry)


async def _first(shell: Shell, hurry: trio.Event) -> None:
    async with trio.open_nursery() as nursery:

        async def hurried() -> None:
            await hurry.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(hurried)
        await shell.ledger.wait_changed()
        nursery.cancel_scope.cancel()
