"""`destroy` and `job`: guards before, proof after, and the right code for each."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.json import decode, encode

from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import event, job, rental


@pytest.fixture
def rented(daemon: Any, make: Any) -> Any:
    """A daemon with one machine that is gone as soon as it was destroyed and looked at again."""
    daemon.in_turn(
        "rental.get", make.rental(), make.rental(phase="destroying"), make.rental(phase="gone")
    )
    daemon.on("rental.destroy", make.rental(phase="collecting"))

    def subscribe(_params: dict[str, Any]) -> event.EventSubscriptionView:
        daemon.event(8, "destroy_tried", "destroy was accepted", rental_id="r-1")
        daemon.event(9, "x", "another machine's", rental_id="r-2")
        return event.EventSubscriptionView(subscription_id="e", cursor=7)

    daemon.on("event.subscribe", subscribe)
    daemon.on("event.list", event.EventListView(cursor=7))
    return daemon


@pytest.mark.req("DES-01")
def test_destroy_without_a_terminal_and_without_yes_is_refused(
    vastctl: Callable[..., Any], rented: Any
) -> None:
    ran = vastctl("destroy", "r-1")

    assert ran.code == 2
    assert "-y" in ran.err
    assert rented.asked("rental.destroy") == []


def test_on_a_terminal_the_question_names_the_consequence(
    vastctl: Callable[..., Any], rented: Any
) -> None:
    ran = vastctl("destroy", "r-1", "--no-collect", answers="n\n")

    assert ran.code == 2
    assert "lab: RTX_4090, $0.312/h, running a job, job j-1" in ran.err
    assert "whatever is on these machines is lost" in ran.err
    assert "destroy 1 machine? [y/N]" in ran.err
    assert rented.asked("rental.destroy") == []


def test_destroy_waits_for_the_proof_and_tells_only_this_machines_story(
    vastctl: Callable[..., Any], rented: Any
) -> None:
    ran = vastctl("destroy", "r-1", "-y")

    assert ran.code == 0
    assert ran.err == "✓ destroy was accepted\n✓ machine lab is gone: billing ended\n"
    (sent,) = rented.asked("rental.destroy")
    assert sent.pop("request_id")
    assert sent == {"rental": "r-1"}
    assert rented.asked("event.subscribe")[0]["after"] == 7  # nothing between is missed


def test_destroy_with_json_prints_the_final_machine(
    vastctl: Callable[..., Any], rented: Any, make: Any
) -> None:
    ran = vastctl("destroy", "r-1", "-y", "--json")

    assert ran.out_bytes == encode(make.rental(phase="gone")) + b"\n"


def test_no_wait_never_claims_an_end(vastctl: Callable[..., Any], rented: Any) -> None:
    ran = vastctl("destroy", "r-1", "-y", "--no-wait")

    assert ran.code == 0
    assert "ended" not in ran.err
    assert rented.asked("event.subscribe") == []


def test_no_proof_in_time_may_still_bill(
    vastctl: Callable[..., Any], rented: Any, make: Any
) -> None:
    rented.on("rental.get", make.rental(phase="destroying"))

    ran = vastctl("destroy", "r-1", "-y", "--timeout", "0.01")

    assert ran.code == 7
    assert "it may still bill" in ran.err


def test_a_failed_collection_ends_the_wait_with_its_own_code(
    vastctl: Callable[..., Any], rented: Any, make: Any
) -> None:
    def subscribe(_params: dict[str, Any]) -> event.EventSubscriptionView:
        rented.event(8, "collect_failed", "disk full", rental_id="r-1", severity="error")
        return event.EventSubscriptionView(subscription_id="e", cursor=7)

    rented.on("event.subscribe", subscribe)
    rented.in_turn(
        "rental.get", make.rental(), make.rental(phase="collecting"), make.rental(phase="ready")
    )

    ran = vastctl("destroy", "-y")

    assert ran.code == 11
    assert "still bills" in ran.err
    assert "vastctl collect lab" in ran.err


@pytest.mark.req("DES-01")
def test_an_active_job_is_a_refusal_with_the_way_on(
    vastctl: Callable[..., Any], rented: Any, make: Any
) -> None:
    rented.in_turn("rental.destroy", make.refuse(ErrorCode.JOB_ACTIVE, "job j-1 runs on r-1"))

    ran = vastctl("destroy", "r-1", "-y")

    assert ran.code == 12
    assert "--force --reason" in ran.err


def test_force_needs_a_reason(vastctl: Callable[..., Any], rented: Any) -> None:
    assert vastctl("destroy", "r-1", "-y", "--force").code == 2
    assert vastctl("destroy", "r-1", "-y", "--force", "--reason", " ").code == 2
    assert rented.requests == []
    assert vastctl("destroy", "r-1", "-y", "--force", "--reason", "wrong data").code == 0
    assert rented.asked("rental.destroy")[0]["reason"] == "wrong data"


def test_destroy_all_takes_every_live_machine_and_reports_the_worst(
    vastctl: Callable[..., Any], rented: Any, make: Any
) -> None:
    machines = [
        make.rental(),
        make.rental(rental_id="r-2", name="b"),
        make.rental(rental_id="r-3", phase="gone"),
    ]
    inventory = rental.InventoryView(state="fresh")
    rented.on("rental.list", rental.RentalListView(rentals=machines, inventory=inventory))
    rented.in_turn(
        "rental.destroy",
        make.refuse(ErrorCode.JOB_ACTIVE, "busy"),
        make.rental(rental_id="r-2", phase="gone"),
    )
    rented.on("rental.get", make.rental(rental_id="r-2", name="b", phase="gone"))

    ran = vastctl("destroy-all", "-y")

    assert ran.code == 12
    assert "error: lab: busy" in ran.err
    assert "machine b is gone: billing ended" in ran.err
    assert [sent["rental"] for sent in rented.asked("rental.destroy")] == ["r-1", "r-2"]
    assert vastctl("destroy", "--all", "r-1", "-y").code == 2


def test_destroying_nothing_is_no_error(vastctl: Callable[..., Any], daemon: Any) -> None:
    inventory = rental.InventoryView(state="fresh")
    daemon.on("rental.list", rental.RentalListView(inventory=inventory))

    ran = vastctl("destroy", "--all", "--json")

    assert (ran.code, decode(ran.out)) == (0, {"rentals": []})


# -- job -----------------------------------------------------------------------------------


def test_wait_ends_with_the_jobs_code_and_tells_the_end(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    ended = make.job(state="failed", exit_code=3, reason="ValueError")
    daemon.on(
        "job.wait", job.JobWaitView(job=ended, rental=make.rental(phase="gone"), settled=True)
    )

    ran = vastctl("job", "wait", "j-1", "--timeout", "1h")

    assert ran.code == 3
    assert "failed (exit code 3): ValueError" in ran.err
    assert daemon.asked("job.wait") == [
        {"job": "j-1", "project": "/home/me/lab", "timeout_s": 3600.0}
    ]


@pytest.mark.parametrize(
    ("state", "settled", "said"),
    [
        ("running", False, "job j-1 is not settled yet: it is running"),
        ("succeeded", False, "it succeeded, and its results or the end of its machine are awaited"),
        ("failed", True, "job j-1 left no exit code: it failed, lost"),
        ("cancelled", True, "it was cancelled, lost"),
        ("timed_out", True, "it ran into a limit, lost"),
    ],
)
def test_waiting_tells_how_a_job_stands_in_a_sentence(
    vastctl: Callable[..., Any], daemon: Any, make: Any, state: str, settled: bool, said: str
) -> None:
    told = make.job(state=state, reason="lost" if settled else None)
    daemon.on("job.wait", job.JobWaitView(job=told, settled=settled))

    assert said in vastctl("job", "wait", "j-1").err


def test_wait_tells_timeouts_and_its_own_failures_apart_from_the_job(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.on("job.wait", job.JobWaitView(job=make.job(), settled=False))
    assert vastctl("job", "wait", "j-1").code == 8
    daemon.on(
        "job.wait", job.JobWaitView(job=make.job(state="failed", exit_code=None), settled=True)
    )
    assert vastctl("job", "wait", "j-1").code == 125
    daemon.in_turn("job.wait", make.refuse(ErrorCode.NOT_FOUND, "no job"))
    assert vastctl("job", "wait", "j-1").code == 125
    daemon.absent = 1
    assert vastctl("job", "wait", "j-1").code == 125
    assert vastctl("job", "wait", "j-1", "--timeout", "soon").code == 2


def test_cancel_asks_first_and_names_the_job(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.on("job.get", make.job())
    daemon.on("job.cancel", make.job(state="cancelled"))

    assert vastctl("job", "cancel", "j-1").code == 2
    assert daemon.asked("job.cancel") == []
    ran = vastctl("job", "cancel", answers="y\n")
    assert ran.code == 0
    assert "cancel job j-1 (lab, running)? [y/N]" in ran.err
    assert daemon.asked("job.cancel")[0]["job"] == "j-1"


def test_retry_spends_and_therefore_asks(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.on("job.get", make.job(state="failed"))
    daemon.on("job.retry", job.JobSubmitView(job=make.job(job_id="j-2"), rental=make.rental()))

    assert vastctl("job", "retry", "j-1").code == 2
    assert vastctl("job", "retry", "j-1", "-y").out == "j-2\n"


def test_show_tells_attempts_and_results(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.on(
        "job.get",
        make.job(
            state="succeeded", exit_code=0, collected=True, collected_files=1, collected_bytes=2048,
            results_dir="/r", heartbeat=job.HeartbeatView(epoch=3, step=30, loss=0.25),
            attempts=[
                job.AttemptView(
                    rental_id="r-0", machine_id=7, phase="booting", reason="stuck", seconds=600,
                    wasted_usd=0.02, blame="host",
                ),
                job.AttemptView(rental_id="r-1", reason="no_such_ask", counts=False),
                job.AttemptView(rental_id="r-2", machine_id=9),
            ],
        ),
    )  # fmt: skip

    ran = vastctl("job", "show")

    assert "command    python train.py\n" in ran.out
    assert "results    /r (1 file, 2.0 kB)\n" in ran.out
    assert "loss       0.25\n" in ran.out
    first, second, third = ran.out.splitlines()[-3:]
    assert first == (
        "attempt 1 on r-0 (machine 7), booting, 10m00s, $0.0200 wasted: stuck "
        "(the machine is not rented again for a day)"
    )
    assert second == (
        "attempt 2 on r-1, 0s, $0.00 wasted, no attempt used up: the offer was gone: no_such_ask"
    )
    assert third == "attempt 3 on r-2"


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "timed_out"])
def test_an_ended_job_is_not_cancelled_and_nobody_is_asked(
    vastctl: Callable[..., Any], daemon: Any, make: Any, state: str
) -> None:
    daemon.on("job.get", make.job(state=state))

    ran = vastctl("job", "cancel", "j-1")

    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"job j-1 already {state.replace('_', ' ')}: nothing to cancel\n"
    assert daemon.asked("job.cancel") == []
    assert decode(vastctl("job", "cancel", "j-1", "--json").out)["state"] == state


def test_a_retry_of_no_job_fails_before_it_asks(
    vastctl: Callable[..., Any], daemon: Any, make: Any
) -> None:
    daemon.in_turn("job.get", make.refuse(ErrorCode.NOT_FOUND, "no job 'nosuch'"))

    ran = vastctl("job", "retry", "nosuch", answers="y\n")

    assert ran.code == 5
    assert "[y/N]" not in ran.err


def test_a_machine_with_a_running_job_is_refused_before_anything_is_asked(
    vastctl: Callable[..., Any], rented: Any, make: Any
) -> None:
    rented.on("job.list", job.JobListView(jobs=[make.job()]))

    ran = vastctl("destroy", "r-1", answers="y\n")

    assert ran.code == 12
    assert "[y/N]" not in ran.err
    assert "vastctl job cancel j-1" in ran.err
    assert rented.asked("rental.destroy") == []
    rented.on("rental.get", make.rental(phase="gone"))
    forced = vastctl("destroy", "r-1", "--force", "--reason", "why", answers="y\n")
    assert forced.code == 0


def test_of_several_machines_only_the_idle_ones_are_offered_for_the_end(
    vastctl: Callable[..., Any], rented: Any, make: Any
) -> None:
    machines = [make.rental(), make.rental(rental_id="r-2", name="two", jobs=[])]
    rented.on("rental.list", rental.RentalListView(
        rentals=machines, inventory=rental.InventoryView(state="fresh")
    ))  # fmt: skip
    rented.on("job.list", job.JobListView(jobs=[make.job()]))
    rented.on("rental.destroy", machines[1])

    ran = vastctl("destroy-all", "--no-wait", answers="y\n")

    assert ran.code == 12
    assert "destroy 1 machine? [y/N]" in ran.err
    assert [sent["rental"] for sent in rented.asked("rental.destroy")] == ["r-2"]
