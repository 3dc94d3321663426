"""The unit files and the installed daemon against systemd's own tools, without a running systemd."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.installed import LIMIT_S, Installed, installed
from support.source_tree import ROOT

pytestmark = pytest.mark.e2e

UNITS = ("vastd.service", "vastd.socket")


def verify(home: Path, units: Path) -> str:
    """Return what systemd-analyze complains about; its exit code forgives misspelt keys."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", *(str(units / name) for name in UNITS)],
        env={"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    return done.stderr + (f"exit code {done.returncode}" if done.returncode else "")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with vastd where pipx and `pip install --user` put it."""
    (tmp_path / ".local/bin").mkdir(parents=True)
    (tmp_path / ".local/bin/vastd").symlink_to(Path(sys.executable).with_name("vastd"))
    return tmp_path


def test_systemd_has_nothing_to_say_about_the_shipped_units(home: Path):
    assert verify(home, ROOT / "systemd") == ""


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("WatchdogSec=", "WatchdogSecs=", "Unknown key"),
        ("Restart=on-failure", "Restart=on-failures", "Failed to parse"),
        ("[Service]", "[Servic]", "Unknown section"),
        ("SocketMode=", "SocketMod=", "Unknown key"),
        ("%h/.local/bin/vastd", "/nowhere/vastd", "not executable"),
    ],
)
def test_the_check_of_the_units_sees_a_slip(home: Path, right: str, wrong: str, complaint: str):
    units = home / "units"
    units.mkdir()
    changed = 0
    for name in UNITS:
        text = (ROOT / "systemd" / name).read_text()
        changed += right in text
        (units / name).write_text(text.replace(right, wrong))

    assert changed == 1
    assert complaint in verify(home, units)


def test_systemd_has_nothing_to_say_about_the_installed_units(home: Path):
    odd = home / "state of mine 100%"
    env = {
        "HOME": str(home), "PATH": os.environ["PATH"], "VASTD_STATE_DIR": str(odd),
        "VAST_URL": "http://127.0.0.1:9/?a=b", "XDG_RUNTIME_DIR": str(home),
        "VASTD_SOCKET": "/tmp/a b%c.sock", "VASTD_CONFIG": str(home / 'q"uote\\.toml'),
    }  # fmt: skip
    vastctl = Path(sys.executable).with_name("vastctl")

    done = subprocess.run(
        [vastctl, "--json", "daemon", "install"], env=env, capture_output=True, text=True,
        timeout=LIMIT_S, check=True,
    )  # fmt: skip

    units = home / ".config/systemd/user"
    assert [Path(unit["path"]) for unit in json.loads(done.stdout)["units"]] == [
        units / name for name in UNITS
    ]
    assert verify(home, units) == ""
    assert (
        f"ExecStart={Path(sys.executable).with_name('vastd')}\n"
        in (units / "vastd.service").read_text()
    )
    assert "ListenStream=/tmp/a b%%c.sock\n" in (units / "vastd.socket").read_text()


def test_the_wheel_holds_the_units_of_the_source(tmp_path: Path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for name in ("vastd", "vastctl", "protocol", "systemd"):
        shutil.copytree(
            ROOT / name, source / name, symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
        )  # fmt: skip

    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, source],
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}, capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        for name in UNITS:
            assert (
                wheel.read(f"vastctl/systemd/{name}").decode()
                == (ROOT / "systemd" / name).read_text()
            )


# -- the daemon and what systemd gives it


@pytest.fixture
def lab() -> Iterator[Installed]:
    with installed() as made:
        yield made


@contextmanager
def notify_socket(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.settimeout(LIMIT_S)
        yield sock


def until(sock: socket.socket, word: str) -> list[str]:
    """Return the messages up to the first that holds `word`."""
    heard: list[str] = []
    while not heard or word not in heard[-1]:
        heard.append(sock.recv(4096).decode())
    return heard


def test_the_manager_hears_ready_after_the_socket_and_the_listing_then_pings_then_the_end(
    lab: Installed,
):
    with notify_socket(lab.root / "n") as sock:
        lab.env |= {"NOTIFY_SOCKET": str(lab.root / "n"), "WATCHDOG_USEC": "300000"}
        log = (lab.root / "vastd.log").open("ab")
        lab.daemon = subprocess.Popen(
            [lab.program("vastd"), "--simulate"], env=lab.env, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log,
        )  # fmt: skip
        log.close()

        heard = until(sock, "READY=1")

        # Asked at that very moment: it serves, and the first listing is over.
        status = lab.json("daemon", "status")
        assert heard[:-1] == ["STATUS=asking Vast what exists"]
        assert heard[-1] == "READY=1\nSTATUS=0 rentals live, $0.000/h"
        assert status["inventory_state"] == "fresh"
        assert until(sock, "WATCHDOG=1")[-1] == "WATCHDOG=1"
        simulator = json.loads((lab.state / "simulator/service.json").read_bytes())["pid"]
        given = Path(f"/proc/{simulator}/environ").read_bytes()
        assert b"HOME=" in given
        assert b"NOTIFY_SOCKET" not in given
        assert lab.stop() == 0
        assert until(sock, "STOPPING=1")[-1] == "STOPPING=1\nSTATUS=stopping; no rental is live"


def test_a_socket_of_systemd_is_taken_over_and_left_in_its_place(lab: Installed):
    """The real systemd-socket-activate starts vastd when the first client knocks."""
    lab.env |= {"VASTD_SOCKET": str(lab.socket)}
    log = (lab.root / "vastd.log").open("ab")
    activator = subprocess.Popen(
        ["systemd-socket-activate", f"--listen={lab.socket}", "--fdname=vastd.socket",
         *(f"--setenv={name}={value}" for name, value in lab.env.items()),
         lab.program("vastd"), "--simulate"],
        env=lab.env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    log.close()
    lab.daemon = activator  # it becomes vastd
    assert activator.stderr is not None
    assert "Listening on" in activator.stderr.readline()
    inode = lab.socket.stat().st_ino

    status = lab.json("daemon", "status")

    assert status["socket"] == str(lab.socket)
    assert status["daemon"]["pid"] == activator.pid
    assert lab.stop() == 0
    activator.stderr.close()
    assert lab.socket.stat().st_ino == inode, "the socket is systemd's to remove"


def test_a_hangup_reloads_the_configuration(lab: Installed):
    lab.start()
    assert lab.daemon is not None
    config = lab.root / "config.toml"
    config.write_text(config.read_text() + "boot_warn_s = 77\n")
    follower = subprocess.Popen(
        ["tail", "-n", "+1", "-F", lab.root / "vastd.log"], stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    try:
        lab.daemon.send_signal(signal.SIGHUP)
        line = next(line for line in follower.stdout if "reloaded" in line)
    finally:
        follower.kill()
        follower.wait(LIMIT_S)
        follower.stdout.close()

    assert "changed: timing.boot_warn_s" in line
    values = lab.json("config", "get", "timing.boot_warn_s")["settings"]
    assert [setting["value"] for setting in values] == [77.0]
