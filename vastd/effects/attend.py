"""Follow a running job: its log, its heartbeat, its end; and end it when told to.

Losing the connection changes nothing about the job: it is `unknown` until the machine answers.
"""

import logging
from typing import Final

import trio

from vastd.core import endings
from vastd.core import events as ev
from vastd.core.endings import Outcome, Situation
from vastd.core.job import Job, JobState
from vastd.core.observed import Beat
from vastd.core.placement import may_go_on
from vastd.core.rental import Ending, Phase, Trigger
from vastd.core.stopped import Stop
from vastd.effects.launch import reached, unreached
from vastd.effects.setup import setup_verdict
from vastd.effects.verify import target
from vastd.errors import SshError, StoreError
from vastd.jobs.port import Box, BoxJobState, JobSnapshot
from vastd.shell import Shell

_log = logging.getLogger(__name__)

LOOK_BUSY_S: Final = 1.0  # guess: while output comes, `logs -f` should feel live
LOOK_QUIET_S: Final = 5.0  # guess: one round trip on an open connection
LOG_CHUNK_BYTES: Final = 1024 * 1024  # bounds memory whatever the job prints
LOOK_TIMEOUT_S: Final = 120.0  # guess: a look that hangs longer is a lost connection
KILLED_EXIT_CODE: Final = 137  # POSIX shells: 128 + SIGKILL, which is what the kernel's OOM sends

_STATE_OF_END: Final = {
    Trigger.USER: JobState.CANCELLED,
    Trigger.CANCELLED: JobState.CANCELLED,
}


async def attend(shell: Shell, rental_id: str, job_id: str) -> None:
    """Watch `job_id` until its process has ended and its log is home, then record that."""
    while True:
        busy = False
        try:
            with trio.fail_after(LOOK_TIMEOUT_S) as limit:
                async with shell.boxes.open(target(shell, shell.ledger.rental(rental_id))) as box:
                    if await _look(shell, box, rental_id, job_id, limit):
                        return
                    busy = await _fetch_log(shell, box, job_id)
        except SshError as exc:
            _unreachable(shell, rental_id, job_id, exc)
            await _pause(shell, rental_id, job_id, shell.limits.ssh_spacing_s)
            continue
        except trio.TooSlowError:
            silent = SshError(f"rental {rental_id!r} did not answer for {LOOK_TIMEOUT_S:.0f} s")
            _unreachable(shell, rental_id, job_id, silent)
            continue
        except StoreError as exc:
            _log.error("job=%s %s", job_id, exc)  # full disk at home: the job goes on
        # In its grace time a job is near its end, and the machine bills until that is seen.
        soon = busy or shell.ledger.job(job_id).term_at is not None
        await _pause(shell, rental_id, job_id, LOOK_BUSY_S if soon else LOOK_QUIET_S)


async def _pause(shell: Shell, rental_id: str, job_id: str, seconds: float) -> None:
    """Wait, but wake early for a decision (cancel, ending)."""
    before = _orders(shell, rental_id, job_id)
    with trio.move_on_after(seconds):
        while _orders(shell, rental_id, job_id) == before:
            await shell.ledger.wait_changed()


def _orders(shell: Shell, rental_id: str, job_id: str) -> tuple[Ending | None, float | None]:
    """Return what changes when the rental or the job was told to end."""
    return shell.ledger.rental(rental_id).ending, shell.ledger.job(job_id).cancel_at


async def _look(
    shell: Shell, box: Box, rental_id: str, job_id: str, limit: trio.CancelScope
) -> bool:
    """Take one snapshot and act on it; return True when the job has ended. `limit` is moved on
    while the log comes home: it may be long."""
    snapshot = await box.job_snapshot(shell.ledger.job(job_id).run_id)
    _note(shell, rental_id, snapshot)
    _catch_up(shell, rental_id, job_id, snapshot)
    if snapshot.state is not BoxJobState.RUNNING:
        await _rest_of_log(shell, box, rental_id, job_id, limit)
        # Fetching the log took time: the order to cancel may have come, or the end been recorded.
        job = shell.ledger.job(job_id)
        if not job.finished:
            _ended(shell, rental_id, job, snapshot)
        return True
    job = shell.ledger.job(job_id)
    if why := _shall_end(shell, rental_id, job):
        await _end(shell, box, job, why)
    return False


