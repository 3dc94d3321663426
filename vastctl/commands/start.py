"""`start`: a stopped machine back, as soon as Vast has its GPU free."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import CliError
from vastctl.phases import PhaseWatch
from vastctl.transfer import resolve
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.rental import RentalView

EXAMPLES: Final = """\
  vastctl start r-1 -y
  vastctl start r-1 -y --timeout 3600     the GPU may be rented to somebody else meanwhile"""

START_WAIT_S: Final = 900.0  # guess: three times what a boot usually takes at most
_UP: Final = frozenset({"ready", "busy", "collecting"})


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it runs")


def run(ctx: Context) -> int:
    rental = resolve(ctx, ctx.args.rental)
    if rental.phase == "stopped" and rental.wanted is None:
        ctx.confirm(f"start machine {rental.name}", _consequences(rental))
    watch = PhaseWatch(ctx)
    wish = rentals.RentalStartParams(rental=rental.rental_id, request_id=new_request_id())
    body = ctx.client.raw(rentals.START, wish)
    view = ctx.client.view(rentals.START, body)
    if view.wanted == "running" and not ctx.args.no_wait:
        body, view = _wait(ctx, watch, rental)
    if ctx.json:
        ctx.emit(body)
    if view.phase in _UP and view.wanted is None:
        ctx.screen.step(
            "info",
            f"machine {view.name} runs at {words.rate(view.dph_usd)}: `vastctl ssh {view.name}`",
        )
    else:
        ctx.screen.say("the start is decided; vastd carries it out: see `vastctl ls`")
    return ExitCode.OK


def _consequences(rental: RentalView) -> list[str]:
    lines = [f"  its GPU bills again while it runs: {words.gpu(rental.gpu_name, rental.num_gpus)}"]
    if rental.end_reason is not None:
        lines.append(
            f"  its end is decided ({rental.end_reason}): it ends when its results are home"
        )
    return lines


def _wait(ctx: Context, watch: PhaseWatch, rental: RentalView) -> tuple[bytes, RentalView]:
    limit_s = ctx.args.timeout or START_WAIT_S
    over = {"destroying", "gone"}

    def settled(seen: RentalView) -> bool:
        return seen.phase in over or (seen.phase in _UP and seen.wanted is None)

    if watch.follow([rental.rental_id], settled, limit_s=limit_s):
        raise CliError(
            f"machine {rental.name} cannot be used after {limit_s:g} s: its GPU may be rented to "
            "somebody else; Vast starts it when it is free",
            hint=f"wait on with `vastctl start {rental.name} -y`, or take it back: "
            f"`vastctl stop {rental.name}`",
            exit_code=ExitCode.TIMED_OUT,
        )
    body, seen = watch.last(rental.rental_id)
    if seen.phase not in _UP:
        raise CliError(
            f"machine {rental.name} did not start: {seen.end_detail or seen.end_reason}",
            hint=f"see `vastctl explain {rental.name}`",
            exit_code=ExitCode.PROVISIONING_FAILED,
        )
    return body, seen
