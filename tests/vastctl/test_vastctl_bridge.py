"""`rpc --stdio`: bytes both ways through pipes, half-closed, and ended by either side."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, run
from sys import executable

import pytest

from vastd_protocol.framing import frame

WAIT_S = 20


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.bind(str(tmp_path / "s"))
    found.listen()
    found.settimeout(WAIT_S)
    yield found
    found.close()


@contextmanager
def bridge(listener: socket.socket) -> Iterator[tuple[Popen[bytes], socket.socket]]:
    words = [executable, "-m", "vastctl", "--socket", listener.getsockname(), "rpc", "--stdio"]
    with Popen(words, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        try:
            daemon, _ = listener.accept()
            daemon.settimeout(WAIT_S)
            with daemon:
                yield process, daemon
        finally:
            process.kill()


def exactly(daemon: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size and (data := daemon.recv(size - len(found))):
        found += data
    return bytes(found)


@pytest.mark.e2e
def test_the_largest_frame_and_notifications_pass_unchanged_and_at_once(
    listener: socket.socket,
) -> None:
    with bridge(listener) as (process, daemon):
        assert process.stdin
        assert process.stdout
        big = frame(os.urandom(16 * 1024 * 1024))
        process.stdin.write(b"{")
        process.stdin.flush()
        assert exactly(daemon, 1) == b"{"  # one byte is not held back
        daemon.sendall(b"Content-Length: 2\r\n\r\n{}")
        assert process.stdout.read(23) == b"Content-Length: 2\r\n\r\n{}"
        pid = os.fork()
        if pid == 0:  # writes while we read, so that no buffer decides
            os._exit(0 if process.stdin.write(big) and not process.stdin.flush() else 1)
        assert exactly(daemon, len(big)) == big
        assert os.waitpid(pid, 0)[1] == 0
        pid = os.fork()
        if pid == 0:
            daemon.sendall(big)
            os._exit(0)
        assert process.stdout.read(len(big)) == big
        assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.e2e
def test_an_answer_still_comes_after_stdin_ended(listener: socket.socket) -> None:
    with bridge(listener) as (process, daemon):
        assert process.stdin
        assert process.stdout
        process.stdin.write(b'{"id":1}\n')
        process.stdin.close()
        assert exactly(daemon, 9) == b'{"id":1}\n'
        assert daemon.recv(1) == b""  # half closed

        daemon.sendall(b'{"result":1}\n')
        daemon.close()

        assert process.stdout.read() == b'{"result":1}\n'
        assert process.wait(WAIT_S) == 0


@pytest.mark.e2e
def test_a_daemon_that_ends_ends_the_bridge_with_3_after_its_last_bytes(
    listener: socket.socket,
) -> None:
    with bridge(listener) as (process, daemon):
        assert process.stdout
        assert process.stderr
        daemon.sendall(b"last words")
        daemon.close()

        assert process.stdout.read() == b"last words"
        assert process.wait(WAIT_S) == 3
        assert b"closed the connection" in process.stderr.read()


@pytest.mark.e2e
def test_a_reader_that_goes_away_ends_the_bridge(listener: socket.socket) -> None:
    with bridge(listener) as (process, daemon):
        assert process.stdout
        process.stdout.close()

        assert process.wait(WAIT_S) == 0
        assert daemon.recv(1) == b""


@pytest.mark.e2e
def test_without_a_daemon_it_is_3_and_with_a_method_2(tmp_path: Path) -> None:
    words = [executable, "-m", "vastctl", "--socket", str(tmp_path / "none"), "rpc"]

    absent = run([*words, "--stdio"], stdin=DEVNULL, capture_output=True, check=False)
    wrong = run([*words, "x", "--stdio"], stdin=DEVNULL, capture_output=True, check=False)

    assert (absent.returncode, absent.stdout) == (3, b"")
    assert wrong.returncode == 2
