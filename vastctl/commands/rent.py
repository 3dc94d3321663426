"""`rent`: one machine to work on, from an offer to an open door."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, values, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import CliError
from vastctl.phases import PhaseWatch
from vastctl.planning import choose
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.rental import RentalView

EXAMPLES: Final = """\
  vastctl rent 40990112 --max-runtime 4h --idle 30m
  vastctl rent 40990112 --name box --budget 3 --no-wait"""

BOOT_WAIT_S: Final = 2400.0  # CONTRACT 5: boot_timeout_s is at most 1800, SSH gets 300 more
_USABLE: Final = frozenset({"ready", "busy"})


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
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is ready")
    options.add_needs(parser, offer=False)
    options.add_limits(parser)


def run(ctx: Context) -> int:
    args = ctx.args
    needs = choose(ctx, options.needs(args), what="rent", budget_usd=args.budget)
    watch = PhaseWatch(ctx)
    params = rentals.RentalCreateParams(
        needs=needs,
        policy=options.policy(args),
        name=args.name,
        project=ctx.project,
        env=dict(args.env),
        request_id=new_request_id(),
    )
    body = ctx.client.raw(rentals.CREATE, params)
    rental = ctx.client.view(rentals.CREATE, body)
    ctx.screen.step("info", f"machine {rental.name} ({rental.rental_id}) is on record")
    if not args.no_wait:
        limit_s = args.timeout or BOOT_WAIT_S
        late = watch.follow([rental.rental_id], _settled, limit_s=limit_s)
        if late:
            raise CliError(
                f"machine {rental.name} was not ready within {limit_s:g} s; it goes on",
                hint=f"see `vastctl explain {rental.name}`; end it with `vastctl destroy {rental.name}`",
                exit_code=ExitCode.TIMED_OUT,
            )
        body, rental = watch.last(rental.rental_id)
    return _end(ctx, body, rental)


def _settled(rental: RentalView) -> bool:
    return (
        rental.phase in _USABLE
        or rental.phase in ("stopped", "gone")
        or rental.end_reason is not None
    )


def _limits(ctx: Context, rental: RentalView) -> str:
    """Return when the machine ends by itself, as vastd has accepted it, and what it bills."""
    args = ctx.args
    ends: list[str] = []
    at = words.epoch(rental.deadline_at)
    if at is not None:
        left = words.limit(max(60, round((at - ctx.now()) / 60) * 60))
        ends.append(f"in {left} ({'' if args.max_runtime else 'default; '}--max-runtime)")
    if rental.budget_usd is not None:
        source = "--budget" if args.budget else "default; --budget"
        ends.append(f"before it costs more than {words.money(rental.budget_usd)} ({source})")
    if args.idle:
        ends.append(f"after {words.limit(args.idle)} without work (--idle)")
    price = words.rate(rental.dph_usd)
    if not ends:
        return f"it bills {price}"
    return f"it ends by itself {' or '.join(ends)}; until then it bills {price}"


def _end(ctx: Context, body: bytes, rental: RentalView) -> int:
    if ctx.json:
        ctx.emit(body)
    else:
        ctx.screen.out(rental.name)
    if rental.phase in _USABLE:
        ctx.screen.step(
            "info", f"ready at {words.rate(rental.dph_usd)}: `vastctl ssh {rental.name}`"
        )
        ctx.screen.note(f"  {_limits(ctx, rental)}")
        ctx.screen.note(f"  end it now: `vastctl destroy {rental.name}`")
        return ExitCode.OK
    if rental.end_reason is None and rental.phase not in ("stopped", "gone"):
        return ExitCode.OK
    detail = rental.end_detail or rental.end_reason or words.phase(rental.phase)
    raise CliError(
        f"machine {rental.name} did not become ready: {detail}",
        hint=f"see `vastctl explain {rental.rental_id}`",
        exit_code=ExitCode.PROVISIONING_FAILED,
    )
