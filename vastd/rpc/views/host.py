"""Machines as the wire shows them."""

from vastd.core.hosts import Block, Death, Host, Speed
from vastd.core.instants import maybe, rfc3339
from vastd_protocol.methods.host import BlockView, DeathView, HostView, SpeedView


def host_view(host: Host, now: float) -> HostView:
    """Return what a client may see of a machine."""
    return HostView(
        machine_id=host.machine_id,
        host_id=host.host_id,
        gpu_name=host.gpu_name,
        rented=host.rented,
        served=host.served,
        failed=host.failed,
        rented_at=maybe(host.seen_at),
        boot_s=None if host.boot_s is None else round(host.boot_s, 3),
        route=host.route,
        listed_down_mbps=host.listed_down_mbps,
        listed_up_mbps=host.listed_up_mbps,
        down=_speed(host.down),
        up=_speed(host.up),
        last_failure=_death(host.failure),
        last_end=_death(host.death),
        block=_block(host.block, now),
        risk_percent=round(host.risk * 100, 1),
    )


def _speed(speed: Speed | None) -> SpeedView | None:
    if speed is None:
        return None
    return SpeedView(mbps=round(speed.mbps, 1), source=speed.source, at=rfc3339(speed.at))


def _death(death: Death | None) -> DeathView | None:
    if death is None:
        return None
    return DeathView(
        rental_id=death.rental_id, end_reason=death.trigger, why=death.why, at=rfc3339(death.at)
    )


def _block(block: Block | None, now: float) -> BlockView | None:
    if block is None or not block.holds(now):
        return None
    return BlockView(
        why=block.why, by=block.by, since=rfc3339(block.since), until=maybe(block.until)
    )
