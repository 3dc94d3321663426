"""The watchdogs: pure functions from what is known of a rental to an alarm with its instant.

Rules
1. A watchdog looks at the record, the observations and the limits; it keeps nothing.
2. All due alarms come back, gravest first: a warning never hides an ending.
3. A warning fires once; that it fired is on the record (`Rental.warned`).
4. Nothing is judged stale from before `World.watching_since` (I7).
5. What ends a machine for its silence waits for evidence: a look or a listing that began when
   the limit was over. Without one the alarm stands, unproven, and nothing happens.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from vastd.core import billing, money, watchdog_words
from vastd.core.alarms import Action, Alarm, Watch, Watchdog, end, warn
from vastd.core.boot_watchdogs import BOOT_DOGS
from vastd.core.limits import COLLECT_TRIES
from vastd.core.rental import Phase, Policy, StopCause, Trigger
from vastd.core.spending import wind_down_s

_LIVE: Final = frozenset(
    {Phase.BOOTING, Phase.VERIFYING, Phase.READY, Phase.BUSY, Phase.COLLECTING, Phase.STOPPED}
)
_REACHABLE: Final = frozenset({Phase.READY, Phase.BUSY, Phase.COLLECTING})


def heartbeat(watch: Watch) -> Alarm | None:
    """End a job that stopped writing its heartbeat: a suspected silent crash."""
    job, policy = watch.running_job, _beats(watch)
    if watch.rental.phase is not Phase.BUSY or job is None or policy.heartbeat_path is None:
        return None
    looked = watch.seen.looked_at
    if looked is None or looked < watch.world.watching_since or watch.seen.unreachable_since:
        return None  # we could not look: that is `unreachable`'s matter, not the job's silence
    began = job.started_at if job.started_at is not None else job.submitted_at
    last = watch.seen.beat.at if watch.seen.beat else began
    since = max(last, began, watch.world.watching_since)
    limit = policy.heartbeat_interval_s * watch.limits.heartbeat_stale_factor
    # A look that hangs must not end a job whose newest beat we have not seen.
    proven = looked >= since + limit
    why = f"no heartbeat for {limit:.0f} s"
    return end(watch, since + limit, Trigger.HEARTBEAT_STALE, why, proven=proven)


def _beats(watch: Watch) -> Policy:
    """Return the policy that declares the heartbeat: the job's own, on a machine it did not rent."""
    job = watch.running_job
    own = job is not None and job.policy.heartbeat_path is not None
    return job.policy if job is not None and own else watch.rental.policy


def budget_warn(watch: Watch) -> Alarm | None:
    """Warn when spending, carried on to the wind-down, passes a share of the cap."""
    share = watch.limits.warn_percent / 100
    at = _spent_at(watch, share)
    percent = f"{watch.limits.warn_percent:.0f} %"
    why = (
        f"what it cost and its winding down ({_reserve_text(watch)}) reach {percent} of its budget"
    )
    return None if at is None else warn(watch, "budget_warn", at, why)


def budget(watch: Watch) -> Alarm | None:
    """End the rental in time for its whole cost to stay within the budget."""
    at = _spent_at(watch, 1.0)
    why = f"its budget is used up: {_reserve_text(watch)} of {_budget_text(watch)} pays for its end"
    return None if at is None else end(watch, at, Trigger.BUDGET, why)


def _spent_at(watch: Watch, share: float) -> float | None:
    """Return when cost so far plus the cost of winding down reaches `share` of the budget.

    Winding down is the grace time, one polling interval and the settle time at the *instance's*
    rate. None when there is no budget or nothing bills.
    """
    rental = watch.rental
    if rental.policy.budget is None or rental.phase not in _LIVE or not rental.rates:
        return None
    now_rate = billing.rate(rental)
    reserve = _reserve(watch)
    since = rental.rates[-1].since
    left = rental.policy.budget * share - billing.cost(rental, since) - reserve
    if left <= 0:
        return since
    return since + left / now_rate * 3600 if now_rate > 0 else None


def _reserve(watch: Watch) -> money.Micros:
    """Return what winding the machine down costs."""
    rental = watch.rental
    stopped = rental.phase is Phase.STOPPED
    rate = billing.rate(rental) if stopped else billing.expected_rate(rental)
    return money.for_seconds(rate, wind_down_s(rental, watch.limits))


def _reserve_text(watch: Watch) -> str:
    return money.show(_reserve(watch))


def max_runtime(watch: Watch) -> Alarm | None:
    """End the rental at its deadline. Wall clock, from the create; a restart resets nothing."""
    rental = watch.rental
    # While it stands still as the user wanted, its run time does too.
    counts = rental.phase in _LIVE | {Phase.CREATING} and rental.paused_at is None
    if rental.deadline_at is None or not counts:
        return None
    why = f"max-runtime of {rental.policy.max_runtime_s:.0f} s is over"
    return end(watch, rental.deadline_at, Trigger.MAX_RUNTIME, why)


