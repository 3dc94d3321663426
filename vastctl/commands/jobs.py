"""`jobs`: the list of jobs."""

from argparse import ArgumentParser
from typing import Final

from vastctl import words
from vastctl.context import Context
from vastctl.table import table
from vastd_protocol.methods import job as jobs
from vastd_protocol.methods.job import JobView

EXAMPLES: Final = """\
  vastctl jobs
  vastctl jobs --all --project"""

_HEADER: Final = ("JOB", "NAME", "STATE", "CODE", "MACHINE", "AGE", "COST", "COMMAND")
_COMMAND_CHARS: Final = 60  # guess; the whole command is in `job show`


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="ended jobs as well")
    parser.add_argument("--project", action="store_true", help="only those of this project")


def run(ctx: Context) -> int:
    args = ctx.args
    wish = jobs.JobListParams(all=args.all, project=ctx.project if args.project else None)
    body = ctx.client.raw(jobs.LIST, wish)
    if ctx.json:
        ctx.emit(body)
        return 0
    found = ctx.client.view(jobs.LIST, body)
    if found.pruned_before is not None:
        ctx.screen.note(
            f"ended jobs from before {words.date_and_clock(found.pruned_before)} were dropped as "
            "old (retention.records_days)"
        )
    listed = found.jobs
    if not listed:
        ctx.screen.out("no jobs")
        return 0
    header, *rows = table(
        _HEADER,
        [_row(job, ctx.now()) for job in listed],
        right=("AGE", "COST"),
        columns=ctx.screen.out_columns,
    )
    ctx.screen.out(ctx.screen.bold(header))
    for row in rows:
        ctx.screen.out(row)
    return 0


def _row(job: JobView, now: float) -> tuple[str, ...]:
    command = " ".join(job.command)
    if len(command) > _COMMAND_CHARS:
        command = command[: _COMMAND_CHARS - 3] + "..."
    return (
        job.job_id,
        job.name,
        job.state.replace("_", " "),
        words.UNKNOWN if job.exit_code is None else str(job.exit_code),
        job.rental_id or words.UNKNOWN,
        words.age(job.submitted_at, now),
        words.money(job.cost_usd),
        command.replace("\n", " "),
    )
