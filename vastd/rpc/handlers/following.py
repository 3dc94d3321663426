"""`log.*` and `event.*`: read the past, follow the present."""

import base64
from collections.abc import Sequence
from functools import partial
from typing import Final

from vastd.core.instants import maybe, rfc3339
from vastd.errors import InvalidRequest
from vastd.local_logs import LocalLogs
from vastd.rpc.context import Context
from vastd.rpc.dispatch import Call, handles
from vastd.rpc.handlers.resolve import find_job, find_rental
from vastd.rpc.views.event import event_view
from vastd.store.retention import pruned
from vastd.store.store import Store, StoredEvent
from vastd_protocol.methods import event as event_wire
from vastd_protocol.methods import log as wire

MAX_LOG_BYTES: Final = 4 * 1024 * 1024  # base64 of it fits a frame three times
_LAST_CURSOR: Final = 2**63 - 1
MAX_TIMES: Final = 4096  # of one answer: 200 kB of JSON
MAX_LINE_BYTES: Final = 65_536  # guess; the beginning of a longer line is not looked for
MAX_EVENTS: Final = 1000  # guess: a page one can still read


@handles(wire.READ)
async def read(ctx: Context, params: wire.LogReadParams) -> wire.LogView:
    """Return a piece of a job's log from the copy at home."""
    if not 1 <= params.limit <= MAX_LOG_BYTES:
        raise InvalidRequest(f"limit must be 1 to {MAX_LOG_BYTES}, not {params.limit}")
    job = find_job(ctx.shell.ledger, params.job, params.project)
    logs = ctx.shell.logs
    size = logs.size(job.job_id)
    offset = max(0, size + params.offset) if params.offset < 0 else params.offset
    known = None
    if params.since_s is not None:
        begin, known = _begin_since(ctx, job.job_id, params.since_s, size)
        offset = max(offset, begin)
    data = logs.read(job.job_id, offset, params.limit)
    times = None
    if params.times:
        data, times = _timed(logs, job.job_id, offset, data)
    after = offset + len(data)
    return wire.LogView(
        job_id=job.job_id,
        offset=offset,
        data=base64.b64encode(data).decode(),
        next_offset=after,
        size=size,
        eof=job.finished and after >= size,
        times=times,
        since_known=known,
    )


def _begin_since(ctx: Context, job_id: str, since_s: float, size: int) -> tuple[int, bool]:
    """Return where the first line begins that came home in the last `since_s` seconds, and whether
    that is known of every byte behind it."""
    if not since_s > 0:
        raise InvalidRequest(f"since_s must be positive, not {since_s}")
    logs = ctx.shell.logs
    found = logs.times.since(job_id, ctx.shell.wall_clock() - since_s, size)
    if found.offset >= size:
        return size, found.known
    # A piece may end inside a line: its beginning belongs to it.
    back = min(found.offset, MAX_LINE_BYTES)
    before = logs.read(job_id, found.offset - back, back)
    cut = len(before) - (before.rfind(b"\n") + 1)
    return found.offset - (cut if cut < back or back == found.offset else 0), found.known


def _timed(
    logs: LocalLogs, job_id: str, offset: int, data: bytes
) -> tuple[bytes, list[wire.LogTime]]:
    """Return as much of a piece as fits an answer with the times of its bytes, and those."""
    end = offset + len(data)
    marks = logs.times.between(job_id, offset, end, MAX_TIMES)
    if len(marks) == MAX_TIMES:
        data = data[: marks[-1].end - offset]
    return data, [wire.LogTime(end=mark.end, at=maybe(mark.at_s)) for mark in marks]


@handles(wire.SUBSCRIBE)
async def subscribe(
    ctx: Context, params: wire.LogSubscribeParams, call: Call
) -> wire.LogSubscriptionView:
    """Follow a job's log from an offset on."""
    job = find_job(ctx.shell.ledger, params.job, params.project)
    return ctx.hub.follow_log(call, job_id=job.job_id, offset=params.offset)


