"""`plan`: what a task needs and which three offers fit it; spends nothing."""

import os
from argparse import ArgumentParser
from typing import Final

from vastctl import options, values
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.planning import none_fits, plan_lines
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import task

EXAMPLES: Final = """\
  vastctl plan --hours 3 --gpu-ram 24
  vastctl plan --gpu-name RTX_4090 --hours 3 --explain
  vastctl plan --gpu-ram 24 --no-offers       needs neither key nor network"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", type=values.path, help="files that tell about the task"
    )
    parser.add_argument("--task", metavar="TEXT", help=options.TASK_HELP)
    parser.add_argument("--no-offers", action="store_true", help="size only, do not search")
    parser.add_argument("--explain", action="store_true", help="tell every source and filter")
    parser.add_argument("--budget", metavar="USD", type=values.usd, help="what it may cost in all")
    options.add_needs(parser)


def run(ctx: Context) -> int:
    args = ctx.args
    for path in args.paths:
        if not os.path.exists(path):
            raise UsageError(f"there is no {path!r}", hint="name files that exist, or leave it out")
    wish = task.PlanParams(
        needs=options.needs(args, task=args.task),
        project=ctx.project,
        paths=[os.path.abspath(path) for path in args.paths],
        offers=not args.no_offers,
        budget_usd=args.budget,
    )
    body = ctx.client.raw(task.PLAN, wish)
    plan = ctx.client.view(task.PLAN, body)
    if ctx.json:
        ctx.emit(body)
    else:
        for line in plan_lines(plan, explain=args.explain, columns=ctx.screen.out_columns):
            ctx.screen.out(line)
    if not plan.options and not args.no_offers:
        raise none_fits(plan.removed, plan.considered)
    return ExitCode.OK
