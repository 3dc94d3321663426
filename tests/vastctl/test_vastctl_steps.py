"""The steps of `run` one by one: options, a machine, its set-up, its end; each says what it spends."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.json import decode, encode

from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import event, job, log, rental, setup, task


def an_option(offer_id: int, role: str, dph: float) -> task.OptionView:
    return task.OptionView(
        roles=[role], offer_id=offer_id, machine_id=7, gpu_name="RTX_4090", num_gpus=1,
        gpu_ram_mb=24_564, dph_usd=dph, hours=2.0, total_usd=2 * dph, reliability=0.99,
        reasons=[f"because it is {role}"],
    )  # fmt: skip


PLAN = task.PlanView(
    task=task.TaskView(),
    requirements=task.RequirementsView(
        num_gpus=task.Fact(value=1, source="default"), disk_gb=task.Fact(value=50, source="default")
    ),
    options=[
        an_option(501, "cheapest", 0.2),
        an_option(502, "best_value", 0.3),
        an_option(503, "fastest", 0.9),
    ],
    considered=40,
    removed={"disk": 3},
)


@pytest.fixture
def market(daemon: Any, make: Any) -> Any:
    """A daemon that plans, rents and has the machine ready at once."""
    daemon.on("task.plan", PLAN)
    daemon.on("rental.create", make.rental(phase="planned"))
    daemon.on(
        "rental.get",
        make.rental(
            phase="ready", jobs=[], image="a/b:c", estimated_hours=2.0, estimated_cost_usd=0.624,
            budget_usd=10.0,
            ssh=rental.SshView(host="203.0.113.9", port=40117, user="root", route="direct"),
        ),
    )  # fmt: skip
    daemon.on("rental.list", a_list())
    daemon.on("event.subscribe", event.EventSubscriptionView(subscription_id="e", cursor=0))
    return daemon


def a_list(*rentals: Any) -> rental.RentalListView:
    return rental.RentalListView(
        rentals=list(rentals), inventory=rental.InventoryView(state="fresh")
    )


# -- provision -----------------------------------------------------------------------------


@pytest.mark.req("CLI-01")
def test_provision_without_a_terminal_spends_nothing_and_says_how_to_go_on(
    vastctl: Callable[..., Any], market: Any
) -> None:
    ran = vastctl(
        "provision",
        "--hours",
        "2",
        "--budget",
        "1234.56",
        "--idle",
        "90m",
        "--name",
        "box",
        "--spot",
    )

    assert ran.code == 0
    assert market.asked("rental.create") == []
    assert "because it is fastest" in ran.out
    assert "of 40 offers, removed by: disk 3" in ran.out
    how = "--name box --hours 2 --budget 1234.56 --idle 90m --spot -y"
    assert ran.out.splitlines()[-3:] == [
        f"  vastctl rent {offer} {how}" for offer in (501, 502, 503)
    ]
    # What it says can be typed as it stands.
    line = ran.out.splitlines()[-1].split()[1:]
    assert vastctl(*line).code == 0
    (sent,) = market.asked("rental.create")
    assert sent["needs"] == {"hours": 2.0, "spot": True, "offer_id": 503}
    assert sent["policy"] == {"budget_usd": 1234.56, "idle_s": 5400.0}


def test_provision_with_json_is_the_plan_unchanged(
    vastctl: Callable[..., Any], market: Any
) -> None:
    ran = vastctl("--json", "provision")

    assert (ran.code, ran.out_bytes) == (0, encode(PLAN) + b"\n")


@pytest.mark.parametrize(
    ("options", "offer"),
    [(("--cheapest",), 501), (("--fastest",), 503), (("--offer", "77"), 77), ((), None)],
)
@pytest.mark.req("CLI-02")
def test_provision_rents_what_was_picked_and_reports_it(
    vastctl: Callable[..., Any], market: Any, options: tuple[str, ...], offer: int | None
) -> None:
    ran = vastctl("provision", "-y", *options)

    assert (ran.code, ran.out) == (0, "lab\n")
    (sent,) = market.asked("rental.create")
    assert sent.get("needs", {}).get("offer_id") == offer
    for said in (
        "r-1, instance 4711", "RTX_4090, 24 GB each", "ready at $0.312/h", "about $0.6240 for 2 h",
        "root@203.0.113.9 port 40117", "`vastctl ssh lab`", "a/b:c", "vastctl setup lab",
        "vastctl destroy lab", "--max-runtime", "$10.00 (default; --budget)", "--idle DUR",
    ):  # fmt: skip
        assert said in ran.err, ran.err


def test_a_pick_without_a_yes_spends_nothing_where_nobody_can_be_asked(
    vastctl: Callable[..., Any], market: Any
) -> None:
    ran = vastctl("provision", "--cheapest")

    assert ran.code == 2
    assert market.asked("rental.create") == []
    assert vastctl("provision", "--cheapest", "--offer", "5", "-y").code == 2
    assert vastctl("provision", "--cheapest", "--budget", "1").code == 0


@pytest.mark.parametrize(("typed", "offer"), [("1\n", 501), ("503\n", 503), ("y\n", 502)])
def test_provision_on_a_terminal_takes_a_number_or_an_offer_id(
    vastctl: Callable[..., Any], market: Any, typed: str, offer: int
) -> None:
    ran = vastctl("provision", tty=True, answers=typed)

    assert ran.code == 0
    assert market.asked("rental.create")[0]["needs"] == {"offer_id": offer}
    assert "at most $10.00" in ran.err
    assert "because it is best_value" in ran.err


def test_no_answer_rents_nothing(vastctl: Callable[..., Any], market: Any) -> None:
    assert vastctl("provision", tty=True, answers="\n").code == 2
    assert vastctl("provision", tty=True, answers="99\n4\n0\n").code == 2
    assert market.asked("rental.create") == []


def test_a_plan_without_offers_is_told_as_such(vastctl: Callable[..., Any], market: Any) -> None:
    none = task.PlanView(task=PLAN.task, requirements=PLAN.requirements, considered=9)
    market.on("task.plan", none)

    assert vastctl("provision").code == 9
    assert vastctl("provision", "-y", "--fastest").code == 9


# -- up and down ---------------------------------------------------------------------------


def test_up_rents_when_the_project_has_no_machine_of_its_own(
    vastctl: Callable[..., Any], market: Any, make: Any
) -> None:
    market.on(
        "rental.list",
        a_list(
            make.rental(purpose="job", phase="busy"),
            make.rental(rental_id="r-2", purpose="interactive", phase="destroying"),
        ),
    )

    ran = vastctl("up", "box", "--budget", "3", "--max-runtime", "4h")

    assert (ran.code, ran.out) == (0, "lab\n")
    assert market.asked("rental.list") == [{"project": "/home/me/lab"}]
    (sent,) = market.asked("rental.create")
    assert (sent["name"], sent["policy"]) == ("box", {"budget_usd": 3.0, "max_runtime_s": 14400.0})
    assert vastctl("up", "-y").code == 0  # a machine that ends with its job is not handed out
    assert len(market.asked("rental.create")) == 2


def test_up_uses_the_machine_the_project_has(
    vastctl: Callable[..., Any], market: Any, make: Any
) -> None:
    market.on("rental.list", a_list(make.rental(purpose="interactive", phase="booting")))

    ran = vastctl("up")

    assert (ran.code, ran.out) == (0, "lab\n")
    assert "belongs to this project already: nothing is rented" in ran.err
    assert market.asked("rental.create") == []
    assert vastctl("up", "--new").code == 2  # one more costs money
    assert vastctl("up", "--new", "-y").code == 0
    assert vastctl("up", "other", "-y").code == 0  # another name is another machine
    assert len(market.asked("rental.create")) == 2


def test_up_does_not_hand_out_a_machine_that_is_not_what_is_asked_for(
    vastctl: Callable[..., Any], market: Any, make: Any
) -> None:
    market.on("rental.list", a_list(make.rental(purpose="interactive", phase="ready")))

    ran = vastctl("up", "--gpu-ram", "80", "--gpu-name", "H100", "-y")

    assert ran.code == 2
    assert "not a H100; its GPUs have 24 GB, not 80" in ran.err
    assert "--new" in ran.err
    assert vastctl("up", "--gpu-ram", "24", "--gpu-name", "RTX 4090").code == 0
    assert market.asked("rental.create") == []


def test_up_asks_which_when_there_are_several_and_never_wakes_a_stopped_one(
    vastctl: Callable[..., Any], market: Any, make: Any
) -> None:
    one = make.rental(purpose="interactive", phase="ready")
    two = make.rental(rental_id="r-2", name="two", purpose="interactive", phase="stopped")
    market.on("rental.list", a_list(one, two))

    assert vastctl("up").code == 2
    assert vastctl("up", "lab").code == 0
    ran = vastctl("up", "two")
    assert ran.code == 6
    assert "vastctl start two" in ran.err


def test_up_asks_one_question(vastctl: Callable[..., Any], market: Any) -> None:
    ran = vastctl("up", tty=True, answers="2\n")

    assert ran.code == 0
    assert ran.err.count("rent which?") == 1
    assert market.asked("rental.create")[0]["needs"] == {"offer_id": 502}


@pytest.fixture
def ending(market: Any, make: Any) -> Any:
    gone = make.rental(
        phase="gone", end_reason="user", ended_at="2026-11-30T12:33:00Z", cost_usd=0.33
    )
    market.in_turn("rental.get", make.rental(phase="ready"), gone)
    market.on("rental.destroy", make.rental(phase="destroying"))
    done = job.JobListView(
        jobs=[
            make.job(
                state="succeeded", collected=True, collected_files=3, collected_bytes=2000,
                results_dir="/home/me/lab",
            ),
            make.job(job_id="j-2", setup=True, state="succeeded", collected=True),
            make.job(job_id="j-3", rental_id="r-9", collected=True, collected_files=9),
        ]
    )  # fmt: skip
    market.on("job.list", lambda p: done if p.get("all") else job.JobListView())
    return market


def test_down_ends_the_machine_and_tells_what_it_came_to(
    vastctl: Callable[..., Any], ending: Any
) -> None:
    ran = vastctl("down", "-y")

    assert ran.code == 0
    assert ending.asked("rental.get")[0] == {"project": "/home/me/lab"}
    assert ending.asked("rental.destroy")[0]["rental"] == "r-1"
    assert "brought home to /home/me/lab: 3 files, 2.0 kB, of 1 job" in ran.err
    assert "it cost $0.3300 in 1h03m" in ran.err


def test_down_has_the_guards_of_destroy(
    vastctl: Callable[..., Any], ending: Any, make: Any
) -> None:
    assert vastctl("down").code == 2
    assert vastctl("down", "--force", "-y").code == 2
    assert ending.asked("rental.destroy") == []
    ending.in_turn("rental.get", make.refuse(ErrorCode.NOT_FOUND, "no live rental"))
    assert vastctl("down", "-y").code == 5
    ending.on("rental.get", make.rental())
    ending.in_turn("rental.destroy", make.refuse(ErrorCode.JOB_ACTIVE, "job runs"))
    assert vastctl("down", "-y").code == 12


def test_down_with_json_is_the_rental_unchanged(
    vastctl: Callable[..., Any], ending: Any, make: Any
) -> None:
    ran = vastctl("--json", "down", "-y")

    assert decode(ran.out)["phase"] == "gone"
    assert len(ran.out.splitlines()) == 1


# -- setup ---------------------------------------------------------------------------------


def a_setup(make: Any, **changes: Any) -> setup.SetupView:
    facts: dict[str, Any] = {
        "job": make.job(name="setup", setup=True),
        "rental": make.rental(phase="ready"),
        "steps": ["pip install -r requirements.txt"],
    }
    return setup.SetupView(**{**facts, **changes})


@pytest.fixture
def sets_up(daemon: Any, make: Any) -> Any:
    daemon.on("setup.run", a_setup(make))
    daemon.on("event.subscribe", event.EventSubscriptionView(subscription_id="e", cursor=0))
    daemon.on("log.subscribe", log.LogSubscriptionView(subscription_id="log", job_id="j-1"))
    text = base64.b64encode(b"Successfully installed x\n").decode()
    daemon.on(
        "log.read",
        lambda p: log.LogView(
            job_id="j-1", offset=p.get("offset", 0), data="" if p.get("offset") else text,
            next_offset=25, size=25, eof=True,
        ),
    )  # fmt: skip
    done = make.job(state="succeeded", setup=True)
    daemon.on(
        "job.wait", job.JobWaitView(job=done, rental=make.rental(phase="ready"), settled=True)
    )
    checks = [setup.SetupCheckView(name="python", ok=True, detail="3.11.2")]
    daemon.on("setup.get", a_setup(make, job=done, ok=True, checks=checks))
    return daemon


@pytest.mark.req("CLI-03")
def test_setup_follows_its_log_and_tells_each_check(
    vastctl: Callable[..., Any], sets_up: Any
) -> None:
    ran = vastctl("setup", "lab", "--requirements", "a.txt", "b.txt", "--packages", "git")

    assert ran.code == 0
    assert ran.out == "Successfully installed x\n"
    assert "✓ python: 3.11.2" in ran.err
    assert "vastctl run --on lab" in ran.err
    (sent,) = sets_up.asked("setup.run")
    assert sent.pop("request_id")
    assert sent == {
        "project": "/home/me/lab", "rental": "lab", "requirements": ["a.txt", "b.txt"],
        "packages": ["git"],
    }  # fmt: skip


def test_setup_without_options_leaves_the_choice_to_vastd(
    vastctl: Callable[..., Any], sets_up: Any
) -> None:
    vastctl("setup")
    vastctl("setup", "--no-requirements", "--limit", "5m")

    first, second = sets_up.asked("setup.run")
    assert set(first) == {"project", "request_id"}
    assert (second["requirements"], second["limit_s"]) == ([], 300.0)


def test_a_setup_that_fails_ends_with_10_and_the_end_of_its_log(
    vastctl: Callable[..., Any], sets_up: Any, make: Any
) -> None:
    failed = make.job(state="failed", setup=True, reason="pip 1 of 1 failed: exit code 1")
    sets_up.on("job.wait", job.JobWaitView(job=failed, rental=make.rental(), settled=True))
    bad = setup.SetupCheckView(name="pip 1 of 1", ok=False, detail="exit code 1")
    sets_up.on(
        "setup.get", a_setup(make, job=failed, ok=False, checks=[bad], log_end="ERROR: no x")
    )

    ran = vastctl("setup")

    assert ran.code == 10
    assert ran.out == "Successfully installed x\n"  # its log, to the end
    assert "✗ pip 1 of 1 failed: exit code 1" in ran.err
    shown = vastctl("--json", "setup")
    assert shown.code == 10
    assert (decode(shown.out)["ok"], decode(shown.out)["log_end"]) == (False, "ERROR: no x")


def test_setup_with_json_is_the_view_unchanged_and_detach_returns_at_once(
    vastctl: Callable[..., Any], sets_up: Any, make: Any
) -> None:
    ran = vastctl("--json", "setup")

    assert decode(ran.out)["checks"] == [{"name": "python", "ok": True, "detail": "3.11.2"}]
    assert vastctl("setup", "--detach").out == "j-1\n"
    assert len(sets_up.asked("job.wait")) == 1


def test_ctrl_c_leaves_the_set_up_alone(vastctl: Callable[..., Any], sets_up: Any) -> None:
    def interrupted(_params: dict[str, Any]) -> Any:
        raise KeyboardInterrupt

    sets_up.on("job.wait", interrupted)

    ran = vastctl("setup")

    assert ran.code == 0
    assert "detached: set-up j-1 goes on" in ran.err
    assert sets_up.asked("setup.get") == []


# -- what needs say ------------------------------------------------------------------------


def test_reliability_is_asked_for_as_a_share(vastctl: Callable[..., Any], market: Any) -> None:
    vastctl("plan", "--min-reliability", "0.995")
    vastctl("plan", "--min-reliability", "99.5%")

    assert [sent["needs"] for sent in market.asked("task.plan")] == [{"min_reliability": 0.995}] * 2
    for wrong in ("0", "1.5", "101%", "nan", "x", ""):
        ran = vastctl("plan", "--min-reliability", wrong)
        assert (ran.code, "no reliability" in ran.err) == (2, True), wrong


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "-x;y"])
def test_a_gpu_without_a_name_is_called_that(
    vastctl: Callable[..., Any], market: Any, name: str
) -> None:
    ran = vastctl("plan", f"--gpu-name={name}")

    assert ran.code == 2
    assert "no GPU name" in ran.err


def test_offers_say_that_machines_of_other_sizes_are_left_out(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    found = {"offers": PLAN.options, "considered": 9, "removed": {"num_gpus": 4}, "near_misses": []}
    daemon.on("offer.search", found)

    assert "4 offers with another number of GPUs left out" in vastctl("offers", "--hours", "2").err
    assert "left out" not in vastctl("offers", "--hours", "2", "--num-gpus", "1").err
