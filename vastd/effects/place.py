"""Find a machine for a job that lost its first one (DESIGN 4.1: one rental is one attempt)."""

import logging
from typing import Final

import trio
from msgspec import structs

from vastd.core import billing
from vastd.core import events as ev
from vastd.core.job import Job, JobState
from vastd.core.money import Micros, show
from vastd.core.placement import failed_machines
from vastd.core.rental import Policy
from vastd.errors import (
    AuthRejected,
    BudgetExceeded,
    ContractChanged,
    InventoryUnknown,
    NoOffers,
    OutcomeUnknown,
    RateLimited,
    Unreachable,
    VastdError,
)
from vastd.renting import free_name, live_names, planned, require_renting
from vastd.shell import Shell

_log = logging.getLogger(__name__)

WAIT_S: Final = 15.0  # guess: between tries while Vast or the inventory is not to be had
TRIES: Final = 40  # with `WAIT_S`: ten minutes, then the job fails with the reason
_PASSING: Final = (
    AuthRejected, ContractChanged, InventoryUnknown, OutcomeUnknown, RateLimited, Unreachable
)  # fmt: skip


async def place(shell: Shell, job_id: str) -> None:
    """Choose an offer for `job_id` and put the intention to rent it on record."""
    for attempt in range(1, TRIES + 1):
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
            _give_up(shell, job_id, exc, "no_offers")
            return
        except BudgetExceeded as exc:
            _give_up(shell, job_id, exc, "budget")
            return
        except VastdError as exc:
            _give_up(shell, job_id, exc, "provisioning")
            return
        await trio.sleep(WAIT_S)


async def _plan(shell: Shell, job_id: str) -> None:
    require_renting(shell)
    job = shell.ledger.job(job_id)
    earlier = shell.ledger.rental(job.attempts[-1].rental_id) if job.attempts else None
    avoid = failed_machines(
        list(shell.ledger.jobs.values()), shell.ledger.rentals, shell.wall_clock()
    )
    policy = _what_is_left(shell, job)
    choice = await shell.choose(job.needs, frozenset(avoid), policy.budget)
    require_renting(shell)  # the search took time
    if shell.ledger.job(job_id).cancel_at is not None:
        return
    event = planned(
        shell,
        choice,
        policy,
        name=free_name(live_names(shell), earlier.name if earlier else job.name),
        project=job.project,
        task=job.task_id or job.name,
        purpose="job",
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
    if job.policy.budget is None:
        return job.policy
    now = shell.wall_clock()
    failed = [shell.ledger.rental(attempt.rental_id) for attempt in job.attempts]
    spent = sum(billing.cost(rental, now) for rental in failed)
    if spent >= job.policy.budget:
        raise BudgetExceeded(
            f"the failed attempts of job {job.job_id!r} cost {show(spent)}, its whole budget of "
            f"{show(job.policy.budget)}"
        )
    return structs.replace(job.policy, budget=Micros(job.policy.budget - spent))


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
