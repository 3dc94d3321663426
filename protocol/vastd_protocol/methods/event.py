"""`event.*`: the audit trail, past and live, and progress of long steps."""

from msgspec import field

from vastd_protocol.method import Method, Params, View

Scalar = str | int | float | bool | None


class EventView(View, frozen=True, kw_only=True):
    """One recorded fact. `reason` is a sentence for people; `data` holds its numbers.

    `cursor` rises by one per event and never repeats.
    """

    cursor: int
    at: str
    kind: str
    rental_id: str | None = None
    job_id: str | None = None
    severity: str = "info"  # info, warning or error
    reason: str = ""
    data: dict[str, Scalar] = field(default_factory=dict)


class EventListParams(Params, frozen=True, kw_only=True):
    """Events after a cursor or a time, oldest first. Without `after` and `since_s`: the newest."""

    after: int | None = None
    since_s: float | None = None
    rental: str | None = None
    job: str | None = None
    limit: int = 200


class EventListView(View, frozen=True, kw_only=True):
    """`cursor` is the newest event considered: pass it as `after` next time."""

    events: list[EventView] = field(default_factory=list)
    cursor: int
    pruned_before: str | None = None  # what was asked for reaches back beyond what is kept


class EventSubscribeParams(Params, frozen=True, kw_only=True):
    """Send `event.published` for events after `after` (null: from now on); with `progress`, also
    `progress` notifications of the same rental or job."""

    after: int | None = None
    rental: str | None = None
    job: str | None = None
    progress: bool = False


class EventSubscriptionView(View, frozen=True, kw_only=True):
    """A running subscription; `cursor` is where it starts."""

    subscription_id: str
    cursor: int


class EventUnsubscribeParams(Params, frozen=True, kw_only=True):
    """End a subscription."""

    subscription_id: str


class EventUnsubscribeView(View, frozen=True, kw_only=True):
    """`found` is false if there was no such subscription on this connection."""

    found: bool


class Progress(View, frozen=True, kw_only=True):
    """Notification `progress`: how far a long step is. `total` is null when unknown."""

    step: str  # search, boot, sync, collect, …
    done: int
    total: int | None = None
    unit: str = "bytes"
    request_id: str | None = None
    rental_id: str | None = None
    job_id: str | None = None


LIST = Method("event.list", EventListParams, EventListView, "Read the audit trail")
SUBSCRIBE = Method(
    "event.subscribe", EventSubscribeParams, EventSubscriptionView, "Follow the audit trail"
)
UNSUBSCRIBE = Method(
    "event.unsubscribe", EventUnsubscribeParams, EventUnsubscribeView, "Stop following"
)
PUBLISHED = "event.published"
PROGRESS = "progress"

METHODS = (LIST, SUBSCRIBE, UNSUBSCRIBE)
