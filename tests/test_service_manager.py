"""sd_notify against a real datagram socket, and log lines for the journal."""

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vastd.journal import JournalFormatter, to_journal
from vastd.service_manager import ServiceManager


@contextmanager
def listener(address: str) -> Iterator[socket.socket]:
    """A service manager's end of the socket; what is not there yet is no message."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + address[1:] if address[0] == "@" else address)
        sock.setblocking(False)
        yield sock


def heard(sock: socket.socket) -> list[str]:
    messages = []
    while True:
        try:
            messages.append(sock.recv(4096).decode())
        except BlockingIOError:
            return messages


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_each_message_is_one_datagram(isolated_home: Path, kind: str):
    address = str(isolated_home / "n") if kind == "path" else f"@vastd-test-{os.getpid()}"
    with listener(address) as sock:
        manager = ServiceManager(address)

        assert manager.ready("2 rentals\nREADY=0")
        assert manager.status("fine")
        assert manager.alive()
        assert manager.stopping("bye")

        assert heard(sock) == [
            "READY=1\nSTATUS=2 rentals READY=0",
            "STATUS=fine",
            "WATCHDOG=1",
            "STOPPING=1\nSTATUS=bye",
        ]


def test_a_reload_names_its_instant_for_newer_managers(isolated_home: Path):
    address = str(isolated_home / "n")
    with listener(address) as sock:
        ServiceManager(address).reloading()

        (message,) = heard(sock)
    flag, stamp = message.splitlines()
    assert flag == "RELOADING=1"
    assert int(stamp.removeprefix("MONOTONIC_USEC=")) > 0


def test_its_variables_are_taken_so_that_no_child_speaks_for_us(isolated_home: Path):
    environ = {
        "NOTIFY_SOCKET": str(isolated_home / "n"), "WATCHDOG_USEC": "120000000",
        "WATCHDOG_PID": str(os.getpid()), "HOME": "/h",
    }  # fmt: skip

    manager = ServiceManager.from_environment(environ)

    assert (manager.present, manager.watchdog_s) == (True, 120.0)
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(sorted(os.environ))"],
        env=environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "HOME" in child.stdout
    assert "NOTIFY" not in child.stdout
    assert "WATCHDOG" not in child.stdout


@pytest.mark.parametrize(
    ("environ", "present", "watchdog_s"),
    [
        ({}, False, None),
        ({"NOTIFY_SOCKET": ""}, False, None),
        ({"NOTIFY_SOCKET": "vsock:2:1234"}, False, None),
        ({"NOTIFY_SOCKET": "/n"}, True, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "x"}, True, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "0"}, True, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "3000000"}, True, 3.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, True, None),
        ({"WATCHDOG_USEC": "3000000"}, False, None),
    ],
)
def test_only_what_is_meant_for_this_process_counts(
    environ: dict[str, str], present: bool, watchdog_s: float | None
):
    manager = ServiceManager.from_environment(environ)

    assert (manager.present, manager.watchdog_s) == (present, watchdog_s)


def test_a_manager_that_does_not_listen_stops_nothing(isolated_home: Path):
    assert ServiceManager().ready("fine")
    assert not ServiceManager(str(isolated_home / "nobody")).ready("fine")


def test_a_full_queue_is_told_and_never_waited_for(isolated_home: Path):
    address = str(isolated_home / "n")
    with listener(address) as sock:
        manager = ServiceManager(address)

        while manager.alive():
            pass

        assert len(heard(sock)) > 1
        assert manager.alive()


def test_every_line_for_the_journal_carries_its_priority():
    record = logging.LogRecord("vastd.x", logging.WARNING, "f", 1, "a\nb", (), None)

    assert JournalFormatter().format(record) == "<4>vastd.x a\n<4>b"
    record.levelno = logging.DEBUG
    assert JournalFormatter().format(record).startswith("<7>")
    record.levelno = logging.CRITICAL
    assert JournalFormatter().format(record).startswith("<2>")


def test_the_journal_is_known_by_its_inode(tmp_path: Path):
    with (tmp_path / "log").open("w") as log:
        info = os.fstat(log.fileno())

        assert to_journal({"JOURNAL_STREAM": f"{info.st_dev}:{info.st_ino}"}, log.fileno())
        assert not to_journal({"JOURNAL_STREAM": f"{info.st_dev}:1"}, log.fileno())
        assert not to_journal({}, log.fileno())
