"""Machines that fail and limits that strike, with the installed programs on simulated machines."""

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.installed import FAST, Installed, installed

pytestmark = pytest.mark.e2e

LIMITS = FAST.replace("grace_s = 5", "grace_s = 3\nboot_timeout_s = 6\nssh_budget_s = 5")
# Writes its checkpoint when it is asked to end, as a well-behaved training does.
SAVES = (
    "mkdir -p results; trap 'echo saved >results/checkpoint; exit 0' TERM; echo up; "
    "while :; do sleep 0.1; done"
)
RESULT = "mkdir -p results; echo 7 >results/answer; echo done"


@pytest.fixture(scope="module")
def vast() -> Iterator[Installed]:
    """A daemon with short limits that all tests here share."""
    with installed() as made:
        Path(made.env["VASTD_CONFIG"]).write_text(LIMITS)
        made.start()
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of its own."""
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def words(name: str, script: str, *options: str) -> list[str]:
    """Return the words of a run of a shell script on a machine of its own."""
    return [
        "run", "-y", "--name", name, "--output", "results", *options, "--", "sh", "-c", script,
    ]  # fmt: skip


def run(
    vast: Installed, project: Path, name: str, script: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run a shell script on a machine of its own to the end."""
    return vast.vastctl(*words(name, script, *options), cwd=project, limit_s=120)


def usual(budget: str = "2") -> tuple[str, ...]:
    """Return what every run asks for."""
    return "--hours", "0.01", "--gpu-ram", "12", "--budget", budget


def inject(vast: Installed, **order: object) -> None:
    """Let something go wrong."""
    vast.simulator("/sim/faults/", json.dumps(order).encode())


def rental_of(vast: Installed, job: str) -> dict:  # type: ignore[type-arg]
    """Return the machine a job ran on last."""
    return vast.json("show", vast.json("job", "show", job)["rental_id"])


# -- machines that never get ready


@pytest.mark.req("FAI-01", "WAI-08", "VER-02")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"machine": {"kind": "boot_stuck"}}, "boot_overdue"),
        ({"machine": {"kind": "wrong_gpu"}}, "hardware_mismatch"),
        ({"machine": {"kind": "broken_gpu"}}, "hardware_mismatch"),
        ({"machine": {"kind": "low_vram"}}, "hardware_mismatch"),
        ({"machine": {"kind": "ssh_refused"}}, "ssh_failed"),
        ({"calls": [{"point": "create", "kind": "offer_gone"}]}, None),
    ],
    ids=["boot_stuck", "wrong_gpu", "broken_gpu", "low_vram", "ssh_refused", "offer_gone"],
)
def test_a_machine_that_fails_is_ended_and_the_next_offer_is_taken(
    vast: Installed, project: Path, fault: Mapping[str, object], reason: str | None
) -> None:
    name = "next-" + hashlib.sha256(repr(fault).encode()).hexdigest()[:8]
    inject(vast, **fault)

    done = run(vast, project, name, RESULT, *usual())

    assert done.returncode == 0, done.stderr
    assert (project / "results/answer").read_text() == "7\n"
    attempts = vast.json("job", "show", name)["attempts"]
    rentals = [vast.json("show", attempt["rental_id"]) for attempt in attempts]
    assert [rental["phase"] for rental in rentals] == ["gone", "gone"]
    assert len({rental["machine_id"] for rental in rentals}) == 2
    if reason is not None:
        assert rentals[0]["end_reason"] == reason
    assert rentals[1]["end_reason"] == "job_done"
    assert all(rental["cost_usd"] >= 0 for rental in rentals)
    assert vast.live() == 0


@pytest.mark.req("SSH-01")
def test_a_machine_whose_direct_port_refuses_is_used_through_the_proxy(
    vast: Installed, project: Path
) -> None:
    inject(vast, machine={"kind": "direct_refused"})

    done = run(vast, project, "proxied", RESULT, *usual())

    assert done.returncode == 0, done.stderr
    (attempt,) = vast.json("job", "show", "proxied")["attempts"]
    hosts = {host["machine_id"]: host for host in vast.json("hosts", "ls")["hosts"]}
    assert hosts[attempt["machine_id"]]["route"] == "proxy"
    assert vast.live() == 0


@pytest.mark.req("SSH-07")
def test_a_machine_that_rejects_our_key_is_healed_by_attaching_it(
    vast: Installed, project: Path
) -> None:
    inject(vast, machine={"kind": "ssh_auth", "healed_by_attach": True})

    done = run(vast, project, "healed", RESULT, *usual())

    assert done.returncode == 0, done.stderr
    assert len(vast.json("job", "show", "healed")["attempts"]) == 1
    assert vast.live() == 0


def test_a_create_whose_answer_is_lost_is_found_and_never_sent_again(
    vast: Installed, project: Path
) -> None:
    before = len(vast.creates())
    inject(vast, calls=[{"point": "create", "kind": "lose_answer"}])

    done = run(vast, project, "lost-answer", RESULT, *usual())

    assert done.returncode == 0, done.stderr
    assert len(vast.creates()) == before + 1
    assert vast.live() == 0


# -- limits that strike


