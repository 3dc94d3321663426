"""Golden screens of what exists, and `--json` unchanged."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from msgspec.json import decode, encode

from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import job, rental

FRESH = rental.InventoryView(state="fresh", as_of="2026-11-30T11:59:48Z", age_s=12.0)


def test_ls_shows_machines_totals_and_how_far_to_trust_them(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    rentals = [
        make.rental(
            jobs=["j-0", "j-1"], unfinished_jobs=["j-1"], lease_armed=True,
            lease_expires_at="2026-11-30T12:59:00Z",
        ),
        make.rental(
            rental_id="r-2", name="sweep-a100", phase="destroying", gpu_name="A100_SXM4", num_gpus=8,
            dph_usd=9.5, cost_usd=12.25, created_at="2026-11-29T11:00:00Z",
            deadline_at="2026-11-30T11:59:00Z", jobs=[], warnings=["destroy unconfirmed for 12m"],
        ),
        make.rental(
            rental_id="r-3", name="old", phase="gone", end_reason="boot_failed", dph_usd=None,
            gpu_name=None, num_gpus=None, cost_usd=0.0021, created_at=None, deadline_at=None, jobs=[],
        ),
    ]  # fmt: skip
    totals = rental.TotalsView(dph_usd=9.812, cost_usd=12.4081)
    inventory = rental.InventoryView(
        state="stale",
        age_s=190.0,
        error="Vast answered 429",
        foreign=2,
        orphans=1,
        foreign_dph_usd=1.25,
        orphans_dph_usd=0.4,
    )
    daemon.on(
        "rental.list", rental.RentalListView(rentals=rentals, inventory=inventory, totals=totals)
    )

    ran = vastctl("ls", "--all")

    assert ran.code == 0
    assert ran.err == ""
    assert (
        ran.out
        == """\
NAME        ID   PHASE                 GPU              PRICE     COST     AGE  ENDS        LEASE      JOB
lab         r-1  running a job         RTX_4090      $0.312/h  $0.1560  30m00s  in 11h30m   in 59m00s  j-1
sweep-a100  r-2  destroying, may bill  8x A100_SXM4  $9.500/h   $12.25   1d01h  1m00s over  -          -
old         r-3  gone (boot failed)    -                    -  $0.0021       -  -           -          -
2 machines alive, $9.812/h now, $12.41 so far
warning: sweep-a100: destroy unconfirmed for 12m
inventory: stale, 3m10s old: Vast answered 429
2 machines of the account not rented by this vastd ($1.250/h), never touched
1 orphan: our label, but no rental explains it, and it bills $0.400/h; `vastctl reconcile`
"""
    )
    assert daemon.asked("rental.list") == [{"all": True}]


def test_ls_counts_by_the_clock_that_vastd_tells_by_when_ours_was_set(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    hello = structs.replace(make.hello(), clock_ahead_s=-3600.0, warnings=["the clock was set"])
    daemon.on("initialize", hello)
    daemon.on("rental.list", rental.RentalListView(rentals=[make.rental()], inventory=FRESH))

    ran = vastctl("ls")

    assert "in 10h30m" in ran.out  # 11h30m of our clock
    assert "the clock was set" in ran.err


def test_ls_says_that_it_is_our_own_network(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    down = rental.InventoryView(
        state="stale", age_s=190.0, network_down_since="2026-11-30T11:56:50Z"
    )
    daemon.on("rental.list", rental.RentalListView(rentals=[make.rental()], inventory=down))

    told = [line for line in vastctl("ls").out.splitlines() if "your own network" in line]

    assert len(told) == 1
    assert "machines and jobs go on, deadlines hold" in told[0]


def test_ls_without_machines_still_tells_the_inventory(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    unknown = rental.InventoryView(state="unknown", error="no key")
    daemon.on("rental.list", rental.RentalListView(inventory=unknown))

    ran = vastctl("ls", "--project")

    assert ran.out == (
        "no machines\ninventory: unknown: no key; Vast may hold machines that are not shown\n"
    )
    assert daemon.asked("rental.list") == [{"project": "/home/me/lab"}]


def test_json_is_the_result_unchanged_even_with_fields_we_do_not_know(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    odd = {"rentals": [], "inventory": {"state": "fresh", "new": [1.50, None]}, "later": "ü\x1b[2J"}
    daemon.on("rental.list", odd)

    ran = vastctl("ls", "--json", tty=True)

    assert ran.out_bytes == encode(odd) + b"\n"


def test_colour_is_only_for_terminals_and_can_be_refused(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.on("rental.list", rental.RentalListView(rentals=[make.rental()], inventory=FRESH))

    assert vastctl("ls", tty=True).out.startswith("\x1b[1mNAME")
    assert vastctl("ls", "--no-color", tty=True).out.startswith("NAME")
    assert vastctl("ls").out.startswith("NAME")


def test_words_of_a_machine_cannot_drive_the_terminal(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.on("rental.get", make.rental(status="running", status_msg="\x1b]0;x\x07boo\rm"))

    assert "Vast says    running - \\x1b]0;x\\x07boo\\rm\n" in vastctl("show", tty=True).out


def test_show_tells_what_is_known(vastctl: Callable[..., Any], daemon: Any, make: Any) -> None:
    daemon.on(
        "rental.get",
        make.rental(
            ssh=rental.SshView(host="198.51.100.7", port=40117, user="root", route="direct"),
            lease_expires_at="2026-11-30T12:50:00Z", lease_armed=False, estimated_hours=2.0,
            estimated_cost_usd=0.624, budget_usd=2.0, warnings=["lease not armed"],
        ),
    )  # fmt: skip

    ran = vastctl("status", "r-1")

    assert (
        ran.out
        == """\
