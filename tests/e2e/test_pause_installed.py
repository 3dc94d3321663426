"""Stop, start, policy and lease with the installed programs and a machine one can log in to."""

import json
from collections.abc import Iterator

import pytest

from support.installed import TRAINING, Installed, installed

pytestmark = [pytest.mark.e2e, pytest.mark.ssh]


@pytest.fixture
def vast() -> Iterator[Installed]:
    with installed() as made:
        (made.project / "train.py").write_text(TRAINING)
        made.start()
        yield made


def test_a_machine_is_stopped_and_had_again_with_its_disk_while_vastd_dies(
    vast: Installed,
) -> None:
    up = vast.vastctl("up", "box", "-y", "--hours", "1", "--gpu-ram", "24", "--budget", "2")
    assert up.returncode == 0, up.stderr
    wrote = vast.vastctl("exec", "box", "--", "sh", "-c", "echo kept > /workspace/note")
    assert wrote.returncode == 0, wrote.stderr
    running_usd_h = vast.json("show", "box")["dph_usd"]

    stopping = vast.begin("stop", "box")
    vast.wait_for("stop_asked")
    vast.kill()
    vast.start()
    _, told = stopping.communicate(timeout=120)

    assert stopping.returncode == 0, told
    assert "its disk goes on billing" in told
    view = vast.json("show", "box")
    assert (view["phase"], view["wanted"]) == ("stopped", None)
    assert view["dph_usd"] == view["storage_dph_usd"] < running_usd_h
    assert "stopped" in vast.vastctl("ls").stdout
    assert vast.vastctl("exec", "box", "--", "true").returncode != 0
    assert "none needed while it stands still" in vast.vastctl("lease", "box").stdout

    refused = vast.vastctl("start", "box")
    assert refused.returncode == 2, refused.stderr
    started = vast.vastctl("start", "box", "-y")
    assert started.returncode == 0, started.stderr

    read = vast.vastctl("exec", "box", "--", "cat", "/workspace/note")
    assert (read.returncode, read.stdout) == (0, "kept\n"), read.stderr
    kinds = [step["kind"] for step in vast.json("explain", "box")["timeline"]]
    order = [
        k
        for k in kinds
        if k in {"stop_asked", "instance_stopped", "start_asked", "instance_resumed"}
    ]
    assert order == ["stop_asked", "instance_stopped", "start_asked", "instance_resumed"]

    changed = vast.json("policy", "box", "max_runtime=3h", "budget=3")
    assert (changed["max_runtime_s"], changed["budget_usd"]) == (10_800.0, 3.0)
    over = vast.vastctl("policy", "box", "budget=0.0001")
    assert over.returncode == 6, over.stderr
    assert "would end rental 'box' now" in over.stderr
    dear = vast.vastctl("policy", "box", "budget=1000")
    assert dear.returncode == 6, dear.stderr
    assert vast.json("policy", "box")["budget_usd"] == 3.0
    assert vast.vastctl("policy", "box", "budget=0.0001", "-y").returncode == 0

    vast.wait_for("found_absent")
    assert vast.json("show", "box")["end_reason"] == "budget"
    assert vast.live() == 0


def test_a_job_is_ended_by_a_forced_stop_and_its_results_are_home(vast: Installed) -> None:
    run = vast.vastctl(
        "run", "-y", "--detach", "--keep", "--name", "lab", "--hours", "1", "--gpu-ram", "24",
        "--budget", "2", "--output", "results", "--", "sh", "-c",
        "mkdir results; echo half > results/part; sleep 600",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    vast.wait_for("job_started")

    busy = vast.vastctl("stop", "lab")
    assert busy.returncode == 12, busy.stderr
    stopped = vast.vastctl("--json", "stop", "lab", "--force", "--reason", "lunch")

    assert stopped.returncode == 0, stopped.stderr
    assert json.loads(stopped.stdout)["phase"] == "stopped"
    job = vast.json("job", "show", "lab")
    assert (job["state"], job["collected"]) == ("cancelled", True)
    assert (vast.project / "results/part").read_text() == "half\n"
    assert vast.vastctl("destroy", "lab", "-y").returncode == 0
    assert vast.live() == 0


def test_results_that_are_only_on_a_stopped_disk_are_not_destroyed_by_the_way(
    vast: Installed,
) -> None:
    run = vast.vastctl(
        "run", "-y", "--detach", "--keep", "--name", "lab", "--hours", "1", "--gpu-ram", "24",
        "--budget", "2", "--output", "results", "--", "python3", "train.py", "3000",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    vast.wait_for("job_started")
    stopped = vast.vastctl("stop", "lab", "--force", "--reason", "lunch", "--no-collect")
    assert stopped.returncode == 0, stopped.stderr

    refused = vast.vastctl("destroy", "lab", "-y")

    assert refused.returncode == 11, refused.stderr
    assert "vastctl start lab" in refused.stderr
    assert vast.live() == 1
    assert vast.vastctl("destroy", "lab", "-y", "--no-collect").returncode == 0
    assert vast.live() == 0
