"""`host.*`: what is known of machines, and the user's word about them."""

from datetime import datetime
from typing import Final

from vastd.core import events as ev
from vastd.core.hosts import Host
from vastd.errors import InvalidRequest, NotFound
from vastd.rpc.context import Context
from vastd.rpc.dispatch import Call, handles
from vastd.rpc.views.host import host_view
from vastd_protocol.methods import host as wire

MAX_REASON_CHARS: Final = 500  # guess: a sentence or two
MAX_MACHINE_ID: Final = 2**53  # what every JSON reader keeps exactly


@handles(wire.LIST)
async def list_hosts(ctx: Context, params: wire.HostListParams) -> wire.HostListView:
    """List machines: blocked ones first, then those rented last."""
    now = ctx.shell.wall_clock()

    def order(host: Host) -> tuple[bool, float, int]:
        holds = host.block is not None and host.block.holds(now)
        return (not holds, -(host.seen_at or 0.0), host.machine_id)

    shown = [host_view(host, now) for host in sorted(ctx.shell.ledger.hosts.values(), key=order)]
    return wire.HostListView(hosts=[h for h in shown if h.block is not None or not params.blocked])


@handles(wire.BLOCK)
async def block(ctx: Context, params: wire.HostBlockParams, call: Call) -> wire.HostView:
    """Rent nothing on a machine, also one that was never rented."""
    now = ctx.shell.wall_clock()
    why = params.reason.strip()
    if not why or len(why) > MAX_REASON_CHARS:
        raise InvalidRequest(
            f"a block needs a reason of up to {MAX_REASON_CHARS} characters", hint="--reason TEXT"
        )
    if not 0 < params.machine_id < MAX_MACHINE_ID:
        raise InvalidRequest(
            f"{params.machine_id} is no machine id of Vast's",
            hint="`vastctl show RENTAL` and `vastctl offers --json` name machine ids",
        )
    until = None if params.until is None else _instant(params.until)
    if until is not None and until <= now:
        raise InvalidRequest(f"until {params.until!r} is in the past: nothing would be blocked")
    event = ev.HostBlocked(at=now, machine_id=params.machine_id, why=why, until=until)
    return ctx.commit(call, lambda: _view(ctx, params.machine_id), event)


@handles(wire.UNBLOCK)
async def unblock(ctx: Context, params: wire.HostUnblockParams, call: Call) -> wire.HostView:
    """Lift a block; a machine that is not blocked stays as it is."""
    shell, machine_id = ctx.shell, params.machine_id
    known = shell.ledger.hosts.get(machine_id)
    if known is None:
        raise NotFound(
            f"nothing is known of a machine {machine_id}", hint="`vastctl hosts ls` lists them"
        )
    if known.block is None:
        return _view(ctx, machine_id)
    event = ev.HostUnblocked(at=shell.wall_clock(), machine_id=machine_id)
    return ctx.commit(call, lambda: _view(ctx, machine_id), event)


def _view(ctx: Context, machine_id: int) -> wire.HostView:
    return host_view(ctx.shell.ledger.hosts[machine_id], ctx.shell.wall_clock())


def _instant(text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.timestamp()
    except (ValueError, OverflowError):
        pass
    raise InvalidRequest(f"until must be an instant like 2026-12-01T12:00:00Z, not {text[:40]!r}")
