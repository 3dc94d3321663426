"""What the service manager hears while the daemon runs: READY, how it is, and that it moves.

Rules
1. READY comes after the socket listens and the first listing was attempted, good or bad.
2. A ping is sent only while the supervisor *and* the poller move: a process whose loop turns but
   which watches no rental any more is worth a restart (nothing is lost by one).
3. Movement is judged on the monotonic clock, which stands still in a suspend.
"""

import logging
import signal
import sys
from collections.abc import Callable
from typing import Final

import trio

from vastd.core import billing
from vastd.core.instants import shown
from vastd.core.money import show_rate
from vastd.core.rental import Phase
from vastd.errors import ConfigError
from vastd.poller import BACKOFF_CAP_S, LISTING_TIMEOUT_S, Poller
from vastd.service_manager import ServiceManager
from vastd.shell import Shell
from vastd.supervisor import LOOK_AT_LEAST_EVERY_S, Supervisor

log = logging.getLogger(__name__)

STATUS_EVERY_S: Final = 15.0  # guess: the age of an unconfirmed destroy moves on without events
PINGS_PER_PERIOD: Final = 3  # sd_watchdog_enabled(3) advises at least two
LEAST_PAUSE_S: Final = 1.0  # guess: nobody reads faster, and a job may change the ledger often
# guess: what one look or one step of a listing may take longer than its own limit on a busy disk
MARGIN_S: Final = 60.0
SHOWN_ERROR_CHARS: Final = 120  # `systemctl status` shows one line


class Movement:
    """Since when a mark that ought to change has been the same."""

    def __init__(self) -> None:
        self._mark: float | None = None  # None until it was seen once
        self._since = 0.0

    def still_s(self, mark: float, now: float) -> float:
        """Return for how long `mark` has been what it is; `now` is monotonic, seconds."""
        if mark != self._mark:
            self._mark, self._since = mark, now
        return now - self._since


class Heart:
    """Decides whether a ping may be sent."""

    def __init__(self, shell: Shell, supervisor: Supervisor, poller: Poller) -> None:
        self._shell = shell
        self._supervisor = supervisor
        self._poller = poller
        self._looks = Movement()
        self._listings = Movement()

    def stalled(self, now: float) -> str | None:
        """Return what does not move any more at `now` (monotonic), or None."""
        limits = self._shell.limits
        pause_s = max(limits.list_interval_idle_s, limits.list_interval_busy_s, BACKOFF_CAP_S)
        listing_s = pause_s + LISTING_TIMEOUT_S + MARGIN_S
        still_s = self._listings.still_s(self._poller.steps, now)
        if still_s > listing_s:
            return f"the poller has not moved for {still_s:.0f} s (limit {listing_s:.0f} s)"
        look_s = LOOK_AT_LEAST_EVERY_S + MARGIN_S
        still_s = self._looks.still_s(self._supervisor.looked_at, now)
        if still_s > look_s:
            return f"the supervisor has not looked for {still_s:.0f} s (limit {look_s:.0f} s)"
        return None


async def attend(
    manager: ServiceManager, shell: Shell, supervisor: Supervisor, poller: Poller
) -> None:
    """Tell `manager` READY, then how we are and that we move; for ever. The socket is open."""
    if not manager.present:
        return
    manager.status("asking Vast what exists")
    await poller.attempted.wait()
    async with trio.open_nursery() as nursery:
        await nursery.start(_show, manager, shell)
        if manager.watchdog_s is not None:
            heart = Heart(shell, supervisor, poller)
            nursery.start_soon(_beat, manager.alive, heart.stalled, manager.watchdog_s)


async def reload_at_hangup(
    manager: ServiceManager, shell: Shell, reload: Callable[[], list[str]]
) -> None:
    """Read the configuration again at each SIGHUP; for ever. One that is no good changes nothing.

    On a terminal SIGHUP says that the window was closed, and keeps its usual meaning.
    """
    if sys.stderr.isatty():
        return
    with trio.open_signal_receiver(signal.SIGHUP) as received:
        async for _ in received:
            manager.reloading()
            log.log(*_reloaded(reload))
            manager.ready(status_text(shell))


