"""`run`: consent before money, the story while it goes on, the truth at the end."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from msgspec.json import decode, encode

from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import event, job, log, task

COMMAND = ("--", "python", "train.py")


def an_option(number: int, role: str, dph: float) -> task.OptionView:
    return task.OptionView(
        roles=[role],
        offer_id=number,
        machine_id=10 + number,
        gpu_name="RTX_4090",
        num_gpus=1,
        gpu_ram_mb=24576,
        dph_usd=dph,
        hours=2.0,
        total_usd=2 * dph,
        reliability=0.99,
    )


OPTIONS = [
    an_option(1, "cheapest", 0.2),
    an_option(2, "best_value", 0.3),
    an_option(3, "fastest", 0.9),
]


def a_plan(options: list[task.OptionView]) -> task.PlanView:
    fact = task.Fact(value=1, source="default", confidence="default")
    needs = task.RequirementsView(num_gpus=fact, disk_gb=task.Fact(value=50.0, source="config"))
    return task.PlanView(
        task=task.TaskView(), requirements=needs, options=options, considered=412,
        removed={"price": 301, "memory": 111}, question="how long will it run?",
    )  # fmt: skip


@pytest.fixture
def runs(daemon: Any, make: Any) -> Any:
    """A daemon on which a job is submitted, logs two lines, and ends well."""
    daemon.on(
        "job.submit",
        job.JobSubmitView(
            job=make.job(state="placing"), rental=make.rental(phase="planned"), chosen=OPTIONS[1]
        ),
    )
    daemon.on("task.plan", a_plan(OPTIONS))
    daemon.on("event.subscribe", event.EventSubscriptionView(subscription_id="e", cursor=0))
    daemon.on("log.subscribe", log.LogSubscriptionView(subscription_id="log", job_id="j-1"))
    daemon.whole = b"one\ntwo\n"

    def read(params: dict[str, Any]) -> log.LogView:
        start = params.get("offset", 0)
        piece = daemon.whole[start : start + params["limit"]]
        end = start + len(piece)
        return log.LogView(
            job_id="j-1", offset=start, data=base64.b64encode(piece).decode(),
            next_offset=end, size=len(daemon.whole), eof=end == len(daemon.whole),
        )  # fmt: skip

    daemon.on("log.read", read)

    def wait(_params: dict[str, Any]) -> job.JobWaitView:
        daemon.event(1, "instance_found", "rented RTX_4090", rental_id="r-1")
        daemon.log(0, b"one\n")
        daemon.notify("progress", event.Progress(step="sync", done=50, total=100, job_id="j-1"))
        daemon.event(2, "job_ended", "the job ended", job_id="j-1")
        return settled(make)

    daemon.on("job.wait", wait)
    return daemon


def settled(make: Any, phase: str = "gone", **changes: Any) -> job.JobWaitView:
    facts: dict[str, Any] = {
        "state": "succeeded", "exit_code": 0, "collected": True, "collected_files": 2,
        "collected_bytes": 3_500_000, "results_dir": "/home/me/lab/results", "cost_usd": 0.0123,
    }  # fmt: skip
    return job.JobWaitView(
        job=make.job(**{**facts, **changes}), rental=make.rental(phase=phase), settled=True
    )


# -- consent -------------------------------------------------------------------------------


def test_without_a_terminal_run_needs_yes_or_a_budget(
    vastctl: Callable[..., Any], runs: Any
) -> None:
    refused = vastctl("run", *COMMAND)

    assert refused.code == 2
    assert "--budget USD" in refused.err
    assert runs.requests == []
    assert vastctl("run", "-y", *COMMAND).code == 0
    assert vastctl("run", "--budget", "2", *COMMAND).code == 0
    assert runs.asked("task.plan") == []  # vastd chooses, and can go on to the next best offer


def test_a_terminal_shows_three_options_with_their_totals_and_takes_a_number(
    vastctl: Callable[..., Any], runs: Any
) -> None:
    ran = vastctl("run", "--hours", "2", "--max-price", "1", *COMMAND, answers="3\n")

    assert ran.code == 0
    for shown in ("cheapest", "best value", "fastest", "$0.4000", "$0.6000", "$1.80"):
        assert shown in ran.err
    assert "rent which? [1-3: number to rent, Enter to abort] " in ran.err
    needs = runs.asked("job.submit")[0]["needs"]
    assert needs == {"hours": 2.0, "max_dph_usd": 1.0, "offer_id": 3}


def test_y_on_the_terminal_takes_the_best_value(vastctl: Callable[..., Any], runs: Any) -> None:
    assert vastctl("run", *COMMAND, answers="4\ny\n").code == 0
    assert runs.asked("job.submit")[0]["needs"]["offer_id"] == 2


@pytest.mark.parametrize("answers", ["n\n", "\n", "", "7\n8\n9\n"])
def test_anything_but_consent_rents_nothing(
    vastctl: Callable[..., Any], runs: Any, answers: str
) -> None:
    ran = vastctl("run", *COMMAND, answers=answers)

    assert ran.code == 2
    assert "nothing was rented" in ran.err
    assert runs.asked("job.submit") == []


def test_no_offer_tells_which_filter_removed_most(vastctl: Callable[..., Any], runs: Any) -> None:
    runs.on("task.plan", a_plan([]))

    ran = vastctl("run", *COMMAND, answers="y\n")

    assert ran.code == 9
    assert "none of 412 offers fits" in ran.err
    assert "price 301, memory 111" in ran.err


def test_a_dry_run_shows_the_plan_and_submits_nothing(
    vastctl: Callable[..., Any], runs: Any
) -> None:
    ran = vastctl("run", "--dry-run", "--hours", "2", *COMMAND)

    assert ran.code == 0
    assert [method for method, _ in runs.requests] == ["task.plan"]
    assert "would help to know: how long will it run?" in ran.out
    assert "disk  50 GB  (stated: config)" in ran.out
    assert (
        vastctl("run", "--dry-run", "--json", *COMMAND).out_bytes == encode(a_plan(OPTIONS)) + b"\n"
    )


def test_a_machine_one_has_needs_no_consent(
    vastctl: Callable[..., Any], runs: Any, make: Any
) -> None:
    runs.on("job.wait", settled(make, phase="ready"))

    ran = vastctl("run", "--on", "r-1", *COMMAND)

    assert ran.code == 0
    assert runs.asked("job.submit")[0]["rental"] == "r-1"
    assert "still bills $0.312/h; end it with `vastctl destroy lab`" in ran.err


def test_everything_said_arrives_in_the_submission(vastctl: Callable[..., Any], runs: Any) -> None:
    vastctl(
        *[
            "run",
            "-y",
            "--name",
            "lab",
            "--task-id",
            "t7",
            "--output",
            "results",
            "x",
            "--include",
            ".env",
            "--env",
            "A=1",
            "--keep",
        ],
        *[
            "--max-runtime",
            "2h",
            "--idle",
            "20m",
            "--heartbeat",
            "hb.json:60s",
            "--checkpoint",
            "c.pt",
            "--on-outbid",
            "rerent",
            "--spot",
        ],
        *[
            "--budget",
            "3",
            "--detach",
            "--task",
            "words",
            "--offer",
            "7",
            "--image",
            "a/b:c",
            "--disk",
            "80",
            "--num-gpus",
            "2",
        ],
        *COMMAND,
    )

    (sent,) = runs.asked("job.submit")
    assert len(sent.pop("request_id")) == 32
    assert sent == {
        "command": ["python", "train.py"],
        "project": "/home/me/lab",
        "name": "lab",
        "task_id": "t7",
        "outputs": ["results", "x"],
        "include": [".env"],
        "env": {"A": "1"},
        "needs": {
            "task": "words", "spot": True, "offer_id": 7, "image": "a/b:c", "disk_gb": 80.0, "num_gpus": 2,
        },
        "policy": {
            "budget_usd": 3.0, "max_runtime_s": 7200.0, "idle_s": 1200.0, "keep": True,
            "heartbeat_path": "hb.json", "heartbeat_interval_s": 60.0, "checkpoint_path": "c.pt",
            "on_outbid": "rerent",
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said", "asked"),
    [
        ((), "at most $10.00 (default; --budget) and 12h (default; --max-runtime)", 1),
        (
            ("--budget", "2"),
            "at most $2.00 (--budget) and 12h (default; --max-runtime)",
            1,
        ),
        (
            ("--budget", "2", "--max-runtime", "90m"),
            "at most $2.00 (--budget) and 1h30m (--max-runtime)",
            0,
        ),
    ],
)
def test_whoever_agrees_is_told_the_most_that_can_be_lost(
    vastctl: Callable[..., Any], runs: Any, options: tuple[str, ...], said: str, asked: int
) -> None:
    asking = vastctl("run", *options, *COMMAND, answers="n\n")
    agreed = vastctl("run", "-y", *options, *COMMAND)

    assert f"{said}\nrent which?" in asking.err
    assert agreed.err.splitlines()[0] == said
    assert len(runs.asked("config.get")) == 2 * asked


def test_a_best_value_that_is_not_the_cheapest_says_what_the_difference_buys(
    vastctl: Callable[..., Any], runs: Any
) -> None:
    weighed = "a wait counts as $5/h once it exceeds 30 min"
    best = structs.replace(
        OPTIONS[1], hours=1.0, total_usd=1.5, reasons=["x", f"{weighed}; times within 20% are one"]
    )
    runs.on("task.plan", a_plan([OPTIONS[0], best]))

    ran = vastctl("run", "--dry-run", *COMMAND)

    line = f"best value: $1.10 more than the cheapest, done 1.0 h sooner ({weighed})"
    assert ran.out.count(line) == 1
    both = structs.replace(OPTIONS[0], roles=["cheapest", "best_value"])
    runs.on("task.plan", a_plan([both, OPTIONS[2]]))
    assert "than the cheapest" not in vastctl("run", "--dry-run", *COMMAND).out


# -- the story -----------------------------------------------------------------------------


def test_the_log_goes_to_stdout_and_the_story_to_stderr(
    vastctl: Callable[..., Any], runs: Any
) -> None:
    ran = vastctl("run", "-y", *COMMAND)

    assert ran.code == 0
    assert ran.out == "one\ntwo\n"  # the second line came only with the final read
    assert ran.err.splitlines() == [
        "at most $10.00 (default; --budget) and 12h (default; --max-runtime)",
        "✓ job j-1 (lab) is on record",
        "✓ chose RTX_4090, offer 2, $0.300/h, about $0.6000 in all",
        "✓ rented RTX_4090",
        "sync: 50 B of 100 B (50%)",
        "✓ the job ended",
        "✓ job lab succeeded (exit code 0)",
        "✓ results in /home/me/lab/results: 2 files, 3.5 MB",
        "✓ total cost $0.0123",
        "✓ machine lab is gone: billing ended",
    ]
    assert runs.asked("event.subscribe") == [{"after": 0, "progress": True}]


def test_the_story_follows_the_job_to_its_next_machine_and_leaves_out_others(
    vastctl: Callable[..., Any], runs: Any, make: Any
) -> None:
    def wait(_params: dict[str, Any]) -> job.JobWaitView:
        runs.event(1, "x", "somebody else's", rental_id="r-9", job_id="j-9")
        runs.event(2, "found_absent", "first machine is gone", rental_id="r-1")
        runs.event(3, "job_placed", "placed on r-2", rental_id="r-2", job_id="j-1")
        runs.event(4, "create_sent", "renting the second", rental_id="r-2")
        runs.notify("progress", event.Progress(step="alien", done=1, rental_id="r-9"))
        runs.notify("progress", event.Progress(step="log", done=1, job_id="j-1"))
        return settled(make)

    runs.on("job.wait", wait)

    told = vastctl("run", "-y", *COMMAND).err

    assert "first machine is gone\n✓ placed on r-2\n✓ renting the second\n" in told
    assert "else's" not in told
    assert "alien" not in told
    assert "log: 1" not in told


def test_the_story_says_nothing_twice(vastctl: Callable[..., Any], runs: Any, make: Any) -> None:
    def wait(_params: dict[str, Any]) -> job.JobWaitView:
        told = [
            ("rental_planned", "chose offer 2 again", "r-1", None),
            ("job_placed", "placed", "r-1", "j-1"),
            ("job_started", "the job runs", "r-1", "j-1"),
            ("job_began", "the machine is busy", "r-1", "j-1"),
            ("job_finished", "exit code 0", None, "j-1"),
            ("job_left", "the job left", "r-1", "j-1"),
            ("collected", "2 files are home", "r-1", "j-1"),
            ("collect_verified", "results are verified", "r-1", None),
            ("end_decided", "it ends", "r-1", None),
            ("destroy_decided", "destroying it", "r-1", None),
            ("destroy_decided", "destroying it once more", "r-1", None),
            ("rental_planned", "chose offer 3", "r-1", None),
        ]
        for cursor, (kind, text, rental_id, job_id) in enumerate(told, 1):
            runs.event(cursor, kind, text, rental_id=rental_id, job_id=job_id)
        return settled(make)

    runs.on("job.wait", wait)

    lines = vastctl("run", "-y", *COMMAND).err.splitlines()

    assert lines[3:10] == [
        "✓ placed", "✓ the job runs", "✓ exit code 0", "✓ 2 files are home", "✓ it ends",
        "✓ destroying it once more", "✓ chose offer 3",
    ]  # fmt: skip


def test_the_summary_says_where_results_and_log_are(
    vastctl: Callable[..., Any], runs: Any, make: Any
) -> None:
    runs.on("job.wait", settled(make, log_path="/home/me/lab/logs/j-1.log"))

    told = vastctl("run", "-y", *COMMAND).err

    assert "✓ results in /home/me/lab/results: 2 files, 3.5 MB\n" in told
    assert "✓ its log is in /home/me/lab/logs/j-1.log\n" in told


def test_with_json_stdout_is_the_last_result_alone(
    vastctl: Callable[..., Any], runs: Any, make: Any
) -> None:
    ran = vastctl("run", "-y", "--json", *COMMAND)

    assert ran.out_bytes == encode(settled(make)) + b"\n"
    assert runs.asked("log.subscribe") == []


def test_detach_prints_the_job_and_returns(vastctl: Callable[..., Any], runs: Any) -> None:
    ran = vastctl("run", "-y", "--detach", *COMMAND)

    assert (ran.code, ran.out) == (0, "j-1\n")
    assert runs.asked("job.wait") == []
    as_json = vastctl("run", "-y", "--detach", "--json", *COMMAND)
    assert decode(as_json.out)["job"]["job_id"] == "j-1"


def test_a_restarted_daemon_loses_no_byte_and_no_event_and_repeats_none(
    vastctl: Callable[..., Any], runs: Any, make: Any
) -> None:
    """The connection dies after two of four bytes; the new one sends what overlaps."""
    runs.whole = b"0123456789"

    def first(_params: dict[str, Any]) -> None:
        runs.event(1, "a", "first", job_id="j-1")
        runs.log(0, b"01")
        runs.absent = 3
        raise make.lose

    def second(_params: dict[str, Any]) -> job.JobWaitView:
        runs.event(1, "a", "first", job_id="j-1")
        runs.event(2, "b", "second", job_id="j-1")
        runs.log(1, b"123")  # overlaps
        runs.log(7, b"78", dropped=3)  # 4, 5 and 6 were left out
        return settled(make)

    runs.in_turn("job.wait", first, second)

    ran = vastctl("run", "-y", *COMMAND)

    assert ran.code == 0
    assert ran.out == "0123456789"
    assert ran.err.count("first") == ran.err.count("second") == 1
    assert (
        "lost the connection to vastd; trying to reach it again\nconnected to vastd again"
        in ran.err
    )
    assert runs.asked("event.subscribe")[1]["after"] == 1
    assert runs.asked("log.subscribe") == [{"job": "j-1"}, {"job": "j-1", "offset": 2}]
    assert len(runs.asked("job.submit")) == 1


def test_a_submission_whose_answer_is_lost_is_repeated_with_the_same_request_id(
    vastctl: Callable[..., Any], runs: Any, make: Any
) -> None:
    answer = job.JobSubmitView(job=make.job(), rental=make.rental())
    runs.in_turn("job.submit", make.lose, answer)

    assert vastctl("run", "-y", "--detach", *COMMAND).code == 0

    first, second = runs.asked("job.submit")
    assert first == second
    assert first["request_id"]


def test_a_submission_that_never_gets_an_answer_may_have_rented(
    vastctl: Callable[..., Any], runs: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.in_turn("job.submit", make.lose)

    ran = vastctl("run", "-y", *COMMAND)

    assert ran.code == 7
    assert "may have been carried out" in ran.err
    assert len(runs.asked("job.submit")) == 4


def test_a_daemon_that_stays_away_is_told_with_the_way_back(
    vastctl: Callable[..., Any], runs: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vastctl.attend.RESTART_S", 0.01)

    def die(_params: dict[str, Any]) -> None:
        runs.absent = 10**6
        raise make.lose

    runs.on("job.wait", die)

    ran = vastctl("run", "-y", *COMMAND)

    assert ran.code == 3
    assert "job j-1 goes on without it" in ran.err
    assert "vastctl logs -f j-1" in ran.err


def test_ctrl_c_detaches_and_tells_the_price_of_going_on(
    vastctl: Callable[..., Any], runs: Any, make: Any
) -> None:
    runs.on("job.get", make.job())
    runs.on("rental.get", make.rental(dph_usd=0.35))

    def interrupt(_params: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    runs.on("job.wait", interrupt)

    ran = vastctl("run", "-y", "-q", *COMMAND)

    assert ran.code == 0
    assert "detached: job j-1 goes on and costs $0.350/h" in ran.err
    assert "vastctl logs -f j-1" in ran.err
    assert "vastctl job cancel j-1" in ran.err


def test_ctrl_c_before_the_answer_is_an_interruption(
    vastctl: Callable[..., Any], runs: Any
) -> None:
    def interrupt(_params: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    runs.on("job.submit", interrupt)

    assert vastctl("run", "-y", *COMMAND).code == 130


def test_a_timeout_bounds_the_wait_and_leaves_the_job_alone(
    vastctl: Callable[..., Any], runs: Any, make: Any
) -> None:
    runs.on("job.wait", job.JobWaitView(job=make.job(), settled=False))

    ran = vastctl("run", "-y", "--timeout", "5", *COMMAND)

    assert ran.code == 8
    assert runs.asked("job.wait") == [{"job": "j-1", "timeout_s": 5.0}]
    assert "vastctl job cancel j-1" in ran.err


# -- the end -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "options", "code", "said"),
    [
        (
            {"state": "failed", "exit_code": 3, "reason": "ValueError"},
            (),
            1,
            "failed (exit code 3): ValueError",
        ),
        ({"state": "failed", "exit_code": 3}, ("--exit-status",), 3, "exit code 3"),
        ({"state": "cancelled", "exit_code": None}, (), 1, "cancelled"),
        ({"state": "timed_out", "exit_code": 143}, (), 1, "timed out"),
        ({"state": "failed", "exit_code": None, "failure": "provisioning"}, (), 10, "failed"),
        ({"state": "failed", "exit_code": None, "failure": "no_offers"}, (), 9, "failed"),
        ({"state": "failed", "exit_code": None, "failure": "budget"}, (), 6, "failed"),
        ({"missing": ["results"]}, (), 0, "declared but not found: results"),
    ],
)
def test_the_exit_code_tells_how_it_ended(
    vastctl: Callable[..., Any], runs: Any, make: Any, end: dict[str, Any], options: tuple[str, ...],
    code: int, said: str,
) -> None:  # fmt: skip
    runs.on("job.wait", settled(make, **end))

    ran = vastctl("run", "-y", *options, *COMMAND)

    assert ran.code == code
    assert said in ran.err


def test_a_failed_copy_keeps_the_machine_and_says_so(
    vastctl: Callable[..., Any], runs: Any, make: Any
) -> None:
    runs.on("job.wait", settled(make, phase="ready", collected=False))

    ran = vastctl("run", "-y", *COMMAND)

    assert ran.code == 11
    assert "the results could not be copied" in ran.err
    assert "vastctl destroy lab" in ran.err


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, ""), (1, "one of them is older than the job"), (2, "2 of them are older")],
)
def test_results_an_earlier_job_left_are_not_called_this_ones(
    vastctl: Callable[..., Any], runs: Any, make: Any, count: int, said: str
) -> None:
    waited = settled(make, collected_earlier=count)
    runs.on("job.wait", waited)
    runs.on("job.get", waited.job)

    ran, shown = vastctl("run", "-y", *COMMAND), vastctl("job", "show", "j-1")

    assert ran.code == 0
    for text in (ran.err, shown.out):
        assert said in text
        assert ("older than the job" in text) == (count > 0)


GONE_WITH_IT = {
    "state": "failed", "failure": "machine", "exit_code": None, "collected": False,
    "results_lost": True, "outputs": ["results/", "*.log"],
    "reason": "its machine vanished, nobody here ended it (two listings)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (GONE_WITH_IT, 1),
        # It had ended well: what failed is bringing its results home.
        ({**GONE_WITH_IT, "state": "succeeded", "failure": "collection", "exit_code": 0}, 11),
    ],
)
def test_what_went_with_a_machine_that_vanished_is_not_called_kept(
    vastctl: Callable[..., Any], runs: Any, make: Any, job: dict[str, Any], code: int
) -> None:
    waited = settled(make, **job)
    lost = structs.replace(waited.rental, end_reason="vanished")
    runs.on("job.wait", structs.replace(waited, rental=lost))
    runs.on("job.get", waited.job)

    ran = vastctl("run", "-y", *COMMAND)
    shown = vastctl("job", "show", "j-1")

    assert ran.code == code, ran.err
    assert "the results are lost with the machine: results/, *.log" in ran.err
    assert "vanished, vastd did not end it: billing ended" in ran.err
    assert "total cost $0.0123" in ran.err
    assert "results are lost with the machine" in shown.out
    assert "kept" not in ran.err + shown.out


def test_a_machine_that_is_not_proven_gone_is_never_called_gone(
    vastctl: Callable[..., Any], runs: Any, make: Any
) -> None:
    runs.on("job.wait", settled(make, phase="destroying"))

    ran = vastctl("run", "-y", *COMMAND)

    assert ran.code == 7
    assert "billing ended" not in ran.err
    assert vastctl("run", "-y", "--keep", *COMMAND).code == 0


def test_a_refused_submission_keeps_its_reason(
    vastctl: Callable[..., Any], runs: Any, make: Any
) -> None:
    runs.in_turn(
        "job.submit", make.refuse(ErrorCode.BUDGET_EXCEEDED, "day $24 of $25", hint="wait")
    )

    ran = vastctl("run", "-y", "-q", *COMMAND)

    assert (ran.code, ran.err) == (6, "error: day $24 of $25\nhint: wait\n")


def test_the_command_must_be_there(vastctl: Callable[..., Any], runs: Any) -> None:
    for words in (("run", "-y"), ("run", "-y", "--")):
        ran = vastctl(*words)
        assert ran.code == 2
        assert "-- python train.py" in ran.err
