"""`log.*`: a job's output, by byte offset, from the copy vastd keeps at home."""

from vastd_protocol.method import Method, Params, View


class LogReadParams(Params, frozen=True, kw_only=True):
    """Read from `offset` (negative: from that many bytes before the end).

    With `since_s` reading begins no earlier than the first line that came home in the last so many
    seconds; with `times` the answer tells when its bytes did."""

    job: str | None = None
    project: str | None = None
    offset: int = 0
    limit: int = 65536
    since_s: float | None = None
    times: bool = False


class LogTime(View, frozen=True, kw_only=True):
    """Bytes up to the offset `end`, from the entry before on, were home `at`; null: unknown."""

    end: int
    at: str | None = None


class LogView(View, frozen=True, kw_only=True):
    """A piece of the log. `data` is base64 of raw bytes. `eof`: nothing more will ever come.

    `times` is null unless asked for; bytes behind its last entry came at an unknown time. The piece
    may then be shorter than `limit`. `since_known` is false if the times of some of what follows
    are unknown, so that more is given than came in the time asked for; null without `since_s`."""

    job_id: str
    offset: int
    data: str
    next_offset: int
    size: int
    eof: bool
    times: list[LogTime] | None = None
    since_known: bool | None = None


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
