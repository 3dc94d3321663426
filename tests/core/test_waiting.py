"""What holds up an end, in a sentence: from the decision to the proof, nothing looks forgotten."""

import pytest
from msgspec import structs

from support.builders import LIMITS, T0, a_done_job, a_job, a_rental, a_row, a_world, an_ending
from vastd.core.job import Job, JobState
from vastd.core.observed import Sighting
from vastd.core.rental import Phase, Rental, Trigger
from vastd.core.waiting import waiting

ENDING = an_ending(Trigger.MAX_RUNTIME, at=T0, why="max-runtime of 3600 s is over")
WHY = "ends because max-runtime of 3600 s is over (max_runtime); "


def said(
    rental: Rental, *jobs: Job, now: float = T0 + 60, down: float | None = None, **seen: object
):  # type: ignore[no-untyped-def]
    world = a_world(Sighting(instance=a_row(), **seen))  # type: ignore[arg-type]
    world = structs.replace(world, network_down_since=down)
    return waiting(rental, jobs, world, LIMITS, now)


def busy(**changes: object) -> Rental:
    return a_rental(Phase.BUSY, ending=ENDING, **changes)


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.DESTROYING])
def test_a_machine_that_does_not_end_waits_for_nothing(phase: Phase) -> None:
    assert said(a_rental(phase, ending=None)) is None
    assert said(a_rental(Phase.GONE)) is None


def test_an_unreachable_machine_whose_end_is_decided_says_so_at_once_and_what_follows() -> None:
    first = said(busy(), a_job(), now=T0 + 60, unreachable_since=T0 + 20)

    assert first == (
        WHY + "waits for SSH, silent for 40 s, until 2027-01-15 08:05:20 UTC; then stop: the disk "
        "keeps the results at storage price"
    )


@pytest.mark.parametrize(
    ("rental", "jobs", "seen", "text"),
    [
        (busy(), [a_job()], {}, "asks its job to save and exit"),
        (busy(), [a_job(term_at=T0 + 30)], {}, "job j1 to save and exit, until 2027-01-15 08:01:30 UTC"),
        (a_rental(ending=ENDING), [a_done_job(collected=None)], {}, "brings results home first"),
        (
            a_rental(ending=ENDING, collect_failures=2), [a_done_job(collected=None)], {},
            "brings results home, after 2 copies that failed",
        ),
        (a_rental(ending=ENDING), [], {}, "is destroyed next"),
        (a_rental(ending=ENDING, collect_failures=5), [a_done_job(collected=None)], {}, "asks Vast to stop"),
        (a_rental(Phase.DESTROYING, ending=ENDING, destroy_tried_at=None), [], {}, "is being destroyed"),
        (
            a_rental(Phase.DESTROYING, ending=ENDING, destroy_tried_at=T0, destroy_tries=3), [], {},
            "did not accept the destroy yet (tried 3 times, never given up)",
        ),
        (
            a_rental(Phase.DESTROYING, ending=ENDING, destroy_tried_at=T0, destroy_accepted=True),
            [], {"absences": 1}, "one more listing without it",
        ),
        (
            a_rental(Phase.DESTROYING, ending=ENDING, instance_id=None), [], {},
            "its label in Vast's listing",
        ),
    ],
)  # fmt: skip
def test_each_step_of_an_end_is_told(
    rental: Rental, jobs: list[Job], seen: dict[str, object], text: str
) -> None:
    found = said(rental, *jobs, **seen)

    assert found.startswith(WHY)
    assert text in found


def test_our_own_network_is_named_when_it_is_the_reason() -> None:
    found = said(busy(), a_job(JobState.UNKNOWN), down=T0 + 10, unreachable_since=T0 + 9)

    assert found == WHY + "waits for your own network, down since 2027-01-15 08:00:10 UTC"
