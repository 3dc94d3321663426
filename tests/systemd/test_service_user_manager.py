"""The installed units under a real `systemd --user`: what no emulation would prove."""

import json
import shutil
import signal
from collections.abc import Iterator

import pytest

from support.installed import FAST
from support.user_manager import UID, UserManager, user_manager, why_not

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

# Stands before the real program in the service's PATH, and notes what the child was given.
WITNESS = """\
#!/bin/sh
{ echo "NAME"; grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; umask
  ulimit -n; ulimit -c; env | grep -E '^(NOTIFY_SOCKET|WATCHDOG)'; } >> "$HOME/witness" 2>&1
exec REAL "$@"
"""
# Returns when the simulated Vast serves.
OUTSIDE = """\
python -m vastd.simulator --state-dir "$0" --ready-fd 3 3>&1 >/dev/null 2>&1 </dev/null | head -c 1
"""
TRAINING = """\
import os
os.makedirs("results/deep", exist_ok=True)
for name in ("results/a", "results/deep/b"):
    with open(name, "w") as out:
        out.write("x")
    os.chmod(name, 0o4755)
os.chmod("results/deep", 0o2770)
"""


@pytest.fixture
def manager() -> Iterator[UserManager]:
    with user_manager() as made:
        made.write(".config/vastd/config.toml", FAST)
        yield made


def simulated(manager: UserManager, *lines: str) -> None:
    """Install the units with a drop-in that rents nothing real."""
    vastd = manager.run("sh", "-c", "command -v vastd").stdout.strip()
    text = ["[Service]", "ExecStart=", f"ExecStart={vastd} --simulate", *lines]
    manager.write(".config/systemd/user/vastd.service.d/test.conf", "\n".join([*text, ""]))
    manager.vastctl("daemon", "install")


def test_a_whole_job_runs_inside_the_walls_of_the_unit(manager: UserManager):
    """ssh and rsync are children of the service; modes they may not set must not stop them."""
    for name in ("ssh", "rsync"):
        text = WITNESS.replace("NAME", name).replace("REAL", str(shutil.which(name)))
        manager.write(f"witness-bin/{name}", text).chmod(0o755)
    # Its machines stand outside the walls, as real ones do: they may set any mode.
    state = ".local/state/vastd/simulator"
    manager.run("mkdir", "-p", "-m", "700", state)
    manager.run("sh", "-c", OUTSIDE, str(manager.home / state))
    simulated(manager, "Environment=PATH=%h/witness-bin:/usr/bin:/bin")
    project = manager.write("lab/train.py", TRAINING).parent
    project.chmod(0o2770)
    run = ["run", "-y", "--name", "lab", "--hours", "1", "--gpu-ram", "24", "--budget", "2"]
    words = [*run, "--output", "results", "--", "python3", "train.py"]

    done = manager.run("sh", "-c", 'cd lab && exec vastctl "$@"', "sh", *words, check=False)

    assert done.returncode == 0, done.stderr
    assert (project / "results/deep/b").read_text() == "x"
    assert (project / "results/deep/b").stat().st_uid == UID
    witness = (manager.home / "witness").read_text().split("\n")
    seen = {name: witness[witness.index(name) + 1 :][:5] for name in ("ssh", "rsync")}
    walls = ["NoNewPrivs:\t1", "Seccomp:\t2", "0077", "8192", "0"]
    assert seen == {"ssh": walls, "rsync": walls}
    assert not [line for line in witness if line.startswith(("NOTIFY", "WATCHDOG"))]


def test_a_daemon_that_hangs_or_dies_comes_back_and_clients_merely_wait(manager: UserManager):
    simulated(manager, "WatchdogSec=5")
    first = manager.status()
    assert manager.show("vastd.service", "ActiveState") == "active"
    assert manager.show("vastd.service", "StatusText") == "0 rentals live, $0.000/h"
    assert first["socket"] == f"/run/user/{UID}/vastd/vastd.sock"

    # Not by the manager: it would wake a stopped process at once.
    manager.run("kill", "-STOP", str(first["daemon"]["pid"]))
    second = manager.status()  # answered by the next one, from the same socket
    assert second["daemon"]["pid"] != first["daemon"]["pid"]
    assert manager.show("vastd.service", "NRestarts") == "1"

    manager.run("kill", f"-{signal.SIGKILL}", str(second["daemon"]["pid"]))
    third = manager.status()
    assert third["daemon"]["pid"] != second["daemon"]["pid"]
    assert manager.show("vastd.service", "NRestarts") == "2"

    manager.systemctl("reload", "vastd.service")
    assert manager.status()["daemon"]["pid"] == third["daemon"]["pid"]
    assert manager.show("vastd.service", "ActiveState") == "active"