@pytest.mark.req("CKP-05", "WAT-14")
def test_the_longest_run_ends_with_a_checkpoint_at_home_and_no_machine(
    vast: Installed, project: Path
) -> None:
    client = vast.begin_in(project, *words("longest", SAVES, *usual(), "--max-runtime", "9s"))
    assert client.stdout is not None
    assert client.stdout.readline() == "up\n"
    running = json.loads((project / "vast-instances.json").read_text())
    client.communicate(timeout=60)
    ended = json.loads((project / "vast-instances.json").read_text())

    assert client.returncode == 1
    job = vast.json("job", "show", "longest")
    assert (job["state"], job["exit_code"], job["collected"]) == ("timed_out", 0, True)
    assert (project / "results/checkpoint").read_text() == "saved\n"
    rental = rental_of(vast, "longest")
    assert (rental["phase"], rental["end_reason"]) == ("gone", "max_runtime")
    assert [entry["status"] for entry in running] == ["running"]
    assert [entry["status"] for entry in ended] == ["destroyed"]
    assert vast.live() == 0


@pytest.mark.req("BUD-11")
def test_a_used_up_budget_ends_the_job_before_it_is_exceeded(
    vast: Installed, project: Path
) -> None:
    # One that small is not rented with; while the machine runs it may be lowered to that.
    after = vast.json("events", "-n", "1")["cursor"]
    options = ("--hours", "0.001", "--gpu-ram", "12", "--budget", "1")
    client = vast.begin_in(project, *words("poor", SAVES, *options))
    vast.wait_for("job_began", after=after)
    running = rental_of(vast, "poor")
    # Winding down takes 5 s (grace, a listing, the settle time); then the job has 7 s left.
    budget = round(running["cost_usd"] + 12 / 3600 * running["dph_usd"], 6)
    lowered = vast.vastctl("policy", "poor", f"budget={budget:.6f}")
    assert lowered.returncode == 0, lowered.stderr

    _, told = client.communicate(timeout=120)

    assert client.returncode == 1, told
    assert vast.json("job", "show", "poor")["state"] == "timed_out"
    assert (project / "results/checkpoint").read_text() == "saved\n"
    rental = rental_of(vast, "poor")
    assert (rental["phase"], rental["end_reason"]) == ("gone", "budget")
    assert rental["cost_usd"] <= budget
    assert vast.live() == 0


@pytest.mark.req("WAT-05", "CKP-09")
def test_a_job_whose_heartbeat_stops_is_ended(vast: Installed, project: Path) -> None:
    beats = (
        'for n in 1 2 3 4; do printf \'{"epoch": %d, "step": 5, "loss": NaN}\' $n >hb.json; '
        'sleep 1; done; printf \'{"epoch": 5, "st\' >hb.json; '
    )

    done = run(vast, project, "silent", beats + SAVES, *usual(), "--heartbeat", "hb.json:3s")

    assert done.returncode == 1, done.stderr
    job = vast.json("job", "show", "silent")
    assert (job["state"], job["collected"]) == ("timed_out", True)
    assert (project / "results/checkpoint").read_text() == "saved\n"
    assert rental_of(vast, "silent")["end_reason"] == "heartbeat_stale"
    assert vast.live() == 0


def test_an_idle_machine_ends_itself_when_that_was_asked_for(
    vast: Installed, project: Path
) -> None:
    offer = str(vast.json("offers")["offers"][0]["offer_id"])
    after = vast.json("events", "-n", "1")["cursor"]
    done = vast.vastctl(
        "rent", offer, "-y", "--name", "idler", "--budget", "1", "--idle", "4s", cwd=project
    )
    assert done.returncode == 0, done.stderr

    vast.wait_for("found_absent", after=after)

    rental = vast.json("show", "idler")
    assert (rental["phase"], rental["end_reason"]) == ("gone", "idle")
    assert vast.live() == 0


# -- results that cannot be brought home


@pytest.mark.req("COL-04")
def test_a_machine_whose_results_cannot_be_copied_is_kept_until_they_are(
    vast: Installed, project: Path
) -> None:
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    (project / "results").symlink_to(elsewhere)

    done = run(vast, project, "kept", RESULT, *usual())

    assert done.returncode == 11, done.stderr
    assert list(elsewhere.iterdir()) == []
    assert vast.live() == 1
    (project / "results").unlink()
    collected = vast.vastctl("collect", "kept", cwd=project)
    assert collected.returncode == 0, collected.stderr
    destroyed = vast.vastctl("destroy", "kept", "-y", cwd=project)
    assert destroyed.returncode == 0, destroyed.stderr
    assert (project / "results/answer").read_text() == "7\n"
    assert vast.live() == 0


def test_machines_that_are_not_ours_are_left_alone_and_the_bill_is_never_understated(
    vast: Installed,
) -> None:
    billed = vast.simulator("/sim/status")["billed_usd"]
    cost = sum(rental["cost_usd"] for rental in vast.json("ls", "--all")["rentals"])
    foreign = vast.simulator("/sim/foreign/", b'{"label": "somebody else"}')["new_contract"]

    done = vast.vastctl("destroy", "--all", "-y")

    assert done.returncode == 0, done.stderr
    live = [row["instance_id"] for row in vast.simulator("/sim/status")["live"]]
    assert live == [foreign]
    assert cost >= billed - 0.001  # traffic is billed by the byte and told by no listing
