"""The lease with the installed programs: vastd is gone for good, and the bill ends all the same."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.installed import FAST, Installed, installed

pytestmark = [pytest.mark.e2e, pytest.mark.ssh]

LEASE_S = 8
RULES = f"""\
lease_s = {LEASE_S}
lease_renew_s = 2
lease_while_busy = "lease_s"
"""
SCRIPT = (
    "mkdir -p results; trap 'echo saved >results/checkpoint; exit 0' TERM; echo up; "
    "while :; do sleep 0.1; done"
)
SAVES = ("sh", "-c", SCRIPT)
NEEDS = ("-y", "--hours", "1", "--gpu-ram", "24", "--budget", "2")


@pytest.fixture
def vast() -> Iterator[Installed]:
    with installed() as made:
        yield made


def begin(vast: Installed, *rules: str) -> None:
    (vast.root / "config.toml").write_text(FAST + RULES + "".join(f"{rule}\n" for rule in rules))
    vast.start()


def until(vast: Installed, instance_id: int, state: str) -> dict[str, Any]:
    """Wait until the machine is in that state."""
    told: dict[str, Any] = vast.simulator(f"/sim/wait/{instance_id}/?state={state}")
    return told


def carried_out(vast: Installed) -> list[str]:
    calls = vast.simulator("/sim/journal")["market"]
    return [
        c["kind"] for c in calls if c["kind"] in ("create", "stop", "destroy") and not c["refused"]
    ]


def on_disk(vast: Installed, instance_id: int, path: str) -> Path:
    return vast.state / "simulator" / "instances" / str(instance_id) / "disk-1" / "root" / path


def test_an_idle_machine_ends_itself_when_vastd_is_gone_for_good(vast: Installed) -> None:
    begin(vast)
    up = vast.vastctl("up", "box", *NEEDS)
    assert up.returncode == 0, up.stderr
    held = vast.json("lease", "box")
    assert (held["armed"], held["then"], held["uncollected"]) == (True, "destroy", [])
    assert "in " in vast.vastctl("ls").stdout.splitlines()[1]
    assert "1 machine armed" in vast.vastctl("doctor").stdout

    vast.kill()

    until(vast, held_id(vast), "gone")
    assert vast.live() == 0
    assert carried_out(vast) == ["create", "destroy"]
    # And whoever starts vastd again is told why.
    vast.start()
    vast.wait_for("found_absent")
    shown = vast.json("show", "box")
    assert (shown["phase"], shown["end_reason"]) == ("gone", "lease")


def held_id(vast: Installed) -> int:
    (only,) = vast.simulator("/sim/status")["live"]
    found: int = only["instance_id"]
    return found


@pytest.mark.parametrize(
    ("rule", "expected"),
    [('on_expiry = "stop_if_uncollected"', "stop"), ('on_expiry = "destroy"', "destroy")],
)
def test_a_busy_machine_lets_its_job_save_and_keeps_the_disk_unless_told_otherwise(
    vast: Installed, rule: str, expected: str
) -> None:
    begin(vast, rule)
    run = vast.vastctl(
        "run", "--name", "lab", *NEEDS, "--detach", "--output", "results", "--", *SAVES
    )
    assert run.returncode == 0, run.stderr
    vast.wait_for("job_began")
    instance_id = held_id(vast)
    wait_for_lease_of(vast, "lab")

    vast.kill()

    until(vast, instance_id, "down" if expected == "stop" else "gone")
    assert carried_out(vast) == ["create", expected]
    if expected == "stop":
        saved = on_disk(vast, instance_id, "workspace/project/results/checkpoint")
        assert saved.read_text() == "saved\n"
        assert vast.live() == 1  # its storage bills until somebody decides
        bring_home(vast)


def wait_for_lease_of(vast: Installed, name: str) -> None:
    """Return when the machine has been told of its job."""
    for _ in range(100):  # each question takes a moment
        if vast.json("lease", name)["uncollected"]:
            return
    raise AssertionError(vast.json("lease", name))


def bring_home(vast: Installed) -> None:
    """Come back later: the machine is started once more, only to be emptied."""
    vast.start()
    vast.wait_for("instance_stopped")
    shown = vast.json("show", "lab")
    assert (shown["phase"], shown["end_reason"]) == ("stopped", "lease")
    started = vast.vastctl("start", "lab", "-y", "--no-wait")
    assert started.returncode == 0, started.stderr
    vast.wait_for("found_absent")
    assert (vast.project / "results" / "checkpoint").read_text() == "saved\n"
    assert carried_out(vast) == ["create", "stop", "destroy"]


def test_a_computer_that_slept_for_longer_than_the_lease_ends_nothing_twice(
    vast: Installed,
) -> None:
    begin(vast)
    up = vast.vastctl("up", "box", *NEEDS)
    assert up.returncode == 0, up.stderr
    instance_id = held_id(vast)
    assert vast.daemon is not None
    os.kill(vast.daemon.pid, signal.SIGSTOP)

    until(vast, instance_id, "gone")
    os.kill(vast.daemon.pid, signal.SIGCONT)
    vast.wait_for("found_absent")

    shown = vast.json("show", "box")
    assert (shown["phase"], shown["end_reason"]) == ("gone", "lease")
    assert carried_out(vast) == ["create", "destroy"]
    billed = vast.simulator("/sim/status")["billed_usd"]
    assert billed <= shown["cost_usd"] <= 2 * billed + 0.01


def test_a_renewal_that_was_asked_for_is_confirmed_by_the_machine(vast: Installed) -> None:
    begin(vast)
    up = vast.vastctl("up", "box", *NEEDS)
    assert up.returncode == 0, up.stderr

    renewed = vast.vastctl("lease", "box", "--renew", "2h")

    assert renewed.returncode == 0, renewed.stderr
    assert "ends itself in 1h59m" in renewed.stdout or "ends itself in 2h00m" in renewed.stdout
    refused = vast.vastctl("lease", "box", "--renew", "30d")
    assert refused.returncode == 6
    assert "max_runtime=DUR" in refused.stderr
    expiry = on_disk(vast, held_id(vast), "root/.vastd/expiry").read_text()
    assert 7000 < int(expiry) - time.time() < 7300
