"""The sshd of a simulated instance, met with the plain OpenSSH client, rsync and scp."""

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import msgspec
import pytest
import trio
import trio_asyncio

from support.sim_hosts import RTX_4090, SshClient, make_ssh_key, program_running, run_program
from vastd.simulator.hosts.image import TOOLS_DIR, InstanceDisk, build_disk
from vastd.simulator.hosts.sandbox import BubbleSandbox
from vastd.simulator.hosts.ssh import (
    HostFacts,
    Sshd,
    open_loop,
    open_sshd,
    own_sftp_program,
    sftp_program,
)

pytestmark = pytest.mark.ssh
LIMIT_S = 30.0


class Rig:
    """One instance with an sshd, and a client that it lets in."""

    def __init__(
        self, sshd: Sshd, disk: InstanceDisk, directory: Path, port: int, public_key: str
    ) -> None:
        self.sshd = sshd
        self.disk = disk
        self.directory = directory
        self.public_key = public_key
        self.client = SshClient(directory / "id", port)

    @property
    def workspace(self) -> Path:
        return self.disk.root / "workspace"


def bound() -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind(("127.0.0.1", 0))
    return sock


@asynccontextmanager
async def a_rig(
    directory: Path,
    *,
    sftp: list[str] | None = None,
    refuses: Callable[[], bool] = bool,
    login_tmux: bool = False,
) -> AsyncIterator[Rig]:
    key = make_ssh_key(directory / "id")
    disk = build_disk(directory / "disk", hostname="C.7", gpu=RTX_4090)
    if login_tmux:
        (disk.tools / "tmux-for-commands").touch()
    sandbox = BubbleSandbox(disk, hostname="C.7", state_dir=directory, log=directory / "log")
    await sandbox.start({})
    sock = bound()
    port = sock.getsockname()[1]
    facts = HostFacts(
        instance_id=7,
        sandbox=sandbox,
        accepts=lambda line: line.split()[:2] == key.split()[:2],
        host_key=directory / "host_key",
        sftp_program=sftp or sftp_program(TOOLS_DIR),
        refuses=refuses,
    )
    try:
        with trio.fail_after(LIMIT_S):
            async with open_loop(), open_sshd(facts, [sock]) as sshd:
                yield Rig(sshd, disk, directory, port, key)
    finally:
        with trio.CancelScope(shield=True):
            await sandbox.stop()


@pytest.fixture
async def rig(isolated_home: Path) -> AsyncIterator[Rig]:
    async with a_rig(isolated_home) as made:
        yield made


# -- who may come in ---------------------------------------------------------------------


async def test_another_key_and_another_user_are_refused(rig: Rig) -> None:
    make_ssh_key(rig.directory / "stranger")

    stranger = await SshClient(rig.directory / "stranger", rig.client.port).run("true")
    other = await SshClient(rig.directory / "id", rig.client.port, user="admin").run("true")

    assert (stranger.code, other.code) == (255, 255)
    assert b"Permission denied (publickey)" in stranger.err + other.err


async def test_the_host_key_stays_the_same_over_runs(isolated_home: Path) -> None:
    async with a_rig(isolated_home) as rig:
        first = await run_program(["ssh-keyscan", "-p", str(rig.client.port), "127.0.0.1"])
    (isolated_home / "id").unlink()
    async with a_rig(isolated_home) as rig:
        second = await run_program(["ssh-keyscan", "-p", str(rig.client.port), "127.0.0.1"])

    assert first.out.split()[-1] == second.out.split()[-1]
    assert (isolated_home / "host_key").stat().st_mode & 0o777 == 0o600


async def test_a_connection_is_broken_off_when_a_fault_says_so(isolated_home: Path) -> None:
    answers = iter([True, False])
    async with a_rig(isolated_home, refuses=lambda: next(answers)) as rig:
        broken = await rig.client.run("echo hi")
        fine = await rig.client.run("echo hi")

    assert broken.code == 255
    assert (fine.code, fine.out) == (0, b"hi\n")