def _reloaded(reload: Callable[[], list[str]]) -> tuple[int, str, str]:
    """Reload, and return what is logged about it."""
    try:
        changed = reload()
    except ConfigError as exc:
        return logging.ERROR, "configuration not reloaded, the old one stays in force: %s", str(exc)
    return logging.INFO, "configuration reloaded; changed: %s", ", ".join(changed) or "nothing"


async def _show(manager: ServiceManager, shell: Shell, task_status: trio.TaskStatus[None]) -> None:
    """Say READY (`task_status` is told when it was heard), then keep the status line true, at most once a second."""
    shown = None
    while True:
        text = status_text(shell)
        tell = manager.ready if shown is None else manager.status
        if text != shown and tell(text):
            if shown is None:
                task_status.started()
            shown = text
        # Until READY was heard everything waits for us.
        with trio.move_on_after(0 if shown is None else STATUS_EVERY_S):
            await shell.ledger.wait_changed()
        await trio.sleep(LEAST_PAUSE_S)


async def _beat(
    ping: Callable[[], bool], stalled: Callable[[float], str | None], period_s: float
) -> None:
    """Ping while nothing stalls; the manager ends and restarts us when pings stay away."""
    told = None
    while True:
        why = stalled(trio.current_time())
        if why is None:
            ping()
            told = None
        elif told is None:
            told = why
            log.critical("no watchdog ping: %s; the service manager restarts vastd", why)
        await trio.sleep(period_s / PINGS_PER_PERIOD)


def status_text(shell: Shell) -> str:
    """Return in one line what costs money now, and what is wrong, gravest first."""
    live = shell.ledger.live()
    busy = sum(1 for job in shell.ledger.jobs.values() if not job.finished)
    parts = [f"{_count(len(live), 'rental')} live, {show_rate(billing.burn(live))}"]
    if busy:
        parts[0] += f", {_count(busy, 'job')}"
    parts += filter(None, (_unconfirmed(shell), _unknown(shell)))
    if shell.ledger.write_error is not None:
        parts.append(f"the disk refuses: {_short(shell.ledger.write_error)}")
    if why := shell.locked():
        parts.append(f"renting locked: {_short(why)}")
    return "; ".join(parts)


def stop_text(shell: Shell) -> str:
    """Return what a stop leaves behind."""
    live = shell.ledger.live()
    if not live:
        return "stopping; no rental is live"
    return f"stopping; {_count(len(live), 'rental')} on record: jobs and billing go on"


def _unconfirmed(shell: Shell) -> str | None:
    """Return the shout about the oldest end that is not proven (I4)."""
    now = shell.wall_clock()
    late = [
        rental
        for rental in shell.ledger.live()
        if rental.phase is Phase.DESTROYING
        and now - rental.phase_since >= shell.limits.destroy_shout_s
    ]
    if not late:
        return None
    oldest = min(late, key=lambda rental: rental.phase_since)
    minutes = (now - oldest.phase_since) / 60
    more = f" and {len(late) - 1} more" if len(late) > 1 else ""
    return (
        f"DESTROY UNCONFIRMED for {minutes:.0f} min: {oldest.name}"
        f" (instance {oldest.instance_id}){more} may still bill"
    )


def _unknown(shell: Shell) -> str | None:
    """Return why it is not known what exists at Vast; None while it is."""
    world = shell.observed.world
    inventory = world.inventory
    if world.network_down_since is not None:
        return f"your own network seems down since {shown(world.network_down_since)}"
    if inventory.error is not None:
        return f"inventory not confirmed: {_short(inventory.error)}"
    return "inventory unknown: no listing yet" if inventory.as_of is None else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_ERROR_CHARS else text[: SHOWN_ERROR_CHARS - 1] + "…"
