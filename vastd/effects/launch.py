"""Send the project and start the job on a ready machine."""

import logging
from pathlib import Path

import trio

from vastd.core import events as ev
from vastd.core.job import Job, JobState
from vastd.effects.setup import setup_command
from vastd.effects.verify import target
from vastd.errors import InvalidRequest, SshError, TransferFailed, UnsafePath
from vastd.jobs.port import Box, BoxJobState, JobOrder, JobSnapshot, ProjectSource
from vastd.shell import Shell

_log = logging.getLogger(__name__)


async def launch(shell: Shell, rental_id: str, job_id: str) -> None:
    """Bring the code over and start the job once; try again while the machine is silent.

    Safe to repeat after a crash at any point: the sync resumes, and the runner starts one
    process per job id.
    """
    while True:
        job = shell.ledger.job(job_id)
        if job.cancel_at is not None:
            _finish(shell, job_id, JobState.CANCELLED, "cancelled before it started", None)
            return
        try:
            async with shell.boxes.open(target(shell, shell.ledger.rental(rental_id))) as box:
                reached(shell, rental_id)
                await _start(shell, box, rental_id, job)
            return
        except SshError as exc:
            unreached(shell, rental_id, exc)
            _log.info("job=%s rental=%s launch: %s", job_id, rental_id, exc)
        except (InvalidRequest, TransferFailed, UnsafePath) as exc:
            # The machine is fine; what was asked cannot be sent (too big, disk full, unreadable).
            hint = f"; {exc.hint}" if exc.hint else ""
            _finish(shell, job_id, JobState.FAILED, f"{exc}{hint}", "sync")
            return
        await trio.sleep(shell.limits.ssh_spacing_s)


async def _start(shell: Shell, box: Box, rental_id: str, job: Job) -> None:
    # A start whose answer was lost may have succeeded: sending code under a running job would
    # change its files.
    snapshot = await box.job_snapshot(job.run_id)
    if snapshot.state is BoxJobState.ABSENT:
        base = shell.logs.size(job.job_id) if job.run > 1 else 0
        await _send(shell, box, rental_id, job, base)
        await box.start_job(_order(shell, job))
        snapshot = await box.job_snapshot(job.run_id)
    _started(shell, rental_id, job, snapshot)


async def _send(shell: Shell, box: Box, rental_id: str, job: Job, base: int) -> None:
    """Bring the code over. A machine that only stood still has it, and newer files of the job."""
    shell.ledger.commit(ev.SyncBegan(job_id=job.job_id, rental_id=rental_id, at=shell.wall_clock()))
    if job.run > 1 and job.synced_files is not None:
        there = ev.Synced(
            job_id=job.job_id, rental_id=rental_id, at=shell.wall_clock(), files=job.synced_files,
            bytes=0, method="kept", log_base=base,
        )  # fmt: skip
        shell.ledger.commit(there)
        return
    source = ProjectSource(root=Path(job.project), include=job.include)

    def progress(step: str, done: int, total: int | None, unit: str) -> None:
        shell.progress(step, done, total, unit, rental_id, job.job_id)

    began = trio.current_time()
    report = await box.push_project(source, progress)
    whole = report.files_sent == report.files
    shell.ledger.commit(
        ev.Synced(
            job_id=job.job_id,
            rental_id=rental_id,
            at=shell.wall_clock(),
            files=report.files,
            bytes=report.bytes,
            method=report.method,
            secrets_kept=len(report.secrets_kept),
            seconds=trio.current_time() - began if whole else None,
            log_base=base,
        )
    )


def _started(shell: Shell, rental_id: str, job: Job, snapshot: JobSnapshot) -> None:
    now = shell.wall_clock()
    started: list[ev.Event] = []
    if shell.ledger.job(job.job_id).state in (JobState.QUEUED, JobState.PLACING):
        started.append(ev.SyncBegan(job_id=job.job_id, rental_id=rental_id, at=now))
    started.append(ev.JobStarted(job_id=job.job_id, rental_id=rental_id, at=now, pid=snapshot.pid))
    started.append(ev.JobBegan(rental_id=rental_id, job_id=job.job_id, at=now))
    shell.ledger.commit(*started)


def _order(shell: Shell, job: Job) -> JobOrder:
    env = shell.envs.load(job.job_id)
    if lost := sorted(set(job.env_keys) - set(env)):
        # Running without them would fail later, and dearer, for a reason nobody finds.
        raise TransferFailed(
            f"the environment of job {job.job_id!r} is lost: {', '.join(lost)}",
            hint="submit it again",
        )
    return JobOrder(
        job_id=job.run_id,
        command=job.command if job.setup is None else setup_command(job.setup),
        env=env,
        heartbeat_path=job.policy.heartbeat_path,
    )


def _finish(shell: Shell, job_id: str, state: JobState, why: str, failure: str | None) -> None:
    shell.ledger.commit(
        ev.JobFinished(job_id=job_id, at=shell.wall_clock(), state=state, why=why, failure=failure)
    )


def reached(shell: Shell, rental_id: str) -> None:
    """Note that SSH answered."""
    seen = shell.observed.world.of(rental_id)
    if seen.unreachable_since is not None:
        _log.info("rental=%s answers again", rental_id)
    shell.observed.note(rental_id, reached_at=shell.wall_clock(), unreachable_since=None)


def unreached(shell: Shell, rental_id: str, exc: SshError) -> None:
    """Note that SSH does not answer, and since when."""
    seen = shell.observed.world.of(rental_id)
    since = seen.unreachable_since
    shell.observed.note(
        rental_id,
        unreachable_since=shell.wall_clock() if since is None else since,
        unreachable_why=str(exc),
    )
    if since is None:
        shell.ledger.wake()
