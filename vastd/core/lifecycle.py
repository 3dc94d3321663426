"""What an event makes of a rental: first the table of `core/transitions.py`, then the fields it carries."""

from msgspec import structs

from vastd.core import events as ev
from vastd.core.limits import COLLECT_TRIES
from vastd.core.money import Micros
from vastd.core.rental import Blame, Ending, Pause, Phase, RateSegment, Rental, Trigger
from vastd.core.transitions import TRANSITIONS
from vastd.errors import IllegalTransition


def evolve(rental: Rental | None, event: ev.RentalEvent) -> Rental:
    """Return the rental as it is after `event`; `rental` is None only for its first event.

    Raises:
        IllegalTransition: `event` has no row for this phase, or comes before the rental.
    """
    if isinstance(event, (ev.RentalPlanned, ev.RentalAdopted)):
        if rental is not None:
            raise IllegalTransition(f"{event.rental_id!r} exists already")
        first = event.rental
        return structs.replace(first, phases=((first.phase, event.at),))
    if rental is None:
        raise IllegalTransition(f"{ev.kind(event)} for {event.rental_id!r}, which is not on record")
    phase = TRANSITIONS[rental.phase].get(type(event))
    if phase is None:
        raise IllegalTransition(
            f"{ev.kind(event)} in phase {rental.phase} of rental {rental.rental_id!r}"
        )
    after = _with_fields(rental, event)
    if phase is not rental.phase:
        after = structs.replace(
            after, phase=phase, phase_since=event.at, phases=(*after.phases, (phase, event.at))
        )
        if phase is Phase.GONE:
            until = event.billed_until if isinstance(event, ev.FoundAbsent) else None
            closed = _closed(after.rates, event.at if until is None else until)
            after = structs.replace(after, ended_at=event.at, rates=closed)
    return after


def _with_fields(rental: Rental, event: ev.RentalEvent) -> Rental:
    """Return `rental` with the fields that `event` carries."""
    match event:
        case ev.CreateSent(at=at, deadline_at=deadline):
            return structs.replace(rental, create_sent_at=at, deadline_at=deadline)
        case ev.CreateConfirmed(instance_id=found) | ev.InstanceFound(instance_id=found):
            return structs.replace(rental, instance_id=found, create_unknown=False)
        case ev.CreateUnresolved():
            return structs.replace(rental, create_unknown=True)
        case ev.CreateRefused(at=at, why=why, stop_all=stop_all, offer_gone=offer_gone):
            ending = rental.ending or Ending(trigger=Trigger.CREATE_REFUSED, at=at, why=why)
            return structs.replace(
                rental,
                ending=ending,
                end_detail=why,
                create_unknown=False,
                refused_for_all=stop_all,
                offer_gone=offer_gone,
            )
        case ev.InstanceRunning(at=at):
            return structs.replace(rental, running_at=at)
        case ev.KeyAttached(at=at):
            return structs.replace(rental, key_attached=True, key_attached_at=at)
        case ev.BecameReady(at=at, route=route):
            return structs.replace(
                rental, ready_at=rental.ready_at or at, route=route, start_asked_at=None
            )
        case ev.CollectVerified():
            return structs.replace(rental, collect_failures=0, collect_failed_at=None)
        case ev.InstanceResumed(at=at):
            return _resumed(rental, at)
        case ev.CollectFailed(at=at):
            return structs.replace(
                rental, collect_failures=rental.collect_failures + 1, collect_failed_at=at
            )
        case ev.EndDecided():
            after = _decided(rental, event)
            return _once_more(after) if event.trigger is Trigger.USER else after
        case ev.DestroyTried(at=at, accepted=accepted):
            return structs.replace(
                rental,
                destroy_tried_at=at,
                destroy_tries=rental.destroy_tries + 1,
                destroy_accepted=accepted,
            )
        case ev.InstanceStopped(at=at, cause=cause, why=why):
            return structs.replace(
                rental,
                paused_at=at if rental.pause is not None else None,
                stopped_by=cause,
                stop_detail=why,
            )
        case ev.StopAsked() | ev.StopTried() | ev.StartAsked() | ev.StartTried():
            return _pausing(rental, event)
        case ev.FoundAbsent(at=at, proof=proof):
            return _absent(rental, at, proof)
        case ev.Resurfaced(at=at, instance_id=found):
            return structs.replace(
                rental,
                instance_id=found,
                ended_at=None,
                destroy_tried_at=None,
                destroy_tries=0,
                destroy_accepted=False,
                # A new end: what takes too long again is shouted about again (I4).
                warned=rental.warned - {"destroy_unconfirmed"},
            )
        case _:
            return _noted(rental, event)


def _noted(rental: Rental, event: ev.RentalEvent) -> Rental:
    match event:
        case ev.PolicyChanged(policy=policy, deadline_at=deadline):
            # What was warned about was another limit.
            warned = rental.warned - {"budget_warn", "idle"}
            return structs.replace(rental, policy=policy, deadline_at=deadline, warned=warned)
        case ev.BillingChanged(since=since, rate=rate):
            return structs.replace(rental, rates=_with_rate(rental.rates, since, rate))
        case ev.LeaseRenewed(until=until):
            return structs.replace(rental, lease_until=until)
        case ev.LeaseAsked(until=until):
            return structs.replace(rental, lease_asked_until=until)
        case ev.JobWentOn(job_id=job_id):
            # A stop of before must not count: this disk shall not start by itself and bill its GPU.
            return structs.replace(
                rental,
                left_jobs=(*rental.left_jobs, job_id),
                stop_tried_at=None,
                stop_accepted=False,
            )
        case ev.LeftOver(job_id=job_id):
            left = tuple(other for other in rental.left_jobs if other != job_id)
            return structs.replace(rental, left_jobs=left)
        case ev.BidChanged(bid=bid):
            return structs.replace(rental, order=structs.replace(rental.order, bid=bid))
        case ev.Released(at=at, why=why):
            ending = rental.ending or Ending(trigger=Trigger.USER, at=at, why=why)
            return structs.replace(rental, ending=ending, released=why, end_detail=why)
        case ev.Warned(watchdog=name):
            return structs.replace(rental, warned=rental.warned | {name})
        case ev.Quarantined(why=why):
            return structs.replace(rental, quarantined=why)
        case _:
            return rental


