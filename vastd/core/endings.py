"""The one table that decides every ending (DESIGN D11): trigger x situation -> what is done.

Two rules that disagree about a machine meet here, not in two watchdogs. The table is total:
a test asks it for every pair.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from vastd.core.rental import Trigger


class Situation(StrEnum):
    """How things stand on the machine that shall end; the first that holds is taken."""

    JOB_ACTIVE = "job active"
    UNREACHABLE = "unreachable, results not home"
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


_S, _O, _T = Situation, Outcome, Trigger

# A planned end that waits for results: hold while the user may still act.
_PATIENT: Final = {
    _S.JOB_ACTIVE: _O.TERM,
    _S.UNREACHABLE: _O.HOLD,
    _S.COPY_FAILED: _O.HOLD,
    _S.UNCOLLECTED: _O.COLLECT,
    _S.SETTLED: _O.DESTROY,
}
# A limit the user set on money or time: the GPU must not bill on, the results must not die.
_LIMIT: Final = {
    _S.JOB_ACTIVE: _O.TERM,
    _S.UNREACHABLE: _O.STOP,
    _S.COPY_FAILED: _O.STOP,
    _S.UNCOLLECTED: _O.COLLECT,
    _S.SETTLED: _O.DESTROY,
}
# Nothing was ever run there: every situation means destroy.
_NOTHING_THERE: Final = dict.fromkeys(Situation, _O.DESTROY)
# The machine stopped by itself; its disk still holds the results.
_STOPPED: Final = {
    _S.JOB_ACTIVE: _O.HOLD,
    _S.UNREACHABLE: _O.HOLD,
    _S.COPY_FAILED: _O.HOLD,
    _S.UNCOLLECTED: _O.COLLECT,
    _S.SETTLED: _O.DESTROY,
}

ENDINGS: Final[Mapping[Trigger, Mapping[Situation, Outcome]]] = {
    _T.USER: _PATIENT,
    _T.JOB_DONE: _PATIENT,
    _T.UNREACHABLE: _PATIENT,
    _T.MAX_RUNTIME: _LIMIT,
    _T.BUDGET: _LIMIT,
    _T.IDLE: _LIMIT,
    _T.HEARTBEAT_STALE: _LIMIT,
    _T.LEASE: _LIMIT,
    _T.BUG: _PATIENT,
    _T.OUTBID: _STOPPED,
    _T.BOOT_OVERDUE: _NOTHING_THERE,
    _T.BOOT_FAILED: _NOTHING_THERE,
    _T.SSH_FAILED: _NOTHING_THERE,
    _T.HARDWARE_MISMATCH: _NOTHING_THERE,
    _T.WRONG_ORDER: _NOTHING_THERE,
    _T.CREATE_REFUSED: _NOTHING_THERE,
    _T.CREATE_LOST: _NOTHING_THERE,
    _T.VANISHED: _NOTHING_THERE,
    _T.CANCELLED: _NOTHING_THERE,
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
    return ENDINGS[trigger][situation]
