"""`log.*`: a job's output, by byte offset, from the copy vastd keeps at home."""

from vastd_protocol.method import Method, Params, View


class LogReadParams(Params, frozen=True, kw_only=True):
    """Read from `offset` (negative: from that many bytes before the end)."""

    job: str | None = None
    project: str | None = None
    offset: int = 0
    limit: int = 65536


class LogView(View, frozen=True, kw_only=True):
    """A piece of the log. `data` is base64 of raw bytes. `eof`: nothing more will ever come."""

    job_id: str
    offset: int
    data: str
    next_offset: int
    size: int
    eof: bool


class LogSubscribeParams(Params, frozen=True, kw_only=True):
    """Send `log.appended` notifications from `offset` on, until unsubscribed."""

    job: str | None = None
    project: str | None = None
    offset: int = 0


class LogSubscriptionView(View, frozen=True, kw_only=True):
    """A running subscription."""

    subscription_id: str
    job_id: str


class LogUnsubscribeParams(Params, frozen=True, kw_only=True):
    """End a subscription."""

    subscription_id: str


class LogUnsubscribeView(View, frozen=True, kw_only=True):
    """`found` is false if there was no such subscription on this connection."""

    found: bool


class LogAppended(View, frozen=True, kw_only=True):
    """Notification `log.appended`. `data` is base64; `dropped` bytes before it were left out
    because the client read too slowly: fetch them with `log.read`."""

    subscription_id: str
    job_id: str
    offset: int
    data: str
    dropped: int = 0
    eof: bool = False


READ = Method("log.read", LogReadParams, LogView, "Read a piece of a job's log")
SUBSCRIBE = Method("log.subscribe", LogSubscribeParams, LogSubscriptionView, "Follow a job's log")
UNSUBSCRIBE = Method("log.unsubscribe", LogUnsubscribeParams, LogUnsubscribeView, "Stop following")
APPENDED = "log.appended"

METHODS = (READ, SUBSCRIBE, UNSUBSCRIBE)
