"""The main job with the installed programs, while clients and the daemon are killed."""

import json
from collections.abc import Iterator

import pytest

from support.installed import TRAINING, Installed, installed, run_words

pytestmark = pytest.mark.e2e

STEPS = 30
LOG = "".join(f"step {number:04d}\n" for number in range(STEPS))


@pytest.fixture
def vast() -> Iterator[Installed]:
    with installed() as made:
        (made.project / "train.py").write_text(TRAINING)
        yield made


def assert_settled(vast: Installed) -> None:
    """Everything home, nothing billing, one create per rental."""
    assert vast.vastctl("job", "wait", "lab").returncode == 0
    job = vast.json("job", "show", "lab")
    assert (job["state"], job["exit_code"], job["collected"]) == ("succeeded", 0, True)
    metrics = json.loads((vast.project / "results/metrics.json").read_text())
    assert metrics == {"steps": STEPS}
    assert vast.live() == 0
    creates = vast.creates()
    assert len(creates) == len(set(creates))
    rental = vast.json("show", job["rental_id"])
    assert rental["phase"] == "gone"
    assert rental["end_reason"] == "job_done"


def test_run_brings_the_results_home_and_ends_the_machine(vast: Installed) -> None:
    vast.start()

    done = vast.vastctl(*run_words(STEPS))

    assert done.returncode == 0, done.stderr
    assert done.stdout == LOG
    assert_settled(vast)
    assert len(vast.creates()) == 1
    entries = json.loads((vast.project / "vast-instances.json").read_text())
    assert [(e["status"], e["experiment"]) for e in entries] == [("destroyed", "lab")]
    assert vast.stop() == 0


def test_a_killed_client_loses_nothing_and_another_reads_the_whole_log(vast: Installed) -> None:
    vast.start()
    client = vast.begin(*run_words(STEPS))
    vast.wait_for("job_started")

    client.kill()
    client.communicate()
    followed = vast.vastctl("logs", "lab", "-f")

    assert followed.stdout == LOG
    assert_settled(vast)


# Every commit and every call is a moment in `tests/daemon`, on virtual time; these are the real ones
# in which another process is involved. (A kill before the create's answer waits 120 s for its label.)
@pytest.mark.parametrize(
    "moment", ["create_confirmed", "instance_running", "synced", "job_started", "destroy_tried"]
)
@pytest.mark.req("FAI-10")
def test_a_killed_daemon_resumes_and_the_client_sees_the_end(vast: Installed, moment: str) -> None:
    vast.start()
    client = vast.begin(*run_words(STEPS))
    vast.wait_for(moment)

    vast.kill()
    vast.start()
    out, err = client.communicate(timeout=120)

    assert client.returncode == 0, err
    assert out == LOG
    assert_settled(vast)


def test_stopping_the_daemon_destroys_nothing(vast: Installed) -> None:
    vast.start()
    client = vast.begin(*run_words(STEPS))
    vast.wait_for("job_started")

    assert vast.stop() == 0
    assert vast.live() == 1
    vast.start()
    out, err = client.communicate(timeout=120)

    assert client.returncode == 0, err
    assert out == LOG
    assert_settled(vast)
