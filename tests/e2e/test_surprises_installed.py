"""What happens to files behind the back of a running vastd: noticed, told, nothing lost."""

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.installed import Installed, installed

pytestmark = [pytest.mark.e2e, pytest.mark.ssh]

RUN = ("run", "-y", "--detach", "--keep", "--name", "lab", "--hours", "1", "--gpu-ram", "24",
       "--budget", "2", "--output", "results", "--", "sh", "-c",
       "mkdir results; echo precious > results/r; sleep 600")  # fmt: skip


@pytest.fixture
def vast() -> Iterator[Installed]:
    with installed() as made:
        made.start()
        yield made


def check(vast: Installed, name: str) -> dict:  # type: ignore[type-arg]
    done = vast.vastctl("--json", "doctor")
    return next(c for c in json.loads(done.stdout)["checks"] if c["id"] == name)


def test_a_store_that_is_removed_under_a_running_vastd_is_noticed_and_rents_nothing(
    vast: Installed,
) -> None:
    assert check(vast, "store")["level"] == "ok"
    (vast.state / "vastd.db").rename(vast.root / "away.db")

    refused = vast.vastctl(*RUN)

    assert refused.returncode != 0
    assert "was removed or replaced while vastd had it open" in refused.stderr
    assert vast.creates() == []
    found = check(vast, "store")
    assert (found["level"], "removed or replaced" in found["text"]) == ("blocker", True)


def test_what_lies_on_a_machine_that_was_taken_over_is_not_destroyed_by_the_way(
    vast: Installed,
) -> None:
    assert vast.vastctl(*RUN).returncode == 0
    vast.wait_for("job_started")
    vast.kill()
    for lost in vast.state.glob("vastd.db*"):
        lost.unlink()
    vast.start()
    vast.wait_for("rental_adopted")
    (machine,) = vast.json("ls")["rentals"]
    assert machine["budget_usd"] == 2.0  # the state file still knew its limit
    assert vast.vastctl("daemon", "acknowledge").returncode == 0

    refused = vast.vastctl("destroy", machine["rental_id"], "-y")

    assert refused.returncode == 11, refused.stderr
    assert "was taken over after the store was lost" in refused.stderr
    assert vast.live() == 1
    given_up = vast.vastctl("destroy", machine["rental_id"], "-y", "--no-collect")
    assert given_up.returncode == 0, given_up.stderr
    assert vast.live() == 0


def test_a_configuration_that_was_broken_on_disk_is_told_before_the_next_start(
    vast: Installed,
) -> None:
    assert check(vast, "config")["level"] == "ok"
    (vast.root / "config.toml").write_text("x = [")

    found = check(vast, "config")

    assert found["level"] == "blocker"
    assert "config.toml:1" in found["text"]
    assert "the next start fails" in found["text"]


def test_a_newer_store_ends_with_a_code_that_no_restart_tries_again(vast: Installed) -> None:
    vast.stop()
    with sqlite3.connect(vast.state / "vastd.db") as store:
        store.execute("PRAGMA user_version = 999")
    store.close()

    done = subprocess.run(
        [vast.program("vastd"), "--simulate"], env=vast.env, cwd=vast.root, text=True,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 4, done.stderr
    assert "schema version 999" in done.stderr


def test_a_start_tells_what_this_start_logged_and_nothing_older(vast: Installed) -> None:
    vast.stop()
    log = Path(vast.state / "logs" / "vastd.log")
    log.parent.mkdir(exist_ok=True)
    log.write_text("vastd: an old trouble\n")
    (vast.root / "config.toml").write_text("x = [")

    done = vast.vastctl("daemon", "start", "--simulate")

    assert done.returncode == 4, done.stderr
    assert "config.toml:1" in done.stderr
    assert "an old trouble" not in done.stderr


def test_a_state_directory_that_cannot_be_made_is_no_bug(tmp_path: Path) -> None:
    with installed() as vast:
        (vast.root / "file").write_text("")
        env = {**vast.env, "VASTD_STATE_DIR": str(vast.root / "file" / "state")}
        done = subprocess.run(
            [vast.program("vastctl"), "daemon", "start", "--simulate"], env=env, cwd=tmp_path,
            text=True, capture_output=True, timeout=60, check=False,
        )  # fmt: skip

    assert done.returncode == 4
    assert "cannot be written" in done.stderr
    assert "bug" not in done.stderr


def lose_state(vast: Installed) -> None:
    """Take the state directory away, but for what plays Vast."""
    kept = vast.root / "kept"
    vast.state.rename(kept)
    vast.state.mkdir()
    (kept / "simulator").rename(vast.state / "simulator")


def test_a_state_directory_removed_under_a_running_vastd_rents_nothing_and_still_ends_everything(
    vast: Installed,
) -> None:
    assert vast.vastctl(*RUN).returncode == 0
    vast.wait_for("job_started")
    lose_state(vast)
    vast.socket.unlink()  # as if it had been in there, too
    env = {**vast.env, "VASTD_SOCKET": str(vast.root / "other.sock")}
    second = subprocess.run(
        [vast.program("vastd"), "--simulate"], env=env, cwd=vast.root, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip

    assert second.returncode != 0
    assert "although its files were removed" in second.stderr
    assert "from memory" in second.stderr
    assert vast.live() == 1


def test_without_its_state_directory_vastd_says_so_and_destroys_what_it_is_told_to(
    vast: Installed,
) -> None:
    assert vast.vastctl(*RUN).returncode == 0
    vast.wait_for("job_started")
    lose_state(vast)

    assert check(vast, "store")["level"] == "blocker"
    refused = vast.vastctl(*RUN[:4], "--name", "more", *RUN[6:])
    assert refused.returncode != 0
    assert "removed or replaced" in refused.stderr
    assert [r["phase"] for r in vast.json("ls")["rentals"]] == ["busy"]
    ended = vast.vastctl("destroy", "lab", "-y", "--force", "--reason", "gone", "--no-collect")
    assert vast.live() == 0, ended.stderr
    assert vast.daemon is not None
    assert vast.daemon.poll() is None
