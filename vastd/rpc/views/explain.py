"""The explanation of one rental, as the wire shows it: story, bill, and what watchdogs would do."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Final

from vastd.core import (
    alarms,
    billing,
    cost_spans,
    costs,
    decisions,
    endings,
    every_watchdog,
    steps,
    story,
    watchdog_words,
)
from vastd.core import events as ev
from vastd.core.instants import maybe, rfc3339
from vastd.core.money import Micros, to_usd
from vastd.core.rental import Phase, Rental
from vastd.store.store import StoredEvent
from vastd_protocol.methods.rental import (
    BillView,
    CostPieceView,
    ExplainView,
    PhaseCostView,
    RentalView,
    SpanView,
    StepView,
    WatchdogView,
)

WARNED: Final = "has warned already"


def explain_view(
    rental: RentalView,
    trail: Sequence[StoredEvent],
    watch: alarms.Watch,
    failed: Collection[str],
    now: float,
) -> ExplainView:
    """Return the whole story of one rental. `trail`: its events and its jobs', oldest first;
    `failed`: ids of the rentals that could not serve a job."""
    record = watch.rental
    return ExplainView(
        rental=rental,
        timeline=[step_view(stored, record) for stored in trail],
        phases=_phases(record, now),
        watchdogs=[watchdog_view(dog, watch, now) for dog in every_watchdog.ALL],
        bill=bill_view(watch, failed, now),
    )


def step_view(stored: StoredEvent, record: Rental) -> StepView:
    """Return one line of a timeline."""
    event = stored.event
    line, reason = story.tell(event), decisions.reason_of(event)
    return StepView(
        at=rfc3339(event.at),
        kind=ev.kind(event),
        text=line.text,
        severity=line.severity,
        job_id=getattr(event, "job_id", None),
        cost_usd=to_usd(billing.cost(record, event.at)),
        rule=None if reason is None else reason.rule,
        inputs={} if reason is None else reason.inputs,
    )


def bill_view(watch: alarms.Watch, failed: Collection[str], now: float) -> BillView:
    """Return what the money was spent on; the parts add up exactly."""
    rental = watch.rental
    found = cost_spans.spans(rental, watch.jobs, now)
    pieces = costs.bill(rental, failed, found)
    return BillView(
        cost_usd=to_usd(billing.cost(rental, now)),
        waste_usd=to_usd(Micros(sum(piece.waste for piece in pieces))),
        waste_why=cost_spans.why_wasted(rental, failed),
        seen_at=maybe(watch.seen.seen_begun_at),
        pieces=[
            CostPieceView(
                kind=piece.kind,
                seconds=round(piece.seconds, 3),
                cost_usd=to_usd(piece.cost),
                waste_usd=to_usd(piece.waste),
            )
            for piece in pieces
        ],
        spans=[
            SpanView(
                kind=span.kind,
                since=rfc3339(span.since),
                until=rfc3339(span.until),
                cost_usd=to_usd(span.cost),
            )
            for span in found
        ],
    )


def _phases(rental: Rental, now: float) -> list[PhaseCostView]:
    """Return every phase entered with its length and the exact difference of the bill."""
    end = rental.ended_at if rental.ended_at is not None else now
    stops = [*rental.phases, (Phase.GONE, end)]
    found = []
    for (phase, began), (_, until) in pairwise(stops):
        if phase is Phase.GONE:
            continue
        spent = billing.cost(rental, max(until, began)) - billing.cost(rental, began)
        found.append(
            PhaseCostView(
                phase=phase, seconds=round(max(0.0, until - began), 3), cost_usd=to_usd(spent)
            )
        )
    return found


def watchdog_view(dog: alarms.Watchdog, watch: alarms.Watch, now: float) -> WatchdogView:
    """Return what one watchdog looks at, when it would act, and what it would do then."""
    gone = watch.rental.phase is Phase.GONE
    alarm = None if gone else dog.look(watch)
    state, why = _state(dog, watch, alarm, now)
    return WatchdogView(
        name=dog.name,
        title=watchdog_words.title(dog.name),
        watches=dog.watches,
        limit=dog.limit(watch),
        fires_at=None if alarm is None else rfc3339(alarm.at),
        action=dog.action if alarm is None else _next(alarm.action, dog, watch, now),
        why=why,
        state=state,
        inputs={} if gone else watchdog_words.inputs(dog.name, watch, now),
    )


def _state(
    dog: alarms.Watchdog, watch: alarms.Watch, alarm: alarms.Alarm | None, now: float
) -> tuple[str, str]:
    if alarm is not None:
        if alarm.at > now or alarm.proven:
            return "armed", alarm.action.why
        return "waiting", f"{alarm.action.why}; waits for a look that began later, to be sure"
    if watch.rental.phase is Phase.GONE:
        return "off", "it is gone"
    if dog.silence and watch.world.network_down_since is not None:
        return "frozen", "your own network seems down: nobody's silence counts"
    if dog.name in watch.rental.warned:
        return "warned", WARNED
    if (missing := watchdog_words.unknown(dog.name, watch)) is not None:
        return "unknown", missing
    if watch.rental.ending is not None:
        return "off", "its end is decided already"
    return "off", "nothing for it to do now"


def _next(action: alarms.Action, dog: alarms.Watchdog, watch: alarms.Watch, now: float) -> str:
    """Return what would follow as things stand: an end is the table's matter, not the watchdog's."""
    if isinstance(action, alarms.Warn):
        return "warn" if dog.name == "idle" else dog.action
    how = steps.situation(watch.rental, watch.jobs, watch.seen, watch.limits, now)
    if watch.rental.phase in (Phase.BOOTING, Phase.VERIFYING):
        return dog.action
    return f"end it: {endings.decide(action.trigger, how)} ({how})"
