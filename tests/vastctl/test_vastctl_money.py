"""`cost` and `budget`: what is asked, what a person reads, what a program gets."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from msgspec.json import decode, encode

from vastd_protocol.errors import CapRefusal, ErrorCode
from vastd_protocol.methods import budget, config, cost


def a_row(label: str, usd: float, **changes: Any) -> cost.CostRowView:
    facts: dict[str, Any] = {
        "key": label, "label": label, "rentals": 1, "hours": 10.0, "gpu_hours": 20.0,
        "cost_usd": usd, "storage_usd": 0.05, "waste_usd": 0.0,
    }  # fmt: skip
    return cost.CostRowView(**{**facts, **changes})


def a_report(**changes: Any) -> cost.CostReportView:
    facts: dict[str, Any] = {
        "by": "day", "until": "2026-11-30T12:00:00Z", "rentals": 3, "hours": 15.25,
        "gpu_hours": 30.5, "cost_usd": 6.2, "storage_usd": 0.1, "waste_usd": 0.2,
        "ended_usd": 5.0, "accrued_usd": 1.2, "reserved_usd": 3.0, "dph_usd": 0.6,
        "kinds_usd": {"loading": 0.01, "run": 6.0, "storage": 0.1, "held": 0.0, "idle": 0.09},
        "rows": [a_row("2026-11-29", 5.0), a_row("2026-11-30", 1.2, rentals=2, waste_usd=0.2)],
    }  # fmt: skip
    return cost.CostReportView(**{**facts, **changes})


def a_forecast(**changes: Any) -> cost.CostForecastView:
    day = cost.CapForecastView(
        key="per_day_usd", limit_usd=25.0, spent_usd=1.2, resets_at="2026-12-01T00:00:00Z"
    )
    facts: dict[str, Any] = {
        "at": "2026-11-30T12:00:00Z", "dph_usd": 0.6, "reserved_usd": 3.0, "credit_usd": 42.5,
        "credit_read_at": "2026-11-30T11:59:50Z", "caps": [day],
    }  # fmt: skip
    return cost.CostForecastView(**{**facts, **changes})


def a_budget(**changes: Any) -> budget.BudgetView:
    caps = [
        budget.CapView(key="per_job_usd", window="job", value_usd=10.0, origin="default"),
        budget.CapView(
            key="per_day_usd", window="day", value_usd=25.0, origin="file", spent_usd=1.2,
            reserved_usd=3.0, left_usd=20.8, percent=16.8, resets_at="2026-12-01T00:00:00Z",
            reserved_by=[budget.HolderView(rental_id="r-1", name="train", reserved_usd=3.0)],
        ),
        budget.CapView(key="per_project_usd", window="project", origin="default"),
    ]  # fmt: skip
    return budget.BudgetView(at="2026-11-30T12:00:00Z", caps=caps, warn_percent=80.0, **changes)


def test_cost_prints_the_days_and_how_it_goes_on(vastctl: Callable[..., Any], daemon: Any) -> None:
    daemon.on("cost.report", a_report())
    daemon.on("cost.forecast", a_forecast())

    ran = vastctl("cost")

    assert ran.code == 0
    assert (
        ran.out
        == """\
