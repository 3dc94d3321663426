"""`run`: the main job, from a command line to a destroyed machine."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, values, words
from vastctl.attend import attend
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.follow import newest_cursor
from vastctl.planning import choose, none_fits, plan_lines
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import job as jobs
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods import task

TAKES_COMMAND: Final = True
EXAMPLES: Final = """\
  vastctl run --hours 1 --gpu-ram 24 --budget 2 --output results -- python train.py
  vastctl run --gpu-name RTX_4090 --max-runtime 2h --heartbeat hb.json:60s -- bash train.sh
  vastctl run --on r-1 --keep -- python eval.py        on a machine you have already
  vastctl run --dry-run --hours 3 --gpu-ram 80 -- python train.py"""


def arguments(parser: ArgumentParser) -> None:
    _add_job(parser)
    options.add_needs(parser)
    options.add_limits(parser)
    _add_how(parser)


def _add_job(parser: ArgumentParser) -> None:
    job = parser.add_argument_group("the job")
    job.add_argument("--name", type=values.name, help="name of the job and its machine")
    job.add_argument("--task", metavar="TEXT", help=options.TASK_HELP)
    job.add_argument(
        "--env",
        metavar="K=V",
        type=values.variable,
        action="append",
        default=[],
        help="variable for the job; K alone passes yours on",
    )
    for option, text in (
        ("--include", "send this although it looks secret"),
        ("--output", "what to bring home (results/ and *.log)"),
    ):
        job.add_argument(
            option, metavar="PATH", type=values.path, nargs="+", action="extend", default=[],
            help=text,
        )  # fmt: skip
    job.add_argument(
        "--heartbeat",
        metavar="PATH[:DUR]",
        type=values.heartbeat,
        help="file the job touches, and how often",
    )
    job.add_argument(
        "--checkpoint", metavar="PATH", type=values.path, help="where the job saves its state"
    )
    job.add_argument(
        "--on-outbid",
        choices=options.ON_OUTBID,
        help="of an interruptible machine: wait until the bid wins again, go on from the checkpoint "
        "on another, or end",
    )
    job.add_argument(
        "--task-id",
        metavar="ID",
        type=values.path,
        help="task of the research workflow it belongs to",
    )


def _add_how(parser: ArgumentParser) -> None:
    how = parser.add_argument_group("how")
    how.add_argument(
        "--on", metavar="RENTAL", type=values.path, help="use this machine and rent nothing"
    )
    how.add_argument("--keep", action="store_true", help="do not destroy the machine afterwards")
    how.add_argument("--detach", action="store_true", help="print the job's id and return")
    how.add_argument("--dry-run", action="store_true", help="show the plan and do nothing")
    how.add_argument("--exit-status", action="store_true", help="end with the job's own exit code")


def run(ctx: Context) -> int:
    args = ctx.args
    if not args.remote:
        raise UsageError(
            "the command to run is missing",
            hint="put it behind `--`: `vastctl run [options] -- python train.py`",
        )
    needs = options.needs(args, task=args.task)
    if args.dry_run:
        return _dry_run(ctx, needs) if args.on is None else _dry_run_on(ctx)
    if args.on is None:
        needs = choose(ctx, needs, what="run", budget_usd=args.budget)
    params = jobs.JobSubmitParams(
        command=args.remote,
        project=ctx.project,
        name=args.name,
        needs=needs,
        policy=options.policy(args),
        outputs=args.output,
        include=args.include,
        env=dict(args.env),
        rental=args.on,
        task_id=args.task_id,
        request_id=new_request_id(),
    )
    after = newest_cursor(ctx.client)
    body = ctx.client.raw(jobs.SUBMIT, params)
    submitted = ctx.client.view(jobs.SUBMIT, body)
    _tell_choice(ctx, submitted)
    if args.detach:
        if ctx.json:
            ctx.emit(body)
        else:
            ctx.screen.out(submitted.job.job_id)
        return ExitCode.OK
    kept = args.keep or args.on is not None
    return attend(ctx, submitted, after=after, kept=kept, pass_on=args.exit_status)


def _tell_choice(ctx: Context, submitted: jobs.JobSubmitView) -> None:
    job, chosen = submitted.job, submitted.chosen
    ctx.screen.step("info", f"job {job.job_id} ({job.name}) is on record")
    if chosen is not None:
        total = (
            "" if chosen.total_usd is None else f", about {words.money(chosen.total_usd)} in all"
        )
        gpu = words.gpu(chosen.gpu_name, chosen.num_gpus)
        ctx.screen.step(
            "info", f"chose {gpu}, offer {chosen.offer_id}, {words.rate(chosen.dph_usd)}{total}"
        )
    for warning in submitted.warnings:
        ctx.screen.step("warning", warning)


def _dry_run(ctx: Context, needs: task.Needs) -> int:
    wish = task.PlanParams(needs=needs, project=ctx.project, budget_usd=ctx.args.budget)
    body = ctx.client.raw(task.PLAN, wish)
    plan = ctx.client.view(task.PLAN, body)
    if ctx.json:
        ctx.emit(body)
    else:
        for line in plan_lines(plan):
            ctx.screen.out(line)
        ctx.screen.note("dry run: nothing was rented")
    if not plan.options:
        raise none_fits(plan.removed, plan.considered)
    return ExitCode.OK


def _dry_run_on(ctx: Context) -> int:
    """Show the machine that would be used: nothing is searched, because nothing would be rented."""
    wish = rentals.RentalRef(rental=ctx.args.on, project=ctx.project)
    body = ctx.client.raw(rentals.GET, wish)
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    machine = ctx.client.view(rentals.GET, body)
    gpu = words.gpu(machine.gpu_name or words.UNKNOWN, machine.num_gpus)
    ctx.screen.out(
        f"would run on {machine.name} ({machine.rental_id}): {words.phase(machine.phase)}, {gpu}, "
        f"{words.rate(machine.dph_usd)}"
    )
    every = ctx.client.call(jobs.LIST, jobs.JobListParams()).jobs
    for job in every:
        if job.rental_id == machine.rental_id and job.ended_at is None:
            ctx.screen.out(f"would wait until job {job.job_id} ({job.name}) has ended: {job.state}")
    ctx.screen.note("dry run: nothing was sent")
    return ExitCode.OK
