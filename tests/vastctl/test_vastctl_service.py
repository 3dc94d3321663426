"""`daemon install|uninstall|start|stop|status|logs` with a played systemctl, and without any."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode

from vastctl import manager as managers
from vastctl.errors import CliError
from vastctl.units import SERVICE, unit_dir
from vastd_protocol.methods import daemon as daemons

pytestmark = pytest.mark.e2e  # programs are started, if only played ones

# Plays the three programs: notes its words, answers `show` from a file, fails when told to.
PLAYER = """\
#!/bin/sh
here=$(dirname "$0")
name=$(basename "$0")
echo "$name $*" >> "$here/said"
case "$name $*" in
    *" show "*) cat "$here/show" ;;
    loginctl*) cat "$here/linger" ;;
    journalctl*) printf 'one\\ntwo\\n' ;;
    *) if [ -e "$here/fail" ]; then cat "$here/fail" >&2; exit 1; fi
       [ ! -e "$here/show.next" ] || mv "$here/show.next" "$here/show" ;;
esac
"""
LOADED = "LoadState=loaded\nUnitFileState=enabled\n"


class Systemd:
    """What the played programs answer, and what they were told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        for name in ("systemctl", "loginctl", "journalctl"):
            (root / name).write_text(PLAYER)
            (root / name).chmod(0o755)
        (root / "linger").write_text("no\n")
        self.says()

    def says(
        self, service: str = "LoadState=not-found\n", *, socket: str = "", after: str = ""
    ) -> None:
        """Answer `show` with these properties; with `after` once an order was given."""
        block = "Id=vastd.service\n{}\nId=vastd.socket\n{}"
        (self.root / "show").write_text(block.format(service, socket))
        if after:
            (self.root / "show.next").write_text(block.format(after, "ActiveState=active\n"))

    def fails(self, why: str) -> None:
        (self.root / "fail").write_text(why)

    def told(self) -> list[str]:
        """Return the orders given, without the questions."""
        said = (
            (self.root / "said").read_text().splitlines() if (self.root / "said").exists() else []
        )
        return [line for line in said if " show" not in line]


@pytest.fixture
def systemd(
    tmp_path: Path,
    isolated_home: Path,
    vastctl: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Systemd:
    made = Systemd(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.root}:{os.environ['PATH']}")
    monkeypatch.delenv("VASTD_STATE_DIR")
    monkeypatch.delenv("VASTD_SOCKET")
    (isolated_home / "run" / "systemd").mkdir()
    (isolated_home / "run" / "systemd" / "private").touch()
    return made


def a_status(pid: int, **changes: Any) -> daemons.DaemonStatusView:
    info = daemons.DaemonInfo(
        version="0.1.0", pid=pid, started_at="2026-11-30T11:00:00Z", simulated=False
    )
    facts = {"state_dir": "/s", "socket": "/s/sock", "vast_url": "https://v", "key_origin": "k"}
    return daemons.DaemonStatusView(daemon=info, **facts, **changes)


def active(pid: int) -> str:
    return f"{LOADED}ActiveState=active\nSubState=running\nMainPID={pid}\n"


INACTIVE = f"{LOADED}ActiveState=inactive\nMainPID=0\n"


def test_install_writes_enables_and_starts(vastctl: Callable[..., Any], systemd: Systemd) -> None:
    systemd.says(after=INACTIVE)

    ran = vastctl("daemon", "install")

    assert ran.code == 0
    assert (unit_dir() / SERVICE).exists()
    assert systemd.told() == [
        "systemctl --user daemon-reload",
        "systemctl --user enable vastd.service",
        "systemctl --user start vastd.service",
    ]
    assert f"new        {unit_dir()}/vastd.service\n           ExecStart=/" in ran.out
    assert "vastd is run by systemd now" in ran.out
    assert "loginctl enable-linger" in ran.err


def test_install_without_a_manager_says_what_to_run_later(
    vastctl: Callable[..., Any], systemd: Systemd, isolated_home: Path
) -> None:
    (isolated_home / "run/systemd/private").unlink()

    ran = vastctl("daemon", "install", "--json")

    told = decode(ran.out)
    assert ran.code == 0
    assert told["todo"][:2] == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now vastd.service",
    ]
    assert (told["manager"], told["running"]) == (False, False)
    assert [unit["state"] for unit in told["units"]] == ["new", "new"]
    assert systemd.told() == []


def test_install_asks_before_it_replaces_an_edited_file(
    vastctl: Callable[..., Any], systemd: Systemd
) -> None:
    systemd.says(after=active(7))
    vastctl("daemon", "install")
    service = unit_dir() / SERVICE
    mine = service.read_text().replace("MemoryMax=2G", "MemoryMax=9G")
    service.write_text(mine)

    assert vastctl("daemon", "install").code == 2
    refused = vastctl("daemon", "install", answers="n\n")
    assert refused.code == 2
    assert "-MemoryMax=9G" in refused.err
    assert "+MemoryMax=2G" in refused.err
    assert service.read_text() == mine
    assert vastctl("daemon", "install", "-y").code == 0
    assert "MemoryMax=2G" in service.read_text()
    # A changed unit takes effect only when both are opened anew.
    assert "systemctl --user stop vastd.socket vastd.service" in systemd.told()


