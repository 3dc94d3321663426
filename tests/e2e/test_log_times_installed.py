"""One real daemon: times of a log across a kill, a bridge that ends with it, one Vast per record."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from support.installed import LIMIT_S, TRAINING, Installed, installed, run_words

pytestmark = pytest.mark.e2e


@pytest.fixture
def vast() -> Iterator[Installed]:
    with installed() as made:
        (made.project / "train.py").write_text(TRAINING)
        yield made
        assert "Traceback" not in made.log()


def started(vast: Installed) -> str:
    """Begin a job that outlasts the test; return its id once it runs."""
    client = vast.begin(*run_words(600))
    job_id: str = vast.wait_for("job_started")["job_id"]
    client.kill()
    client.communicate()
    return job_id


def until_line(vast: Installed, *words: str) -> str:
    """Follow the log until its first whole line; return that."""
    with subprocess.Popen(
        [vast.program("vastctl"), "logs", "-f", *words], env=vast.env, cwd=vast.project, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as follower:  # fmt: skip
        assert follower.stdout is not None
        line = follower.stdout.readline()
        follower.kill()
        return line


def test_times_survive_a_kill_the_bridge_does_not_and_another_vast_is_refused(
    vast: Installed,
) -> None:
    config = vast.root / "config.toml"
    config.write_text(f"{config.read_text()}ssh_connect_s = 41\n")
    vast.start()
    job_id = started(vast)
    assert "ConnectTimeout=41" in vast.json("rpc", "ssh.endpoint", "{}")["argv"]
    line = until_line(vast, "--timestamps", job_id)
    assert line.endswith("  step 0000\n")
    assert line.startswith("20")

    # An editor's bridge: it answers, and ends with 3 when the daemon is killed.
    with subprocess.Popen(
        [vast.program("vastctl"), "rpc", "--stdio"], env=vast.env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as bridge:  # fmt: skip
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        body = b'{"jsonrpc":"2.0","id":1,"method":"daemon.status","params":{}}'
        bridge.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        bridge.stdin.flush()
        assert bridge.stdout.readline().startswith(b"Content-Length: ")
        vast.kill()
        assert bridge.wait(LIMIT_S) == 3

    # The rental is of the simulated Vast: a start for the real one is refused, both are named.
    refused = subprocess.run(
        [vast.program("vastd")], env=vast.env, cwd=vast.root, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert refused.returncode == 4
    assert "the simulated Vast" in refused.stderr
    assert "the Vast at https://" in refused.stderr
    assert "--simulate" in refused.stderr

    vast.start()  # and it goes on where it was, with the simulator it finds
    known = vast.vastctl("logs", "--timestamps", job_id).stdout.splitlines()
    view = vast.json("rpc", "log.read", json.dumps({"job": job_id, "times": True}))
    assert known
    assert known[0] == line.rstrip("\n")
    assert view["times"]
    assert vast.vastctl("logs", "--since", "1d", job_id).stdout.startswith("step 0000\n")
    (vast.state / "logs/jobs" / f"{job_id}.times").unlink()
    lost = vast.vastctl("logs", "--since", "1s", job_id)
    assert "it is not known of every line" in lost.stderr
    assert lost.stdout.startswith("step 0000\n")
    assert (
        vast.vastctl("destroy", "-y", "--no-collect", "--force", "--reason", "x", "lab").returncode
        == 0
    )


def test_a_dry_run_on_a_machine_that_is_not_there_is_5(vast: Installed) -> None:
    vast.start()

    done = vast.vastctl("run", "--on", "nosuch", "--dry-run", "--", "true")

    assert done.returncode == 5
    assert "nosuch" in done.stderr
