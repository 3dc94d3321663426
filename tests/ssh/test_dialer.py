"""Logging in at a real OpenSSH server, and what each way of failing is called."""

import os
import pwd
import signal
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from ssh.sshd_rig import keygen, running_relay
from vastd.errors import (
    SshAuthRejected,
    SshClosed,
    SshError,
    SshHostKeyChanged,
    SshRefused,
    SshTimeout,
)
from vastd.jobs.port import Endpoint, Route
from vastd.ssh.asyncssh_adapter import open_dialer

pytestmark = pytest.mark.ssh


def at(port: int) -> Endpoint:
    return Endpoint(
        host="127.0.0.1", port=port, user=pwd.getpwuid(os.geteuid()).pw_name, route=Route.DIRECT
    )


async def closed_port() -> int:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listener.socket.getsockname()[1]
    await listener.aclose()
    return port


async def test_a_command_returns_its_streams_and_exit_code(sshd, dialer) -> None:
    connection = await dialer.connect(at(sshd.port), 42)

    result = await connection.run(
        "cat; echo oops >&2; exit 3", stdin=b"\x00\xff", timeout_s=10, limit_bytes=100
    )

    assert (result.stdout, result.stderr, result.exit_code) == (b"\x00\xff", b"oops\n", 3)
    assert connection.is_open
    await connection.close()
    assert not connection.is_open


async def test_a_signal_that_ends_a_command_shows_as_128_and_its_number(sshd, dialer) -> None:
    connection = await dialer.connect(at(sshd.port), 42)

    result = await connection.run("kill -9 $$", timeout_s=10, limit_bytes=100)

    assert result.exit_code == 128 + signal.SIGKILL
    await connection.close()


async def test_ten_megabytes_of_output_stay_within_the_limit(sshd, dialer) -> None:
    connection = await dialer.connect(at(sshd.port), 42)

    result = await connection.run("head -c 10000000 /dev/zero", timeout_s=30, limit_bytes=1000)

    assert (len(result.stdout), result.truncated, result.exit_code) == (1000, True, 0)
    await connection.close()


@pytest.mark.req("SSH-09")
async def test_a_closed_port_is_refused_and_worth_a_retry(dialer) -> None:
    with pytest.raises(SshRefused) as caught:
        await dialer.connect(at(await closed_port()), 42)

    assert caught.value.retryable


@pytest.mark.req("SSH-09")
async def test_a_peer_that_accepts_and_says_nothing_is_a_timeout(sshd, known_hosts) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with open_dialer(sshd.client_key, known_hosts, login_timeout_s=0.2) as dialer:
        with pytest.raises(SshTimeout):
            await dialer.connect(at(port), 42)
    await listener.aclose()


@pytest.mark.req("SSH-09")
async def test_a_peer_that_hangs_up_before_the_login_is_closed(dialer, nursery) -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.aclose()

    (listener,) = await nursery.start(partial(trio.serve_tcp, hang_up, 0, host="127.0.0.1"))
    port = listener.socket.getsockname()[1]

    with pytest.raises(SshClosed) as caught:
        await dialer.connect(at(port), 42)

    assert caught.value.retryable


@pytest.mark.req("SSH-09")
async def test_an_unknown_key_is_rejected_and_not_worth_a_retry(
    sshd, known_hosts, tmp_path: Path
) -> None:
    keygen(tmp_path / "other")
    async with open_dialer(tmp_path / "other", known_hosts) as dialer:
        with pytest.raises(SshAuthRejected) as caught:
            await dialer.connect(at(sshd.port), 42)

    assert not caught.value.retryable
    assert known_hosts.known_key(42) is not None  # the key exchange had proved it


@pytest.mark.req("SSH-03")
async def test_another_host_key_from_the_same_instance_is_refused(sshd, dialer) -> None:
    await (await dialer.connect(at(sshd.port), 42)).close()
    sshd.new_host_key()

    with pytest.raises(SshHostKeyChanged):
        await dialer.connect(at(sshd.port), 42)

    # The same address under a new instance id is somebody else's machine: no alarm.
    await (await dialer.connect(at(sshd.port), 43)).close()


@pytest.mark.req("SSH-09")
async def test_a_cut_during_a_command_is_closed(sshd, dialer, nursery) -> None:
    connection = await dialer.connect(at(sshd.port), 42)
    async with connection.open_process("echo started; cat") as process:
        assert await process.receive(100) == b"started\n"
        raised: list[SshError] = []

        async def wait_for_it() -> None:
            try:
                await connection.run("sleep 100", timeout_s=60, limit_bytes=10)
            except SshError as exc:
                raised.append(exc)

        async with trio.open_nursery() as waiting:
            waiting.start_soon(wait_for_it)
            await trio.testing.wait_all_tasks_blocked()
            sshd.cut()

    assert [type(exc) for exc in raised] == [SshClosed]
    assert not connection.is_open


@pytest.mark.req("SSH-11")
async def test_a_silent_network_is_noticed_by_the_keepalive(sshd, known_hosts) -> None:
    async with (
        running_relay(sshd.port) as relay,
        open_dialer(sshd.client_key, known_hosts, keepalive_s=0.05) as dialer,
    ):
        connection = await dialer.connect(at(relay.port), 42)
        relay.frozen = True

        with trio.fail_after(10), pytest.raises(SshTimeout):
            await connection.run("true", timeout_s=60, limit_bytes=10)

        await connection.close()


async def test_a_command_that_outlives_its_time_costs_its_channel_only(sshd, dialer) -> None:
    connection = await dialer.connect(at(sshd.port), 42)

    # Cut short while opening and while running, each more often than sshd has sessions: one
    # that is kept shows.
    for timeout_s in [0.001] * 12 + [0.05] * 12:
        with pytest.raises(SshTimeout):
            await connection.run("exec cat </dev/zero", timeout_s=timeout_s, limit_bytes=10)

    result = await connection.run("echo alive", timeout_s=10, limit_bytes=10)
    assert result.stdout == b"alive\n"
    await connection.close()


@pytest.mark.req("SSH-03")
async def test_neither_agent_nor_user_configuration_is_used(
    sshd, dialer, monkeypatch, tmp_path: Path
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host *\n  Ciphers none-such\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "no-agent"))

    connection = await dialer.connect(at(sshd.port), 42)

    assert (await connection.run("true", timeout_s=10, limit_bytes=10)).exit_code == 0
    await connection.close()
