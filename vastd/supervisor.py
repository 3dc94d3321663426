"""The supervisor: why anything happens. It looks at the ledger and the observations, asks the
pure core what is due, and starts one effect per rental and one placement per job at a time.

Rules
1. It never decides by itself: watchdogs, steps, placement and the ending table do.
2. A crash in one effect ends that effect; the next look starts what is due then.
3. A bug that belongs to one rental quarantines that rental; any other ends the daemon.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from msgspec import Struct

from vastd.core import alarms, every_watchdog, placement, steps, watchdogs
from vastd.core import events as ev
from vastd.core.pace import paces
from vastd.core.rental import Phase, Rental, Trigger
from vastd.core.steps import Do, Step
from vastd.effects.attend import attend
from vastd.effects.collect import collect, failure
from vastd.effects.create import create
from vastd.effects.destroy import destroy
from vastd.effects.greet import greet
from vastd.effects.launch import launch
from vastd.effects.pause import start, stop
from vastd.effects.place import place
from vastd.effects.verify import verify
from vastd.errors import IllegalTransition, StoreError, VastdError
from vastd.poller import Poller
from vastd.renting import require_renting
from vastd.shell import Shell
from vastd.spending import credit_look
from vastd.timewatch import TimeWatch

_log = logging.getLogger(__name__)

LOOK_AT_LEAST_EVERY_S: Final = 15.0  # DESIGN 4.3
CRASHES_TO_QUARANTINE: Final = 5  # guess: a bug that repeats is not bad luck
SETTLE_ROUNDS: Final = 3  # machine gone, job lost, results lost
RESTART_SPACING_S: Final = 5.0  # guess: after an unexpected end of an effect


class _Running(Struct, kw_only=True):
    """An effect under way."""

    step: Step
    scope: trio.CancelScope


class Supervisor:
    """Watches all rentals and jobs. Run it in a nursery; `poller` runs beside it."""

    def __init__(self, shell: Shell, poller: Poller) -> None:
        self._shell = shell
        self._poller = poller
        self._time = TimeWatch(shell, poller, LOOK_AT_LEAST_EVERY_S)
        self._running: dict[str, _Running] = {}  # by rental_id, or by job_id for a placement
        self._crashes: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._over: set[str] = set()  # jobs that nothing can happen to any more
        self.looked_at = shell.wall_clock()  # for the systemd watchdog and `daemon.status`

    async def run(self) -> None:
        """Look, act, sleep; for ever."""
        await self._poller.attempted.wait()
        self._resume()
        async with trio.open_nursery() as nursery:
            while True:
                self._look_at_time()
                wake_at = self._look(nursery) if self._time.may_act() else math.inf
                wait_s = min(wake_at - self._shell.wall_clock(), LOOK_AT_LEAST_EVERY_S)
                with trio.move_on_after(max(wait_s, 0.0)):
                    await self._shell.ledger.wait_changed()
                await trio.lowlevel.checkpoint()

    def _resume(self) -> None:
        """A create that was under way when we died has no answer: look for its label (I2)."""
        for rental in list(self._shell.ledger.rentals.values()):
            waiting = rental.phase in (Phase.CREATING, Phase.DESTROYING)
            if waiting and rental.instance_id is None and not rental.create_unknown:
                self._commit(
                    ev.CreateUnresolved(
                        rental_id=rental.rental_id,
                        at=self._shell.wall_clock(),
                        why="the daemon ended before the answer came",
                    )
                )

    def _look_at_time(self) -> None:
        """After a suspend or a clock step: list first, judge staleness from now on (I7)."""
        if self._time.look(self.looked_at):
            self._not_before.clear()  # after a step back these would be far away
        self.looked_at = self._shell.wall_clock()

    # -- one look

    def _look(self, nursery: trio.Nursery) -> float:
        """Do everything that is due; return when to look again (epoch s)."""
        self._shell.ledger.flush()
        wake_at = self._watch()
        for job_id in list(self._shell.ledger.jobs):
            if job_id not in self._over:
                self._settle(nursery, job_id)
        for rental_id, rental in list(self._shell.ledger.rentals.items()):
            if rental.phase is not Phase.GONE or rental_id in self._running:
                wake_at = min(wake_at, self._advance(nursery, rental_id))
        return wake_at

    def _watch(self) -> float:
        shell = self._shell
        live = shell.ledger.live()
        # Once, because each sums over all rentals; as of this look, or what is due "now" would
        # always be due a moment after it.
        shared = self._shared(self.looked_at)
        watched = (self.watch(rental, shared) for rental in live)
        actions, wake_at = watchdogs.check(watched, self.looked_at, every_watchdog.ALL)
        may_end = self._time.may_end()  # an end that is held back is due again at the next look
        for action in actions:
            if may_end or not isinstance(action, alarms.End):
                self._act(action)
        return wake_at

    def _shared(self, now: float) -> alarms.Shared:
        shell = self._shell
        found = paces(shell.ledger.live(), shell.past, shell.limits, now)
        return alarms.Shared(paces=found, credit=credit_look(shell, now))

    def watch(self, rental: Rental, shared: alarms.Shared | None = None) -> alarms.Watch:
        """Return what the watchdogs may look at for one rental; also for `explain`."""
        shell = self._shell
        together = self._shared(shell.wall_clock()) if shared is None else shared
        return alarms.Watch(
            rental=rental,
            jobs=shell.ledger.jobs_of(rental.rental_id),
            seen=shell.observed.world.of(rental.rental_id),
            world=shell.observed.world,
            limits=shell.limits,
            paces=together.paces,
            credit=together.credit,
        )

    def _act(self, action: alarms.Action) -> None:
        now = self._shell.wall_clock()
        if isinstance(action, alarms.Warn):
            _log.warning("rental=%s %s: %s", action.rental_id, action.watchdog, action.why)
            self._commit(
                ev.Warned(
                    rental_id=action.rental_id,
                    at=now,
                    watchdog=action.watchdog,
                    why=action.why,
                    rule=action.rule,
                    inputs=action.inputs,
                )
            )
            return
        _log.warning("rental=%s ends: %s: %s", action.rental_id, action.trigger, action.why)
        self._commit(
            ev.EndDecided(
                rental_id=action.rental_id,
                at=now,
                trigger=action.trigger,
                why=action.why,
                rule=action.rule,
                inputs=action.inputs,
            )
        )

    def _settle(self, nursery: trio.Nursery, job_id: str) -> None:
        shell = self._shell
        # Our own commits wake nobody: what follows from one is due now, not at the next look. No
        # job needs more rounds; the bound keeps a decision that is refused from spinning.
        for _ in range(SETTLE_ROUNDS):
            job = shell.ledger.jobs[job_id]
            verdict = placement.settle(job, shell.ledger.rentals, shell.limits, shell.wall_clock())
            if not verdict.events:
                break
            self._commit(*verdict.events)
        done = shell.ledger.jobs[job_id]
        if done.finished and done.env_keys:
            shell.envs.drop(job_id)
        if placement.is_over(done, shell.ledger.rentals):
            self._over.add(job_id)
        if verdict.need is placement.Need.MACHINE and not done.finished:
            self._start(nursery, job_id, Step(do=Do.NOTHING), lambda: place(shell, job_id))

    def _advance(self, nursery: trio.Nursery, rental_id: str) -> float:
        """Start, keep or cancel the effect of one rental; return when it may be due."""
        shell = self._shell
        rental = shell.ledger.rentals[rental_id]
        seen = self._time.sighting(rental_id)
        now = shell.wall_clock()
        step = steps.next_step(rental, shell.ledger.jobs_of(rental_id), seen, shell.limits, now)
        if step.do is Do.DECIDE_END:
            end = Trigger.JOB_DONE
            self._commit(ev.EndDecided(rental_id=rental_id, at=now, trigger=end, why=step.why))
            return self._advance(nursery, rental_id)
        running = self._running.get(rental_id)
        if running is not None:
            # `why` may be reworded from look to look; the work is the same.
            same = (running.step.do, running.step.job_id) == (step.do, step.job_id)
            if not same and running.step.do is not Do.CREATE:
                running.scope.cancel()  # its end wakes the next look
            return math.inf
        if step.do is Do.DECIDE_DESTROY:
            self._commit(
                ev.DestroyDecided(rental_id=rental_id, at=shell.wall_clock(), why=step.why)
            )
            return self._advance(nursery, rental_id)
        if step.do not in steps.EFFECTS or (step.do is Do.CREATE and not self._may_rent()):
            return math.inf
        if step.do is Do.COLLECT and shell.observed.world.network_down_since is not None:
            return math.inf  # it would only count as a failed copy
        due = max(step.not_before or 0.0, self._not_before.get(rental_id, 0.0))
        if due > shell.wall_clock():
            return due
        self._start(nursery, rental_id, step, lambda: _carry_out(shell, rental_id, step))
        return math.inf

    def _may_rent(self) -> bool:
        """An intention may be older than what forbids renting now (I6, I8, I11); it waits."""
        try:
            require_renting(self._shell)
        except VastdError as exc:
            _log.info("not renting yet: %s", exc)
            return False
        return True

    # -- effects

    def _start(
        self, nursery: trio.Nursery, key: str, step: Step, effect: Callable[[], Awaitable[None]]
    ) -> None:
        if key in self._running or self._not_before.get(key, 0.0) > self._shell.wall_clock():
            return
        running = _Running(step=step, scope=trio.CancelScope())
        self._running[key] = running
        nursery.start_soon(self._effect, key, running, effect)

    async def _effect(
        self, key: str, running: _Running, effect: Callable[[], Awaitable[None]]
    ) -> None:
        """Run one effect to its end; an error ends it and nothing else."""
        try:
            with running.scope:
                await effect()
            self._crashes.pop(key, None)
        except VastdError as exc:
            if isinstance(exc, IllegalTransition):
                self._crashed(key, running.step, exc)
            else:
                _log.error("%s %s: %s", key, running.step.do, exc)
                self._not_before[key] = self._shell.wall_clock() + RESTART_SPACING_S
        except Exception as exc:  # noqa: BLE001  one effect is one of the two edges (STYLE 23)
            self._crashed(key, running.step, exc)
        finally:
            del self._running[key]
            self._shell.ledger.wake()

    def _crashed(self, key: str, step: Step, exc: Exception) -> None:
        count = self._crashes[key] = self._crashes.get(key, 0) + 1
        _log.error("%s effect crashed (%d): %r", key, count, exc, exc_info=exc)
        self._not_before[key] = self._shell.wall_clock() + RESTART_SPACING_S * count
        why = f"a bug in vastd met this rental: {type(exc).__name__}: {exc}"[:500]
        if step.do is Do.COLLECT and step.job_id is not None:
            # It counts as a failed copy, or an end that waits for it would wait, and bill, for ever.
            self._commit(*failure(self._shell, key, step.job_id, why))
        if count >= CRASHES_TO_QUARANTINE:
            self._quarantine(key, why)

    def _commit(self, *events: ev.Event) -> None:
        """Commit a decision; a bug in it quarantines the rental instead of ending the daemon."""
        try:
            self._shell.ledger.commit(*events)
        except IllegalTransition as exc:
            _log.exception("illegal decision")
            for event in events:
                if isinstance(event, ev.RentalEvent) and not isinstance(event, ev.Quarantined):
                    self._quarantine(event.rental_id, str(exc))
        except StoreError as exc:
            _log.error("decision not recorded: %s", exc)

    def _quarantine(self, rental_id: str, why: str) -> None:
        held = self._shell.ledger.rentals.get(rental_id)
        if held is not None and held.quarantined is None:
            now = self._shell.wall_clock()
            self._shell.ledger.commit(ev.Quarantined(rental_id=rental_id, at=now, why=why))


async def _carry_out(shell: Shell, rental_id: str, step: Step) -> None:
    match step.do:
        case Do.CREATE:
            await create(shell, rental_id)
        case Do.VERIFY:
            await verify(shell, rental_id)
        case Do.LAUNCH:
            assert step.job_id is not None
            await launch(shell, rental_id, step.job_id)
        case Do.ATTEND:
            assert step.job_id is not None
            await attend(shell, rental_id, step.job_id)
        case Do.COLLECT:
            await collect(shell, rental_id, step.job_id)
        case Do.STOP:
            await stop(shell, rental_id)
        case Do.START:
            await start(shell, rental_id)
        case Do.GREET:
            await greet(shell, rental_id)
        case Do.DESTROY:
            await destroy(shell, rental_id)
        case _:
            raise AssertionError(step)
