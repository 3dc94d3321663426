"""`job show|cancel|wait|retry`: one job."""

import shlex
from argparse import ArgumentParser
from typing import Final

from vastctl import options, words
from vastctl.client import LONG_S, new_request_id
from vastctl.context import Context
from vastctl.errors import CliError
from vastctl.story import not_its_own, tell_end, uncollected
from vastctl.table import pairs
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import job as jobs
from vastd_protocol.methods.job import AttemptView, JobView

ACTIONS: Final = {
    "show": "print what is known of a job",
    "cancel": "end it early: TERM, grace, KILL; what it wrote is collected",
    "wait": "wait until it is settled and end with its exit code",
    "retry": "submit an ended job again with the same settings",
}
EXAMPLES: Final = """\
  vastctl job show j-1
  vastctl job wait j-1 --timeout 1h
  vastctl job cancel j-1 -y"""

FINISHED: Final = frozenset({"succeeded", "failed", "cancelled", "timed_out"})  # CONTRACT 3
_HOW: Final = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "was cancelled",
    "timed_out": "ran into a limit",
}
# What follows from whose fault a failed attempt was; nobody's needs no words.
_BLAME: Final = {
    "host": " (the machine is not rented again for a day)",
    "run": " (every other machine would fail in the same way)",
}
ANSWER_MARGIN_S: Final = 5.0  # guess; vastd answers at the limit, we wait a little longer


def arguments(parser: ArgumentParser) -> None:
    options.add_job(parser)


def run(ctx: Context) -> int:
    return {"show": _show, "cancel": _cancel, "wait": _wait, "retry": _retry}[ctx.args.action](ctx)


def _show(ctx: Context) -> int:
    body = ctx.client.raw(jobs.GET, jobs.JobRef(job=ctx.args.job, project=ctx.project))
    if ctx.json:
        ctx.emit(body)
        return 0
    view = ctx.client.view(jobs.GET, body)
    for line in job_lines(view, ctx.now(), ctx.screen.out_columns):
        ctx.screen.out(line)
    return 0


def _cancel(ctx: Context) -> int:
    known = ctx.client.raw(jobs.GET, jobs.JobRef(job=ctx.args.job, project=ctx.project))
    job = ctx.client.view(jobs.GET, known)
    if job.state in FINISHED:
        if ctx.json:
            ctx.emit(known)
        already = job.state.replace("_", " ")
        ctx.screen.note(f"job {job.job_id} already {already}: nothing to cancel")
        return ExitCode.OK
    ctx.confirm(f"cancel job {job.job_id} ({job.name}, {job.state.replace('_', ' ')})")
    wish = jobs.JobCancelParams(job=job.job_id, request_id=new_request_id())
    body = ctx.client.raw(jobs.CANCEL, wish)
    if ctx.json:
        ctx.emit(body)
    ctx.screen.step("info", f"job {job.job_id} is being ended; see `vastctl job wait {job.job_id}`")
    return ExitCode.OK


def _wait(ctx: Context) -> int:
    limit_s = ctx.args.timeout
    ctx.client.timeout_s = None if limit_s is None else limit_s + ANSWER_MARGIN_S
    wish = jobs.JobWaitParams(job=ctx.args.job, project=ctx.project, timeout_s=limit_s)
    body = ctx.client.raw(jobs.WAIT, wish, limit_s=LONG_S * 365)
    waited = ctx.client.view(jobs.WAIT, body)
    if ctx.json:
        ctx.emit(body)
    if not waited.settled:
        raise CliError(
            f"job {waited.job.job_id} is not settled yet: it {_stands(waited.job)}",
            hint="it goes on; wait again, or follow it with `vastctl logs -f`",
            exit_code=ExitCode.TIMED_OUT,
        )
    tell_end(ctx.screen, waited.job, waited.rental)
    return remote_code(waited.job)