DAY (UTC)        MACHINES  HOURS  GPU-HOURS   COST  STORAGE   WASTED
2026-11-29              1   10.0       20.0  $5.00  $0.0500    $0.00
2026-11-30              2   10.0       20.0  $1.20  $0.0500  $0.2000
in all, at most         3   15.2       30.5  $6.20  $0.1000  $0.2000
spent on: run $6.00; stopped, storage $0.1000; idle, no job $0.0900; loading $0.0100
of that $1.20 on machines that may still bill
now: $0.600/h, $3.00 reserved until the machines end
credit: $42.50, lasts for what runs now
today's cap: $1.20 spent of $25.00, not reached at this rate
"""
    )
    assert "the dearer side counts; traffic is not in it" in ran.err
    assert daemon.asked("cost.report") == [{}]


def test_cost_says_when_credit_and_caps_end_and_what_happens_then(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    cap = cost.CapForecastView(
        key="per_project_usd", project="/home/me/lab", limit_usd=5.0, spent_usd=4.0,
        reached_at="2026-11-30T13:40:00Z",
    )  # fmt: skip
    daemon.on("cost.forecast", a_forecast(zero_credit_at="2026-11-30T14:00:00Z", caps=[cap]))

    out = vastctl("cost", "--forecast").out

    assert (
        "credit: $42.50, used up in 2h00m (2026-11-30 14:00:00): then Vast stops every machine\n"
        "the project's cap (/home/me/lab): $4.00 spent of $5.00, reached in 1h40m "
        "(2026-11-30 13:40:00): then the machines are collected and destroyed\n"
    ) in out
    assert daemon.asked("cost.report") == []


@pytest.mark.req("BUD-13")
def test_cost_says_what_goes_on_after_zero_and_who_else_spends(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    daemon.on("cost.report", a_report())
    daemon.on(
        "cost.forecast",
        a_forecast(
            zero_credit_at="2026-11-30T14:00:00Z", ends_for_credit_at="2026-11-30T13:57:00Z",
            after_zero_stops=2, after_zero_dph_usd=0.01, foreign=1, foreign_dph_usd=0.3,
        ),
    )  # fmt: skip

    assert (
        "  jobs end in 1h57m (2026-11-30 13:57:00), while their results can still come home\n"
        "  after that 2 machines of yours stand still and disks go on billing $0.2400 a day, below "
        "zero, until they are destroyed; a top-up starts none of them\n"
        "  $0.300/h of it by 1 instance not rented by this vastd\n"
    ) in vastctl("cost").out


def test_unknown_credit_is_said_and_an_empty_record_too(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    daemon.on("cost.report", a_report(rows=[], accrued_usd=0.0))
    daemon.on("cost.forecast", a_forecast(credit_usd=None, credit_error="no route to Vast"))

    out = vastctl("cost").out

    assert out.startswith("nothing was spent\n")
    assert "credit: not known (no route to Vast)\n" in out


def test_cost_asks_for_what_was_said_and_passes_json_on(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    daemon.on("cost.report", a_report())
    daemon.on("cost.forecast", a_forecast())

    ran = vastctl("cost", "--by", "gpu", "--since", "7d", "--project", "--json")

    (asked,) = daemon.asked("cost.report")
    assert (asked["by"], asked["since_s"]) == ("gpu", 604_800)
    assert asked["project"]
    assert decode(ran.out) == decode(encode(a_report()))
    assert decode(vastctl("cost", "--forecast", "--json").out) == decode(encode(a_forecast()))
    assert vastctl("cost", "--by", "week").code == 2


def test_budget_shows_every_cap_with_its_use(vastctl: Callable[..., Any], daemon: Any) -> None:
    daemon.on("budget.get", a_budget())

    ran = vastctl("budget")

    assert ran.code == 0
    assert (
        ran.out
        == """\
