"""Events as the wire shows them."""

from vastd.core import events as ev
from vastd.core import story
from vastd.core.instants import rfc3339
from vastd_protocol.methods.event import EventView


def event_view(cursor: int, event: ev.Event) -> EventView:
    """Return one recorded fact."""
    line = story.tell(event)
    return EventView(
        cursor=cursor,
        at=rfc3339(event.at),
        kind=ev.kind(event),
        rental_id=getattr(event, "rental_id", None),
        job_id=getattr(event, "job_id", None),
        severity=line.severity,
        reason=line.text,
        data=dict(line.data),
    )