def _catch_up(shell: Shell, rental_id: str, job_id: str, snapshot: JobSnapshot) -> None:
    """Record what happened while nobody looked: it answers again, or its start succeeded."""
    job, now = shell.ledger.job(job_id), shell.wall_clock()
    if job.state is JobState.UNKNOWN:
        shell.ledger.commit(ev.JobReachable(job_id=job_id, at=now))
    elif job.state is JobState.STARTING and snapshot.state is not BoxJobState.ABSENT:
        began = ev.JobStarted(job_id=job_id, rental_id=rental_id, at=now, pid=snapshot.pid)
        if shell.ledger.rental(rental_id).phase is Phase.READY:
            occupied = ev.JobBegan(rental_id=rental_id, job_id=job_id, at=now)
            shell.ledger.commit(began, occupied)
        else:
            shell.ledger.commit(began)


async def _rest_of_log(
    shell: Shell, box: Box, rental_id: str, job_id: str, limit: trio.CancelScope
) -> None:
    """Bring home what the log still holds; each piece may take its time."""
    try:
        while await _fetch_log(shell, box, job_id):
            limit.deadline = trio.current_time() + LOOK_TIMEOUT_S
    except StoreError as exc:
        # A disk that refuses at home must not keep a machine billing past its end; the rest of
        # the log stays there, and a copy that fails for the same reason stops the machine.
        if shell.ledger.rental(rental_id).ending is None:
            raise
        _log.error("job=%s the end of its log is not home: %s", job_id, exc)


def _note(shell: Shell, rental_id: str, snapshot: JobSnapshot) -> None:
    now = shell.wall_clock()
    reached(shell, rental_id)
    beat = None
    if snapshot.box_heartbeat_at is not None:
        # Its age on the machine's own clock; the two clocks may be minutes apart (WAT-05).
        age = max(0.0, snapshot.box_clock - snapshot.box_heartbeat_at)
        said = snapshot.heartbeat
        beat = Beat(
            at=now - age,
            epoch=said.epoch if said else None,
            step=said.step if said else None,
            loss=said.loss if said else None,
            timestamp=said.timestamp if said else None,
        )
    shell.observed.note(
        rental_id,
        looked_at=now,
        beat=beat,
        gpu_util=snapshot.gpu_util,
        disk_free_bytes=snapshot.disk_free_bytes,
    )


async def _fetch_log(shell: Shell, box: Box, job_id: str) -> bool:
    """Bring home the next piece of the log; return whether there was one."""
    if shell.logs.capped(job_id):
        return False
    offset = shell.logs.size(job_id)
    job = shell.ledger.job(job_id)
    data = await box.read_log(job.run_id, max(0, offset - job.log_base), LOG_CHUNK_BYTES)
    if not data:
        return False
    total = shell.logs.append(job_id, offset, data)
    shell.logs.times.note(job_id, offset, total, shell.wall_clock())
    shell.progress("log", total, None, "bytes", None, job_id)
    return True


def _shall_end(shell: Shell, rental_id: str, job: Job) -> str | None:
    """Return why the job shall be asked to exit, or None."""
    if job.cancel_at is not None:
        return "cancelled by the user"
    rental = shell.ledger.rental(rental_id)
    ending = rental.ending
    if ending is None:
        return None
    asked = endings.decide(
        ending.trigger, Situation.JOB_ACTIVE, force=ending.force, collect=ending.collect
    )
    return ending.why if asked in (Outcome.TERM, Outcome.DESTROY) else None


async def _end(shell: Shell, box: Box, job: Job, why: str) -> None:
    """TERM first, so that it can save; KILL when the grace time is over (CKP-05)."""
    now = shell.wall_clock()
    rental_id = job.rental_id
    assert rental_id is not None
    grace = shell.ledger.rental(rental_id).policy.grace_s
    if job.term_at is None:
        await box.signal_job(job.run_id, "TERM")
        shell.ledger.commit(ev.TermSent(job_id=job.job_id, at=now, why=why))
    elif now >= job.term_at + grace:
        _log.warning("job=%s did not exit within %.0f s: KILL", job.job_id, grace)
        await box.signal_job(job.run_id, "KILL")