def remote_code(job: JobView) -> int:
    """Return the exit code of an ended job, as its own.

    Raises:
        CliError: it left none, because it never ran or its machine was lost.
    """
    if job.exit_code is not None:
        return job.exit_code
    raise CliError(
        f"job {job.job_id} left no exit code: it {_HOW.get(job.state, job.state)}"
        + (f", {job.reason}" if job.reason else ""),
        hint=f"see `vastctl job show {job.job_id}`",
        exit_code=ExitCode.TOOL_FAILED,
    )


def _stands(job: JobView) -> str:
    if job.state in FINISHED:
        # Settled is more than ended: the results are home, and the machine is gone.
        return f"{_HOW[job.state]}, and its results or the end of its machine are awaited"
    return f"is {job.state}"


def _retry(ctx: Context) -> int:
    job = ctx.client.call(jobs.GET, jobs.JobRef(job=ctx.args.job, project=ctx.project))
    ctx.confirm(f"rent a machine again for job {job.job_id} ({job.name})")
    wish = jobs.JobRetryParams(job=job.job_id, project=ctx.project, request_id=new_request_id())
    body = ctx.client.raw(jobs.RETRY, wish)
    submitted = ctx.client.view(jobs.RETRY, body)
    if ctx.json:
        ctx.emit(body)
    else:
        ctx.screen.out(submitted.job.job_id)
    ctx.screen.note(f"follow it: vastctl logs -f {submitted.job.job_id}")
    return ExitCode.OK


def job_lines(job: JobView, now: float, columns: int | None = None) -> list[str]:
    """Return one job as `key  value` lines; what is unknown is left out."""
    beat = job.heartbeat
    rows = [
        ("job", job.job_id),
        ("name", job.name),
        ("state", job.state.replace("_", " ") + (f" ({job.reason})" if job.reason else "")),
        ("exit code", "" if job.exit_code is None else str(job.exit_code)),
        ("command", shlex.join(job.command)),
        ("machine", job.rental_id or ""),
        ("project", job.project or ""),
        ("submitted", _ago(job.submitted_at, now)),
        ("started", _ago(job.started_at, now)),
        ("ended", _ago(job.ended_at, now)),
        ("heartbeat", _ago(job.last_heartbeat_at, now)),
        ("epoch", "" if beat is None or beat.epoch is None else f"{beat.epoch:g}"),
        ("step", "" if beat is None or beat.step is None else str(beat.step)),
        ("loss", "" if beat is None or beat.loss is None else f"{beat.loss:.6g}"),
        ("checkpoint", job.checkpoint_path or ""),
        ("outputs", ", ".join(job.outputs)),
        ("not found", ", ".join(job.missing)),
        ("results", _results(job)),
        ("log", f"{job.log_path} ({words.size(job.log_bytes)})" if job.log_path else ""),
        ("cost", "" if job.cost_usd is None else words.money(job.cost_usd)),
    ]
    lines = pairs([row for row in rows if row[1]], columns=columns)
    for number, attempt in enumerate(job.attempts, 1):
        lines.append(f"attempt {number} on {attempt.rental_id}{_failed(attempt)}")
    return lines


def _failed(attempt: AttemptView) -> str:
    if not attempt.reason:
        return ""
    machine = "" if attempt.machine_id is None else f" (machine {attempt.machine_id})"
    where = f", {words.phase(attempt.phase)}" if attempt.phase else ""
    spent = f"{words.span(attempt.seconds)}, {words.money(attempt.wasted_usd)} wasted"
    gone = "" if attempt.counts else ", no attempt used up: the offer was gone"
    return f"{machine}{where}, {spent}{gone}: {attempt.reason}{_BLAME.get(attempt.blame or '', '')}"


def _ago(instant: str | None, now: float) -> str:
    if words.epoch(instant) is None:
        return ""
    return f"{words.date_and_clock(instant)} ({words.age(instant, now)} ago)"


def _results(job: JobView) -> str:
    if job.collected is False:
        return uncollected(job)
    if not job.collected or not job.results_dir:
        return ""
    files = words.count(job.collected_files or 0, "file")
    older = f"; {not_its_own(job)}" if job.collected_earlier else ""
    return f"{job.results_dir} ({files}, {words.size(job.collected_bytes or 0)}{older})"
