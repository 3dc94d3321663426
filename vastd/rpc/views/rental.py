"""Rentals and the inventory, as the wire shows them."""

from collections.abc import Sequence
from typing import Final

from vastd.core import billing, lease
from vastd.core.instants import maybe, rfc3339
from vastd.core.job import Job
from vastd.core.market import Instance
from vastd.core.money import to_usd
from vastd.core.observed import Sighting, World
from vastd.core.rental import Phase, Rental
from vastd.jobs.port import Endpoint
from vastd.rpc.views.stranger import rate_now
from vastd.ssh.endpoints import endpoints
from vastd_protocol.methods.rental import (
    InventoryView,
    RentalView,
    SshView,
)

# A listing is called stale when it is older than this many busy intervals.
STALE_INTERVALS: Final = 3  # guess: one may fail without anybody minding


def rental_view(
    rental: Rental,
    jobs: Sequence[Job],
    seen: Sighting,
    now: float,
    write_error: str | None = None,
    waiting: str | None = None,
) -> RentalView:
    """Return what a client may see of a rental."""
    offer = rental.order.offer
    row = seen.instance
    live = rental.phase is not Phase.GONE
    rate = billing.rate(rental) if rental.rates else offer.dph
    estimated = rental.estimated_hours
    return RentalView(
        rental_id=rental.rental_id,
        name=rental.name,
        phase=rental.phase,
        end_reason="released" if rental.released is not None else rental.end_reason,
        end_detail=rental.end_detail,
        instance_id=rental.instance_id,
        offer_id=offer.offer_id,
        machine_id=offer.machine_id,
        label=rental.label,
        project=rental.project,
        profile=rental.profile,
        purpose=rental.purpose,
        image=rental.order.image,
        gpu_name=offer.gpu_name,
        num_gpus=offer.num_gpus,
        gpu_ram_mb=offer.gpu_ram_mb,
        dph_usd=to_usd(rate if live else billing.expected_rate(rental)),
        cost_usd=to_usd(billing.cost(rental, now)),
        estimated_hours=estimated,
        estimated_cost_usd=(
            None if estimated is None else to_usd(round(billing.expected_rate(rental) * estimated))
        ),
        created_at=rfc3339(rental.created_at),
        ready_at=maybe(rental.ready_at),
        ended_at=maybe(rental.ended_at),
        deadline_at=None if rental.paused_at is not None else maybe(rental.deadline_at),
        wanted=_wanted(rental),
        stopped_at=maybe(rental.phase_since if rental.phase is Phase.STOPPED else None),
        stopped_by=rental.stopped_by if rental.phase is Phase.STOPPED else None,
        stop_detail=rental.stop_detail if rental.phase is Phase.STOPPED else None,
        bid_usd=None if rental.order.bid is None else to_usd(rental.order.bid),
        min_bid_usd=_min_bid(rental, row),
        storage_dph_usd=to_usd(billing.storage_rate(rental, row)) if live else None,
        lease_expires_at=maybe(rental.lease_until) if live else None,
        lease_armed=lease.armed(rental, now) if rental.ready_at is not None and live else None,
        budget_usd=None if rental.policy.budget is None else to_usd(rental.policy.budget),
        ssh=ssh_view(row) if live else None,
        status=row.status if row and live else None,
        status_msg=row.status_msg if row and live else None,
        jobs=[job.job_id for job in jobs],
        unfinished_jobs=[job.job_id for job in jobs if not job.finished],
        last_heartbeat_at=maybe(seen.beat.at if seen.beat else None),
        gpu_util=seen.gpu_util if live else None,
        waiting=waiting,
        warnings=_warnings(rental, seen, write_error),
    )


def _min_bid(rental: Rental, row: Instance | None) -> float | None:
    lowest = row.min_bid if row is not None else rental.order.offer.min_bid
    return None if rental.order.bid is None or lowest is None else to_usd(lowest)


def _wanted(rental: Rental) -> str | None:
    # Stopped, but a start sent before may still wait at Vast: not so yet until it is taken back.
    if rental.pause is not None and not (rental.phase is Phase.STOPPED and rental.stop_accepted):
        return "stopped"
    return "running" if rental.start_asked_at is not None else None


def ssh_view(row: Instance | None, proven: Endpoint | None = None) -> SshView | None:
    """Return the endpoint `proven`, else the one tried first; None while there is none."""
    found = [proven] if proven else endpoints(row) if row is not None else []
    if not found:
        return None
    first = found[0]
    return SshView(host=first.host, port=first.port, user=first.user, route=first.route)


def _warnings(rental: Rental, seen: Sighting, write_error: str | None) -> list[str]:
    found = [f"watchdog {name} warned" for name in sorted(rental.warned)]
    if rental.quarantined:
        found.append(f"quarantined: {rental.quarantined}")
    if rental.collect_failures:
        found.append(f"collecting failed {rental.collect_failures} times")
    if seen.unreachable_since is not None and rental.phase is not Phase.GONE:
        found.append(f"unreachable since {rfc3339(seen.unreachable_since)}: {seen.unreachable_why}")
    if write_error:
        found.append(f"not on disk: {write_error}")
    return found


def inventory_view(world: World, now: float, interval_s: float) -> InventoryView:
    """Return how far the list can be trusted."""
    inventory = world.inventory
    return InventoryView(
        state=inventory.state(now, interval_s * STALE_INTERVALS),
        as_of=maybe(inventory.as_of),
        age_s=None if inventory.as_of is None else round(max(0.0, now - inventory.as_of), 3),
        error=inventory.error,
        network_down_since=maybe(world.network_down_since),
        foreign=len(inventory.foreign),
        foreign_dph_usd=_sum_of(inventory.foreign),
        orphans=len(inventory.orphans),
        orphans_dph_usd=_sum_of(inventory.orphans),
    )


def _sum_of(rows: Sequence[Instance]) -> float:
    return to_usd(sum(rate_now(row) or 0 for row in rows))