def test_vastctl_drives_the_service_and_stops_what_would_start_it_again(manager: UserManager):
    simulated(manager)
    pid = manager.status()["daemon"]["pid"]
    assert manager.show("vastd.service", "MainPID") == str(pid)
    assert manager.show("vastd.service", "UnitFileState") == "enabled"
    assert "vastd runs already" in manager.vastctl("daemon", "start").stdout
    told = manager.vastctl("daemon", "status").stdout
    assert "systemd: vastd.service active (running), enabled; linger off" in told

    assert manager.vastctl("daemon", "stop").stdout == f"vastd stopped (pid {pid})\n"
    assert manager.vastctl("daemon", "status", check=False).returncode == 3
    assert manager.systemctl("is-active", "vastd.socket", "vastd.service", check=False) == (
        "inactive\ninactive"
    )
    assert "vastd started by systemd" in manager.vastctl("daemon", "start").stdout

    manager.vastctl("daemon", "uninstall")
    left = [str(path) for path in (manager.home / ".config/systemd").rglob("*") if path.is_file()]
    assert left == [str(manager.home / ".config/systemd/user/vastd.service.d/test.conf")]
    assert manager.vastctl("daemon", "status", check=False).returncode == 3


def test_the_journal_has_the_log_with_priorities_and_where_a_hanging_vastd_was(
    manager: UserManager,
):
    manager.start_journal()
    manager.vastctl("daemon", "install", VAST_URL="http://127.0.0.1:9")
    pid = manager.status()["daemon"]["pid"]

    manager.run("kill", "-ABRT", str(pid))  # as the watchdog does
    manager.status()

    log = manager.vastctl("daemon", "logs").stdout
    assert "Fatal Python error: Aborted" in log
    assert "INFO" not in log, "the journal knows the priority itself"
    assert log.count("vastd.daemon ready at") == 2
    grave = ["journalctl", "--user", "-u", "vastd", "-p", "warning", "--no-pager"]
    told = manager.run(*grave).stdout
    assert "listing failed" in told
    assert "ready at" not in told
    last = json.loads(manager.vastctl("--json", "daemon", "logs", "-n", "1").stdout)
    assert last["source"] == "journal"
    assert len(last["lines"]) == 1


def test_a_vastd_started_by_hand_is_never_doubled(manager: UserManager):
    manager.vastctl("daemon", "start", "--simulate")
    pid = manager.status()["daemon"]["pid"]

    told = manager.vastctl("daemon", "install")

    assert f"a vastd that systemd did not start runs (pid {pid})" in told.stderr
    assert manager.status()["daemon"]["pid"] == pid
    manager.systemctl("start", "vastd.service", check=False)
    assert manager.show("vastd.service", "ExecMainStatus") == "6"
    assert manager.show("vastd.service", "NRestarts") == "0"
    manager.systemctl("stop", "vastd.socket")
    manager.run("kill", str(pid))


def test_a_restart_is_not_tried_where_it_cannot_help(manager: UserManager):
    manager.vastctl("daemon", "install", VAST_URL="http://127.0.0.1:9")
    manager.vastctl("daemon", "stop")
    manager.write(".config/vastd/config.toml", "[timing]\nsetle_s = 1\n")

    refused = manager.vastctl("daemon", "start", check=False)

    assert refused.returncode == 4
    assert "setle_s" in refused.stderr
    assert manager.show("vastd.service", "NRestarts") == "0"
    assert manager.show("vastd.service", "ActiveState") == "failed"
    manager.write(".config/vastd/config.toml", "")
    assert "vastd started by systemd" in manager.vastctl("daemon", "start").stdout


def test_the_key_comes_from_the_credential_of_the_unit(manager: UserManager):
    key = "k" * 60 + "cred"
    manager.write(".config/vastd/vast_api_key", key + "\n")
    drop_in = "[Service]\nLoadCredential=vast_api_key:%h/.config/vastd/vast_api_key\n"
    manager.write(".config/systemd/user/vastd.service.d/key.conf", drop_in)
    manager.vastctl("daemon", "install", VAST_URL="http://127.0.0.1:9")

    assert manager.status()["key_origin"] == "systemd credential vast_api_key, ending in cred"
    assert "http://127.0.0.1:9" in manager.show("vastd.service", "Environment")
    doctor = manager.vastctl("--json", "doctor", check=False).stdout
    assert key not in doctor
    checks = {check["id"]: check for check in json.loads(doctor)["checks"]}
    assert checks["service"]["text"] == "systemd runs and watches vastd (vastd.service, enabled)"
    assert checks["linger"]["fix"] == "loginctl enable-linger vuser"