name         lab
rental       r-1
phase        running a job
instance     4711
GPU          RTX_4090, 24 GB each
price        $0.312/h
cost so far  $0.1560
estimate     $0.6240 for 2 h
budget       $2.00
created      2026-11-30 11:30:00 (30m00s ago)
deadline     2026-11-30 23:30:00 (in 11h30m)
lease        2026-11-30 12:50:00 (in 50m00s) NOT armed
ssh          root@198.51.100.7 port 40117 (direct)
jobs         j-1
warning: lease not armed
"""
    )
    assert daemon.asked("rental.get") == [{"rental": "r-1", "project": "/home/me/lab"}]


def test_explain_tells_the_story_the_cost_and_the_next_alarm_first(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    dog = rental.WatchdogView
    story = rental.ExplainView(
        rental=make.rental(),
        timeline=[
            rental.StepView(at="2026-11-30T11:30:00Z", kind="rental_planned", text="chose offer 9"),
            rental.StepView(
                at="2026-11-30T11:31:00Z", kind="x", text="no answer", severity="warning", job_id="j-1"
            ),
        ],
        phases=[
            rental.PhaseCostView(phase="booting", seconds=60, cost_usd=0.001),
            rental.PhaseCostView(phase="busy", seconds=1740, cost_usd=0.155),
        ],
        watchdogs=[
            dog(name="idle", watches="GPU use", limit="20m", action="collect, destroy", why="default"),
            dog(
                name="deadline", watches="wall clock", limit="12h", action="collect, destroy",
                fires_at="2026-11-30T23:30:00Z", why="max-runtime",
            ),
            dog(
                name="heartbeat", watches="hb.json", limit="2m", action="warn",
                fires_at="2026-11-30T12:01:30Z", why="2 x 60 s",
            ),
        ],
    )  # fmt: skip
    daemon.on("rental.explain", story)

    ran = vastctl("explain", "r-1")

    assert (
        ran.out
        == """\
lab (r-1): running a job, RTX_4090, $0.312/h

what happened
  11:30:00   chose offer 9
  11:31:00 ! no answer [j-1]

what it cost
  PHASE            TIME     COST
  booting         1m00s  $0.0010
  running a job  29m00s  $0.1550
  in all         30m00s  $0.1560

what the watchdogs would do
  heartbeat  in 1m30s (12:01:30): warn
             looks at hb.json; limit 2m; 2 x 1m
  deadline   in 11h30m (23:30:00): collect, destroy
             looks at wall clock; limit 12h; max-runtime
