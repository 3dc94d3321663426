"""The watchdogs in the words of people: their names, and what each looked at when it decided.

A watchdog without a row here is told by what it says itself (`Watchdog.watches`, `.limit`).
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import structs

from vastd.core import billing
from vastd.core.alarms import Action, Scalar, Watch, Watchdog
from vastd.core.instants import maybe
from vastd.core.money import show, show_rate
from vastd.core.rental import Phase

TITLES: Final = {
    "max_runtime": "run time",
    "budget": "its budget",
    "budget_warn": "its budget, early warning",
    "heartbeat": "heartbeat of the job",
    "boot_overdue": "boot time",
    "boot_warn": "boot time, early warning",
    "unknown_status": "a status of Vast nobody knows",
    "unreachable": "SSH",
    "idle": "idleness",
    "held": "kept for its disk",
    "stop_unconfirmed": "a stop that is not seen",
    "destroy_unconfirmed": "an end that is not proven",
    "listing_stale": "Vast's listing",
    "cap": "caps of all machines",
    "cap_warn": "caps of all machines, early warning",
    "outbid": "a bid that does not win",
    "price": "its price per hour",
    "price_warn": "its price per hour, early warning",
    "unreachable_end": "SSH, for too long",
    "bug": "bugs of vastd",
    "start_waits": "a start that waits at Vast",
    "credit": "the account's credit",
    "credit_warn": "the account's credit, early warning",
    "credit_out": "an account out of credit",
}


def title(name: str) -> str:
    """Return what people call a watchdog."""
    return TITLES.get(name, name.replace("_", " "))


def reasoned(dog: Watchdog, action: Action, watch: Watch, now: float) -> Action:
    """Return `action` with its rule and the facts it was decided by."""
    rule = f"{title(dog.name)}: {dog.watches}; limit {dog.limit(watch)}"
    return structs.replace(action, rule=rule, inputs=inputs(dog.name, watch, now))


def unknown(name: str, watch: Watch) -> str | None:
    """Return what a watchdog would have to know to name its instant; None when it knows or does
    not look at this machine now."""
    rental, seen = watch.rental, watch.seen
    if name == "heartbeat" and rental.phase is Phase.BUSY and _beats(watch):
        if seen.unreachable_since is not None:
            return "the machine does not answer, so nobody can look at the heartbeat"
        return "the job was not looked at yet" if seen.looked_at is None else None
    if name == "idle" and rental.phase is Phase.READY and all(j.finished for j in watch.jobs):
        if seen.instance is None or seen.gpu_util is None:
            return "Vast has not shown the use of its GPU yet"
        return "its GPU was busy when Vast showed it last" if seen.quiet_since is None else None
    if name in ("budget", "budget_warn") and rental.policy.budget is not None:
        return "nothing is billed now" if billing.rate(rental) == 0 else None
    return None


def _beats(watch: Watch) -> bool:
    job = watch.running_job
    return job is not None and bool(job.policy.heartbeat_path or watch.rental.policy.heartbeat_path)


def inputs(name: str, watch: Watch, now: float) -> dict[str, Scalar]:
    """Return the facts a watchdog looks at, as they are at `now`; those unknown are left out."""
    found = INPUTS.get(name, _nothing)(watch, now)
    return {key: value for key, value in found.items() if value is not None}


def _nothing(watch: Watch, now: float) -> dict[str, Scalar]:
    return {}


def _run_time(watch: Watch, now: float) -> dict[str, Scalar]:
    return {
        "create_sent_at": maybe(watch.rental.create_sent_at),
        "max_runtime_s": watch.rental.policy.max_runtime_s,
        "deadline_at": maybe(watch.rental.deadline_at),
    }


def _money(watch: Watch, now: float) -> dict[str, Scalar]:
    budget = watch.rental.policy.budget
    return {
        "spent": show(billing.cost(watch.rental, now)),
        "rate": show_rate(billing.rate(watch.rental)),
        "budget": None if budget is None else show(budget),
    }


def _caps(watch: Watch, now: float) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for pace in watch.paces:
        if pace.covers(watch.rental):
            found[pace.cap] = pace.text
            found[f"{pace.cap} burn"] = show_rate(pace.burn)
            found[f"{pace.cap} kept for winding down"] = show(pace.kept_back)
    return found


def _price(watch: Watch, now: float) -> dict[str, Scalar]:
    cap, rates = watch.rental.policy.max_dph, watch.rental.rates
    return {
        "rate": show_rate(billing.rate(watch.rental)),
        "since": maybe(rates[-1].since if rates else None),
        "rented_for": show_rate(billing.order_rate(watch.rental.order)),
        "cap": None if cap is None else show_rate(cap),
    }


def _outbid(watch: Watch, now: float) -> dict[str, Scalar]:
    rental, row = watch.rental, watch.seen.instance
    lowest = None if row is None or row.min_bid is None else show_rate(row.min_bid)
    return {
        "bid": None if rental.order.bid is None else show_rate(rental.order.bid),
        "lowest_that_wins": lowest,
        "on_outbid": str(rental.policy.on_outbid),
        "since": maybe(rental.phase_since),
    }


def _credit(watch: Watch, now: float) -> dict[str, Scalar]:
    look = watch.credit
    if look is None:
        return {}
    return {
        "credit": show(look.left),
        "read_at": maybe(look.read_at),
        "burn": show_rate(look.burn),
        "zero_at": maybe(look.zero_at),
    }


def _heartbeat(watch: Watch, now: float) -> dict[str, Scalar]:
    job = watch.running_job
    return {
        "last_beat_at": maybe(watch.seen.beat.at if watch.seen.beat else None),
        "looked_at": maybe(watch.seen.looked_at),
        "job_started_at": maybe(job.started_at if job else None),
        "watching_since": maybe(watch.world.watching_since or None),
    }


def _boot(watch: Watch, now: float) -> dict[str, Scalar]:
    row = watch.seen.instance
    return {
        "booting_since": maybe(watch.rental.phase_since),
        "listed_at": maybe(watch.seen.observed_at),
        "status": row.status if row else None,
        "status_msg": (row.status_msg or "")[:200] or None if row else None,
    }


def _ssh(watch: Watch, now: float) -> dict[str, Scalar]:
    return {
        "unreachable_since": maybe(watch.seen.unreachable_since),
        "reached_at": maybe(watch.seen.reached_at),
        "error": watch.seen.unreachable_why or None,
    }


def _idle(watch: Watch, now: float) -> dict[str, Scalar]:
    ended = max((j.ended_at for j in watch.jobs if j.ended_at is not None), default=None)
    return {
        "gpu_util": watch.seen.gpu_util,
        "quiet_since": maybe(watch.seen.quiet_since),
        "last_job_ended_at": maybe(ended),
        "listed_at": maybe(watch.seen.seen_begun_at),
    }


def _end(watch: Watch, now: float) -> dict[str, Scalar]:
    rental = watch.rental
    return {
        "since": maybe(rental.phase_since),
        "tries": rental.destroy_tries or None,
        "tried_at": maybe(rental.destroy_tried_at),
        "accepted": rental.destroy_accepted,
        "last_seen_at": maybe(watch.seen.seen_begun_at),
    }


def _listing(watch: Watch, now: float) -> dict[str, Scalar]:
    inventory = watch.world.inventory
    return {
        "failing_since": maybe(inventory.failing_since),
        "newest_listing_at": maybe(inventory.as_of),
        "error": inventory.error,
    }


INPUTS: Final[Mapping[str, Callable[[Watch, float], dict[str, Scalar]]]] = {
    "max_runtime": _run_time,
    "budget": _money,
    "budget_warn": _money,
    "cap": _caps,
    "cap_warn": _caps,
    "outbid": _outbid,
    "price": _price,
    "price_warn": _price,
    "unreachable_end": _ssh,
    "credit": _credit,
    "credit_warn": _credit,
    "heartbeat": _heartbeat,
    "boot_overdue": _boot,
    "boot_warn": _boot,
    "unknown_status": _boot,
    "unreachable": _ssh,
    "idle": _idle,
    "destroy_unconfirmed": _end,
    "listing_stale": _listing,
}
