"""The watchdogs of machines that serve nobody: out of reach, met by a bug of ours, or waiting at Vast.

Rules
1. A machine that cannot be reached may be working: it is ended only by a policy the user set. Its
   deadline, its budget and its lease bound the bill in any case.
2. A bug of ours ends a machine at once only if nothing of the user's is on it; else the limits do.
3. A start that waits at Vast is never replaced by another machine: the disk may be the only copy.
"""

from typing import Final

from vastd.core.alarms import Alarm, Watch, Watchdog, end, warn
from vastd.core.rental import Phase, Trigger

_REACHABLE: Final = frozenset({Phase.READY, Phase.BUSY, Phase.COLLECTING})
_OURS: Final = frozenset(
    {Phase.PLANNED, Phase.BOOTING, Phase.VERIFYING, Phase.READY, Phase.COLLECTING, Phase.STOPPED}
)


def unreachable_end(watch: Watch) -> Alarm | None:
    """End a machine that did not answer for as long as the user allowed."""
    since, limit = watch.seen.unreachable_since, watch.rental.policy.unreachable_end_s
    if since is None or limit is None or watch.rental.phase not in _REACHABLE:
        return None
    at = max(since, watch.world.watching_since) + limit
    why = f"it did not answer for {limit:.0f} s: {watch.seen.unreachable_why or 'no answer'}"
    # Vast must have been asked since: a machine that is gone or stopped is another matter.
    proven = (watch.seen.seen_begun_at or 0.0) >= at
    return end(watch, at, Trigger.UNREACHABLE, why, proven=proven)


def bug(watch: Watch) -> Alarm | None:
    """End a machine that a bug of ours made useless, if nothing can be lost by that."""
    rental = watch.rental
    if rental.quarantined is None or rental.phase not in _OURS:
        return None
    his = rental.purpose != "job" or rental.policy.keep or rental.taken_over or rental.left_jobs
    if his or any(job.active or job.uncollected for job in watch.jobs):
        return None
    return end(watch, rental.phase_since, Trigger.BUG, rental.quarantined)


def start_waits(watch: Watch) -> Alarm | None:
    """Say that a start waits at Vast, because its GPU was given to somebody else meanwhile."""
    rental = watch.rental
    if rental.phase is not Phase.STOPPED or rental.start_asked_at is None:
        return None
    at = rental.start_asked_at + watch.limits.destroy_shout_s
    why = (
        f"Vast has not started it for {watch.limits.destroy_shout_s:.0f} s: its GPU is probably rented "
        "to somebody else. The start waits at Vast and may bill hours later; "
        f"`vastctl stop {rental.name}` takes it back, its disk is kept either way and can be read only "
        "when it runs. No other machine is taken for it: `vastctl run` or `vastctl up` rent one"
    )
    return warn(watch, "start_waits", at, why)


def _limit_text(watch: Watch) -> str:
    limit = watch.rental.policy.unreachable_end_s
    return "off: only warned about (unreachable_end_s)" if limit is None else f"{limit:.0f} s"


STUCK_DOGS: Final = (
    Watchdog(
        name="unreachable_end",
        check=unreachable_end,
        watches="seconds since SSH answered last",
        limit=_limit_text,
        action="stop if results are not home, else destroy",
        silence=True,
    ),
    Watchdog(
        name="bug",
        check=bug,
        watches="bugs of vastd that met this machine",
        limit=lambda _: "one, if nothing can be lost",
        action="destroy",
    ),
    Watchdog(
        name="start_waits",
        check=start_waits,
        watches="seconds since a start was asked for that Vast has not carried out",
        limit=lambda w: f"{w.limits.destroy_shout_s:.0f} s",
        action="warn; the start waits on, the disk is kept",
    ),
)
