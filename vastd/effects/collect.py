"""Bring a job's results home, verified on both sides, before anything is destroyed (I12)."""

import logging
from pathlib import Path
from typing import Final

import trio

from vastd.core import events as ev
from vastd.core.job import Job
from vastd.core.limits import COLLECT_TRIES
from vastd.effects.launch import reached, unreached
from vastd.effects.verify import target
from vastd.errors import SshError, TransferFailed, UnsafePath
from vastd.jobs.port import CollectOrder, CollectReport
from vastd.shell import Shell

_log = logging.getLogger(__name__)

DEFAULT_OUTPUTS: Final = ("results/", "*.log")  # REQUIREMENTS COL-01


async def collect(shell: Shell, rental_id: str, job_id: str | None) -> None:
    """Collect one job's outputs; a failure is recorded and the machine is kept.

    Without a job there is nothing left to bring home, which is recorded as verified.
    """
    if job_id is None:
        _settled(shell, rental_id)
        return
    job = shell.ledger.job(job_id)
    outputs = outputs_of(job)
    began = trio.current_time()
    try:
        if outputs:
            report = await bring_home(shell, rental_id, job, outputs, Path(job.project))
        else:
            report = CollectReport(files=[])
    except SshError as exc:
        unreached(shell, rental_id, exc)
        shell.ledger.commit(*failure(shell, rental_id, job_id, str(exc)))
    except (TransferFailed, UnsafePath) as exc:
        shell.ledger.commit(*failure(shell, rental_id, job_id, str(exc)))
    else:
        now = shell.wall_clock()
        done = ev.Collected(
            job_id=job_id,
            rental_id=rental_id,
            at=now,
            files=len(report.files),
            bytes=report.bytes,
            missing=report.missing,
            earlier=report.earlier,
            seconds=trio.current_time() - began,
        )
        shell.ledger.commit(done)
        if not any(j.finished and j.uncollected for j in shell.ledger.jobs_of(rental_id)):
            _settled(shell, rental_id)


def outputs_of(job: Job) -> list[str]:
    """Return what a job declared, or the defaults; a set-up makes nothing to bring home."""
    if job.setup is not None:
        return []
    return list(job.outputs) or list(DEFAULT_OUTPUTS)


async def bring_home(
    shell: Shell, rental_id: str, job: Job | None, outputs: list[str], destination: Path
) -> CollectReport:
    """Copy and verify `outputs`; also used by `vastctl collect`.

    Raises:
        SshError, TransferFailed, UnsafePath: not everything is home: keep the machine.
    """
    job_id = job.job_id if job else None

    def progress(step: str, done: int, total: int | None, unit: str) -> None:
        shell.progress(step, done, total, unit, rental_id, job_id)

    async with shell.boxes.open(target(shell, shell.ledger.rental(rental_id))) as box:
        reached(shell, rental_id)
        order = CollectOrder(job_id=job_id, outputs=outputs, destination=destination)
        return await box.collect(order, progress)


def _settled(shell: Shell, rental_id: str) -> None:
    shell.ledger.commit(ev.CollectVerified(rental_id=rental_id, at=shell.wall_clock()))


def failure(
    shell: Shell, rental_id: str, job_id: str, why: str
) -> tuple[ev.NotCollected, ev.CollectFailed]:
    """Return the events of one more collection that failed."""
    now = shell.wall_clock()
    tries = shell.ledger.rental(rental_id).collect_failures + 1
    _log.warning("job=%s rental=%s collection %d: %s", job_id, rental_id, tries, why)
    return (
        ev.NotCollected(
            job_id=job_id, rental_id=rental_id, at=now, why=why, final=tries >= COLLECT_TRIES
        ),
        ev.CollectFailed(rental_id=rental_id, at=now, why=why),
    )
