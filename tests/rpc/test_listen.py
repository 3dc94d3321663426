"""Where the socket lies, who may use it, and whose inode it is."""

import os
import socket
import stat
import subprocess
import sys

import pytest
import trio

from vastd.errors import ConfigError, StoreLocked
from vastd.rpc import listen
from vastd.rpc.listen import bind, listening, peer_allowed, uid_allowed


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    for name in ("VASTD_SOCKET", "XDG_RUNTIME_DIR", "VASTD_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "vastd"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.req("SEC-04")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
async def test_directory_and_socket_are_private_whatever_the_umask(run_dir, umask):
    before = os.umask(umask)
    try:
        if umask == 0o777:
            run_dir.mkdir()
            run_dir.chmod(0o755)
        async with listening() as door:
            assert door.path == run_dir / "vastd.sock"
            assert mode(run_dir) == 0o700
            assert mode(door.path) == 0o600
            await door.listeners[0].aclose()
        assert os.umask(umask) == umask
    finally:
        os.umask(before)


async def test_the_socket_is_gone_at_the_end(run_dir):
    async with listening() as door:
        async with await trio.open_unix_socket(str(door.path)):
            stream = await door.listeners[0].accept()
            assert peer_allowed(stream)
            await stream.aclose()
        await door.listeners[0].aclose()

    assert not door.path.exists()


async def test_a_newer_socket_is_left_alone_at_the_end(run_dir):
    async with listening() as door:
        door.path.unlink()
        other = bind(door.path, own_directory=True)
        await door.listeners[0].aclose()

    assert door.path.exists()
    other.close()


async def test_a_leftover_socket_is_replaced(run_dir):
    run_dir.mkdir(mode=0o700)
    leftover = socket.socket(socket.AF_UNIX)
    leftover.bind(str(run_dir / "vastd.sock"))
    leftover.listen()
    leftover.close()

    async with listening() as door:
        assert listen.answers(door.path)
        await door.listeners[0].aclose()


@pytest.mark.parametrize("backlog", [0, 8])
async def test_a_socket_somebody_answers_on_is_never_replaced(run_dir, backlog):
    run_dir.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as waiting:
        other.bind(str(run_dir / "vastd.sock"))
        other.listen(backlog)
        if backlog == 0:
            waiting.connect(str(run_dir / "vastd.sock"))  # fills the backlog

        with pytest.raises(StoreLocked, match="another vastd answers"):
            async with listening():
                pass
        assert (run_dir / "vastd.sock").exists()


async def test_a_file_that_is_no_socket_is_never_removed(run_dir, monkeypatch, tmp_path):
    monkeypatch.setenv("VASTD_SOCKET", str(tmp_path / "precious"))
    (tmp_path / "precious").write_text("data")

    with pytest.raises(ConfigError, match="is no socket"):
        async with listening():
            pass

    assert (tmp_path / "precious").read_text() == "data"


async def test_a_path_over_the_limit_of_the_system_is_refused_with_the_remedy(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("VASTD_SOCKET", str(tmp_path / ("x" * 100)))

    with pytest.raises(ConfigError, match="the system allows 107") as caught:
        async with listening():
            pass

    assert "VASTD_SOCKET" in caught.value.hint


async def test_the_next_place_is_taken_when_the_first_is_too_long(monkeypatch, tmp_path):
    monkeypatch.delenv("VASTD_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    state = tmp_path / ("x" * 100)

    async with listening(state=state) as door:
        assert door.path == tmp_path / "vastd" / "vastd.sock"
        await door.listeners[0].aclose()


async def test_the_users_own_directory_keeps_its_mode(monkeypatch, tmp_path):
    tmp_path.chmod(0o755)
    monkeypatch.setenv("VASTD_SOCKET", str(tmp_path / "s"))

    async with listening() as door:
        assert mode(tmp_path) == 0o755
        assert mode(door.path) == 0o600
        await door.listeners[0].aclose()


async def test_a_directory_others_can_write_to_is_refused_unless_sticky(monkeypatch, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("VASTD_SOCKET", str(shared / "s"))
    with pytest.raises(ConfigError, match="others could put their own socket"):
        async with listening():
            pass

    shared.chmod(0o1777)
    async with listening() as door:
        await door.listeners[0].aclose()


async def test_another_daemon_that_is_starting_is_an_error_not_a_race(run_dir):
    run_dir.mkdir(mode=0o700)
    directory = os.open(run_dir, os.O_RDONLY)
    try:
        listen.fcntl.flock(directory, listen.fcntl.LOCK_EX)
        with pytest.raises(StoreLocked, match="is starting"):
            async with listening():
                pass
    finally:
        os.close(directory)


@pytest.mark.req("SEC-04")
@pytest.mark.parametrize(
    ("uid", "allowed"), [(1000, True), (0, True), (1001, False), (None, False)]
)
def test_only_our_user_and_root_may_connect(uid, allowed):
    assert uid_allowed(uid, own=1000) is allowed


async def test_a_peer_without_credentials_may_not_connect(caplog):
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, await trio.testing.open_stream_to_socket_listener(listener):
        stream = await listener.accept()

        assert peer_allowed(stream) is False
        await stream.aclose()
    assert "client refused" in caplog.text


PASSED = """
import os, sys, trio
os.dup2(int(sys.argv[1]), 3)
from vastd.rpc.listen import listening
os.environ["LISTEN_PID"] = str(os.getpid())
async def main():
    async with listening() as door:
        print(door.passed, door.path)
        stream = await door.listeners[0].accept()
        await stream.send_all(b"hello")
trio.run(main)
"""


@pytest.mark.e2e
def test_a_socket_passed_by_systemd_is_taken_over_and_stays(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as passed:
        passed.bind(str(path))
        passed.listen()
        child = subprocess.Popen(
            [sys.executable, "-c", PASSED, str(passed.fileno())],
            stdout=subprocess.PIPE,
            pass_fds=[passed.fileno()],
            env=os.environ | {"LISTEN_FDS": "1"},
            text=True,
        )
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(str(path))
            assert client.recv(5) == b"hello"
        output, _ = child.communicate(timeout=20)

    assert output.split() == ["True", str(path)]
    assert path.exists()


def test_sockets_passed_to_another_process_are_not_ours():
    assert listen.passed_sockets({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) == []
    assert listen.passed_sockets({}) == []


async def test_a_passed_descriptor_that_is_no_socket_is_a_clear_error(monkeypatch, tmp_path):
    with (tmp_path / "file").open("w") as file:
        monkeypatch.setattr(listen, "FIRST_PASSED_FD", file.fileno())
        environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}

        with pytest.raises(ConfigError, match="is no socket"):
            listen.passed_sockets(environ)