def unreachable(watch: Watch) -> Alarm | None:
    """Warn when a machine that runs cannot be asked; its job is unknown, not failed."""
    since = watch.seen.unreachable_since
    if since is None or watch.rental.phase not in _REACHABLE:
        return None
    at = max(since, watch.world.watching_since) + watch.limits.ssh_budget_s
    why = f"unreachable by SSH: {watch.seen.unreachable_why or 'no answer'}"
    return warn(watch, "unreachable", at, why)


def idle(watch: Watch) -> Alarm | None:
    """End (if `idle_s` was set) or warn about a ready machine on which nothing happens."""
    rental = watch.rental
    if rental.phase is not Phase.READY or any(not j.finished for j in watch.jobs):
        return None
    ended = max((j.ended_at or 0.0 for j in watch.jobs), default=0.0)
    quiet = watch.seen.quiet_since
    if quiet is None:
        return None  # no reading of the GPU yet, or it works: never act on one zero
    since = max(ended, rental.ready_at or 0.0, quiet, watch.world.watching_since)
    limit = _idle_limit(watch)
    why = f"idle for {limit:.0f} s"
    if rental.policy.idle_s is None:
        return warn(watch, "idle", since + limit, why)
    # Without a listing nobody knows whether it worked meanwhile (rule 5).
    proven = (watch.seen.seen_begun_at or 0.0) >= since + limit
    return end(watch, since + limit, Trigger.IDLE, why, proven=proven)


def _idle_limit(watch: Watch) -> float:
    policy = watch.rental.policy
    return policy.idle_s or policy.idle_warn_s or watch.limits.idle_warn_s


def destroy_unconfirmed(watch: Watch) -> Alarm | None:
    """Shout when the end of a machine is not proven: it may still bill. Retries never stop."""
    if watch.rental.phase is not Phase.DESTROYING:
        return None
    at = watch.rental.phase_since + watch.limits.destroy_shout_s
    return warn(watch, "destroy_unconfirmed", at, f"the end is not proven yet; {_may_bill(watch)}")


def _may_bill(watch: Watch) -> str:
    rate = money.show_rate(billing.expected_rate(watch.rental))
    return f"instance {watch.rental.instance_id} may bill {rate}"


def listing_stale(watch: Watch) -> Alarm | None:
    """Warn when Vast's listing could not be had for long: what exists is not known."""
    inventory = watch.world.inventory
    if inventory.failing_since is None or watch.rental.phase is Phase.GONE:
        return None
    at = max(inventory.failing_since, watch.world.watching_since) + LISTING_STALE_S
    return warn(watch, "listing_stale", at, f"no listing from Vast: {inventory.error}")


LISTING_STALE_S: Final = 300.0  # guess: five idle intervals


def stop_unconfirmed(watch: Watch) -> Alarm | None:
    """Shout when a machine that shall be stopped may still bill its GPU. Retries never stop."""
    rental = watch.rental
    busy = rental.phase is Phase.BUSY  # its job has its grace time, and then does not end
    sent = rental.phase in _REACHABLE and rental.stop_tried_at is not None
    if rental.pause is None or not (busy or sent):
        return None
    grace_s = rental.policy.grace_s if busy else 0.0
    at = max(rental.pause.at, rental.phase_since) + grace_s + watch.limits.destroy_shout_s
    return warn(watch, "stop_unconfirmed", at, f"the stop is not seen yet; {_may_bill(watch)}")


def held(watch: Watch) -> Alarm | None:
    """Say once a day that a machine is kept, and billed, only for what is on its disk."""
    rental = watch.rental
    waiting = rental.taken_over or any(job.finished and job.uncollected for job in watch.jobs)
    waiting = waiting or bool(rental.left_jobs)
    paused = rental.phase is Phase.STOPPED and rental.pause is not None
    # Nobody asked for it and nothing of a job is on it: somebody works there himself.
    alone = rental.phase is Phase.STOPPED and rental.stopped_by not in (None, *_TOLD_ELSEWHERE)
    alone = alone and (rental.purpose != "job" or rental.policy.keep)
    given_up = rental.phase is Phase.READY and rental.collect_failures >= COLLECT_TRIES
    still = rental.phase is Phase.STOPPED and rental.start_asked_at is None
    if not (waiting or paused or alone) or not (given_up or still):
        return None
    told = sum(1 for name in rental.warned if name.startswith("held"))
    since = max(rental.phase_since, rental.collect_failed_at or 0.0)
    rate = money.show_rate(billing.rate(rental))
    if rental.left_jobs:
        since += HELD_WARN_S  # that the job goes on elsewhere said it
        why = (
            f"kept, at {rate}, until job {rental.left_jobs[0]} succeeded elsewhere; {_LEFT_REMEDY}"
        )
    elif paused:
        since += HELD_WARN_S  # the stop itself said it
        why = f"stopped as asked, its disk bills {rate}; `vastctl start` or `vastctl destroy` it"
    elif alone and not waiting:
        why = f"{rental.stop_detail}, at {rate}; `vastctl start` or `vastctl destroy` it"
    else:
        why = f"kept for results that are not home, at {rate}; {_HELD_REMEDY}"
    return warn(watch, f"held-{told + 1}", since + told * HELD_WARN_S, why)


