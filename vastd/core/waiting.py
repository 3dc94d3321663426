"""What a machine that shall end is waiting for, in one sentence: silence must not look like neglect."""

from collections.abc import Sequence

from vastd.core import endings, steps
from vastd.core.endings import Situation
from vastd.core.instants import shown, span
from vastd.core.job import Job
from vastd.core.limits import Limits
from vastd.core.observed import Sighting, World
from vastd.core.rental import Ending, Phase, Rental
from vastd.core.steps import Do


def waiting(
    rental: Rental, jobs: Sequence[Job], world: World, limits: Limits, now: float
) -> str | None:
    """Return why `rental` ends and what holds that up; None while no end was decided, or it is over."""
    ending = rental.ending
    if rental.phase is Phase.GONE or (ending is None and rental.phase is not Phase.DESTROYING):
        return None
    why = "it shall end" if ending is None else f"ends because {ending.why} ({ending.trigger})"
    seen = world.of(rental.rental_id)
    if rental.phase is Phase.DESTROYING:
        return f"{why}; {_proof(rental, seen)}"
    if world.network_down_since is not None:
        return f"{why}; waits for your own network, down since {shown(world.network_down_since)}"
    assert ending is not None
    return f"{why}; {_next(rental, ending, jobs, seen, limits, now)}"


def _proof(rental: Rental, seen: Sighting) -> str:
    if rental.instance_id is None:
        return "waits for its label in Vast's listing: whether it exists is not known"
    if rental.destroy_tried_at is None:
        return "is being destroyed"
    if not rental.destroy_accepted:
        return f"Vast did not accept the destroy yet (tried {rental.destroy_tries} times, never given up)"
    if seen.absences:
        return "Vast accepted the destroy; one more listing without it proves that billing ended"
    return (
        "Vast accepted the destroy; waits for listings without it, which prove that billing ended"
    )


def _next(
    rental: Rental,
    ending: Ending,
    jobs: Sequence[Job],
    seen: Sighting,
    limits: Limits,
    now: float,
) -> str:
    step = steps.next_step(rental, jobs, seen, limits, now)
    silent = seen.unreachable_since
    if step.do is Do.ATTEND and silent is not None:
        return _silent(ending, silent, limits, now)
    active = next((job for job in jobs if job.active), None)
    match step.do:
        case Do.ATTEND if active is not None and active.term_at is not None:
            until = active.term_at + rental.policy.grace_s
            return f"waits for job {active.job_id} to save and exit, until {shown(until)}"
        case Do.ATTEND:
            return "asks its job to save and exit"
        case Do.COLLECT if rental.collect_failures:
            return f"brings results home, after {rental.collect_failures} copies that failed"
        case Do.COLLECT:
            return "brings results home first"
        case Do.STOP:
            return "asks Vast to stop it; its disk keeps the results"
        case Do.START | Do.GREET:
            return "is started again, for what is on its disk"
        case Do.HOLD:
            return "is kept for results that are not home; `vastctl explain` tells what to do"
        case _:
            return "is destroyed next"


def _silent(ending: Ending, since: float, limits: Limits, now: float) -> str:
    until = since + limits.ssh_budget_s
    outcome = endings.decide(
        ending.trigger, Situation.UNREACHABLE, force=ending.force, collect=ending.collect
    )
    said = f"waits for SSH, silent for {span(now - since)}"
    if now >= until:
        return f"{said}: {outcome}"
    return f"{said}, until {shown(until)}; then {outcome}"