def test_install_tells_of_a_key_a_service_cannot_see(
    vastctl: Callable[..., Any], systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAST_API_KEY", "verysecretkey")
    systemd.says(after=active(7))

    ran = vastctl("daemon", "install")

    assert "VAST_API_KEY of this shell is not seen by the service" in ran.err
    assert "verysecretkey" not in ran.out + ran.err + (unit_dir() / SERVICE).read_text()


def test_install_sees_a_manager_that_looks_elsewhere(
    vastctl: Callable[..., Any], systemd: Systemd
) -> None:
    ran = vastctl("daemon", "install")

    assert ran.code == 0
    assert "does not look into" in ran.err
    assert systemd.told() == ["systemctl --user daemon-reload"]


def test_a_failing_systemctl_is_told_in_its_own_words(
    vastctl: Callable[..., Any], systemd: Systemd
) -> None:
    systemd.says(INACTIVE)
    systemd.fails("Failed to enable unit: Access denied\n")

    ran = vastctl("daemon", "install")

    assert ran.code == 1
    assert (
        "`systemctl --user daemon-reload` failed: Failed to enable unit: Access denied" in ran.err
    )


def test_uninstall_takes_everything_back(vastctl: Callable[..., Any], systemd: Systemd) -> None:
    systemd.says(after=active(7))
    vastctl("daemon", "install")
    before = len(systemd.told())

    ran = vastctl("daemon", "uninstall")

    assert systemd.told()[before:] == [
        "systemctl --user disable --now vastd.socket vastd.service",
        "systemctl --user daemon-reload",
    ]
    assert list(unit_dir().iterdir()) == []
    assert ran.out.count("removed") == 2
    again = decode(vastctl("daemon", "install", "--remove", "--json").out)
    assert [unit["state"] for unit in again["units"]] == ["absent", "absent"]


def test_uninstall_with_machines_on_record_needs_a_word(
    vastctl: Callable[..., Any], systemd: Systemd, isolated_home: Path
) -> None:
    state = isolated_home / ".local/state/vastd"
    state.mkdir(parents=True)
    (state / "vast-instances.json").write_text('[{"status": "running"}]')
    systemd.says(active(7))

    ran = vastctl("daemon", "uninstall")

    assert ran.code == 2
    assert systemd.told() == []


def test_start_goes_through_the_installed_service(
    vastctl: Callable[..., Any], systemd: Systemd, daemon: Any
) -> None:
    systemd.says(INACTIVE, after=active(4242))
    daemon.on("daemon.status", a_status(4242))

    ran = vastctl("daemon", "start")

    assert ran.out == "vastd started by systemd: pid 4242, socket /s/sock\n"
    assert systemd.told() == ["systemctl --user start vastd.service"]
    assert vastctl("daemon", "start").out.startswith("vastd runs already: pid 4242")
    assert len(systemd.told()) == 1


def test_a_failed_service_is_started_afresh_and_its_last_words_are_the_error(
    vastctl: Callable[..., Any], systemd: Systemd
) -> None:
    failed = f"{LOADED}ActiveState=failed\nExecMainStatus=4\nStatusText=ended: no key 'setle_s'\n"
    systemd.says(failed)
    systemd.fails("Job for vastd.service failed.\n")

    ran = vastctl("daemon", "start")

    assert ran.code == 1  # even `reset-failed` fails here
    (systemd.root / "fail").unlink()
    (systemd.root / "systemctl").write_text(
        PLAYER.replace("if [ -e", 'case "$*" in *start*) exit 1 ;; esac; if [ -e')
    )
    ran = vastctl("daemon", "start")
    assert ran.code == 4
    assert "error: vastd did not start: no key 'setle_s'\n" in ran.err
    assert "systemctl --user reset-failed vastd.service vastd.socket" in systemd.told()


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], "no live rental is on record there"),
        (["running"], "1 rental is on record and may bill, watched by nobody"),
        (["running", "destroyed", "stopped"], "2 rentals are on record and may bill"),
    ],
)
def test_a_start_that_cannot_write_says_what_bills_and_how_to_go_on(
    vastctl: Callable[..., Any], daemon: Any, tmp_path: Path, entries: list[str], said: str
) -> None:
    daemon.absent = 9
    state = tmp_path / "state"
    state.mkdir()
    (state / "logs").write_text("")  # no directory can be made there
    (state / "vast-instances.json").write_text(json.dumps([{"status": one} for one in entries]))

    ran = vastctl("daemon", "start")

    assert ran.code == 4
    assert said in ran.err
    assert ("VASTD_STATE_DIR=COPY vastctl daemon start" in ran.err) == bool(entries)


