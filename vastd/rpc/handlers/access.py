"""`exec.run`, `ssh.endpoint`, `file.*`: the way to a machine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from vastd.core.rental import Phase, Rental
from vastd.effects.verify import target
from vastd.errors import InvalidRequest, PolicyRefused, SshError, SshTimeout
from vastd.jobs.port import Box, Route
from vastd.rpc.context import Context
from vastd.rpc.dispatch import handles
from vastd.rpc.handlers.resolve import find_rental
from vastd.rpc.views.rental import ssh_view
from vastd.ssh.endpoints import endpoints, prefer
from vastd.ssh.known_hosts import host_key_alias
from vastd.ssh.openssh import ssh_argv
from vastd_protocol.methods import access as wire
from vastd_protocol.methods import file as file_wire
from vastd_protocol.methods.rental import RentalRef

MAX_EXEC_S: Final = 3600.0  # guess: longer belongs into a job
MAX_OUTPUT_BYTES: Final = 4 * 1024 * 1024  # two of them fit a frame

_REACHABLE: Final = frozenset({Phase.VERIFYING, Phase.READY, Phase.BUSY, Phase.COLLECTING})


def reachable(ctx: Context, rental: str | None, project: str | None) -> Rental:
    """Return the rental meant, if SSH can reach its machine.

    Raises:
        NotFound, AmbiguousName: none or several fit.
        PolicyRefused: it has no machine now that could answer.
    """
    found = find_rental(ctx.shell.ledger, rental, project)
    if found.phase not in _REACHABLE:
        verb = "tells how it ended" if found.phase is Phase.GONE else "tells what it waits for"
        raise PolicyRefused(
            f"rental {found.name!r} cannot be reached: it is {found.phase}",
            hint=f"`vastctl explain {found.name}` {verb}",
        )
    return found


@asynccontextmanager
async def _box(ctx: Context, rental: Rental) -> AsyncIterator[Box]:
    async with ctx.shell.boxes.open(target(ctx.shell, rental)) as box:
        yield box


@handles(wire.EXEC)
async def run(ctx: Context, params: wire.ExecParams) -> wire.ExecView:
    """Run one shell command and return its capped output."""
    if not 0 < params.timeout_s <= MAX_EXEC_S:
        raise InvalidRequest(f"timeout_s must be up to {MAX_EXEC_S:.0f}, not {params.timeout_s}")
    if not 0 <= params.limit_bytes <= MAX_OUTPUT_BYTES:
        raise InvalidRequest(f"limit_bytes must be up to {MAX_OUTPUT_BYTES}")
    rental = reachable(ctx, params.rental, params.project)
    try:
        with trio.fail_after(params.timeout_s + 30):
            async with _box(ctx, rental) as box:
                done = await box.run(
                    params.command, timeout_s=params.timeout_s, limit_bytes=params.limit_bytes
                )
    except trio.TooSlowError as exc:
        raise SshTimeout(f"rental {rental.name!r} did not answer in time") from exc
    return wire.ExecView(
        rental_id=rental.rental_id,
        exit_code=done.exit_code,
        stdout=done.stdout.decode("utf-8", "replace"),
        stderr=done.stderr.decode("utf-8", "replace"),
        truncated=done.truncated,
    )


@handles(wire.ENDPOINT)
async def endpoint(ctx: Context, params: RentalRef) -> wire.EndpointView:
    """Return everything the user's own OpenSSH needs, proven by the last connection if any."""
    rental = reachable(ctx, params.rental, params.project)
    row = ctx.shell.observed.world.of(rental.rental_id).instance
    route = Route(rental.route) if rental.route else None
    ways = prefer(endpoints(row), route) if row is not None else []
    if not ways or row is None or rental.instance_id is None:
        raise SshError(
            f"rental {rental.name!r} has no SSH endpoint yet",
            hint="its ports are mapped once Vast reports it as running",
        )
    first = ways[0]
    identity = ctx.identity()
    known_hosts = ctx.known_hosts_file(rental.instance_id)
    shown = ssh_view(row, first)
    assert shown is not None
    connect_s = ctx.config.ssh_connect_s()
    argv = ssh_argv(first, rental.instance_id, identity, known_hosts, connect_s)
    return wire.EndpointView(
        rental_id=rental.rental_id,
        instance_id=rental.instance_id,
        ssh=shown,
        identity_file=str(identity),
        known_hosts_file=str(known_hosts),
        host_key_alias=host_key_alias(rental.instance_id),
        argv=[*argv, first.host],
    )


def _absolute(paths: list[str]) -> list[Path]:
    found = [Path(p) for p in paths]
    if not found:
        raise InvalidRequest("nothing to copy: name at least one source")
    for path in found:
        if not path.is_absolute():
            raise InvalidRequest(f"{str(path)!r} is not an absolute path")
    return found


@handles(file_wire.PUSH)
async def push(ctx: Context, params: file_wire.FilePushParams) -> file_wire.CopyView:
    """Copy local files to a machine."""
    sources = _absolute(params.sources)
    for source in sources:
        if not source.exists():
            raise InvalidRequest(f"{str(source)!r} does not exist here")
    rental = reachable(ctx, params.rental, params.project)

    def progress(step: str, done: int, total: int | None, unit: str) -> None:
        ctx.shell.progress(step, done, total, unit, rental.rental_id, None)

    async with _box(ctx, rental) as box:
        size = await box.push_paths(sources, params.destination, progress)
    return file_wire.CopyView(
        rental_id=rental.rental_id, destination=params.destination, bytes=size
    )


@handles(file_wire.PULL)
async def pull(ctx: Context, params: file_wire.FilePullParams) -> file_wire.CopyView:
    """Copy remote files home; never deletes."""
    if not params.sources:
        raise InvalidRequest("nothing to copy: name at least one source")
    destination = _absolute([params.destination])[0]
    rental = reachable(ctx, params.rental, params.project)

    def progress(step: str, done: int, total: int | None, unit: str) -> None:
        ctx.shell.progress(step, done, total, unit, rental.rental_id, None)

    async with _box(ctx, rental) as box:
        size = await box.pull_paths(params.sources, destination, progress)
    return file_wire.CopyView(rental_id=rental.rental_id, destination=str(destination), bytes=size)