def _pausing(
    rental: Rental, event: ev.StopAsked | ev.StopTried | ev.StartAsked | ev.StartTried
) -> Rental:
    at = event.at
    match event:
        case ev.StopAsked(why=why, collect=collect):
            told = {name for name in rental.warned if name.startswith(("held", "stop"))}
            after = structs.replace(
                rental,
                pause=Pause(at=at, why=why, collect=collect),
                # A stop that takes a start back does not end the standing still before it.
                paused_at=_still_since(rental, at),
                start_asked_at=None,
                stop_tried_at=None,
                stop_accepted=False,
                warned=rental.warned - told,
            )
            return _once_more(after)
        case ev.StopTried(accepted=accepted):
            return structs.replace(rental, stop_tried_at=at, stop_accepted=accepted)
        case ev.StartAsked():
            # Whoever has it back wants to use it: that its jobs are done must not end it at once.
            keep = rental.policy.keep or rental.ending is None
            return structs.replace(
                rental,
                policy=structs.replace(rental.policy, keep=keep),
                pause=None,
                warned=rental.warned - {"start_waits"},
                start_asked_at=at,
                start_tried_at=None,
                start_accepted=False,
            )
        case ev.StartTried(accepted=accepted):
            return structs.replace(rental, start_tried_at=at, start_accepted=accepted)


def _still_since(rental: Rental, at: float) -> float | None:
    if rental.phase is Phase.STOPPED and rental.paused_at is None:
        return at
    return rental.paused_at


def _resumed(rental: Rental, at: float) -> Rental:
    """A machine that is back gets a new chance to have its results copied. The time it stood still
    because the user wanted it does not count against its run time."""
    deadline = rental.deadline_at
    if deadline is not None and rental.paused_at is not None:
        deadline += max(0.0, at - rental.paused_at)
    return structs.replace(
        rental,
        collect_failures=0,
        collect_failed_at=None,
        # A stop that Vast has not accepted yet is still wanted: a start sent before it came first.
        pause=None if rental.stop_accepted else rental.pause,
        # A start is over when the machine can be used; one that only has to be emptied need not be.
        start_asked_at=rental.start_asked_at if rental.ending is None else None,
        deadline_at=deadline,
        paused_at=None,
        stopped_by=None,
        stop_detail=None,
    )


def _decided(rental: Rental, event: ev.EndDecided) -> Rental:
    return structs.replace(
        rental,
        ending=_ending(rental, event),
        end_detail=event.why,
        refused_for_all=rental.refused_for_all or event.blame is Blame.RUN,
    )


def _ending(rental: Rental, event: ev.EndDecided) -> Ending:
    """Return the ending after another decision: the first cause stands, an order of the user
    adds force and may give up collection."""
    if rental.ending is None:
        return Ending(
            trigger=event.trigger,
            at=event.at,
            why=event.why,
            force=event.force,
            collect=event.collect,
            blame=event.blame,
        )
    held = rental.ending
    if held.trigger is Trigger.JOB_DONE:
        # Its only consequence was to wait for a copy: an end by user or limit replaces it.
        held = structs.replace(held, trigger=event.trigger, at=event.at, why=event.why)
    return structs.replace(
        held,
        force=held.force or event.force,
        collect=held.collect and event.collect,
    )


def _once_more(rental: Rental) -> Rental:
    """Let a copy that was given up be tried once: the user may have made room for it meanwhile,
    and whoever waits for this end learns that it fails again."""
    tries = min(rental.collect_failures, COLLECT_TRIES - 1)
    return structs.replace(rental, collect_failures=tries, collect_failed_at=None)


def _absent(rental: Rental, at: float, proof: str) -> Rental:
    if rental.ending is not None:
        return structs.replace(rental, create_unknown=False)
    trigger = Trigger.CREATE_LOST if rental.phase is Phase.CREATING else Trigger.VANISHED
    ending = Ending(trigger=trigger, at=at, why=proof)
    return structs.replace(rental, ending=ending, end_detail=proof, create_unknown=False)


def _with_rate(
    rates: tuple[RateSegment, ...], since: float, rate: Micros
) -> tuple[RateSegment, ...]:
    """Return `rates` with a new last segment; one that begins earlier than the last one's start
    replaces it, because a bill is rather over- than understated."""
    kept = tuple(segment for segment in rates if segment.since < since)
    return (*kept, RateSegment(since, rate))


def _closed(rates: tuple[RateSegment, ...], at: float) -> tuple[RateSegment, ...]:
    """Return `rates` ended at `at`: a machine that is gone costs nothing."""
    if not rates or rates[-1].rate == 0:
        return rates
    return (*rates, RateSegment(max(at, rates[-1].since), Micros(0)))
