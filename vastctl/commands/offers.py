"""`offers`: ranked offers in Vast's query language, and what each filter removed."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, values, words
from vastctl.context import Context
from vastctl.planning import flag_lines, none_fits, option_lines, removed_lines
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import offer

EXAMPLES: Final = """\
  vastctl offers "gpu_ram>=24 reliability>0.98"
  vastctl offers --gpu-name RTX_4090 --hours 3 --explain"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="*", help="as in `vastai search offers`")
    parser.add_argument("--limit", metavar="N", type=values.lines, default=20, help="how many (20)")
    parser.add_argument(
        "--explain", action="store_true", help="tell reasons, and what filters removed"
    )
    options.add_needs(parser)


def run(ctx: Context) -> int:
    args = ctx.args
    wish = offer.OfferSearchParams(
        query=" ".join(args.query) or None,
        needs=options.needs(args),
        limit=args.limit,
        project=ctx.project,
    )
    body = ctx.client.raw(offer.SEARCH, wish)
    found = ctx.client.view(offer.SEARCH, body)
    if ctx.json:
        ctx.emit(body)
    elif found.offers:
        _show(ctx, found)
    elif found.near_misses:
        ctx.screen.note("near misses:")
        for line in (
            *option_lines(found.near_misses, ctx.screen.out_columns),
            *flag_lines(found.near_misses, reasons=True),
        ):
            ctx.screen.note(line)
    if found.defaults and not ctx.json:
        known = ", ".join(
            f"{name} from {source}" for name, source in sorted(found.defaults.items())
        )
        ctx.screen.note(f"defaults in this project: {known}; the query goes before them")
    if not found.offers:
        raise none_fits(found.removed, found.considered)
    return ExitCode.OK


def _show(ctx: Context, found: offer.OffersView) -> None:
    for line in option_lines(found.offers, ctx.screen.out_columns):
        ctx.screen.out(line)
    other = found.removed.get("num_gpus", 0)
    if other and ctx.args.num_gpus is None:
        text = "with another number of GPUs left out, because hours are for one: `--num-gpus N`"
        ctx.screen.note(f"{words.count(other, 'offer')} {text}")
    if not ctx.args.explain:
        return
    for line in flag_lines(found.offers, reasons=True):
        ctx.screen.out(line)
    for line in removed_lines(found.removed, found.considered):
        ctx.screen.out(line)
