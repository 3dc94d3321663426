"""`stop`, `start`, `policy`, `lease`: what they ask, what they wait for, what they say."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import event, policy


@pytest.fixture
def followed(daemon: Any) -> Any:
    def subscribe(_params: dict[str, Any]) -> event.EventSubscriptionView:
        daemon.event(8, "stop_tried", "Vast accepted it", rental_id="r-1")
        return event.EventSubscriptionView(subscription_id="e", cursor=7)

    daemon.on("event.subscribe", subscribe)
    daemon.on("event.list", event.EventListView(cursor=7))
    return daemon


STOPPED = {"phase": "stopped", "storage_dph_usd": 0.01, "budget_usd": 2.5, "cost_usd": 0.1}


def test_stop_waits_until_it_is_stopped_and_says_what_the_disk_goes_on_costing(
    vastctl: Callable[..., Any], followed: Any, make: Any
) -> None:
    ready, stopped = make.rental(phase="ready", jobs=[]), make.rental(**STOPPED)
    followed.in_turn("rental.get", ready, ready, stopped)
    followed.on("rental.stop", make.rental(phase="ready", wanted="stopped"))

    ran = vastctl("stop", "r-1")

    assert ran.code == 0
    assert ran.out == ""
    assert "its disk goes on billing: $0.2400 a day" in ran.err
    assert "vastctl start lab" in ran.err
    assert "its budget of $2.50 pays for 10d00h of that" in ran.err
    (asked,) = followed.asked("rental.stop")
    assert {"rental": asked["rental"], "force": asked.get("force", False)} == {
        "rental": "r-1", "force": False,
    }  # fmt: skip


def test_a_stop_that_is_not_seen_in_time_may_still_bill(
    vastctl: Callable[..., Any], followed: Any, make: Any
) -> None:
    followed.on("rental.get", make.rental(phase="ready"))
    followed.on("rental.stop", make.rental(phase="ready", wanted="stopped"))

    ran = vastctl("--timeout", "0.01", "stop", "r-1")

    assert ran.code == 7
    assert "may still bill $0.312/h" in ran.err


def test_a_forced_stop_needs_a_reason(vastctl: Callable[..., Any], daemon: Any) -> None:
    ran = vastctl("stop", "r-1", "--force")

    assert ran.code == 2
    assert daemon.requests == []


def test_a_running_job_keeps_the_machine_from_being_stopped(
    vastctl: Callable[..., Any], followed: Any, make: Any
) -> None:
    followed.on("rental.get", make.rental())
    followed.in_turn(
        "rental.stop", make.refuse(ErrorCode.JOB_ACTIVE, "job 'j-1' runs on rental 'lab'")
    )

    ran = vastctl("stop", "r-1")

    assert ran.code == 12


def test_a_start_spends_so_it_is_asked_about(
    vastctl: Callable[..., Any], followed: Any, make: Any
) -> None:
    followed.on("rental.get", make.rental(**STOPPED))

    ran = vastctl("start", "r-1")

    assert ran.code == 2
    assert followed.asked("rental.start") == []


def test_start_waits_until_it_runs(vastctl: Callable[..., Any], followed: Any, make: Any) -> None:
    stopped, ready = make.rental(**STOPPED), make.rental(phase="ready")
    followed.in_turn("rental.get", stopped, stopped, ready)
    followed.on("rental.start", make.rental(**{**STOPPED, "wanted": "running"}))

    ran = vastctl("start", "r-1", "-y")

    assert ran.code == 0
    assert "machine lab runs at $0.312/h" in ran.err


def test_a_start_whose_gpu_is_taken_says_so_and_how_to_take_it_back(
    vastctl: Callable[..., Any], followed: Any, make: Any
) -> None:
    followed.on("rental.get", make.rental(**STOPPED))
    followed.on("rental.start", make.rental(**{**STOPPED, "wanted": "running"}))

    ran = vastctl("--timeout", "0.01", "start", "r-1", "-y")

    assert ran.code == 8
    assert "its GPU may be rented to somebody else" in ran.err
    assert "vastctl stop lab" in ran.err


A_POLICY = policy.PolicyView(
    rental_id="r-1", name="lab", phase="ready", budget_usd=2.0, budget_left_usd=1.5,
    max_runtime_s=7200.0, grace_s=60.0, max_dph_usd=4.0,
    deadline_at="2026-11-30T13:00:00Z", heartbeat_path="hb.json", heartbeat_interval_s=60.0,
)  # fmt: skip


def test_policy_shows_every_limit(vastctl: Callable[..., Any], daemon: Any, make: Any) -> None:
    daemon.on("rental.get", make.rental())
    daemon.on("policy.get", A_POLICY)

    ran = vastctl("policy", "r-1")

    assert ran.code == 0
    rows = dict(line.split(maxsplit=1) for line in ran.out.splitlines())
    assert rows["budget"] == "$2.00 ($1.50 left)"
    assert rows["max_runtime"].startswith("2h (in 1h")
    assert rows["idle"] == "warns only"
    assert rows["keep"] == "no"
    assert rows["heartbeat"] == "hb.json, every 1m"


@pytest.mark.parametrize(
    ("on_outbid", "told"), [("resume", "resume; given up after 6h"), ("rerent", "rerent")]
)
def test_policy_shows_the_bid_and_what_follows_when_it_does_not_win(
    vastctl: Callable[..., Any], daemon: Any, make: Any, on_outbid: str, told: str
) -> None:
    bidding = structs.replace(A_POLICY, bid_usd=0.2, on_outbid=on_outbid, outbid_wait_s=21_600.0)
    daemon.on("rental.get", make.rental())
    daemon.on("policy.get", bidding)

    rows = dict(line.split(maxsplit=1) for line in vastctl("policy", "r-1").out.splitlines())

    assert rows["bid"] == "$0.200/h, the disk is extra"
    assert rows["on_outbid"] == told


def test_a_bid_that_does_not_win_is_confirmed_first(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.on("rental.get", make.rental())
    refusal = make.refuse(ErrorCode.POLICY_REFUSED, "a bid of $0.100/h does not win rental 'lab'")
    daemon.in_turn("policy.set", refusal, A_POLICY)

    ran = vastctl("policy", "r-1", "bid=0.1", answers="y\n")

    assert ran.code == 0
    assert "bid less than wins machine lab? [y/N]" in ran.err
    assert daemon.asked("policy.set")[1]["even_if_it_ends"] is True


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (("r-1", "budget=5", "max_runtime=8h"), {"budget_usd": 5.0, "max_runtime_s": 28_800.0}),
        (("r-1", "idle=off", "keep=yes"), {"idle_s": None, "keep": True}),
        (("grace=0",), {"grace_s": 0.0}),
        (("r-1", "unreachable=3h"), {"unreachable_end_s": 10_800.0}),
        (("r-1", "unreachable=off"), {"unreachable_end_s": None}),
        (
            ("r-1", "bid=0.35", "on_outbid=rerent", "outbid_wait=2h"),
            {"bid_usd": 0.35, "on_outbid": "rerent", "outbid_wait_s": 7200.0},
        ),
        (("budget_usd=$3", "idle=20m"), {"budget_usd": 3.0, "idle_s": 1200.0}),
    ],
)
def test_policy_changes_what_it_is_told(
    vastctl: Callable[..., Any], daemon: Any, make: Any, words: tuple[str, ...],
    changes: dict[str, Any],
) -> None:  # fmt: skip
    daemon.on("rental.get", make.rental())
    daemon.on("policy.set", A_POLICY)

    ran = vastctl("policy", *words)

    assert ran.code == 0
    (asked,) = daemon.asked("policy.set")
    assert asked["changes"] == changes
    assert asked.get("even_if_it_ends", False) is False


@pytest.mark.parametrize(
    "word",
    [
        "budget=off",
        "bid=off",
        "bid=0",
        "on_outbid=ask",
        "keep=maybe",
        "speed=9",
        "idle",
        "grace=-1",
        "budget=x",
    ],
)
def test_a_limit_that_cannot_be_meant_changes_nothing(
    vastctl: Callable[..., Any], daemon: Any, word: str
) -> None:
    ran = vastctl("policy", "r-1", word)

    assert ran.code == 2
    assert daemon.asked("policy.set") == []


def test_a_limit_that_is_over_already_is_confirmed_first(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.on("rental.get", make.rental())
    daemon.in_turn(
        "policy.set",
        make.refuse(
            ErrorCode.POLICY_REFUSED, "that would end rental 'lab' now: its budget is used up"
        ),
        A_POLICY,
    )

    ran = vastctl("policy", "r-1", "budget=0.01", answers="y\n")

    assert ran.code == 0
    first, second = daemon.asked("policy.set")
    assert (first.get("even_if_it_ends", False), second["even_if_it_ends"]) == (False, True)