# -- commands ----------------------------------------------------------------------------


async def test_streams_are_kept_apart_and_the_exit_code_comes_back(rig: Rig) -> None:
    done = await rig.client.run("cat; echo err >&2; exit 7", stdin=b"in\0\xff")

    assert (done.code, done.out) == (7, b"in\0\xff")
    assert done.err.endswith(b"err\n")


async def test_nvidia_smi_answers(rig: Rig) -> None:
    done = await rig.client.run("nvidia-smi")

    assert done.code == 0
    assert b"NVIDIA GeForce RTX 4090" in done.out
    assert b"CUDA Version: 12.4" in done.out


async def test_commands_run_as_root_at_home_in_the_sandbox(rig: Rig) -> None:
    done = await rig.client.run("id -u; pwd; hostname; echo $TERM$SSH_CLIENT | wc -w")

    assert done.out.split() == [b"0", b"/root", b"C.7", b"3"]


async def test_big_output_and_big_input_arrive_whole(rig: Rig) -> None:
    size = 20_000_000

    down = await rig.client.run(f"head -c {size} /dev/zero")
    up = await rig.client.run("wc -c", stdin=bytes(size))

    assert len(down.out) == size
    assert up.out.strip() == str(size).encode()


async def test_many_sessions_at_once_on_one_connection(rig: Rig) -> None:
    control = rig.directory / "ctl"
    master = ("-o", "ControlMaster=auto", "-o", f"ControlPath={control}")
    printed: list[bytes] = []

    async def ask(number: int) -> None:
        done = await rig.client.run(f"echo {number}; cat >/dev/null", options=master)
        printed.append(done.out.strip())

    async with program_running(
        rig.client.argv("echo up; cat", options=("-M", "-o", f"ControlPath={control}"))
    ) as first:
        assert first.stdout is not None
        assert await first.stdout.receive_some(8) == b"up\n"
        async with trio.open_nursery() as nursery:
            for number in range(9):  # OpenSSH's own servers allow ten
                nursery.start_soon(ask, number)
        connections = len(rig.sshd.connections)

    assert sorted(printed) == [str(number).encode() for number in range(9)]
    assert connections == 1


async def test_output_nobody_reads_stops_the_program_not_our_memory(rig: Rig) -> None:
    async with program_running(
        rig.client.argv("dd if=/dev/zero bs=65536 count=4096 2>/dev/null; : >/tmp/all")
    ) as slow:
        assert slow.stdout is not None
        await slow.stdout.receive_some(1)
        await rig.client.run("true")  # time for it to run ahead, if it could

        seen = await rig.client.run("pgrep -c '^dd$'; ls /tmp")

        assert seen.out.split()[:1] == [b"1"]
        assert b"all" not in seen.out


async def test_a_command_that_ignores_its_input_does_not_hang_the_client(rig: Rig) -> None:
    done = await rig.client.run("exec <&-; echo out", stdin=bytes(5_000_000))

    assert (done.code, done.out) == (0, b"out\n")


async def test_a_signal_death_is_told(rig: Rig) -> None:
    done = await rig.client.run("kill -KILL $$")

    assert done.code == 255  # what OpenSSH's client makes of exit-signal


async def test_an_environment_file_is_read_and_foreign_variables_are_not(rig: Rig) -> None:
    await rig.client.run(
        "echo 'A=\"one two\"' >>/etc/environment; echo 'bad line' >>/etc/environment"
    )

    done = await rig.client.run(
        "echo $A; echo ${LD_PRELOAD:-unset}; echo $LC_THING",
        options=("-o", "SetEnv=LC_THING=passed LD_PRELOAD=/nothing"),
    )

    assert done.out.splitlines() == [b"one two", b"unset", b"passed"]


# -- jobs --------------------------------------------------------------------------------