def _ended(shell: Shell, rental_id: str, job: Job, snapshot: JobSnapshot) -> None:
    stop = _taken_away(shell, rental_id, job, snapshot)
    rental = shell.ledger.rental(rental_id)
    if stop is not None and rental.ending is None and may_go_on(job, rental, stop.cause):
        now, why = shell.wall_clock(), f"{stop.why}; it runs again, from its checkpoint"
        again = ev.JobInterrupted(job_id=job.job_id, rental_id=rental_id, at=now, why=why)
        left = ev.JobLeft(rental_id=rental_id, job_id=job.job_id, at=now)
        shell.ledger.commit(again, *([left] if rental.phase is Phase.BUSY else []))
        return
    state, why, failure = _verdict(shell, rental_id, job, snapshot)
    now = shell.wall_clock()
    finished = ev.JobFinished(
        job_id=job.job_id,
        at=now,
        state=state,
        why=why,
        exit_code=snapshot.exit_code,
        failure=failure,
    )
    if shell.ledger.rental(rental_id).phase in (Phase.BUSY, Phase.STOPPED, Phase.DESTROYING):
        left = ev.JobLeft(rental_id=rental_id, job_id=job.job_id, at=now)
        shell.ledger.commit(finished, left)
    else:
        shell.ledger.commit(finished)


def _taken_away(shell: Shell, rental_id: str, job: Job, snapshot: JobSnapshot) -> Stop | None:
    """Return why the container stood still under a job that left no exit code; None if it did not.
    It ran again before that was believed, so the rental never was stopped."""
    seen, began = shell.observed.world.of(rental_id), job.sync_at or job.started_at
    killed = snapshot.exit_code is None and snapshot.state is not BoxJobState.ABSENT
    if not killed or began is None or seen.down_at is None or seen.down_at < began:
        return None
    return seen.down


def _verdict(
    shell: Shell, rental_id: str, job: Job, snapshot: JobSnapshot
) -> tuple[JobState, str, str | None]:
    """Judge by exit code and what was ordered, never by the multiplexer (RUN-10)."""
    ending = shell.ledger.rental(rental_id).ending
    if job.cancel_at is not None:
        return JobState.CANCELLED, "cancelled by the user", None
    if job.term_at is not None and ending is not None:
        state = _STATE_OF_END.get(ending.trigger, JobState.TIMED_OUT)
        return state, ending.why, None
    if snapshot.state is BoxJobState.ABSENT and job.started_at is None and ending is not None:
        return _STATE_OF_END.get(ending.trigger, JobState.TIMED_OUT), ending.why, None
    if snapshot.state is BoxJobState.ABSENT:
        return JobState.FAILED, "the machine has lost the job (its disk was replaced)", "machine"
    if (stop := _taken_away(shell, rental_id, job, snapshot)) is not None:
        return JobState.FAILED, f"its machine was taken away and came back: {stop.why}", "machine"
    if snapshot.exit_code is None:
        return JobState.FAILED, "it was killed without an exit code (out of memory?)", "killed"
    if job.setup is not None and snapshot.exit_code != KILLED_EXIT_CODE:
        return setup_verdict(shell, job, snapshot.exit_code)
    if snapshot.exit_code == 0:
        return JobState.SUCCEEDED, "exit code 0", None
    if snapshot.exit_code == KILLED_EXIT_CODE:
        why = f"exit code {KILLED_EXIT_CODE}: killed by SIGKILL (out of memory?)"
        return JobState.FAILED, why, "killed"
    return JobState.FAILED, f"exit code {snapshot.exit_code}", None


def _unreachable(shell: Shell, rental_id: str, job_id: str, exc: SshError) -> None:
    unreached(shell, rental_id, exc)
    if shell.ledger.job(job_id).state is JobState.RUNNING:
        _log.info("job=%s rental=%s: %s", job_id, rental_id, exc)
        shell.ledger.commit(ev.JobUnreachable(job_id=job_id, at=shell.wall_clock(), why=str(exc)))