"""
    )
    every = vastctl("explain", "r-1", "--all").out
    assert (
        "  idle       not armed: collect, destroy\n             looks at GPU use; limit 20m\n"
        in every
    )


def test_explain_tells_what_the_money_bought_why_it_was_decided_and_what_is_not_known(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    piece, dog = rental.CostPieceView, rental.WatchdogView
    story = rental.ExplainView(
        rental=make.rental(waiting="ends because it was idle (idle); brings results home first"),
        timeline=[
            rental.StepView(
                at="2026-11-30T11:59:00Z", kind="end_decided", severity="warning", cost_usd=0.15,
                text="it ends (idle): idle for 1200 s", rule="idleness: GPU use; limit 1200 s",
                inputs={"gpu_util": 0.0, "quiet_since": "2026-11-30T11:39:00Z", "said": "idle"},
            ),
        ],
        bill=rental.BillView(
            cost_usd=0.156, waste_usd=0.1, seen_at="2026-11-30T11:59:48Z",
            pieces=[
                piece(kind="loading", seconds=60, cost_usd=0.001),
                piece(kind="run", seconds=540, cost_usd=0.055),
                piece(kind="idle", seconds=1200, cost_usd=0.1, waste_usd=0.1),
            ],
        ),
        watchdogs=[
            dog(
                name="heartbeat", title="heartbeat of the job", watches="age of it", limit="600 s",
                action="end it", why="the job was not looked at yet", state="unknown",
            ),
            dog(
                name="idle", title="idleness", watches="GPU use", limit="1200 s", action="end it",
                fires_at="2026-11-30T11:59:00Z", why="idle for 1200 s", state="waiting",
            ),
            dog(name="x", title="SSH", watches="y", limit="z", action="warn", why="off", state="off"),
        ],
    )  # fmt: skip
    daemon.on("rental.explain", story)

    assert (
        vastctl("explain", "r-1").out
        == """\
lab (r-1): running a job, RTX_4090, $0.312/h
it ends because it was idle (idle); brings results home first

what happened
  11:59:00  $0.1500 ! it ends (idle): idle for 1200 s
                        rule: idleness: GPU use; limit 1200 s (gpu util 0; quiet since 11:39:00)

what it cost
  FOR             TIME     COST   WASTED
  loading        1m00s  $0.0010        -
  run            9m00s  $0.0550        -
  idle, no job  20m00s  $0.1000  $0.1000
  in all        30m00s  $0.1560  $0.1000
  at most: Vast showed it last 12s ago, since then it is counted at the same rate

what the watchdogs would do
  idleness              due, waits for evidence 1m00s over (11:59:00): end it
                        looks at GPU use; limit 20m; idle for 20m
  heartbeat of the job  when is not known: end it
                        looks at age of it; limit 10m; the job was not looked at yet
