"""Own troubles of the installed daemon: disks, signals, sockets, upgrades, old and large files."""

import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.installed import FAST, LIMIT_S, TRAINING, Installed, installed, run_words
from support.old_store import put_back_to_v1
from support.permissions import NOBODY_UID
from support.small_disk import small_disk

pytestmark = pytest.mark.e2e

LONG = 600  # steps: a job that outlasts its test
STOP_LIMIT_S = 10.0
RENTS = {
    "command": ["true"], "needs": {"hours": 1, "gpu_ram_gb": 24}, "policy": {"budget_usd": 2},
}  # fmt: skip


@pytest.fixture
def vast() -> Iterator[Installed]:
    with installed() as made:
        (made.project / "train.py").write_text(TRAINING)
        yield made
        log = made.root / "vastd.log"
        assert not log.exists() or "Traceback" not in log.read_text()


def second(vast: Installed, **changes: str) -> subprocess.CompletedProcess[str]:
    """Start a daemon that must end by itself."""
    return subprocess.run(
        [*vast.enter, vast.program("vastd"), "--simulate"], env=vast.env | changes, cwd=vast.root,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def running(vast: Installed, steps: int = LONG) -> None:
    """Begin a job and return once it runs; nobody attends it."""
    client = vast.begin(*run_words(steps))
    vast.wait_for("job_started")
    client.kill()
    client.communicate()


def submit(vast: Installed) -> subprocess.CompletedProcess[str]:
    """Ask for one more machine."""
    return vast.vastctl("rpc", "job.submit", json.dumps(RENTS | {"project": str(vast.project)}))


def destroy(vast: Installed) -> subprocess.CompletedProcess[str]:
    return vast.vastctl("destroy", "-y", "--no-collect", "--force", "--reason", "test", "lab")


def without_privileges(vast: Installed) -> None:
    """Let the daemon run without root's right to write into every directory; as the same user, so
    that it finds the programs installed here. The simulator is another machine and keeps it."""
    vast.start()
    assert vast.stop() == 0
    if os.geteuid() == 0:
        vast.enter = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"]


# -- disks


def test_on_a_full_disk_endings_go_on_and_nothing_is_rented_until_there_is_room(
    vast: Installed,
) -> None:
    with small_disk(vast.state, vast.root / "simulator") as disk:
        if disk is None:
            pytest.skip("this machine forbids mounts in a namespace of one's own")
        vast.enter, vast.state = disk.enter, disk.path
        vast.start()
        running(vast)
        disk.fill()
        disk_full = destroy(vast)  # into the reserve
        refused = submit(vast)
        reserve = (disk.path / "reserve").exists()
        status = vast.json("daemon", "status")
        disk.free()
        vast.wait_for_no_warning()
        again = submit(vast)
        code = vast.stop()
        vast.end()  # while the directory can be seen

        assert disk_full.returncode == 0, disk_full.stderr
        assert not reserve
        assert refused.returncode == 6
        assert "nothing new is rented while the disk refuses" in refused.stderr
        assert any("reserved for endings" in warning for warning in status["warnings"])
        assert again.returncode == 0, again.stderr
        assert code == 0


def test_a_disk_without_any_room_left_ends_machines_from_memory_and_writes_it_later(
    vast: Installed,
) -> None:
    vast.start()
    running(vast)
    assert vast.daemon is not None
    resource.prlimit(vast.daemon.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    ended = destroy(vast)
    refused = submit(vast)
    live = vast.live()
    in_memory = vast.json("events", "-n", "1")["events"]
    resource.prlimit(
        vast.daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    gone = vast.wait_for("found_absent")
    vast.wait_for_no_warning()
    vast.kill()
    vast.start()

    assert ended.returncode == 0, ended.stderr
    assert live == 0
    assert refused.returncode == 6, refused.stderr
    assert in_memory[0]["cursor"] < gone["cursor"]
    assert vast.json("ls")["rentals"] == []
    assert vast.json("ls", "--all")["rentals"][0]["phase"] == "gone"


def test_a_state_directory_that_turns_read_only_is_told_and_nothing_is_touched(
    vast: Installed,
) -> None:
    without_privileges(vast)
    before = {p.name: p.stat().st_mtime_ns for p in vast.state.iterdir() if p.is_file()}
    vast.state.chmod(0o500)
    for path in vast.state.iterdir():
        if path.is_file():
            path.chmod(0o400)

    done = second(vast)
    after = {p.name: p.stat().st_mtime_ns for p in vast.state.iterdir() if p.is_file()}
    vast.state.chmod(0o700)

    assert done.returncode == 4
    assert "VASTD_STATE_DIR" in done.stderr
    assert "Traceback" not in done.stderr
    assert after == before


def test_a_file_system_that_turned_read_only_is_told_and_machines_stay_on_record(
    vast: Installed,
) -> None:
    with small_disk(vast.state, vast.root / "simulator") as disk:
        if disk is None:
            pytest.skip("this machine forbids mounts in a namespace of one's own")
        vast.enter, plain = disk.enter, vast.state
        vast.start()
        vast.state = disk.path
        running(vast)
        vast.kill()
        disk.mount(plain, "ro")
        done = second(vast)
        disk.mount(plain, "rw")
        vast.start()

        assert done.returncode == 4
        assert "read-only" in done.stderr.lower()
        assert "VASTD_STATE_DIR" in done.stderr
        assert len(vast.json("ls")["rentals"]) == 1
        assert len(vast.creates()) == 1
        vast.end()  # while the directory can be seen


def test_while_the_directory_is_read_only_a_running_daemon_ends_what_it_rented(
    vast: Installed,
) -> None:
    without_privileges(vast)
    vast.start()
    running(vast)
    vast.state.chmod(0o500)

    ended = destroy(vast)
    listed = vast.vastctl("ls")
    vast.state.chmod(0o700)

    assert ended.returncode == 0, ended.stderr
    assert vast.live() == 0
    assert listed.returncode == 0


# -- the store


def test_a_removed_write_ahead_log_is_noticed_and_the_machine_taken_over(vast: Installed) -> None:
    vast.start()
    running(vast)
    vast.kill()
    (vast.state / "vastd.db-wal").unlink()

    vast.start()
    vast.wait_for("rental_adopted")
    status = vast.json("daemon", "status")
    refused = submit(vast)

    assert (
        "write-ahead log" in status["renting_locked"] or "not the store" in status["renting_locked"]
    )
    assert refused.returncode != 0
    assert "acknowledge" in refused.stderr
    assert len(vast.json("ls")["rentals"]) == 1
    assert list(vast.state.glob("vastd.db.damaged-*"))


def test_an_older_copy_of_the_store_is_not_believed(vast: Installed) -> None:
    vast.start()
    assert vast.stop() == 0
    copy = vast.root / "copy.db"
    shutil.copy(vast.state / "vastd.db", copy)
    vast.start()
    running(vast)
    assert vast.stop() == 0
    shutil.copy(copy, vast.state / "vastd.db")

    vast.start()
    vast.wait_for("rental_adopted")

    assert "older copy" in vast.json("daemon", "status")["renting_locked"]
    assert vast.live() == 1


def test_an_upgrade_of_the_store_while_a_job_runs_loses_nothing(vast: Installed) -> None:
    vast.start()
    running(vast, steps=60)
    assert vast.stop() == 0
    put_back_to_v1(vast.state)

    vast.start()
    waited = vast.vastctl("job", "wait", "lab")

    assert waited.returncode == 0, waited.stderr
    assert json.loads((vast.project / "results/metrics.json").read_text()) == {"steps": 60}
    assert vast.json("logs", "lab")["size"] == len("step 0000\n") * 60
    assert len(vast.creates()) == 1
    assert vast.live() == 0
    assert (vast.state / "vastd.db.before-v3").exists()
    assert vast.json("daemon", "status")["renting_locked"] is None


def test_every_change_repeated_after_a_kill_before_its_answer_was_kept_changes_nothing(
    vast: Installed,
) -> None:
    """The kill leaves the change without its answer; the request comes again with the same id."""
    vast.start()
    offer = str(vast.json("offers", "gpu_ram>=24")["offers"][0]["offer_id"])
    assert vast.vastctl("rent", "-y", offer, "--name", "box").returncode == 0
    running(vast, steps=1)
    assert vast.vastctl("job", "wait", "lab").returncode == 0
    calls = repeatable(vast)
    first = {name: vast.json("rpc", name, json.dumps(params)) for name, params in calls.items()}
    vast.kill()
    forget_answers(vast)
    vast.start()
    before = len(vast.creates())

    again = {name: vast.json("rpc", name, json.dumps(params)) for name, params in calls.items()}

    for name, answer in again.items():
        assert told(answer) == told(first[name]), name
    assert len(vast.creates()) - before <= 2  # the machines of `job.submit` and `job.retry`
    assert len(vast.json("jobs", "--all")["jobs"]) == 3  # lab, its retry, the submitted one
    assert len(vast.json("ls", "--all")["rentals"]) == 4  # box, lab's, and one each


def test_an_end_repeated_after_a_kill_before_its_answer_was_kept_is_decided_once(
    vast: Installed,
) -> None:
    vast.start()
    offer = str(vast.json("offers", "gpu_ram>=24")["offers"][0]["offer_id"])
    assert vast.vastctl("rent", "-y", offer, "--name", "box").returncode == 0
    words = {"rental": "box", "collect": False, "request_id": "once"}
    first = vast.json("rpc", "rental.destroy", json.dumps(words))
    vast.kill()
    forget_answers(vast)
    vast.start()

    again = vast.json("rpc", "rental.destroy", json.dumps(words))
    vast.wait_for("found_absent")

    assert told(again) == told(first)
    decided = [e for e in vast.json("events")["events"] if e["kind"] == "end_decided"]
    assert len(decided) == 1
    assert vast.live() == 0


def forget_answers(vast: Installed) -> None:
    """Leave the store as a kill between the changes and their answers would."""
    with sqlite3.connect(vast.state / "vastd.db") as store:
        store.execute("DELETE FROM answers")
    store.close()


def repeatable(vast: Installed) -> dict[str, dict]:  # type: ignore[type-arg]
    """Return one call of every method that changes something and can be told from its repeat."""
    calls = {
        "job.submit": RENTS | {"project": str(vast.project)},
        "job.retry": {"job": "lab"},
        "file.push": {"rental": "box", "sources": [str(vast.project / "train.py")],
                      "destination": "/workspace/"},
        "file.pull": {"rental": "box", "sources": ["/workspace/train.py"],
                      "destination": str(vast.root / "home")},
        "exec.run": {"rental": "box", "command": "echo hello"},
        "config.set": {"key": "defaults.disk_gb", "value": 33.0},
        "reconcile.run": {},
        "job.cancel": {"job": "lab"},
    }  # fmt: skip
    return {name: params | {"request_id": f"once-{name}"} for name, params in calls.items()}


def told(answer: dict) -> object:  # type: ignore[type-arg]
    """Return what of an answer does not move by itself: which, and what was decided."""
    for part in ("job", "rental"):
        if isinstance(answer.get(part), dict):
            return answer[part][f"{part}_id"]
    keys = ("job_id", "rental_id", "end_reason", "stdout", "exit_code", "value", "destination")
    return [answer.get(key) for key in (*keys, "renting_locked")]


# -- signals


def test_a_stop_during_a_create_that_hangs_takes_seconds_and_leaves_it_to_be_looked_for(
    vast: Installed,
) -> None:
    vast.start()
    hang_the_create(vast)
    assert submit(vast).returncode == 0
    vast.wait_for("create_sent")

    began = time.monotonic()
    code = vast.stop()
    took = time.monotonic() - began
    vast.start()
    found = vast.wait_for("create_unresolved")
    (rental,) = vast.json("ls")["rentals"]

    assert code == 0
    assert took < STOP_LIMIT_S
    assert "vastd was stopped first" in found["reason"]
    assert rental["phase"] == "creating"
    assert vast.creates() == []


def hang_the_create(vast: Installed) -> None:
    """Let the next create go unanswered for two minutes."""
    fault = {"calls": [{"point": "create", "kind": "timeout", "times": 1}]}
    vast.simulator("/sim/faults", json.dumps(fault).encode())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(vast: Installed, number: signal.Signals) -> None:
    vast.start()
    hang_the_create(vast)
    assert submit(vast).returncode == 0
    vast.wait_for("create_sent")
    assert vast.daemon is not None

    vast.daemon.send_signal(signal.SIGTERM)
    _until_logged(vast, "stopping")
    began = time.monotonic()
    vast.daemon.send_signal(number)
    code = vast.daemon.wait(LIMIT_S)

    assert code == -number
    assert time.monotonic() - began < 1.0  # the create would hold it for three seconds
    vast.start()
    assert len(vast.json("ls")["rentals"]) == 1


def _until_logged(vast: Installed, words: str) -> None:
    with subprocess.Popen(
        ["tail", "-n", "+1", "-F", vast.root / "vastd.log"], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as tail:  # fmt: skip
        assert tail.stdout is not None
        found = next(line for line in tail.stdout if words in line)
        tail.kill()
    assert found


# -- sockets and locks


def test_a_directory_where_the_socket_belongs_is_left_alone(vast: Installed) -> None:
    vast.socket.mkdir()

    done = second(vast)

    assert done.returncode == 4
    assert "is no socket" in done.stderr
    assert vast.socket.is_dir()


def test_a_leftover_socket_of_another_user_in_our_directory_is_replaced(vast: Installed) -> None:
    with socket.socket(socket.AF_UNIX) as leftover:
        leftover.bind(str(vast.socket))
    if os.geteuid() == 0:  # nobody else can leave one of another user behind
        os.chown(vast.socket, NOBODY_UID, NOBODY_UID)

    vast.start()

    assert vast.socket.stat().st_uid == os.geteuid()
    assert vast.socket.stat().st_mode & 0o777 == 0o600


def test_a_daemon_that_hangs_is_named_by_its_pid(vast: Installed) -> None:
    vast.start()
    assert vast.daemon is not None
    vast.daemon.send_signal(signal.SIGSTOP)

    done = second(vast)
    vast.daemon.send_signal(signal.SIGCONT)

    assert done.returncode == 6
    assert f"pid {vast.daemon.pid}" in done.stderr
    assert vast.vastctl("ls").returncode == 0


def test_of_daemons_that_start_at_once_exactly_one_wins(vast: Installed) -> None:
    for _ in range(2):
        racers = [
            subprocess.Popen(
                [vast.program("vastd"), "--simulate"], env=vast.env, cwd=vast.root,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for _ in range(3)
        ]  # fmt: skip
        vast.daemon = None
        vast._ready()
        losers = [racer for racer in racers if racer.poll() is not None or _ends(racer)]
        (winner,) = [racer for racer in racers if racer not in losers]
        winner.kill()  # leaves socket and lock for the next ones
        winner.wait()

        assert [loser.returncode for loser in losers] == [6, 6]


def _ends(racer: "subprocess.Popen[bytes]") -> bool:
    """Return whether it ends by itself; the winner is the one that does not."""
    try:
        racer.wait(2.0)
    except subprocess.TimeoutExpired:
        return False
    return True


# -- what grows


def test_a_log_over_its_cap_ends_with_a_line_and_the_job_with_its_results(vast: Installed) -> None:
    Path(vast.env["VASTD_CONFIG"]).write_text(f"{FAST}[retention]\njob_log_max_mb = 1\n")
    (vast.project / "loud.py").write_text(
        "import os\nfor n in range(60000): print(f'{n:049d}')\n"
        "os.makedirs('results'); open('results/done', 'w').write('yes')\n"
    )
    vast.start()
    words = list(run_words(1))
    words[words.index("python3") :] = ["python3", "loud.py"]

    ran = vast.vastctl(*words)

    assert ran.returncode == 0, ran.stderr[-2000:]
    assert (vast.project / "results/done").read_text() == "yes"
    assert vast.live() == 0
    job = vast.json("jobs", "--all")["jobs"][0]
    kept = Path(job["log_path"]).read_bytes()
    assert kept[:1_000_000] == b"".join(b"%049d\n" % n for n in range(20_000))
    assert b"retention.job_log_max_mb" in kept[1_000_000:]
    assert "ends here, after 1000000 bytes" in vast.vastctl("logs", "-n", "1", "lab").stdout


def test_the_log_of_a_daemon_in_the_background_is_opened_by_itself(vast: Installed) -> None:
    started = vast.vastctl("daemon", "start", "--simulate")
    log = vast.state / "logs" / "vastd.log"
    first = vast.vastctl("daemon", "logs")
    log.rename(log.with_name("vastd.log.1"))  # what a rotation leaves for whoever follows
    stopped = vast.vastctl("daemon", "stop")
    vast.start()

    assert started.returncode == 0, started.stderr
    assert "ready at" in first.stdout
    assert stopped.returncode == 0, stopped.stderr
    assert log.with_name("vastd.log.1").stat().st_mode & 0o777 == 0o600
