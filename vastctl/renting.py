"""Renting one machine to work on: from the user's yes to an open door, and what he then must know."""

from typing import Final

from vastctl import options, words
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import CliError
from vastctl.phases import PhaseWatch
from vastctl.table import pairs
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.rental import RentalView
from vastd_protocol.methods.task import Needs

BOOT_WAIT_S: Final = 4200.0  # six boot_timeout_s while a pull moves, SSH gets 300 s more
_USABLE: Final = frozenset({"ready", "busy"})


def rent(ctx: Context, needs: Needs) -> int:
    """Rent what the user agreed to, and report; `--no-wait` does not wait for the door to open.

    Raises:
        CliError: it was refused, did not become ready, or is not ready in time.
    """
    args = ctx.args
    watch = PhaseWatch(ctx)
    params = rentals.RentalCreateParams(
        needs=needs,
        policy=options.policy(args),
        name=args.name,
        project=ctx.project,
        env=dict(getattr(args, "env", None) or {}),
        request_id=new_request_id(),
    )
    body = ctx.client.raw(rentals.CREATE, params)
    rental = ctx.client.view(rentals.CREATE, body)
    ctx.screen.step("info", f"machine {rental.name} ({rental.rental_id}) is on record")
    if not args.no_wait:
        body, rental = await_door(ctx, watch, rental)
    return report(ctx, body, rental)


def await_door(ctx: Context, watch: PhaseWatch, rental: RentalView) -> tuple[bytes, RentalView]:
    """Return the machine, raw and decoded, when it is usable or never will be.

    Raises:
        CliError: neither within `--timeout`; it goes on.
    """
    limit_s = ctx.args.timeout or BOOT_WAIT_S
    late = watch.follow([rental.rental_id], _settled, limit_s=limit_s)
    if late:
        raise CliError(
            f"machine {rental.name} was not ready within {limit_s:g} s; it goes on",
            hint=f"see `vastctl explain {rental.name}`; end it with `vastctl destroy {rental.name}`",
            exit_code=ExitCode.TIMED_OUT,
        )
    return watch.last(rental.rental_id)


def _settled(rental: RentalView) -> bool:
    return (
        rental.phase in _USABLE
        or rental.phase in ("stopped", "gone")
        or rental.end_reason is not None
    )


def report(ctx: Context, body: bytes, rental: RentalView, *, fresh: bool = True) -> int:
    """Write the machine's name, what it is, how to reach it, what it costs and what ends it.

    `fresh`: this command rented it, so that its limits are what the options say.

    Raises:
        CliError: it did not become ready.
    """
    if ctx.json:
        ctx.emit(body)
    else:
        ctx.screen.out(rental.name)
    if rental.phase in _USABLE and rental.end_reason is None:
        _tell(ctx, rental, fresh=fresh)
        return ExitCode.OK
    if rental.end_reason is None and rental.phase not in ("stopped", "gone"):
        return ExitCode.OK
    detail = rental.end_detail or rental.end_reason or words.phase(rental.phase)
    raise CliError(
        f"machine {rental.name} did not become ready: {detail}",
        hint=f"see `vastctl explain {rental.rental_id}`",
        exit_code=ExitCode.PROVISIONING_FAILED,
    )


def _tell(ctx: Context, rental: RentalView, *, fresh: bool) -> None:
    name = rental.name
    ctx.screen.step("info", f"ready at {words.rate(rental.dph_usd)}: `vastctl ssh {name}`")
    memory = "" if rental.gpu_ram_mb is None else f", {rental.gpu_ram_mb / 1024:.0f} GB each"
    ssh = rental.ssh
    rows = [
        ("machine", f"{rental.rental_id}, instance {rental.instance_id}"),
        ("GPU", words.gpu(rental.gpu_name, rental.num_gpus) + memory),
        ("image", rental.image or ""),
        ("total", _total(rental)),
        ("ssh", "" if ssh is None else f"{ssh.user}@{ssh.host} port {ssh.port} ({ssh.route})"),
    ]
    for line in pairs([row for row in rows if row[1]], indent="  "):
        ctx.screen.note(line)
    ctx.screen.note(f"  {_limits(ctx, rental, fresh=fresh)}")
    if fresh and not ctx.args.idle:
        ctx.screen.note("  doing nothing does not end it (`--idle DUR` would)")
    ctx.screen.note(f"  set it up: `vastctl setup {name}`; use it: `vastctl run --on {name} -- …`")
    ctx.screen.note(f"  end it now: `vastctl destroy {name}`")


def _total(rental: RentalView) -> str:
    if rental.estimated_cost_usd is None:
        return ""
    hours = "" if rental.estimated_hours is None else f" for {rental.estimated_hours:.3g} h"
    return f"about {words.money(rental.estimated_cost_usd)}{hours}"


def _limits(ctx: Context, rental: RentalView, *, fresh: bool) -> str:
    """Return when the machine ends by itself, as vastd has accepted it, and what it bills."""
    args = ctx.args
    ends: list[str] = []
    at = words.epoch(rental.deadline_at)
    if at is not None:
        left = words.limit(max(60, round((at - ctx.now()) / 60) * 60))
        source = f" ({'' if args.max_runtime else 'default; '}--max-runtime)" if fresh else ""
        ends.append(f"in {left}{source}")
    if rental.budget_usd is not None:
        source = f" ({'' if args.budget else 'default; '}--budget)" if fresh else ""
        ends.append(f"before it costs more than {words.money(rental.budget_usd)}{source}")
    if fresh and args.idle:
        ends.append(f"after {words.limit(args.idle)} without work (--idle)")
    price = words.rate(rental.dph_usd)
    if not ends:
        return f"it bills {price}"
    return f"it ends by itself {' or '.join(ends)}; until then it bills {price}"
