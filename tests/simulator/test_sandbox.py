"""The walls of a simulated instance hold, also against a job that wants out (DESIGN D12)."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
import trio

from support.sim_hosts import RTX_4090, Finished, program_running, run_program
from vastd.errors import ConfigError
from vastd.simulator.hosts import support
from vastd.simulator.hosts.image import InstanceDisk, build_disk, mend_mount_points, python_prefixes
from vastd.simulator.hosts.plain import PlainSandbox
from vastd.simulator.hosts.processes import children_of
from vastd.simulator.hosts.sandbox import BubbleSandbox, Sandbox, SandboxFailed

pytestmark = pytest.mark.sim

LIMIT_S = 20.0
HAS_MERGED_USR = Path("/lib").is_symlink()


def exists(path: str) -> bool:
    return Path(path).exists()


def text_of(path: str) -> str:
    return Path(path).read_text()


def all_command_lines() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            found.append(path.read_bytes())
    return found


class Box:
    """A running sandbox and where its disk is."""

    def __init__(self, sandbox: Sandbox, disk: InstanceDisk, log: Path) -> None:
        self.sandbox = sandbox
        self.disk = disk
        self.log = log

    async def run(self, command: str, stdin: bytes = b"") -> Finished:
        with trio.fail_after(LIMIT_S):
            return await run_program(self.sandbox.argv(["command", command], {}, tty=False), stdin)

    async def out(self, command: str) -> str:
        done = await self.run(command)
        assert done.code == 0, done
        return done.out.decode().strip()


@asynccontextmanager
async def a_box(
    directory: Path, *, onstart: str = "", env: dict[str, str] | None = None, full: bool = False
) -> AsyncIterator[Box]:
    disk = build_disk(directory / "disk", hostname="C.7", gpu=RTX_4090, onstart=onstart)
    log = directory / "log"
    sandbox = BubbleSandbox(disk, hostname="C.7", state_dir=directory, log=log)
    await sandbox.start(env or {}, disk_full=full)
    try:
        yield Box(sandbox, disk, log)
    finally:
        with trio.CancelScope(shield=True):
            await sandbox.stop()


@pytest.fixture
async def box(isolated_home: Path) -> AsyncIterator[Box]:
    async with a_box(isolated_home) as made:
        yield made


# -- what must not be possible -----------------------------------------------------------


@pytest.mark.ssh
async def test_a_job_cannot_see_or_write_the_users_home(isolated_home: Path) -> None:
    secret = isolated_home / "secret"
    secret.write_text("mine")
    state = isolated_home / "state"
    state.mkdir()

    async with a_box(state) as box:
        done = await box.run(f"cat {secret}; ls -a {isolated_home}; touch {isolated_home}/planted")

    assert b"mine" not in done.out
    assert done.code != 0
    assert not (isolated_home / "planted").exists()
    assert secret.read_text() == "mine"


@pytest.mark.ssh
async def test_a_job_cannot_read_shadow_or_secrets_of_the_host(box: Box) -> None:
    done = await box.run("cat /etc/shadow /etc/ssh/ssh_host_*_key /run/* /proc/1/root/etc/shadow")

    assert done.code != 0
    assert done.out == b""


@pytest.mark.ssh
async def test_a_job_cannot_remount_or_write_usr(box: Box) -> None:
    done = await box.run(
        "mount -o remount,rw,bind /usr; umount -l /usr; touch /usr/planted;"
        " rm -f /usr/bin/env; unshare -Urm sh -c 'mount -o remount,rw,bind /usr; touch /usr/planted'"
    )

    assert done.code != 0
    assert not exists("/usr/planted")
    assert exists("/usr/bin/env")


@pytest.mark.ssh
async def test_a_job_cannot_change_kernel_settings(box: Box) -> None:
    # Where root inside is root outside, these are writable without any capability.
    before = text_of("/proc/sys/kernel/core_pattern")

    done = await box.run(
        "echo planted >/proc/sys/kernel/core_pattern; umount /proc/sys;"
        " mkdir -p /tmp/p; unshare -Urmpf mount -t proc proc /tmp/p;"
        " echo planted >/proc/sys/kernel/core_pattern"
    )

    assert done.code != 0
    assert text_of("/proc/sys/kernel/core_pattern") == before


@pytest.mark.ssh
async def test_a_job_cannot_see_or_kill_processes_outside(box: Box) -> None:
    async with program_running(["sleep", "60"]) as bystander:
        seen = await box.out("ls /proc | grep -c '^[0-9]*$'")
        done = await box.run(f"kill -9 {bystander.pid}; kill -9 -1")

        assert int(seen) < 10
        assert f"({bystander.pid}) - No such process".encode() in done.err
        assert bystander.returncode is None


@pytest.mark.ssh
async def test_a_command_holds_no_capability_and_gains_none(box: Box) -> None:
    status = await box.out("grep -E '^(Cap|NoNewPrivs)' /proc/self/status")

    values = dict(line.split(":\t") for line in status.splitlines())
    assert values.pop("NoNewPrivs") == "1"
    assert set(values.values()) == {"0" * 16}


@pytest.mark.ssh
async def test_a_replaced_loader_gives_a_job_no_power_over_mounts(box: Box) -> None:
    """
    Programs that enter the sandbox load what the job put in their way, with every capability of
    the namespace they are in. That namespace must own nothing.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler to build the hostile library")
    source = box.disk.tools.parent / "evil.c"
    source.write_text(
        "#include <sys/mount.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        "__attribute__((constructor)) void evil(void) {\n"
        '  int r = mount(0, "/usr", 0, MS_REMOUNT | MS_BIND, 0);\n'
        '  int u = umount2("/proc/sys", MNT_DETACH);\n'
        '  FILE *f = fopen("/tmp/evil", "a"); if (f) { fprintf(f, "%d %d\\n", r, u); fclose(f); }\n'
        '  if (r == 0) fopen("/usr/planted-by-loader", "w");\n}\n'
    )
    library = box.disk.root / "tmp" / "evil.so"
    built = await run_program([compiler, "-shared", "-fPIC", "-o", str(library), str(source)])
    assert built.code == 0, built
    await box.run("echo /tmp/evil.so > /etc/ld.so.preload")

    await box.run("true")

    tried = await box.out("cat /tmp/evil")
    assert set(tried.splitlines()) == {"-1 -1"}
    assert not exists("/usr/planted-by-loader")


@pytest.mark.ssh
async def test_variables_of_the_container_are_on_no_command_line(isolated_home: Path) -> None:
    async with a_box(isolated_home, env={"TOKEN": "s3cret-value"}) as box:
        inside = await box.out("tr '\\0' '\\n' </proc/1/environ")
        lines = all_command_lines()

    assert "TOKEN=s3cret-value" in inside.splitlines()
    assert not any(b"s3cret-value" in line for line in lines)


@pytest.mark.ssh
async def test_a_variable_cannot_smuggle_an_option_of_the_sandbox(isolated_home: Path) -> None:
    with pytest.raises(SandboxFailed, match="NUL"):
        async with a_box(isolated_home, env={"A": "b\0--bind\0/\0/mnt"}):
            pass


@pytest.mark.ssh
async def test_a_link_in_place_of_a_mount_point_is_mended_before_the_next_start(
    isolated_home: Path,
) -> None:
    victim = isolated_home / "victim"
    victim.mkdir()
    async with a_box(isolated_home) as box:
        root = box.disk.root
        await box.run("rm -rf /etc/ssl /srv /lib; ln -s /mnt /etc/ssl; ln -s / /srv; mkdir /lib")
    (root / "etc" / "alternatives").rmdir()
    (root / "etc" / "alternatives").symlink_to(victim)

    mend_mount_points(root, ["/etc/ssl/certs", "/etc/alternatives", "/etc/ld.so.cache"])

    for path in (root / "etc" / "ssl", root / "srv", root / "etc"):
        assert not path.is_symlink()
    assert (root / "lib").is_symlink() == HAS_MERGED_USR
    assert not (root / "etc" / "alternatives").is_symlink()
    assert list(victim.iterdir()) == []


@contextmanager
def a_directory_for_nobody() -> Iterator[Path]:
    path = Path("/tmp") / f"vt-nobody-{os.getpid()}"
    path.mkdir()
    os.chown(path, 65534, 65534)
    yield path
    shutil.rmtree(path, ignore_errors=True)


NOBODY_TRIAL = """
import ctypes, os, pathlib, shutil, sys
import trio
from vastd.simulator.hosts import image, sandbox, support
directory = pathlib.Path(sys.argv[1])
sys.prefix = sys.base_prefix = "/usr"  # ours may lie where nobody may not look
disk = image.build_disk(directory / "disk", hostname="x", gpu=image.GpuSetup(
    name="none", count=0, memory_mib=0, driver_version="0", cuda_version="0", compute_cap=0,
    power_w=0))
for path in directory.rglob("*"):
    os.chown(path, 65534, 65534, follow_symlinks=False)
async def trial():
    box = sandbox.BubbleSandbox(disk, hostname="x", state_dir=directory, log=directory / "log")
    await box.start({})
    code = await support.run_inside(box, support.TRIAL + " && touch /workspace/mine")
    await box.stop()
    return code
trio.run(trio.lowlevel.checkpoint)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # dumpable, as a process that nobody started would be
print(os.geteuid(), trio.run(trial))
"""


@pytest.mark.ssh
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
async def test_the_walls_stand_for_an_unprivileged_user_too() -> None:
    with a_directory_for_nobody() as directory:
        done = await run_program([sys.executable, "-c", NOBODY_TRIAL, str(directory)])

    assert done == Finished(0, b"65534 0\n", b"")


# -- what must be possible ---------------------------------------------------------------


@pytest.mark.ssh
async def test_a_job_survives_the_command_that_started_it(box: Box) -> None:
    await box.run(
        "mkfifo /tmp/go; setsid sh -c 'read x </tmp/go; echo done $x >/workspace/out'"
        " </dev/null >/dev/null 2>&1 &"
    )

    await box.run("echo 5 >/tmp/go; while ! grep -q done /workspace/out 2>/dev/null; do :; done")

    assert (box.disk.root / "workspace" / "out").read_text() == "done 5\n"


@pytest.mark.ssh
async def test_tmux_works_and_survives_the_command_that_started_it(box: Box) -> None:
    assert (await box.run("tmux new-session -d -s job 'sleep 100'")).code == 0

    assert (await box.out("tmux list-sessions -F '#S'")) == "job"


@pytest.mark.ssh
async def test_killing_everything_inside_leaves_the_instance_usable(box: Box) -> None:
    await box.run("sleep 100 & kill -9 -1")

    assert await box.out("echo still here") == "still here"


@pytest.mark.ssh
async def test_python_runs_with_its_library_and_pip_has_a_place_to_write(box: Box) -> None:
    printed = await box.out(
        "python -c 'import ssl, sqlite3, sys, site; print(sys.version_info[0], site.ENABLE_USER_SITE)'"
    )

    assert printed == "3 True"


@pytest.mark.ssh
async def test_the_gpu_tools_answer_as_the_rented_card_would(box: Box) -> None:
    table = await box.out("nvidia-smi")
    query = await box.out(
        "nvidia-smi --query-gpu=index,name,memory.total,driver_version,utilization.gpu"
        " --format=csv,noheader,nounits"
    )

    assert "CUDA Version: 12.4" in table
    assert query.splitlines() == [
        "0, NVIDIA GeForce RTX 4090, 24564, 550.54.15, 0",
        "1, NVIDIA GeForce RTX 4090, 24564, 550.54.15, 0",
    ]
    assert (await box.out("nvidia-smi --query-gpu=memory.total --format=csv")).splitlines() == [
        "memory.total [MiB]", "24564 MiB", "24564 MiB",
    ]  # fmt: skip
    assert (await box.out("nvidia-smi -L")).startswith("GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-")
    assert "release 12.4, V12.4" in await box.out("nvcc --version")
    assert (await box.run("nvidia-smi --query-gpu=nonsense --format=csv")).code == 2


@pytest.mark.ssh
async def test_a_gpu_is_busy_while_something_works_in_the_workspace(box: Box) -> None:
    ask = "nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits -i 0"
    await box.run(
        "mkdir -p /workspace/project; cd /workspace/project;"
        " setsid python -c 'import time; print(1, flush=True); time.sleep(60)'"
        " >/workspace/up 2>&1 </dev/null & while ! [ -s /workspace/up ]; do :; done"
    )

    busy = await box.out(ask)
    await box.run("kill -9 -1")
    idle = await box.out(ask)

    assert (busy, idle) == ("87", "0")


@pytest.mark.ssh
async def test_onstart_runs_once_the_instance_is_up_and_sees_its_variables(
    isolated_home: Path,
) -> None:
    onstart = "env | grep ^CONTAINER >> /etc/environment; echo said; mkfifo /tmp/up; cat /tmp/up"

    async with a_box(isolated_home, onstart=onstart, env={"CONTAINER_ID": "7"}) as box:
        await box.run("until [ -p /tmp/up ]; do :; done; echo >/tmp/up")
        exported = await box.out("echo $CONTAINER_ID")

    assert exported == "7"
    assert box.log.read_text().splitlines()[0] == "said"


@pytest.mark.ssh
async def test_variables_reach_no_session_unless_onstart_exports_them(isolated_home: Path) -> None:
    async with a_box(isolated_home, env={"CONTAINER_ID": "7"}) as box:
        assert await box.out("echo ${CONTAINER_ID:-unset}") == "unset"


@pytest.mark.ssh
async def test_a_full_disk_refuses_writes(isolated_home: Path) -> None:
    async with a_box(isolated_home, full=True) as box:
        done = await box.run("head -c 1000000 /dev/zero >/workspace/big")

    assert done.code != 0
    assert b"No space left" in done.err


@pytest.mark.ssh
async def test_stopping_ends_every_process_and_keeps_the_disk(isolated_home: Path) -> None:
    async with a_box(isolated_home) as box:
        await box.run("echo kept >/root/file; setsid sleep 3456 </dev/null >/dev/null 2>&1 &")
        holder = box.sandbox._holder  # type: ignore[attr-defined]  # what must be gone
        inside = children_of(holder.pid)

    assert holder.poll() is not None
    assert not any(exists(f"/proc/{pid}") for pid in inside)
    assert (box.disk.root / "root" / "file").read_text() == "kept\n"


@pytest.mark.ssh
async def test_a_holder_ends_with_the_simulator_that_was_killed(isolated_home: Path) -> None:
    script = (
        "import trio, sys, pathlib; sys.path.insert(0, sys.argv[2])\n"
        "from support.sim_hosts import RTX_4090\n"
        "from vastd.simulator.hosts.image import build_disk\n"
        "from vastd.simulator.hosts.sandbox import BubbleSandbox\n"
        "d = pathlib.Path(sys.argv[1])\n"
        "async def main():\n"
        "    disk = build_disk(d / 'disk', hostname='x', gpu=RTX_4090)\n"
        "    box = BubbleSandbox(disk, hostname='x', state_dir=d, log=d / 'log')\n"
        "    await box.start({})\n"
        "    print(box._pid, flush=True)\n"
        "    await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    owner = await trio.lowlevel.open_process(
        [sys.executable, "-c", script, str(isolated_home), str(Path(__file__).parents[1])],
        stdout=subprocess.PIPE,
    )
    assert owner.stdout is not None
    with trio.fail_after(LIMIT_S):
        first = int(await owner.stdout.receive_some(64))
        descriptor = os.pidfd_open(first)

        owner.send_signal(signal.SIGKILL)

        await trio.lowlevel.wait_readable(descriptor)  # readable: the process has ended
        await owner.wait()
    os.close(descriptor)
    await owner.stdout.aclose()
    assert owner.returncode == -signal.SIGKILL


# -- where there are no walls ------------------------------------------------------------


async def no_namespaces(state_dir: Path) -> str:
    await trio.lowlevel.checkpoint()
    return "bwrap: No permissions to create new namespace"


async def test_without_walls_root_is_refused(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "_problem", no_namespaces)
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(ConfigError, match="as root their jobs would run unconfined"):
        await support.find_support(isolated_home)


async def test_without_walls_a_user_is_warned_where_jobs_run(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "_problem", no_namespaces)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    found = await support.find_support(isolated_home)

    assert found.walls is support.Walls.NONE
    assert f"no sandbox: the job runs as you in '{isolated_home}/instances'" in found.warning


async def test_without_walls_commands_work_in_the_directory_and_end_with_the_instance(
    isolated_home: Path,
) -> None:
    disk = build_disk(isolated_home / "disk", hostname="x", gpu=RTX_4090, onstart="touch /tmp/no")
    sandbox = PlainSandbox(disk, state_dir=isolated_home)
    await sandbox.start({"CONTAINER_ID": "7"})
    box = Box(sandbox, disk, isolated_home / "log")

    printed = await box.out("echo $HOME $WORKSPACE $CONTAINER_ID; nvidia-smi -L | wc -l")
    await box.run("setsid sleep 4567 </dev/null >/dev/null 2>&1 & echo $! >pid")
    pid = int((disk.root / "root" / "pid").read_text())
    descriptor = os.pidfd_open(pid)
    await sandbox.stop()

    with trio.fail_after(LIMIT_S):
        await trio.lowlevel.wait_readable(descriptor)
    os.close(descriptor)
    assert printed.split() == [
        str(disk.root / "root"), str(disk.root / "workspace"), "7", "2",
    ]  # fmt: skip


def test_an_interpreter_that_lies_around_the_home_is_never_shown(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = isolated_home / "venv"
    inner.mkdir()
    monkeypatch.setattr(sys, "base_prefix", str(isolated_home))
    monkeypatch.setattr(sys, "prefix", str(inner))

    shown = list(python_prefixes(isolated_home / "state"))

    assert shown == [inner.resolve()]
