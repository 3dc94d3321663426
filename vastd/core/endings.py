"""The one table that decides every ending (DESIGN D11): trigger x situation -> what is done.

Two rules that disagree about a machine meet here, not in two watchdogs. The table is total:
a test asks it for every pair.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from vastd.core.rental import Trigger


class Situation(StrEnum):
    """How things stand on the machine that shall end; the first that holds is taken."""

    JOB_ACTIVE = "job active"
    UNREACHABLE = "unreachable"
    COPY_FAILED = "copy failed"
    UNCOLLECTED = "results not home"
    SETTLED = "nothing to lose"  # collected, or no job ever ran


class Outcome(StrEnum):
    """What is done next."""

    TERM = "ask the job to save and exit, then collect"
    COLLECT = "bring the results home"
    DESTROY = "destroy"
    STOP = "stop: the disk keeps the results at storage price"
    HOLD = "keep the machine and tell the user"


# When each trigger is pulled, for people.
WHEN: Final[Mapping[Trigger, str]] = {
    Trigger.USER: "the user destroys it, or cancels the job it was rented for",
    Trigger.JOB_DONE: "all jobs it was rented for are over",
    Trigger.MAX_RUNTIME: "its max-runtime is over",
    Trigger.BUDGET: "its budget, a shared cap or its hourly cap leaves no more money for it",
    Trigger.IDLE: "its GPU stood idle for longer than idle_s",
    Trigger.HEARTBEAT_STALE: "its job stopped writing its heartbeat",
    Trigger.UNREACHABLE: "it did not answer for unreachable_end_s (off unless set)",
    Trigger.LEASE: "the lease on the machine ran out",
    Trigger.OUTBID: "somebody bid more, and the policy is not to wait (any longer)",
    Trigger.BOOT_OVERDUE: "it did not come up in time",
    Trigger.BOOT_FAILED: "it cannot come up",
    Trigger.SSH_FAILED: "no SSH login succeeded after it came up",
    Trigger.HARDWARE_MISMATCH: "its GPUs are not those that were ordered",
    Trigger.WRONG_ORDER: "its terms are not those that were ordered",
    Trigger.CREATE_REFUSED: "Vast refused to rent it",
    Trigger.CREATE_LOST: "its create had no answer, and it was never listed",
    Trigger.VANISHED: "it disappeared without our doing",
    Trigger.CANCELLED: "it was ended before any request was sent",
    Trigger.BUG: "a bug in vastd met it before it held anything worth keeping",
}


class Ruling(Struct, frozen=True):
    """One cell of the table: what is done, and why that and nothing else."""

    outcome: Outcome
    why: str


_S, _O, _T = Situation, Outcome, Trigger

_ASK_FIRST: Final = Ruling(_O.TERM, "it may save its state within its grace time")
_FETCH: Final = Ruling(_O.COLLECT, "results come home before anything is destroyed")
_NOTHING_LOST: Final = Ruling(_O.DESTROY, "only destroying it ends every cost")

# A planned end that waits for results: hold while the user may still act.
_PATIENT: Final = {
    _S.JOB_ACTIVE: _ASK_FIRST,
    _S.UNREACHABLE: Ruling(_O.HOLD, "it may answer again, and nobody set a limit that is over"),
    _S.COPY_FAILED: Ruling(_O.HOLD, "the user may make room, or give the results up by force"),
    _S.UNCOLLECTED: _FETCH,
    _S.SETTLED: _NOTHING_LOST,
}
# A limit on money or time, or a machine that serves nobody: the GPU must not bill on, and the
# results must not die.
_LIMIT: Final = {
    _S.JOB_ACTIVE: _ASK_FIRST,
    _S.UNREACHABLE: Ruling(_O.STOP, "the GPU must not bill on, and the disk keeps the results"),
    _S.COPY_FAILED: Ruling(_O.STOP, "the GPU must not bill on, and the disk keeps the results"),
    _S.UNCOLLECTED: _FETCH,
    _S.SETTLED: _NOTHING_LOST,
}
# No job was ever started there: whatever the record says, there is nothing to fetch.
_NEVER_USED: Final = dict.fromkeys(
    Situation, Ruling(_O.DESTROY, "it never served a job: there is nothing to bring home")
)

ENDINGS: Final[Mapping[Trigger, Mapping[Situation, Ruling]]] = {
    _T.USER: _PATIENT,
    _T.JOB_DONE: _PATIENT,
    _T.UNREACHABLE: _LIMIT,
    _T.MAX_RUNTIME: _LIMIT,
    _T.BUDGET: _LIMIT,
    _T.IDLE: _LIMIT,
    _T.HEARTBEAT_STALE: _LIMIT,
    _T.LEASE: _LIMIT,
    _T.BUG: _LIMIT,
    _T.OUTBID: _LIMIT,
    _T.BOOT_OVERDUE: _NEVER_USED,
    _T.BOOT_FAILED: _NEVER_USED,
    _T.SSH_FAILED: _NEVER_USED,
    _T.HARDWARE_MISMATCH: _NEVER_USED,
    _T.WRONG_ORDER: _NEVER_USED,
    _T.CREATE_REFUSED: _NEVER_USED,
    _T.CREATE_LOST: _NEVER_USED,
    _T.VANISHED: _NEVER_USED,
    _T.CANCELLED: _NEVER_USED,
}


def decide(
    trigger: Trigger, situation: Situation, *, force: bool = False, collect: bool = True
) -> Outcome:
    """Return what is done next.

    `force` (an order of the user with a reason) gives up results that cannot be fetched; an
    active job is still asked to save first. `collect=False` gives the results up; only with
    `force` also those of an active job.
    """
    if not collect and (force or situation is not Situation.JOB_ACTIVE):
        return Outcome.DESTROY
    if force and situation in (Situation.UNREACHABLE, Situation.COPY_FAILED):
        return Outcome.DESTROY
    return ENDINGS[trigger][situation].outcome
