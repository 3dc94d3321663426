"""Caps with the installed programs: two clients at once, the three ways on, the report, the trail."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from support.installed import LIMIT_S, Installed, installed
from vastd_protocol.methods import budget, cost

pytestmark = pytest.mark.e2e

# Without hours a machine reserves its time limit, or its budget if that is less.
WORK = ("--gpu-ram", "24", "--max-runtime", "12h", "--", "sh", "-c", "sleep 600")


@pytest.fixture(scope="module")
def vast() -> Iterator[Installed]:
    with installed() as made:
        made.start()
        yield made


def told(vast: Installed, *words: str, code: int = 0) -> Any:
    """Run a command with `--json` and return its document."""
    ran = vast.vastctl(*words, "--json")
    assert ran.returncode == code, ran.stderr
    return json.loads(ran.stdout if code == 0 else ran.stderr)


@pytest.mark.req("BUD-01")
@pytest.mark.req("BUD-09")
def test_of_two_clients_at_once_with_money_for_one_exactly_one_passes(
    vast: Installed,
) -> None:
    view = told(vast, "budget", "per_day_usd=1.5")
    assert budget.BudgetView(**view).caps  # in force at once
    runs = [
        subprocess.Popen(
            [vast.program("vastctl"), "run", "-y", "--detach", "--json", "--name", name,
             "--budget", "1", *WORK],
            env=vast.env, cwd=vast.project, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for name in ("one", "two")
    ]  # fmt: skip
    ended = [(run.communicate(timeout=LIMIT_S), run.returncode) for run in runs]

    assert sorted(code for _, code in ended) == [0, 6]
    ((_, said),) = [out for out, code in ended if code == 6]
    error = json.loads(said.splitlines()[-1])["error"]
    assert error["code"] == 1007
    assert error["data"]["budget"]["left_usd"] == pytest.approx(0.5, abs=0.01)
    assert len(told(vast, "jobs", "--all")["jobs"]) == 1  # of the other nothing was stored
    assert len(told(vast, "ls", "--all")["rentals"]) == 1

    # Each way on works: a smaller budget here, a raised cap there.
    assert "three ways on" in error["data"]["hint"]
    less = str(error["data"]["budget"]["budget_usd"])
    plan = ("run", "-y", "--detach", "--name", "three", "--budget", less, *WORK)
    assert vast.vastctl(*plan).returncode == 0
    again = ("run", "-y", "--detach", "--name", "four", "--budget", "1", *WORK)
    assert vast.vastctl(*again).returncode == 6
    raised = f"per_day_usd={error['data']['budget']['raise_to_usd'] + 1}"
    assert vast.vastctl("budget", raised).returncode == 0
    assert vast.vastctl(*again).returncode == 0


def test_a_cap_that_is_used_up_ends_what_runs_and_the_report_adds_up(vast: Installed) -> None:
    assert vast.vastctl("budget", "per_day_usd=0").returncode == 2  # it would end machines
    assert vast.vastctl("budget", "per_day_usd=0", "-y").returncode == 0
    vast.vastctl("destroy-all", "-y", "--no-collect", "--force", "--reason", "done")

    rentals = told(vast, "ls", "--all")["rentals"]
    ends = {rental["end_reason"] for rental in rentals}
    assert "budget" in ends
    assert ends <= {"budget", "user"}
    report = told(vast, "cost", "--by", "rental")
    assert {row["key"] for row in report["rows"]} == {
        r["rental_id"] for r in rentals if r["cost_usd"] > 0
    }
    assert sum(round(row["cost_usd"] * 1e6) for row in report["rows"]) == round(
        report["cost_usd"] * 1e6
    )
    assert cost.CostReportView(**report).accrued_usd == 0
    forecast = told(vast, "cost", "--forecast")
    assert 90 < forecast["credit_usd"] < 100
    events = told(vast, "events")["events"]
    changed = [e["reason"] for e in events if e["kind"] == "caps_changed"]
    assert changed[0] == "spending caps changed: per_day_usd from $25 to $1.5"
    assert changed[-1].endswith("to $0")
    planned = [e for e in events if e["kind"] == "rental_planned"]
    assert all("per_day_usd" in e["reason"] and e["data"]["needs_usd"] <= 1 for e in planned)