@handles(wire.UNSUBSCRIBE)
async def unsubscribe(
    ctx: Context, params: wire.LogUnsubscribeParams, call: Call
) -> wire.LogUnsubscribeView:
    """End a log subscription of this connection."""
    return wire.LogUnsubscribeView(found=ctx.hub.unsubscribe(call.peer, params.subscription_id))


@handles(event_wire.LIST)
async def list_events(ctx: Context, params: event_wire.EventListParams) -> event_wire.EventListView:
    """Return a page of the audit trail."""
    if not 1 <= params.limit <= MAX_EVENTS:
        raise InvalidRequest(f"limit must be 1 to {MAX_EVENTS}, not {params.limit}")
    ledger, store = ctx.shell.ledger, ctx.shell.ledger.store
    rental = find_rental(ledger, params.rental, None) if params.rental else None
    job = find_job(ledger, params.job, None) if params.job else None
    # SQLite's integers end at 64 bits; no cursor comes near.
    after = None if params.after is None else min(max(params.after, 0), _LAST_CURSOR)
    if after is not None:
        found = store.events_after(after, params.limit)
    elif params.since_s is not None:
        found = store.events_since(ctx.shell.wall_clock() - params.since_s, params.limit)
    elif rental is not None:
        found = store.events_of(rental_id=rental.rental_id)[-params.limit :]
    elif job is not None:
        found = store.events_of(job_id=job.job_id)[-params.limit :]
    else:
        found = store.events_before_end(params.limit)
    views = [event_view(stored.cursor, stored.event) for stored in found]
    cursor = views[-1].cursor if views else after or store.last_cursor()
    kept = [
        view
        for view in views
        if (rental is None or view.rental_id == rental.rental_id)
        and (job is None or view.job_id == job.job_id)
    ]
    began = rental.created_at if rental else job.submitted_at if job else None
    if params.since_s is not None and after is None:
        began = ctx.shell.wall_clock() - params.since_s
    return event_wire.EventListView(
        events=kept, cursor=cursor, pruned_before=_pruned(store, params.limit, found, after, began)
    )


def _pruned(
    store: Store,
    limit: int,
    found: Sequence[StoredEvent],
    after: int | None,
    began: float | None,
) -> str | None:
    """Return until when events were dropped, if what was asked for reaches back that far: to after
    a cursor, to an instant, or to the beginning."""
    before = pruned(store).events_before
    if before is None:
        return None
    if after is not None:
        first = found[0].cursor if found else store.last_cursor() + 1
        reached = first > after + 1
    elif began is not None:
        reached = began < before
    else:
        reached = len(found) < limit
    return rfc3339(before) if reached else None


@handles(event_wire.SUBSCRIBE)
async def follow(
    ctx: Context, params: event_wire.EventSubscribeParams, call: Call
) -> event_wire.EventSubscriptionView:
    """Follow the audit trail, without gap after `after`."""
    ledger = ctx.shell.ledger
    rental = find_rental(ledger, params.rental, None) if params.rental else None
    job = find_job(ledger, params.job, None) if params.job else None
    return ctx.hub.follow_events(
        call,
        after=params.after,
        rental_id=rental.rental_id if rental else None,
        job_id=job.job_id if job else None,
        machines=partial(_machines, ctx, job.job_id) if job else tuple,
        progress=params.progress,
    )


def _machines(ctx: Context, job_id: str) -> set[str]:
    """Return the rentals a job has run on or waits for."""
    job = ctx.shell.ledger.job(job_id)
    found = {attempt.rental_id for attempt in job.attempts}
    return found | {job.rental_id} if job.rental_id else found


@handles(event_wire.UNSUBSCRIBE)
async def unfollow(
    ctx: Context, params: event_wire.EventUnsubscribeParams, call: Call
) -> event_wire.EventUnsubscribeView:
    """End an event subscription of this connection."""
    return event_wire.EventUnsubscribeView(
        found=ctx.hub.unsubscribe(call.peer, params.subscription_id)
    )
