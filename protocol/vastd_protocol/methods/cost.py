"""`cost.report`, `cost.forecast`: what was spent on what, what is promised, and how long it lasts."""

from msgspec import field

from vastd_protocol.method import Method, Params, View


class CostReportParams(Params, frozen=True, kw_only=True):
    """`by` is `day`, `rental`, `project` or `gpu`. `since_s`: so many seconds back; null: all of the
    record. `project` narrows to one project directory."""

    by: str = "day"
    since_s: float | None = None
    project: str | None = None


class CostRowView(View, frozen=True, kw_only=True):
    """The cost of one day, rental, project or kind of GPU. `cost_usd` is all of it, and the sum of
    `kinds_usd`; the two other sums are parts of it."""

    key: str
    label: str
    rentals: int
    hours: float  # that a machine was billed at all
    gpu_hours: float  # that GPUs were billed, times their number
    cost_usd: float
    storage_usd: float  # of stopped machines: the disk alone
    waste_usd: float  # bought nothing: failed machines, idle, held and ending time
    # By `loading`, `setup`, `sync`, `run`, `collect`, `idle`, `held`, `storage`, `ending`.
    kinds_usd: dict[str, float] = field(default_factory=dict)


class CostReportView(View, frozen=True, kw_only=True):
    """The sum of the rows is exactly `cost_usd`, which is `ended_usd` plus `accrued_usd`.

    Days are those of UTC and come oldest first; other rows the dearest first.
    """

    by: str
    since: str | None = None  # null: all of the record
    until: str
    rows: list[CostRowView] = field(default_factory=list)
    rentals: int
    hours: float
    gpu_hours: float
    cost_usd: float
    storage_usd: float
    waste_usd: float
    ended_usd: float  # by machines that are gone
    accrued_usd: float  # so far, by machines that still may bill
    reserved_usd: float  # what those will probably cost from now on
    dph_usd: float  # what they cost per hour now
    # Beside all sums above: what machines cost whose records were dropped as old.
    dropped_usd: float = 0.0
    dropped_before: str | None = None  # null: no record was dropped
    kinds_usd: dict[str, float] = field(default_factory=dict)  # of all rows; adds up to `cost_usd`


class CostForecastParams(Params, frozen=True, kw_only=True):
    """`project`: whose cap is told as well; null: those of all projects with machines."""

    project: str | None = None


class CapForecastView(View, frozen=True, kw_only=True):
    """When one cap is reached at the present rate; null: not before it begins anew."""

    key: str  # per_day_usd, per_month_usd or per_project_usd
    project: str | None = None
    limit_usd: float
    spent_usd: float
    warns_at: str | None = None  # null also when the warning was given
    reached_at: str | None = None  # then what it covers is ended
    resets_at: str | None = None  # null: never


class CostForecastView(View, frozen=True, kw_only=True):
    """How it goes on if nothing new is rented. Credit is null, with the reason, when not known."""

    at: str
    dph_usd: float
    reserved_usd: float
    credit_usd: float | None = None
    credit_read_at: str | None = None
    credit_error: str | None = None
    zero_credit_at: str | None = None  # null: the machines end before that, or it is not known
    ends_for_credit_at: str | None = None  # then machines of jobs end, so that results come home
    foreign: int = 0  # instances of the account that are not this vastd's; they spend it too
    foreign_dph_usd: float | None = None
    # What comes after zero: so many machines are stopped, and disks bill on, below zero.
    after_zero_stops: int | None = None
    after_zero_dph_usd: float | None = None
    caps: list[CapForecastView] = field(default_factory=list)


REPORT = Method("cost.report", CostReportParams, CostReportView, "Return what was spent on what")
FORECAST = Method(
    "cost.forecast", CostForecastParams, CostForecastView, "Return how long credit and caps last"
)

METHODS = (REPORT, FORECAST)
