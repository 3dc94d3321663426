"""The ending table: golden, total, and never at the price of results (I12, I13)."""

import pytest

from vastd.core.endings import ENDINGS, WHEN, Outcome, Situation, decide
from vastd.core.rental import Trigger

O, T = Outcome, Trigger  # noqa: E741  as short as the table below needs
SITUATIONS = (
    Situation.JOB_ACTIVE, Situation.UNREACHABLE, Situation.COPY_FAILED, Situation.UNCOLLECTED,
    Situation.SETTLED,
)  # fmt: skip
# trigger -> outcome per situation, in the order above
GOLDEN = {
    T.USER: (O.TERM, O.HOLD, O.HOLD, O.COLLECT, O.DESTROY),
    T.JOB_DONE: (O.TERM, O.HOLD, O.HOLD, O.COLLECT, O.DESTROY),
    T.UNREACHABLE: (O.TERM, O.STOP, O.STOP, O.COLLECT, O.DESTROY),
    T.BUG: (O.TERM, O.STOP, O.STOP, O.COLLECT, O.DESTROY),
    T.MAX_RUNTIME: (O.TERM, O.STOP, O.STOP, O.COLLECT, O.DESTROY),
    T.BUDGET: (O.TERM, O.STOP, O.STOP, O.COLLECT, O.DESTROY),
    T.IDLE: (O.TERM, O.STOP, O.STOP, O.COLLECT, O.DESTROY),
    T.HEARTBEAT_STALE: (O.TERM, O.STOP, O.STOP, O.COLLECT, O.DESTROY),
    T.LEASE: (O.TERM, O.STOP, O.STOP, O.COLLECT, O.DESTROY),
    T.OUTBID: (O.TERM, O.STOP, O.STOP, O.COLLECT, O.DESTROY),
    T.BOOT_OVERDUE: (O.DESTROY,) * 5,
    T.BOOT_FAILED: (O.DESTROY,) * 5,
    T.SSH_FAILED: (O.DESTROY,) * 5,
    T.HARDWARE_MISMATCH: (O.DESTROY,) * 5,
    T.WRONG_ORDER: (O.DESTROY,) * 5,
    T.CREATE_REFUSED: (O.DESTROY,) * 5,
    T.CREATE_LOST: (O.DESTROY,) * 5,
    T.VANISHED: (O.DESTROY,) * 5,
    T.CANCELLED: (O.DESTROY,) * 5,
}
# Ends of machines on which nothing of the user's can have run.
NOTHING_RAN = frozenset(t for t, row in GOLDEN.items() if row == (O.DESTROY,) * 5)
MAY_HOLD_RESULTS = [t for t in Trigger if t not in NOTHING_RAN]


@pytest.mark.parametrize("situation", Situation)
@pytest.mark.parametrize("trigger", Trigger)
def test_every_cell_of_the_table_is_golden(trigger: Trigger, situation: Situation) -> None:
    assert decide(trigger, situation) is GOLDEN[trigger][SITUATIONS.index(situation)]


def test_every_trigger_and_every_cell_says_why() -> None:
    assert set(WHEN) == set(Trigger)
    texts = [*WHEN.values(), *(ruling.why for row in ENDINGS.values() for ruling in row.values())]
    assert all(0 < len(text) <= 100 and not text.endswith(".") for text in texts)
    # A cell's reason is that of its outcome: the same sentence never explains two of them.
    told: dict[str, set[Outcome]] = {}
    for row in ENDINGS.values():
        for ruling in row.values():
            told.setdefault(ruling.why, set()).add(ruling.outcome)
    assert all(len(outcomes) == 1 for outcomes in told.values())


def test_no_limit_leaves_a_gpu_billing() -> None:
    """HOLD bills on: only what the user or the job's own end decided may wait for him."""
    holding = {t for t, row in ENDINGS.items() if any(r.outcome is O.HOLD for r in row.values())}
    assert holding == {T.USER, T.JOB_DONE}


def test_the_table_is_total() -> None:
    assert set(ENDINGS) == set(Trigger) == set(GOLDEN)
    assert all(set(row) == set(Situation) == set(SITUATIONS) for row in ENDINGS.values())
    for trigger in Trigger:
        for situation in Situation:
            for force in (False, True):
                for collect in (False, True):
                    decided = decide(trigger, situation, force=force, collect=collect)
                    assert isinstance(decided, Outcome)


@pytest.mark.parametrize("trigger", MAY_HOLD_RESULTS)
def test_nothing_is_destroyed_while_results_are_not_home_unless_the_user_gave_them_up(
    trigger: Trigger,
) -> None:
    for situation in Situation:
        if situation is not Situation.SETTLED:
            assert decide(trigger, situation) is not O.DESTROY


@pytest.mark.parametrize("trigger", MAY_HOLD_RESULTS)
def test_an_active_job_is_asked_to_save_first_even_when_forced_or_not_to_be_collected(
    trigger: Trigger,
) -> None:
    for force, collect in ((True, True), (False, False)):
        decided = decide(trigger, Situation.JOB_ACTIVE, force=force, collect=collect)
        assert decided is GOLDEN[trigger][0] is not O.DESTROY


@pytest.mark.parametrize("trigger", Trigger)
def test_force_gives_up_only_what_cannot_be_fetched(trigger: Trigger) -> None:
    for situation, plain in zip(SITUATIONS, GOLDEN[trigger], strict=True):
        lost = situation in (Situation.UNREACHABLE, Situation.COPY_FAILED)
        assert decide(trigger, situation, force=True) is (O.DESTROY if lost else plain)


@pytest.mark.parametrize("trigger", Trigger)
def test_no_collect_gives_the_results_up_and_with_force_the_job_too(trigger: Trigger) -> None:
    for situation, plain in zip(SITUATIONS, GOLDEN[trigger], strict=True):
        active = situation is Situation.JOB_ACTIVE
        assert decide(trigger, situation, collect=False) is (plain if active else O.DESTROY)
        assert decide(trigger, situation, force=True, collect=False) is O.DESTROY


@pytest.mark.parametrize("trigger", Trigger)
def test_a_machine_with_nothing_to_lose_is_always_destroyed(trigger: Trigger) -> None:
    assert decide(trigger, Situation.SETTLED) is O.DESTROY