_TOLD_ELSEWHERE: Final = (StopCause.ASKED, StopCause.CREDIT)
HELD_WARN_S: Final = 86_400.0  # guess: daily is neither silence nor noise
_LEFT_REMEDY: Final = "`vastctl destroy --no-collect` gives up what the job left on its disk"
_HELD_REMEDY: Final = (
    "when it can be reached again they are collected, `vastctl destroy --force --reason TEXT` "
    "gives them up"
)


def _budget_text(watch: Watch) -> str:
    cap = watch.rental.policy.budget
    return "no budget set" if cap is None else money.show(cap)


def _heartbeat_text(watch: Watch) -> str:
    policy = _beats(watch)
    if policy.heartbeat_path is None:
        return "no heartbeat declared"
    return f"{policy.heartbeat_interval_s * watch.limits.heartbeat_stale_factor:.0f} s"


ALL: Final = (
    Watchdog(
        name="max_runtime",
        check=max_runtime,
        watches="wall clock since the create",
        limit=lambda w: f"{w.rental.policy.max_runtime_s:.0f} s",
        action="TERM, collect, destroy",
    ),
    Watchdog(
        name="budget",
        check=budget,
        watches="billed cost plus the cost of winding down",
        limit=_budget_text,
        action="TERM, collect, destroy",
    ),
    Watchdog(
        name="budget_warn",
        check=budget_warn,
        watches="billed cost plus the cost of winding down",
        limit=lambda w: f"{w.limits.warn_percent:.0f} % of {_budget_text(w)}",
        action="warn",
    ),
    Watchdog(
        name="heartbeat",
        check=heartbeat,
        watches="age of the heartbeat file on the machine's clock",
        limit=_heartbeat_text,
        action="TERM, collect, destroy",
        silence=True,
    ),
    *BOOT_DOGS,
    Watchdog(
        name="unreachable",
        check=unreachable,
        watches="seconds since SSH answered last",
        limit=lambda w: f"{w.limits.ssh_budget_s:.0f} s",
        action="warn; the job's state is unknown",
        silence=True,
    ),
    Watchdog(
        name="idle",
        check=idle,
        watches="GPU use of a machine without a job",
        limit=lambda w: f"{_idle_limit(w):.0f} s",
        action="collect and destroy if an idle limit was set, else warn",
        silence=True,
    ),
    Watchdog(
        name="held",
        check=held,
        watches="days since a machine is kept only for what is on its disk",
        limit=lambda _: f"{HELD_WARN_S:.0f} s",
        action="warn, every day",
    ),
    Watchdog(
        name="stop_unconfirmed",
        check=stop_unconfirmed,
        watches="seconds since a stop was asked for without being seen",
        limit=lambda w: f"{w.limits.destroy_shout_s:.0f} s",
        action="shout; the stop is retried for ever",
    ),
    Watchdog(
        name="destroy_unconfirmed",
        check=destroy_unconfirmed,
        watches="seconds since destroy was decided without proof of absence",
        limit=lambda w: f"{w.limits.destroy_shout_s:.0f} s",
        action="shout; destroy is retried for ever",
    ),
    Watchdog(
        name="listing_stale",
        check=listing_stale,
        watches="seconds since Vast's listing could not be had",
        limit=lambda _: f"{LISTING_STALE_S:.0f} s",
        action="warn; nothing new is rented",
        silence=True,
    ),
)


def check(
    watches: Iterable[Watch], now: float, dogs: Sequence[Watchdog] = ALL
) -> tuple[list[Action], float]:
    """Return every action due at `now`, gravest first, and when to look again (epoch s).

    The second value is `math.inf` when no alarm is pending.
    """
    # As `Watchdog.look`, without a call more for each of some ten thousand pairs.
    loud = [dog for dog in dogs if not dog.silence]
    found = [
        (alarm, dog, watch)
        for watch in watches
        for dog in (dogs if watch.world.network_down_since is None else loud)
        if (alarm := dog.check(watch)) is not None
    ]
    ripe = [(a.action, d, w) for a, d, w in found if a.at <= now and a.proven]
    due = sorted(ripe, key=lambda each: each[0].gravity, reverse=True)
    wake_at = min((a.at for a, *_ in found if a.at > now), default=math.inf)
    return [watchdog_words.reasoned(dog, action, watch, now) for action, dog, watch in due], wake_at
