"""`budget.get`, `budget.set`: the caps on spending, and how far each is used."""

from msgspec import field

from vastd_protocol.method import Method, Mutation, Params, View


class HolderView(View, frozen=True, kw_only=True):
    """Who reserves how much of a cap."""

    rental_id: str
    name: str
    reserved_usd: float


class CapView(View, frozen=True, kw_only=True):
    """One cap. What it does not count is null: `per_job_usd` and `max_dph_usd` are limits of each
    job and each machine, and nobody uses them up."""

    key: str  # without its table: per_day_usd
    window: str  # job, machine, day, month or project
    value_usd: float | None = None  # null: no cap
    origin: str  # default, file or environment
    default_usd: float | None = None
    project: str | None = None
    since: str | None = None
    resets_at: str | None = None  # null: never
    spent_usd: float | None = None
    reserved_usd: float | None = None
    left_usd: float | None = None  # below zero when more is promised than there is
    percent: float | None = None  # spent and reserved, of the cap; null also for a cap of zero
    reserved_by: list[HolderView] = field(default_factory=list)  # the largest first


class BudgetGetParams(Params, frozen=True, kw_only=True):
    """`project`: how far its own cap is used; null leaves that out."""

    project: str | None = None


class BudgetView(View, frozen=True, kw_only=True):
    """Every cap. Days and months are those of UTC."""

    at: str
    caps: list[CapView] = field(default_factory=list)
    warn_percent: float
    credit_usd: float | None = None  # as read last; null: not known


class BudgetSetParams(Mutation, frozen=True, kw_only=True):
    """Write caps to the configuration file; in force at once. By key without its table; null
    makes the default count again. All are checked before any is written."""

    changes: dict[str, float | None]
    project: str | None = None  # for the answer, as in `budget.get`


GET = Method("budget.get", BudgetGetParams, BudgetView, "Return the spending caps and their use")
SET = Method("budget.set", BudgetSetParams, BudgetView, "Change spending caps", mutates=True)

METHODS = (GET, SET)