"""
    )


@pytest.mark.parametrize(
    ("phase", "seen_at", "text"),
    [
        ("gone", None, "at most: counted until it was proven that nothing bills"),
        (
            "ready",
            None,
            "at most: counted on at the rate Vast showed last, before vastd was started",
        ),
    ],
)
def test_explain_says_how_sure_the_sum_is(
    vastctl: Callable[..., Any], daemon: Any, make: Any, phase: str, seen_at: str | None, text: str
) -> None:
    bill = rental.BillView(
        cost_usd=0.1, waste_usd=0.1, waste_why="no job ever started on it", seen_at=seen_at,
        pieces=[rental.CostPieceView(kind="loading", seconds=9, cost_usd=0.1, waste_usd=0.1)],
    )  # fmt: skip
    daemon.on("rental.explain", rental.ExplainView(rental=make.rental(phase=phase), bill=bill))

    told = vastctl("explain", "r-1").out

    assert text in told
    assert "all of it bought nothing: no job ever started on it" in told


def test_a_machine_that_shall_end_says_in_the_list_what_it_waits_for(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    held = make.rental(waiting="ends because of x; waits for SSH, silent for 40 s")
    daemon.on("rental.list", rental.RentalListView(rentals=[held], inventory=FRESH))
    daemon.on("rental.get", held)

    assert "lab: ends because of x; waits for SSH, silent for 40 s\n" in vastctl("ls").out
    assert "waits        ends because of x; waits for SSH" in vastctl("show", "r-1").out


def test_an_ended_machine_has_neither_watchdogs_nor_a_deadline(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    ended = make.rental(phase="gone")
    dogs = [
        rental.WatchdogView(
            name="lease", watches="x", limit="900 s", action="warn", why="has warned already"
        )
    ]
    daemon.on("rental.explain", rental.ExplainView(rental=ended, watchdogs=dogs))
    daemon.on("rental.get", ended)

    assert "watchdogs" not in vastctl("explain", "r-1").out
    assert "deadline" not in vastctl("show", "r-1").out
    daemon.on("rental.explain", rental.ExplainView(rental=make.rental(), watchdogs=dogs))
    told = vastctl("explain", "r-1").out
    assert "  lease  has warned already: warn\n" in told
    assert "limit 15m\n" in told


def test_jobs_are_one_line_each(vastctl: Callable[..., Any], daemon: Any, make: Any) -> None:
    listed = [make.job(submitted_at="2026-11-30T11:50:00Z", command=["bash", "-c", "x\n" * 50])]
    daemon.on("job.list", job.JobListView(jobs=listed))

    lines = vastctl("jobs").out.splitlines()

    assert lines[0].split() == ["JOB", "NAME", "STATE", "CODE", "MACHINE", "AGE", "COST", "COMMAND"]
    assert len(lines) == 2
    assert lines[1].endswith("...")


def test_errors_have_the_contracts_exit_codes(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    expected = {
        ErrorCode.INVALID_PARAMS: 2, ErrorCode.METHOD_NOT_FOUND: 2, ErrorCode.VAST_AUTH: 4, ErrorCode.NOT_FOUND: 5,
        ErrorCode.BUDGET_EXCEEDED: 6, ErrorCode.POLICY_REFUSED: 6, ErrorCode.UNCONFIRMED: 7,
        ErrorCode.NO_OFFERS: 9, ErrorCode.HOST_FAILED: 10, ErrorCode.COLLECT_FAILED: 11,
        ErrorCode.JOB_ACTIVE: 12, ErrorCode.INTERNAL_ERROR: 1, ErrorCode.AMBIGUOUS_NAME: 2,
    }  # fmt: skip
    for code, exit_code in expected.items():
        daemon.in_turn("rental.get", make.refuse(code, "it is so", hint="do that"))
        ran = vastctl("show", "r-9")
        assert (ran.code, ran.out) == (exit_code, "")
        assert ran.err == "error: it is so\nhint: do that\n"


def test_the_daemon_may_name_the_exit_code_itself(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.in_turn("rental.get", make.refuse(ErrorCode.BUSY, "later", exit_code=8))

    assert vastctl("show").code == 8


def test_a_json_error_is_one_document_on_stderr_and_nothing_on_stdout(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.in_turn("rental.get", make.refuse(ErrorCode.NOT_FOUND, "no rental 'r-9'", hint="see ls"))

    ran = vastctl("show", "r-9", "--json")
    own = vastctl("--json", "shwo")

    assert ran.out == own.out == ""
    assert decode(ran.err) == {
        "error": {
            "code": 1009,
            "message": "no rental 'r-9'",
            "data": {"kind": "not_found", "hint": "see ls"},
        }
    }
    assert own.code == 2
    assert decode(own.err)["error"]["data"]["kind"] == "usage"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"stopped_by": "outbid", "bid_usd": 0.2, "min_bid_usd": 0.25},
            "stopped, storage bills (outbid: $0.200/h, $0.250/h wins)",
        ),
        ({"stopped_by": "outbid", "bid_usd": 0.2}, "stopped, storage bills (outbid: $0.200/h)"),
        ({"stopped_by": "credit"}, "stopped, storage bills (account out of credit)"),
        ({"stopped_by": "contract"}, "stopped, storage bills (the host's contract is over)"),
        ({"stopped_by": "asked"}, "stopped, storage bills  "),
        ({}, "stopped, storage bills  "),
    ],
)
def test_why_a_machine_stands_still_is_on_its_line(
    vastctl: Callable[..., Any], daemon: Any, make: Any, changes: dict[str, Any], told: str
) -> None:
    still = make.rental(phase="stopped", stop_detail="somebody else bid more", **changes)
    daemon.on("rental.list", rental.RentalListView(rentals=[still], inventory=FRESH))
    daemon.on("rental.get", still)

    assert told in vastctl("ls").out
    shown = vastctl("show", "r-1").out
    assert "somebody else bid more" in shown
    assert ("for the GPUs, the disk is extra" in shown) is ("bid_usd" in changes)
