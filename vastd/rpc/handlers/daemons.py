"""`initialize`, `rpc.discover`, `daemon.*`, `doctor.run`, `config.*`."""

from typing import Any

from msgspec import structs

from vastd.clock_checks import clock_warning
from vastd.core import billing
from vastd.core.money import to_usd
from vastd.errors import InvalidRequest, PolicyRefused
from vastd.rpc.context import Context
from vastd.rpc.dispatch import handles
from vastd.rpc.errors import RpcError
from vastd.rpc.handlers.rentals import inventory_of
from vastd.rpc.openrpc import document
from vastd_protocol.errors import ErrorCode
from vastd_protocol.method import Nothing
from vastd_protocol.methods import config as config_wire
from vastd_protocol.methods import daemon as wire
from vastd_protocol.methods import doctor as doctor_wire
from vastd_protocol.methods import every
from vastd_protocol.version import PROTOCOL_VERSION


@handles(wire.INITIALIZE)
async def initialize(ctx: Context, params: wire.InitializeParams) -> wire.InitializeView:
    """Agree on the protocol version, or say who must be renewed."""
    if params.protocol_version != PROTOCOL_VERSION:
        older = "client" if params.protocol_version < PROTOCOL_VERSION else "daemon"
        who = " ".join(filter(None, (params.client.name, params.client.version)))
        remedy = {
            "client": f"update {params.client.name}",
            "daemon": "restart vastd with the newer version: `vastctl daemon stop`, then "
            "`vastctl daemon start`; machines and jobs go on",
        }
        raise RpcError(
            ErrorCode.VERSION_MISMATCH,
            f"{who} speaks protocol {params.protocol_version}, this vastd "
            f"{ctx.info.version} speaks {PROTOCOL_VERSION}: the {older} is too old",
            hint=remedy[older],
        )
    clock = ctx.shell.clock
    odd = clock_warning(clock)
    return wire.InitializeView(
        protocol_version=PROTOCOL_VERSION,
        daemon=ctx.info,
        warnings=[] if odd is None else [odd],
        clock_ahead_s=round(clock.ahead, 3),
    )


@handles(wire.DISCOVER)
async def discover(ctx: Context, params: Nothing) -> dict[str, Any]:
    """Return the OpenRPC document made from the method table."""
    return document(every())


@handles(wire.STATUS)
async def status(ctx: Context, params: Nothing) -> wire.DaemonStatusView:
    """Return how the daemon is, without asking anybody."""
    shell = ctx.shell
    live = shell.ledger.live()
    inventory = inventory_of(ctx)
    warnings = []
    if shell.ledger.write_error is not None:
        warnings.append(f"the disk refuses: {shell.ledger.write_error}")
    if (odd := clock_warning(shell.clock)) is not None:
        warnings.append(odd)
    if inventory.network_down_since is not None:
        warnings.append(f"your own network seems down since {inventory.network_down_since}")
    if inventory.orphans:
        warnings.append(f"{inventory.orphans} instances with our claim are not on record")
    return wire.DaemonStatusView(
        daemon=ctx.info,
        state_dir=str(shell.state_dir),
        socket=str(ctx.socket),
        vast_url=ctx.vast_url,
        key_origin=ctx.key_origin(),
        rentals_live=len(live),
        jobs_active=sum(1 for j in shell.ledger.jobs.values() if not j.finished),
        dph_usd=to_usd(billing.burn(live)),
        renting_locked=shell.locked(),
        inventory_state=inventory.state,
        inventory_as_of=inventory.as_of,
        inventory_error=inventory.error,
        warnings=warnings,
    )


@handles(wire.STOP)
async def stop(ctx: Context, params: wire.StopParams) -> wire.StopView:
    """End the daemon after this answer; machines and jobs go on."""
    live = ctx.shell.ledger.live()
    ctx.stop.set()
    return wire.StopView(rentals_live=len(live), dph_usd=to_usd(billing.burn(live)))


@handles(wire.RELOAD)
async def reload(ctx: Context, params: Nothing) -> wire.ReloadView:
    """Read the configuration again; the old one stays in force if the new one is no good."""
    changed = ctx.config.reload()
    return wire.ReloadView(changed=changed, at_next_start=ctx.config.waiting())


@handles(doctor_wire.RUN)
async def doctor(ctx: Context, params: Nothing) -> doctor_wire.DoctorView:
    """Check everything a run needs; spends nothing."""
    return await ctx.doctor()


@handles(config_wire.GET)
async def config_get(ctx: Context, params: config_wire.ConfigGetParams) -> config_wire.ConfigView:
    """Return settings with their origin; with `project` as calls from there get them."""
    return ctx.config.view(params.key, params.project)


@handles(config_wire.SET)
async def config_set(ctx: Context, params: config_wire.ConfigSetParams) -> config_wire.ChangedView:
    """Write settings to the file, all or none, and take them into force."""
    if params.key in params.also:
        raise InvalidRequest(f"{params.key[:80]} is named twice")
    changes = {params.key: params.value, **params.also}
    for key in changes:
        _check_address(ctx, key)
    first, *others = ctx.config.set(changes)
    return config_wire.ChangedView(**structs.asdict(first), also=others)


def _check_address(ctx: Context, key: str) -> None:
    """Refuse to move to another Vast while something is rented: there nobody knows our machines,
    and a listing without them would look like their end.

    Raises:
        PolicyRefused: something is rented.
    """
    live = ctx.shell.ledger.live()
    if key in ("vast.url", "url") and live and not ctx.info.simulated:
        raise PolicyRefused(
            f"vast.url cannot change while {len(live)} rentals are live: at another address they "
            "would look as if they had ended",
            hint="end them first: `vastctl ls`, `vastctl destroy-all`",
        )
