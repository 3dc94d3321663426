"""Words for stories in the lab: the one job, the first rental, what was recorded and called."""

from msgspec import structs

from support.daemon_in_memory import EPOCH, Daemon, Lab
from vastd.core import events as ev
from vastd.core.job import Job, JobState
from vastd.core.money import Micros
from vastd.core.rental import Phase, Policy, Rental
from vastd.simulator.faults import MachineFault, MachineFaultKind

HOUR = 3600.0
WORK = ("--seconds", "300", "--output", "results/a.bin:1000")


def the_job(daemon: Daemon) -> Job:
    return next(iter(daemon.ledger.jobs.values()))


def first(daemon: Daemon) -> Rental:
    return next(iter(daemon.ledger.rentals.values()))


def last(daemon: Daemon) -> Rental:
    return list(daemon.ledger.rentals.values())[-1]


def trail(daemon: Daemon, rental: Rental | None = None) -> list[str]:
    found = daemon.store.events_of(rental_id=(rental or first(daemon)).rental_id)
    events = [s.event for s in found if isinstance(s.event, ev.RentalEvent)]
    # What comes with the time and not with the story is left out.
    return [ev.kind(e) for e in events if not isinstance(e, ev.BillingChanged | ev.LeaseRenewed)]


def calls(lab: Lab, *kinds: str) -> list[str]:
    return [entry.kind for entry in lab.market.journal if not kinds or entry.kind in kinds]


def at_of(daemon: Daemon, kind: type[ev.Event], rental: Rental) -> float:
    """When something happened to a rental, in seconds of virtual time."""
    for stored in daemon.store.events_of(rental_id=rental.rental_id):
        if isinstance(stored.event, kind):
            return stored.event.at - EPOCH
    raise AssertionError(f"no {kind.__name__} of {rental.rental_id}")


async def in_phase(daemon: Daemon, phase: Phase, within_s: float = HOUR) -> Rental:
    def there() -> bool:
        return any(r.phase is phase for r in daemon.ledger.rentals.values())

    await daemon.until(there, within_s=within_s)
    return next(r for r in daemon.ledger.rentals.values() if r.phase is phase)


async def running(lab: Lab, daemon: Daemon, *words: str, **policy: object) -> Rental:
    daemon.submit(*(words or WORK), project=lab.project, policy=Policy(**policy),  # type: ignore[arg-type]
                  outputs=["results/"])  # fmt: skip
    await daemon.until(lambda: the_job(daemon).state is JobState.RUNNING, within_s=HOUR)
    return first(daemon)


def bid_for(lab: Lab, percent: int = 110) -> None:
    """Let every machine be rented with a bid, `percent` of the lowest that wins."""
    choose = lab.choose

    async def bidding(*args):  # type: ignore[no-untyped-def]
        choice = await choose(*args)
        assert choice.offer.min_bid is not None
        return structs.replace(choice, bid=Micros(choice.offer.min_bid * percent // 100))

    lab.choose = bidding  # type: ignore[method-assign]


def befall(lab: Lab, rental: Rental, kind: MachineFaultKind, **fault: object) -> None:
    """Let a machine fault befall the machine of `rental` now."""
    struck = MachineFault(kind=kind, **fault)  # type: ignore[arg-type]
    lab.market.afflict(struck, instance_id=rental.instance_id)
