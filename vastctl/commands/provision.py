"""`provision`: what a task needs, three offers with their reasons, and the one that is chosen."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, values
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.planning import choose, none_fits, plan_lines, rent_lines, with_offer
from vastctl.renting import rent
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import task
from vastd_protocol.methods.task import Needs, PlanView

EXAMPLES: Final = """\
  vastctl provision --hours 3 --gpu-ram 24            three options; asks, or says how to go on
  vastctl provision --hours 3 --gpu-ram 24 --cheapest --budget 2
  vastctl provision -y --gpu-name RTX_4090 --name box"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--task", metavar="TEXT", help=options.TASK_HELP)
    parser.add_argument("--name", type=values.name, help="name of the machine")
    which = parser.add_mutually_exclusive_group()
    for role in ("cheapest", "fastest"):
        which.add_argument(
            f"--{role}",
            dest="role",
            action="store_const",
            const=role,
            help=f"rent the {role} of the three",
        )
    options.add_no_wait(parser)
    options.add_needs(parser)
    options.add_limits(parser)


def run(ctx: Context) -> int:
    args = ctx.args
    needs = options.needs(args, task=args.task)
    picked = args.role is not None or args.offer is not None
    if args.role is not None and args.offer is not None:
        raise UsageError(f"either --{args.role} or --offer", hint="leave out one of both")
    if not picked and not args.yes and not ctx.interactive:
        return _show(ctx, needs)
    if args.role is not None:
        needs = _of_role(ctx, needs, args.role)
    return rent(ctx, choose(ctx, needs, what="provision", budget_usd=args.budget, explain=True))


def _show(ctx: Context, needs: Needs) -> int:
    """Write the options, and for each the command that rents it: nothing is spent here."""
    body, plan = _plan(ctx, needs)
    if ctx.json:
        ctx.emit(body)
    else:
        for line in plan_lines(plan, explain=True):
            ctx.screen.out(line)
    if not plan.options:
        raise none_fits(plan.removed, plan.considered)
    if not ctx.json:
        ctx.screen.out("\nnothing was rented; go on with one of")
        for line in rent_lines(ctx, plan.options):
            ctx.screen.out(f"  {line}")
    return ExitCode.OK


def _plan(ctx: Context, needs: Needs) -> tuple[bytes, PlanView]:
    wish = task.PlanParams(needs=needs, project=ctx.project, budget_usd=ctx.args.budget)
    body = ctx.client.raw(task.PLAN, wish)
    return body, ctx.client.view(task.PLAN, body)


def _of_role(ctx: Context, needs: Needs, role: str) -> Needs:
    _, plan = _plan(ctx, needs)
    if not plan.options:
        raise none_fits(plan.removed, plan.considered)
    found = next((option for option in plan.options if role in option.roles), plan.options[0])
    return with_offer(needs, found.offer_id)