CAP               VALUE  FROM     OF                           SPENT  RESERVED    LEFT  USED
per_job_usd      $10.00  default  each job                         -         -       -     -
per_day_usd      $25.00  file     all machines, per day (UTC)  $1.20     $3.00  $20.80  17 %
per_project_usd     off  default  this project, in all             -         -       -     -
day, month, project: warned at 80 %; at the cap machines are collected and destroyed
per_job_usd, max_dph_usd: limits of new jobs and machines; those that run keep their own
per_day_usd: reserved by train $3.00
per_day_usd: begins anew in 12h00m
"""
    )
    assert decode(vastctl("budget", "--json").out) == decode(encode(a_budget()))


def test_budget_changes_several_caps_in_one_request(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    daemon.on("budget.get", a_budget())
    daemon.on("budget.set", a_budget())

    ran = vastctl(
        "budget", "per_day_usd=40", "budget.per_project_usd=$12.50", "per_month_usd=off",
        "max_dph_usd=default",
    )  # fmt: skip

    (asked,) = daemon.asked("budget.set")
    assert ran.code == 0
    assert "per_day_usd" in ran.out
    assert asked["changes"] == {
        "per_day_usd": 40, "per_project_usd": 12.5, "per_month_usd": None, "max_dph_usd": None,
    }  # fmt: skip
    assert asked["request_id"]


@pytest.mark.parametrize("words", [("budget",), ("config", "set")], ids=["budget", "config"])
@pytest.mark.parametrize(
    ("change", "asks"),
    [
        ("per_day_usd=0", "$1.20 is spent already: train would be collected and destroyed"),
        ("per_day_usd=1.2", "is spent already"),  # as much as is spent
        ("per_day_usd=1.3", "$1.20 is spent and $3.00 is reserved by train: they would be"),
        ("per_day_usd=4.19", "when spending reaches the cap, before they are due"),
        ("per_day_usd=4.2", ""),  # exactly enough
        ("per_day_usd=default", "$1.20 is spent and $3.00 is reserved"),  # $4
        ("budget.per_day_usd=1", "is spent already"),
        ("per_job_usd=1", ""),  # machines that run keep theirs
        ("max_dph_usd=0.01", ""),
        ("per_project_usd=1", ""),  # covers no machine
        ("warn_percent=10", ""),
    ],
)
def test_a_cap_below_what_is_spent_and_promised_is_asked_about(
    vastctl: Callable[..., Any], daemon: Any, words: tuple[str, ...], change: str, asks: str
) -> None:
    change = change.replace("=default", "=null") if words[0] == "config" else change
    told = a_budget()
    low_default = structs.replace(told.caps[1], default_usd=4.0)
    daemon.on("budget.get", structs.replace(told, caps=[told.caps[0], low_default, told.caps[2]]))
    daemon.on("budget.set", told)
    setting = config.ChangedView(key="budget.x", value=1, origin="file", default=None)
    daemon.on("config.set", setting)

    alone, no, yes = (
        vastctl(*words, change),
        vastctl(*words, change, answers="n\n"),
        vastctl("-y", *words, change),
    )

    assert [ran.code for ran in (alone, no, yes)] == ([2, 2, 0] if asks else [0, 0, 0])
    assert asks in no.err
    made = len(daemon.asked("budget.set")) + len(daemon.asked("config.set"))
    assert made == (1 if asks else 3)


def test_several_caps_are_asked_about_once(vastctl: Callable[..., Any], daemon: Any) -> None:
    view = a_budget()
    month = structs.replace(view.caps[1], key="per_month_usd", window="month")
    daemon.on("budget.get", structs.replace(view, caps=[*view.caps, month]))

    ran = vastctl("budget", "per_day_usd=1", "per_month_usd=2", answers="n\n")

    assert "set per_day_usd to $1.00 and per_month_usd to $2.00? [y/N]" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("budget", "per_day_usd=10", "per_day_usd=11"),
        ("budget", "per_day_usd=10", "budget.per_day_usd=default"),
        ("config", "set", "timing.settle_s=5", "timing.settle_s=6"),
        ("policy", "r-1", "budget=5", "budget=6"),
        ("policy", "r-1", "max_runtime=5h", "max-runtime=6h"),
    ],
)
def test_a_key_named_twice_is_refused(
    vastctl: Callable[..., Any], daemon: Any, words: tuple[str, ...]
) -> None:
    ran = vastctl("-y", *words)

    assert (ran.code, "is named twice" in ran.err, daemon.requests) == (2, True, [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("per_day_usd", "is no cap"),
        ("=3", "is no cap"),
        ("per_day_usd=off", "per_day_usd cannot be off"),
        ("per_day_usd=lots", "must be a number of dollars"),
        ("per_day_usd=-1", "must be zero or more"),
        ("per_day_usd=nan", "must be zero or more"),
        ("per_day_usd=inf", "must be zero or more"),
    ],
)
def test_what_is_no_cap_is_refused_before_anything_is_asked(
    vastctl: Callable[..., Any], daemon: Any, words: str, says: str
) -> None:
    ran = vastctl("budget", words)

    assert ran.code == 2
    assert says in ran.err
    assert daemon.asked("budget.set") == []


def test_a_refusal_shows_each_way_on_on_a_line_and_its_numbers_as_json(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    numbers = CapRefusal(
        cap="per_day_usd", limit_usd=10, spent_usd=1, reserved_usd=4, left_usd=5, needs_usd=9,
        reserved_by={"old": 4}, raise_to_usd=14,
    )  # fmt: skip
    hint = "three ways on:\n1. raise the cap\n2. shorten it\n3. cheaper"

    def refused(_: object) -> None:
        raise make.refuse(ErrorCode.BUDGET_EXCEEDED, "no money left", hint=hint, budget=numbers)

    daemon.on("budget.get", refused)  # any method will do

    ran, as_json = vastctl("budget"), vastctl("budget", "--json")

    assert ran.code == as_json.code == 6
    assert ran.err.splitlines()[-5:] == [
        "error: no money left",
        "hint: three ways on:",
        "  1. raise the cap",
        "  2. shorten it",
        "  3. cheaper",
    ]
    assert decode(as_json.err)["error"]["data"]["budget"]["reserved_by"] == {"old": 4}