def test_another_state_directory_means_another_vastd(
    vastctl: Callable[..., Any], systemd: Systemd, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopping the one of this shell must not stop the service of another state."""
    monkeypatch.setattr("vastctl.commands.daemon.await_end", lambda _pid: True)
    monkeypatch.setenv("VASTD_STATE_DIR", "/elsewhere")
    systemd.says(active(7))
    daemon.on("daemon.status", a_status(99))
    daemon.on("daemon.stop", daemons.StopView(rentals_live=0, dph_usd=0.0))

    assert vastctl("daemon", "stop").out == "vastd stopped (pid 99)\n"
    assert systemd.told() == []
    systemd.says(active(7) + 'Environment="VASTD_STATE_DIR=/elsewhere" VAST_URL=x\n')
    daemon.on("daemon.status", a_status(7))
    assert vastctl("daemon", "stop").out == "vastd stopped (pid 7)\n"
    assert systemd.told() == ["systemctl --user stop vastd.socket vastd.service"]


def test_stop_closes_the_socket_too_and_names_what_goes_on_billing(
    vastctl: Callable[..., Any], systemd: Systemd, daemon: Any
) -> None:
    systemd.says(active(7), socket="ActiveState=active\n")
    daemon.on("daemon.status", a_status(7, rentals_live=1, dph_usd=0.3))

    ran = vastctl("daemon", "stop")

    assert systemd.told() == ["systemctl --user stop vastd.socket vastd.service"]
    assert "1 machine on record, $0.300/h: billing goes on without it" in ran.err
    assert decode(vastctl("daemon", "stop", "--json").out) == {"rentals_live": 1, "dph_usd": 0.3}
    # A socket that still listens would start it again; nobody is asked, or that would start it.
    asked = len(daemon.requests)
    systemd.says(INACTIVE, socket="ActiveState=active\n")
    assert "its socket is closed now" in vastctl("daemon", "stop").err
    assert len(daemon.requests) == asked


def test_status_says_which_of_the_two_ways_it_runs(
    vastctl: Callable[..., Any], systemd: Systemd, daemon: Any, isolated_home: Path
) -> None:
    systemd.says(active(7))
    daemon.on("daemon.status", a_status(7))

    told = vastctl("daemon", "status").out

    assert "systemd: vastd.service active (running), enabled; linger off: it ends when" in told
    (systemd.root / "linger").write_text("yes\n")
    assert "linger on" in vastctl("daemon", "status").out
    daemon.on("daemon.status", a_status(8))
    assert "itself, not systemd; vastd.service is installed" in vastctl("daemon", "status").out
    (isolated_home / "run/systemd/private").unlink()
    assert "itself; no systemd user manager" in vastctl("daemon", "status").out


def test_status_of_a_failed_service_says_so(
    vastctl: Callable[..., Any], systemd: Systemd, daemon: Any
) -> None:
    systemd.says(f"{LOADED}ActiveState=failed\nResult=exit-code\nExecMainStatus=4\n")
    daemon.absent = 1

    ran = vastctl("daemon", "status")

    assert ran.code == 3
    assert "vastd.service failed (exit-code, exit code 4): `vastctl daemon logs`" in ran.err


def test_logs_of_the_service_come_from_the_journal(
    vastctl: Callable[..., Any], systemd: Systemd
) -> None:
    systemd.says(active(7))

    assert vastctl("daemon", "logs", "-n", "5").out == "one\ntwo\n"
    assert vastctl("daemon", "logs", "-f").out == "one\ntwo\n"
    followed = "journalctl --user --unit=vastd.service --no-pager --lines=100 --follow"
    assert systemd.told() == [
        "journalctl --user --unit=vastd.service --no-pager --lines=5", followed,
    ]  # fmt: skip
    assert decode(vastctl("daemon", "logs", "--json").out) == {
        "source": "journal", "lines": ["one", "two"],
    }  # fmt: skip
    lines = vastctl("daemon", "logs", "-f", "--json").out.splitlines()
    assert [decode(line) for line in lines] == [{"line": "one"}, {"line": "two"}]


def test_the_owner_of_a_state_directory_is_seen_without_touching_its_lock(tmp_path: Path) -> None:
    import fcntl

    lock = tmp_path / "vastd.lock"
    assert managers.holder(tmp_path) is None
    with lock.open("w") as file:
        file.write(f"{os.getpid()}\n")
        file.flush()
        assert managers.holder(tmp_path) is None  # left behind by a kill

        fcntl.flock(file, fcntl.LOCK_EX)

        assert managers.holder(tmp_path) == os.getpid()
    assert managers.holder(tmp_path) is None


def test_programs_that_are_missing_or_hang_are_no_error(
    tmp_path: Path, isolated_home: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    (systemd.root / "systemctl").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(managers, "ASK_S", 0.05)
    assert managers.state() is None

    monkeypatch.setenv("PATH", str(tmp_path))
    assert managers.state() is None
    monkeypatch.setattr(managers, "LINGER_DIR", tmp_path / "var" / "linger")
    assert managers.linger() is None
    (tmp_path / "var" / "linger").mkdir(parents=True)
    assert managers.linger() is False
    (tmp_path / "var" / "linger" / managers.user()).touch()
    assert managers.linger() is True
    with pytest.raises(CliError, match="cannot read the journal"):
        managers.journal(1, follow=False)
