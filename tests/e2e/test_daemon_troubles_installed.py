"""Troubles around the installed daemon: files, sockets, signals and a damaged store; nothing is lost."""

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.installed import FAST, LIMIT_S, TRAINING, Installed, installed, run_words

pytestmark = pytest.mark.e2e

LONG = 600  # steps: a job that outlasts its test


@pytest.fixture
def vast() -> Iterator[Installed]:
    with installed() as made:
        (made.project / "train.py").write_text(TRAINING)
        yield made
        assert "Traceback" not in made.log() if (made.root / "vastd.log").exists() else True


def vastd(vast: Installed, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Start a daemon that must end by itself."""
    return subprocess.run(
        [*vast.enter, vast.program("vastd"), "--simulate", *words], env=vast.env | changes, cwd=vast.root,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def running(vast: Installed) -> subprocess.Popen[str]:
    """Begin a long job and return its client once the job runs."""
    client = vast.begin(*run_words(LONG))
    vast.wait_for("job_started")
    return client


# -- what keeps it from starting


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[timing]\nsetle_s = 1\n", "config.toml:2: unknown key 'setle_s'"),
        ("[timng]\nsettle_s = 1\n", "did you mean 'timing'"),
        ('[timing]\nsettle_s = "abc"\n', "config.toml:2: timing.settle_s: expected a number"),
        ("[timing]\nsettle_s = nan\n", "timing.settle_s"),
        ("[timing\n", "config.toml:1: not valid TOML"),
        ("timing = 3\n", "write [timing]"),
    ],
)
def test_a_configuration_that_cannot_be_meant_names_file_line_and_remedy(
    vast: Installed, text: str, said: str
) -> None:
    Path(vast.env["VASTD_CONFIG"]).write_text(text)

    done = vastd(vast)

    assert done.returncode == 4
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (vast.state / "vastd.db").exists()


def test_a_socket_path_over_the_limit_is_told_on_both_sides(vast: Installed) -> None:
    long = str(vast.root / ("x" * 120))

    daemon = vastd(vast, VASTD_SOCKET=long)
    vast.env["VASTD_SOCKET"] = long
    client = vast.vastctl("ls")

    assert (daemon.returncode, client.returncode) == (4, 4)
    assert "VASTD_SOCKET" in daemon.stderr
    assert "VASTD_SOCKET" in client.stderr


def test_a_file_where_the_socket_belongs_is_left_alone(vast: Installed) -> None:
    vast.socket.write_text("precious")

    done = vastd(vast)

    assert done.returncode == 4
    assert "is no socket" in done.stderr
    assert vast.socket.read_text() == "precious"


def test_a_second_daemon_is_refused_and_the_first_goes_on(vast: Installed) -> None:
    vast.start()

    same_state = vastd(vast)
    same_socket = vastd(vast, VASTD_STATE_DIR=str(vast.root / "other"))

    for done in (same_state, same_socket):
        assert done.returncode == 6
        assert "another vastd" in done.stderr
        assert "vastctl daemon stop" in done.stderr
    assert vast.vastctl("ls").returncode == 0
    assert not (vast.root / "other/simulator").exists(), "the refused one started a simulator"


def test_a_relative_state_directory_works(vast: Installed) -> None:
    vast.env["VASTD_STATE_DIR"] = "state"

    vast.start()

    assert vast.json("daemon", "status")["state_dir"] == str(vast.state)


def test_a_stale_socket_and_lock_hinder_nobody(vast: Installed) -> None:
    vast.start()
    vast.kill()
    assert vast.socket.exists()
    before = vast.vastctl("ls")

    vast.start()

    assert before.returncode == 3
    assert "no live rental is on record" in before.stderr
    assert vast.vastctl("ls").returncode == 0


def test_a_state_directory_that_cannot_be_written_is_told(vast: Installed) -> None:
    closed = vast.root / "closed"
    closed.mkdir(mode=0o500)
    # Root may write into every directory, until it gives that right away.
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"]
    vast.enter = drop if os.geteuid() == 0 else []

    done = vastd(vast, VASTD_STATE_DIR=str(closed / "state"))

    assert done.returncode == 4
    assert "VASTD_STATE_DIR" in done.stderr
    assert list(closed.iterdir()) == []


# -- while machines are rented


def test_without_a_daemon_the_client_tells_how_many_rentals_are_on_record(vast: Installed) -> None:
    vast.start()
    client = running(vast)
    client.kill()
    client.communicate()
    vast.kill()

    done = vast.vastctl("ls")
    as_json = vast.vastctl("--json", "ls")

    assert (done.returncode, done.stdout) == (3, "")
    assert "1 simulated rental is on record" in done.stderr
    assert as_json.returncode == 3
    assert "1 simulated rental" in json.loads(as_json.stderr)["error"]["data"]["hint"]


def _truncate(db: Path) -> None:
    os.truncate(db, 0)


def _overwrite(db: Path) -> None:
    db.write_bytes(b"garbage" * 4000)


@pytest.mark.parametrize("damage", [_truncate, _overwrite])
def test_a_damaged_store_is_put_aside_and_the_machine_taken_over(
    vast: Installed, damage: Callable[[Path], None]
) -> None:
    vast.start()
    client = running(vast)
    client.kill()
    client.communicate()
    vast.kill()
    for extra in ("vastd.db-wal", "vastd.db-shm"):
        (vast.state / extra).unlink(missing_ok=True)
    damage(vast.state / "vastd.db")

    vast.start()
    vast.wait_for("rental_adopted")
    listed = vast.json("ls")["rentals"]
    locked = vast.vastctl(*run_words(1))
    opened = vast.vastctl("-y", "daemon", "acknowledge")

    assert len(listed) == 1
    assert locked.returncode != 0
    assert "vastctl daemon acknowledge" in locked.stderr
    assert opened.returncode == 0, opened.stderr
    assert vast.vastctl(*run_words(1)).returncode == 0
    ended = vast.vastctl("destroy", "-y", "--no-collect", "--force", "--reason", "test", listed[0]["rental_id"])  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert vast.live() == 0


def test_a_newer_schema_is_refused_untouched(vast: Installed) -> None:
    vast.start()
    assert vast.stop() == 0
    db = vast.state / "vastd.db"
    with sqlite3.connect(db) as connection:
        connection.execute("PRAGMA user_version = 9999")
    connection.close()
    before = db.read_bytes()

    done = vastd(vast)

    assert done.returncode != 0
    assert "newer" in done.stderr
    assert db.read_bytes() == before


def test_ctrl_c_detaches_and_the_job_goes_on(vast: Installed) -> None:
    vast.start()
    client = vast.begin(*run_words(100))  # ten seconds: not over before the signal
    vast.wait_for("job_started")

    client.send_signal(signal.SIGINT)
    _, err = client.communicate(timeout=LIMIT_S)

    assert "goes on" in err
    assert vast.vastctl("job", "wait", "lab").returncode == 0
    assert (vast.project / "results/metrics.json").exists()
    assert vast.live() == 0


def test_two_runs_at_once_in_one_project_get_two_names(vast: Installed) -> None:
    vast.start()
    words = ("run", "-y", "--hours", "1", "--gpu-ram", "24", "--budget", "2", "--", "echo", "hello")
    clients = [vast.begin(*words) for _ in range(2)]

    ended = [client.communicate(timeout=120) for client in clients]

    assert [client.returncode for client in clients] == [0, 0], ended
    assert [out for out, _ in ended] == ["hello\n", "hello\n"]
    jobs = vast.json("jobs", "--all")["jobs"]
    assert len({job["name"] for job in jobs}) == 2
    assert len({job["rental_id"] for job in jobs}) == 2
    assert vast.live() == 0


def test_an_offer_cannot_be_rented_twice(vast: Installed) -> None:
    vast.start()
    offer = str(vast.json("offers", "gpu_ram>=24")["offers"][0]["offer_id"])
    first = vast.vastctl("rent", "-y", offer, "--name", "mine")
    again = vast.vastctl("rent", "-y", offer, "--name", "twice")
    gone = vast.vastctl("destroy", "-y", "--no-collect", "mine")

    assert first.returncode == 0, first.stderr
    assert (again.returncode, gone.returncode) == (9, 0)
    assert f"offer {offer}" in again.stderr
    assert len(vast.creates()) == 1
    assert vast.live() == 0


# Some are refused by `vastctl`, the rest by vastd: the user must not feel the difference.
@pytest.mark.parametrize("place", ["/", "/root", "/root/../root", "//", "/etc"])
def test_nothing_is_pushed_where_it_would_lock_everybody_out(rented: Installed, place: str) -> None:
    done = rented.vastctl("push", "box", "train.py", place)

    assert done.returncode == 6
    assert "/workspace" in done.stderr


@pytest.fixture(scope="module")
def rented() -> Iterator[Installed]:
    with installed() as made:
        (made.project / "train.py").write_text(TRAINING)
        made.start()
        offer = str(made.json("offers", "gpu_ram>=24")["offers"][0]["offer_id"])
        assert made.vastctl("rent", "-y", offer, "--name", "box").returncode == 0
        yield made


def test_a_repeated_request_id_rents_once(rented: Installed) -> None:
    params = {
        "project": str(rented.project), "command": ["true"], "request_id": "once",
        "needs": {"hours": 1, "gpu_ram_gb": 24}, "policy": {"budget_usd": 2},
    }  # fmt: skip
    answers = [rented.json("rpc", "job.submit", json.dumps(params)) for _ in range(3)]

    assert len({answer["job"]["job_id"] for answer in answers}) == 1
    assert rented.vastctl("job", "wait", answers[0]["job"]["job_id"]).returncode == 0
    assert len(rented.creates()) == 2  # `box` and this one


def test_an_ambiguous_name_lists_what_it_fits_and_ends_nothing(rented: Installed) -> None:
    offer = str(rented.json("offers", "gpu_ram>=24")["offers"][0]["offer_id"])
    assert rented.vastctl("rent", "-y", offer, "--name", "box-two").returncode == 0

    done = rented.vastctl("destroy", "-y", "bo")
    refused = rented.vastctl("destroy", "box")

    assert done.returncode == 2
    assert "box-two" in done.stderr
    assert refused.returncode == 2
    assert "-y" in refused.stderr
    assert rented.live() == 2


@pytest.mark.parametrize(
    "moment", ["create_sent", "instance_running", "synced", "job_started", "destroy_decided"]
)
def test_a_stop_in_any_phase_is_clean_and_the_run_goes_on(vast: Installed, moment: str) -> None:
    vast.start()
    client = vast.begin(*run_words(5))
    vast.wait_for(moment)

    began = time.monotonic()
    code = vast.stop()
    took = time.monotonic() - began
    vast.start()
    _, err = client.communicate(timeout=120)

    assert (code, client.returncode) == (0, 0), err
    assert took < 10.0
    creates = vast.creates()
    assert len(creates) == len(set(creates))
    assert vast.live() == 0


def test_a_change_of_the_file_that_cannot_be_read_keeps_the_old_settings(vast: Installed) -> None:
    vast.start()
    Path(vast.env["VASTD_CONFIG"]).write_text("[timing\n")

    done = vast.vastctl("rpc", "daemon.reload")
    Path(vast.env["VASTD_CONFIG"]).write_text(FAST)

    assert done.returncode == 4
    assert vast.vastctl("ls").returncode == 0