async def test_a_job_survives_the_session_and_a_broken_connection(rig: Rig) -> None:
    start = (
        "mkfifo /tmp/go; setsid sh -c 'read x </tmp/go; echo end $x >/workspace/out'"
        " </dev/null >/dev/null 2>&1 & echo started"
    )
    async with program_running(rig.client.argv(f"{start}; cat")) as session:
        assert session.stdout is not None
        assert await session.stdout.receive_some(16) == b"started\n"
        rig.sshd.drop_connections()
        await session.wait()

    done = await rig.client.run(
        "echo 1 >/tmp/go; while ! grep -q end /workspace/out 2>/dev/null; do :; done; echo seen"
    )

    assert session.returncode == 255
    assert done.out == b"seen\n"
    assert (rig.workspace / "out").read_text() == "end 1\n"


async def test_a_client_that_goes_away_gives_its_program_end_of_input(rig: Rig) -> None:
    async with program_running(
        rig.client.argv("mkfifo /tmp/ended; echo up; cat; echo over >/tmp/ended")
    ) as session:
        assert session.stdout is not None
        assert await session.stdout.receive_some(8) == b"up\n"

    assert (await rig.client.run("cat /tmp/ended")).out == b"over\n"


# -- terminals ---------------------------------------------------------------------------


async def test_a_terminal_has_a_name_job_control_and_hangs_up(rig: Rig) -> None:
    done = await rig.client.run(
        "tty; ps -o sid= -p $$ | tr -d ' ' | grep -qx $$ && echo leader; exit 4",
        options=("-tt",),
    )

    assert done.code == 4
    assert done.out.split() == [b"/dev/pts/0", b"leader"]

    async with program_running(
        rig.client.argv(
            "mkfifo /tmp/hup; trap 'echo hup >/tmp/hup' HUP; echo up; while :; do sleep 0.05; done",
            options=("-tt",),
        )
    ) as session:
        assert session.stdout is not None
        await session.stdout.receive_some(8)
    assert (await rig.client.run("cat /tmp/hup")).out == b"hup\n"


async def test_a_login_opens_in_tmux_unless_the_marker_exists(rig: Rig) -> None:
    async def login(typed: bytes) -> bytes:
        async with program_running(
            rig.client.argv(options=("-tt", "-o", "SetEnv=TERM=xterm"))
        ) as session:
            assert session.stdout is not None
            assert session.stdin is not None
            await session.stdin.send_all(typed)
            return b"".join([chunk async for chunk in session.stdout])

    with_tmux = await login(b'echo "in:${TMUX:-none}:"; tmux kill-server\r')
    await rig.client.run("touch ~/.no_auto_tmux")
    without = await login(b'echo "in:${TMUX:-none}:"; exit\r')

    assert b"in:/tmp/tmux-0/default" in with_tmux
    assert b"in:none:" in without


@pytest.mark.req("SSH-10")
async def test_the_login_tmux_can_swallow_commands_until_a_terminal_sets_the_marker(
    isolated_home: Path,
) -> None:
    async with a_rig(isolated_home, login_tmux=True) as rig:
        swallowed = await rig.client.run("echo sentinel")
        await rig.client.run("touch ~/.no_auto_tmux", options=("-tt",))
        healed = await rig.client.run("echo sentinel")

    assert (swallowed.code, swallowed.out) == (0, b"")
    assert b"no sessions" in swallowed.err
    assert healed.out == b"sentinel\n"


# -- files and ports ---------------------------------------------------------------------


async def test_rsync_works_both_ways(rig: Rig) -> None:
    source = rig.directory / "src"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "data.bin").write_bytes(os.urandom(300_000))
    remote = f"{rig.client.target}:/workspace/project/"

    up = await run_program(["rsync", "-a", "-e", rig.client.rsh, f"{source}/", remote])
    down = await run_program(
        ["rsync", "-a", "-e", rig.client.rsh, remote, f"{rig.directory}/back/"]
    )

    assert (up.code, down.code) == (0, 0), (up, down)
    original = (source / "sub" / "data.bin").read_bytes()
    assert (rig.workspace / "project" / "sub" / "data.bin").read_bytes() == original
    assert (rig.directory / "back" / "sub" / "data.bin").read_bytes() == original


