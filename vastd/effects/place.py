"""Find a machine for a job that lost its first one (DESIGN 4.1: one rental is one attempt)."""

import logging
from typing import Final

import trio
from msgspec import structs

from vastd.core import events as ev
from vastd.core.job import Job, JobState
from vastd.core.money import show
from vastd.core.placement import money_left
from vastd.core.refusal import Refusal
from vastd.core.rental import Policy
from vastd.errors import (
    AuthRejected,
    BudgetExceeded,
    CapLeavesNone,
    CapReached,
    ContractChanged,
    InventoryUnknown,
    NoOffers,
    OutcomeUnknown,
    RateLimited,
    Unreachable,
    VastdError,
)
from vastd.renting import choose_free, free_name, live_names, planned, require_renting, task_of
from vastd.shell import Shell
from vastd.spending import verdict

_log = logging.getLogger(__name__)

WAIT_S: Final = 15.0  # guess: between tries while Vast or the inventory is not to be had
TRIES: Final = 40  # with `WAIT_S`: ten minutes, then the job fails with the reason
# Guess: the cap of one day has room again within a day; whoever waits longer has forgotten it.
MONEY_WAIT_S: Final = 86_400.0
MONEY_LOOK_S: Final = 60.0  # guess: a minute late at midnight harms nobody
_PASSING: Final = (
    AuthRejected, ContractChanged, InventoryUnknown, OutcomeUnknown, RateLimited, Unreachable
)  # fmt: skip


async def place(shell: Shell, job_id: str) -> None:
    """Choose an offer for `job_id` and put the intention to rent it on record.

    Where a cap has no room now, the job waits for money instead of failing: it was accepted.
    """
    attempt = 0
    while attempt < TRIES:
        attempt += 1
        if shell.ledger.job(job_id).cancel_at is not None:
            return
        try:
            await _plan(shell, job_id)
            return
        except _PASSING as exc:
            _log.warning("job=%s no machine yet: %s", job_id, exc)
            if attempt == TRIES:
                _give_up(shell, job_id, exc, "provisioning")
                return
        except NoOffers as exc:
            failure = "budget" if isinstance(exc, CapLeavesNone) else "no_offers"
            _give_up(shell, job_id, exc, failure)
            return
        except CapReached as exc:
            if not await _room(shell, job_id, exc):
                return
            attempt = 0
            continue
        except BudgetExceeded as exc:
            _give_up(shell, job_id, exc, "budget")
            return
        except VastdError as exc:
            _give_up(shell, job_id, exc, "provisioning")
            return
        await trio.sleep(WAIT_S)


async def _room(shell: Shell, job_id: str, exc: CapReached) -> bool:
    """Wait until what was refused would fit; return False when the job ended or was given up.

    No market is searched meanwhile: searches are rationed.
    """
    refused = exc.refusal
    assert isinstance(refused, Refusal)
    since = _began_waiting(shell.ledger.job(job_id))
    until = since + MONEY_WAIT_S
    if refused.use.needs > refused.use.limit:
        _give_up(shell, job_id, exc, "budget")  # not even an unused cap would do
        return False
    _note(shell, job_id, exc)
    while True:
        job = shell.ledger.job(job_id)
        if job.finished or job.cancel_at is not None:
            return False
        await shell.credit.look(shell.provider, shell.wall_clock)
        if all(use.fits for use in verdict(shell, refused.planned, job)):
            return True
        left_s = until - shell.wall_clock()
        if left_s <= 0:
            _give_up(shell, job_id, exc, "budget")
            return False
        # Money frees up when a machine ends, a cap is raised (both wake us) or a day begins.
        with trio.move_on_after(min(left_s, MONEY_LOOK_S)):
            await shell.ledger.wait_changed()


def _began_waiting(job: Job) -> float:
    ended = job.attempts[-1].ended_at if job.attempts else None
    return job.submitted_at if ended is None else ended


def _note(shell: Shell, job_id: str, exc: CapReached) -> None:
    """Put the reason on record, once: a restart waits on for the same one."""
    if shell.ledger.job(job_id).reason is None:
        why = f"{exc}; it goes on when there is room, for at most {MONEY_WAIT_S / 3600:.0f} h"
        now = shell.wall_clock()
        shell.ledger.commit(ev.MachineAwaited(job_id=job_id, at=now, why=why))


async def _plan(shell: Shell, job_id: str) -> None:
    require_renting(shell)
    job = shell.ledger.job(job_id)
    earlier = shell.ledger.rental(job.attempts[-1].rental_id) if job.attempts else None
    policy = _what_is_left(shell, job)
    choice = await choose_free(
        shell,
        lambda known: shell.choose(job.needs, known, policy.budget),
        lambda found: (found, *found.others),
        lambda found: found.offer,
        job,
    )
    require_renting(shell)  # the search took time
    if shell.ledger.job(job_id).cancel_at is not None:
        return
    event = planned(
        shell,
        choice,
        policy,
        name=free_name(live_names(shell), earlier.name if earlier else job.name),
        project=job.project,
        task=task_of(job),
        purpose="job",
        profile=job.needs.profile,
        job=job,
    )
    shell.ledger.commit(
        event,
        ev.JobPlaced(job_id=job_id, rental_id=event.rental_id, at=event.at, offer=choice.offer),
    )


def _what_is_left(shell: Shell, job: Job) -> Policy:
    """Return the policy of the next machine: what the failed ones cost is spent.

    Raises:
        BudgetExceeded: nothing is left.
    """
    left = money_left(job, shell.ledger.rentals, shell.wall_clock())
    if job.policy.budget is None or left is None:
        return job.policy
    if left <= 0:
        raise BudgetExceeded(
            f"the failed attempts of job {job.job_id!r} cost {show(job.policy.budget - left)}, its "
            f"whole budget of {show(job.policy.budget)}"
        )
    return structs.replace(job.policy, budget=left)


def _give_up(shell: Shell, job_id: str, exc: VastdError, failure: str) -> None:
    shell.ledger.commit(
        ev.JobFinished(
            job_id=job_id,
            at=shell.wall_clock(),
            state=JobState.FAILED,
            why=str(exc),
            failure=failure,
        )
    )
