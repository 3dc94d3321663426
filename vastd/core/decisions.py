"""Why vastd decided what it decided by itself: for each such event the rule and what it looked at."""

from typing import Final

from msgspec import Struct, field

from vastd.core import events as ev
from vastd.core.alarms import Scalar
from vastd.core.endings import ENDINGS, WHEN, Situation
from vastd.core.money import show, show_rate
from vastd.core.rental import Rental, Trigger


class Reason(Struct, frozen=True, kw_only=True):
    """The rule in a sentence, and its inputs by name."""

    rule: str
    inputs: dict[str, Scalar] = field(default_factory=dict)


_LOST: Final = "a create without an answer is looked for by its label, never sent again"
_BUG: Final = "a machine that met a bug in vastd may only end"


def reason_of(event: ev.Event) -> Reason | None:
    """Return why; None for what somebody asked for, or what merely happened."""
    match event:
        case ev.RentalPlanned(rental=rental, why=why):
            return _choice(event, rental, why)
        case ev.EndDecided(trigger=Trigger.USER):
            return None
        case ev.EndDecided(trigger=trigger, rule=rule, inputs=inputs):
            return Reason(
                rule=rule or f"a machine ends when {WHEN[Trigger(trigger)]}", inputs=inputs
            )
        case ev.Warned(rule=rule, inputs=inputs) if rule:
            return Reason(rule=rule, inputs=inputs)
        case ev.DestroyDecided(why=why):
            return _ending(why)
        case ev.FoundAbsent(proof=proof):
            rule = "gone only by proof: complete listings begun late enough, and the single read"
            return Reason(rule=rule, inputs={"proof": proof})
        case ev.InstanceStopped(asked=False, why=why):
            rule = "a status is believed after three listings that agree"
            return Reason(rule=rule, inputs={"seen": why})
        case ev.Resurfaced(instance_id=found):
            rule = "an instance with our claim that comes back within 24 h is ended on sight"
            return Reason(rule=rule, inputs={"instance_id": found})
        case ev.CreateUnresolved(why=why):
            return Reason(rule=_LOST, inputs={"answer": why})
        case ev.Quarantined(why=why):
            return Reason(rule=_BUG, inputs={"bug": why})
        case _:
            return _of_job(event)


def _ending(why: str) -> Reason:
    """Return the cell of the table that decided: `why` names its row and column."""
    row, _, column = why.partition(": ")
    inputs: dict[str, Scalar] = {"ends for": row, "situation": column or None}
    try:
        ruling = ENDINGS[Trigger(row)][Situation(column)]
    except ValueError:  # of an older record, or a forced end
        return Reason(rule="the table of endings (`vastctl explain --endings`)", inputs=inputs)
    return Reason(
        rule=f"the table of endings: {ruling.outcome}, because {ruling.why}", inputs=inputs
    )


def _of_job(event: ev.Event) -> Reason | None:
    match event:
        case ev.AttemptFailed(phase=phase, rental_id=rental_id, blame=blame, counts=counts):
            rule = "a job whose machine failed gets another one, up to `timing.attempts` in a row"
            inputs: dict[str, Scalar] = {"machine": rental_id, "failed while": phase}
            if blame is not None:
                inputs |= {"fault of": str(blame), "uses up an attempt": counts}
            return Reason(rule=rule, inputs=inputs)
        case ev.MachineAwaited():
            return Reason(rule="no machine is rented without room in every cap")
        case ev.TermSent(why=why):
            rule = "a job is asked to save and exit, and killed when its grace time is over"
            return Reason(rule=rule, inputs={"because": why})
        case ev.JobUnreachable():
            return Reason(rule="a job that cannot be asked is unknown, never failed")
        case ev.JobFinished(exit_code=code, why=why):
            rule = "a job is judged by its recorded exit code and by what was ordered"
            return Reason(rule=rule, inputs={"exit_code": code, "verdict": why})
        case _:
            return None


def _choice(event: ev.RentalPlanned, rental: Rental, why: str) -> Reason:
    offer = rental.order.offer
    inputs: dict[str, Scalar] = {
        "offer": offer.offer_id,
        "machine": offer.machine_id,
        "price": show_rate(rental.order.bid or offer.dph),
        "because": why or None,
    }
    for use in event.gate:
        room = f"{show(use.limit)}, {show(use.spent)} spent, {show(use.reserved)} reserved"
        inputs[str(use.cap)] = room  # as the sentence of the event says it
    rule = "the best offer that fits, if what it may cost has room in every cap"
    return Reason(rule=rule, inputs={k: v for k, v in inputs.items() if v is not None})
