"""`up`: the project's machine to work on, the one it has or a new one."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, values, words
from vastctl.context import Context
from vastctl.errors import CliError, UsageError
from vastctl.phases import PhaseWatch
from vastctl.planning import choose
from vastctl.renting import await_door, rent, report
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.rental import RentalView

EXAMPLES: Final = """\
  vastctl up --gpu-ram 24 --budget 3        rents one, or takes the one this project has
  vastctl up box --max-runtime 4h --idle 30m
  vastctl up --new -y                       one more
  vastctl down                              ends it"""

_ENDS: Final = frozenset({"destroying", "gone"})


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", nargs="?", type=values.name, help="name of the machine"
    )
    parser.add_argument("--new", action="store_true", help="rent one although the project has one")
    parser.set_defaults(no_wait=False)
    options.add_needs(parser)
    options.add_limits(parser)


def run(ctx: Context) -> int:
    args = ctx.args
    watch = PhaseWatch(ctx)
    mine = None if args.new else _its_own(ctx)
    if mine is None:
        needs = options.needs(args)
        return rent(ctx, choose(ctx, needs, what="up", budget_usd=args.budget))
    _check_fits(ctx, mine)
    ctx.screen.step(
        "info", f"machine {mine.name} belongs to this project already: nothing is rented"
    )
    body, rental = await_door(ctx, watch, mine)
    return report(ctx, body, rental, fresh=False)


def _its_own(ctx: Context) -> RentalView | None:
    """Return the machine of this project that is there to work on.

    Raises:
        UsageError: there are several.
        CliError: it is stopped.
    """
    listed = ctx.client.call(rentals.LIST, rentals.RentalListParams(project=ctx.project)).rentals
    wanted: str | None = ctx.args.name
    found = [
        rental
        for rental in listed
        if rental.purpose == "interactive"
        and rental.phase not in _ENDS
        and rental.end_reason is None
        and wanted in (None, rental.name)
    ]
    if len(found) > 1:
        raise UsageError(
            f"this project has several machines: {', '.join(r.name for r in found)}",
            hint="name one, or add `--new` to rent another",
        )
    if not found:
        return None
    if found[0].phase == "stopped":
        name = found[0].name
        raise CliError(
            f"machine {name} of this project is stopped",
            hint=f"`vastctl start {name}` starts it again; `vastctl up --new` rents another",
            exit_code=ExitCode.REFUSED,
        )
    return found[0]


def _check_fits(ctx: Context, rental: RentalView) -> None:
    """Refuse a machine that is not what was asked for now.

    Raises:
        UsageError: says in what it differs.
    """
    args = ctx.args
    wrong: list[str] = []
    if args.gpu_name and _letters(args.gpu_name) not in _letters(rental.gpu_name or ""):
        wrong.append(f"it is a {rental.gpu_name}, not a {args.gpu_name}")
    if args.num_gpus and rental.num_gpus and args.num_gpus > rental.num_gpus:
        wrong.append(f"it has {words.count(rental.num_gpus, 'GPU')}, not {args.num_gpus}")
    # Vast's GB are 1,000 MB: a "24 GB" card with 24,564 MB is one (REQUIREMENTS SRC-10).
    if args.gpu_ram and rental.gpu_ram_mb and args.gpu_ram * 1000 > rental.gpu_ram_mb:
        wrong.append(f"its GPUs have {rental.gpu_ram_mb / 1024:.0f} GB, not {args.gpu_ram:g}")
    if args.image and args.image != rental.image:
        wrong.append(f"its image is {rental.image}")
    if args.offer and args.offer != rental.offer_id:
        wrong.append(f"it was offer {rental.offer_id}")
    if wrong:
        raise UsageError(
            f"machine {rental.name} of this project is not what you ask for: {'; '.join(wrong)}",
            hint="add `--new` to rent another, or leave the options out to use it",
        )


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
