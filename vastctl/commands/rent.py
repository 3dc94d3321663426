"""`rent`: one machine to work on, from an offer to an open door."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, values
from vastctl.context import Context
from vastctl.planning import choose
from vastctl.renting import rent

EXAMPLES: Final = """\
  vastctl rent 40990112 --max-runtime 4h --idle 30m
  vastctl rent 40990112 --name box --budget 3 --no-wait"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "offer", metavar="OFFER_ID", type=values.offer_id, help="from `vastctl offers`"
    )
    parser.add_argument("--name", type=values.name, help="name of the machine")
    parser.add_argument(
        "--env",
        metavar="K=V",
        type=values.variable,
        action="append",
        default=[],
        help="variable on the machine",
    )
    options.add_no_wait(parser)
    options.add_needs(parser, offer=False)
    options.add_limits(parser)


def run(ctx: Context) -> int:
    args = ctx.args
    return rent(ctx, choose(ctx, options.needs(args), what="rent", budget_usd=args.budget))