async def copy_in_and_out(rig: Rig) -> bytes:
    local = rig.directory / "file"
    local.write_bytes(b"payload" * 50_000)
    scp = ["scp", "-s", *rig.client.options, "-P", str(rig.client.port)]
    up = await run_program([*scp, str(local), f"{rig.client.target}:/workspace/file"])
    assert up.code == 0, up
    back = rig.directory / "back"
    down = await run_program([*scp, f"{rig.client.target}:/workspace/file", str(back)])
    assert down.code == 0, down
    return back.read_bytes()


async def test_sftp_carries_files_both_ways(rig: Rig) -> None:
    assert await copy_in_and_out(rig) == b"payload" * 50_000


async def test_sftp_works_on_machines_without_openssh_s_server(isolated_home: Path) -> None:
    async with a_rig(isolated_home, sftp=own_sftp_program(TOOLS_DIR)) as rig:
        assert await copy_in_and_out(rig) == b"payload" * 50_000


@pytest.mark.parametrize("own", [False, True])
async def test_a_hostile_link_leads_sftp_nowhere(isolated_home: Path, own: bool) -> None:
    program = own_sftp_program(TOOLS_DIR) if own else None
    async with a_rig(isolated_home, sftp=program) as rig:
        secret = isolated_home / "secret"
        secret.write_text("mine")
        (rig.workspace / "link").symlink_to(secret)
        scp = ["scp", "-s", *rig.client.options, "-P", str(rig.client.port)]

        done = await run_program(
            [*scp, f"{rig.client.target}:/workspace/link", f"{rig.directory}/x"]
        )

        assert done.code != 0
        assert not (rig.directory / "x").exists()


async def test_ports_of_loopback_are_forwarded_and_no_others(rig: Rig) -> None:
    async with an_echo_server() as port:
        near = await rig.client.run(options=("-W", f"127.0.0.1:{port}"), stdin=b"ping")
        far = await rig.client.run(options=("-W", "192.0.2.1:80"))

    assert near.out == b"ping"
    assert far.code == 255


@asynccontextmanager
async def an_echo_server() -> AsyncIterator[int]:
    async def echo(stream: trio.SocketStream) -> None:
        async with stream:
            async for data in stream:
                await stream.send_all(data)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, echo, 0)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


class _Signalled(msgspec.Struct, frozen=True):
    status: int | None
    signal_name: str | None


async def test_a_signal_request_reaches_the_command(rig: Rig) -> None:
    """OpenSSH's client sends none, so asyncssh asks."""

    async def ask() -> _Signalled:
        async with asyncssh.connect(
            "127.0.0.1", rig.client.port, username="root", known_hosts=None, config=None,
            client_keys=[str(rig.directory / "id")],
        ) as connection:  # fmt: skip
            process = await connection.create_process(
                "trap 'echo got; exit 9' TERM; echo up; while :; do sleep 0.01; done"
            )
            await process.stdout.readline()
            process.send_signal("TERM")
            done = await process.wait()
            assert done.stdout == "got\n"
            return _Signalled(done.exit_status, done.exit_signal[0] if done.exit_signal else None)

    assert await trio_asyncio.aio_as_trio(ask)() == _Signalled(9, None)


async def test_rekeying_in_the_middle_of_a_stream_loses_nothing(rig: Rig) -> None:
    done = await rig.client.run(
        "head -c 5000000 /dev/zero | tr '\\0' x", options=("-o", "RekeyLimit=1M")
    )

    assert done.out == b"x" * 5_000_000
