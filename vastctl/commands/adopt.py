"""`adopt`: take an instance over that this vastd did not rent; from then on its limits hold for it."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, values, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import rental as rentals

EXAMPLES: Final = """\
  vastctl adopt 20000027 --name box --max-runtime 6h
  vastctl adopt 20000027 --from a1b2c3d4     of a vastd that is gone for good"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "instance",
        metavar="INSTANCE_ID",
        type=values.offer_id,
        help="Vast's instance id, from `vastctl reconcile`",
    )
    parser.add_argument("--name", type=values.name, help="name of the machine")
    parser.add_argument(
        "--from", dest="owner", metavar="OWNER", help="the vastd that claims it, to take it from it"
    )
    options.add_limits(parser)


def run(ctx: Context) -> int:
    args = ctx.args
    ctx.confirm(
        f"take instance {args.instance} over",
        ["its label is replaced, and vastd ends it by its limits from then on"],
    )
    wish = rentals.RentalAdoptParams(
        instance_id=args.instance,
        name=args.name,
        project=ctx.project,
        from_owner=args.owner,
        policy=options.policy(args),
        request_id=new_request_id(),
    )
    body = ctx.client.raw(rentals.ADOPT, wish)
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    view = ctx.client.view(rentals.ADOPT, body)
    ends = words.countdown(view.deadline_at, ctx.now())
    ctx.screen.out(
        f"{view.name} ({view.rental_id}) is instance {view.instance_id}, "
        f"{words.rate(view.dph_usd)}; it ends {ends}"
    )
    ctx.screen.note(
        f"what runs on it is not known: `vastctl ssh {view.name}` looks, "
        f"`vastctl policy {view.name}` changes its limits"
    )
    return ExitCode.OK
