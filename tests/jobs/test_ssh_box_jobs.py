"""Jobs on a real OpenSSH server: started once, detached, with their end on record."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
import trio

from ssh.sshd_rig import ended, running_sshd
from vastd.errors import HardwareMismatch, InvalidRequest, RemoteCommandFailed, SshError
from vastd.jobs.boxes import open_boxes
from vastd.jobs.port import BoxJobState, JobOrder

pytestmark = pytest.mark.ssh


def order(*command: str, **changes) -> JobOrder:
    return JobOrder(job_id="j-1", command=list(command), **changes)


def job_file(sshd, name: str, job_id: str = "j-1") -> Path:
    return sshd.workspace / ".vastd" / "jobs" / job_id / name


async def runner_ended(sshd, job_id: str = "j-1") -> None:
    """Wait until the runner has recorded the job's end and gone."""
    pid = int(job_file(sshd, "runner", job_id).read_text().split()[0])
    with trio.fail_after(20):
        await ended(pid)


def tmux(sshd, *words: str) -> int:
    """Ask the machine's tmux; return its exit code."""
    environment = {**os.environ, "TMUX_TMPDIR": str(sshd.home)}
    return subprocess.run(
        ["tmux", *words], env=environment, capture_output=True, check=False
    ).returncode


def all_command_lines() -> bytes:
    return subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, check=True).stdout


class Gate:
    """A named pipe that a job waits at until the test opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def open(self) -> None:
        os.write(self._descriptor, b"go\n")

    def close(self) -> None:
        os.close(self._descriptor)


@pytest.fixture
def gate(tmp_path: Path):
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()


@pytest.mark.req("VER-01")
async def test_the_probe_tells_gpus_versions_tools_and_clock(sshd, box) -> None:
    (sshd.home / "gpus").write_text(
        "NVIDIA A100-SXM4-80GB, 81920, 4, 0, 550.54.14\n"
        "NVIDIA A100-SXM4-80GB, 81920, 499, [N/A], 550.54.14\n"
    )

    facts = await box.probe()

    assert [(gpu.name, gpu.memory_mib) for gpu in facts.gpus] == [
        ("NVIDIA A100-SXM4-80GB", 81920)
    ] * 2
    assert (facts.gpus[1].memory_used_mib, facts.gpus[1].util_percent) == (499, None)
    assert (facts.cuda_version, facts.toolkit_version) == ("12.4", "12.1")
    assert facts.has_rsync
    assert facts.has_tmux
    assert facts.disk_free_bytes > 0
    assert facts.endpoint.port == sshd.port
    assert facts.box_clock > 1_700_000_000


async def test_a_broken_driver_is_a_hardware_mismatch_that_quotes_it(sshd, box) -> None:
    (sshd.home / "smi-broken").touch()

    with pytest.raises(HardwareMismatch, match="could not communicate"):
        await box.probe()


@pytest.mark.req("RUN-02")
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
        ("no-such", 127),
    ],
)
async def test_the_exit_code_is_the_jobs_own(sshd, box, script: str, code: int) -> None:
    await box.start_job(order("sh", "-c", script))
    await runner_ended(sshd)

    shot = await box.job_snapshot("j-1")

    assert (shot.state, shot.exit_code) == (BoxJobState.EXITED, code)
    assert shot.box_started_at is not None
    assert shot.box_ended_at is not None
    assert shot.box_started_at <= shot.box_ended_at <= shot.box_clock


@pytest.mark.req("RUN-02")
async def test_a_job_whose_runner_was_killed_with_it_died_without_a_code(sshd, box, gate) -> None:
    await box.start_job(order("sh", "-c", f"read x <{gate.path}"))
    pids = [int(job_file(sshd, name).read_text().split()[0]) for name in ("runner", "process")]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        await ended(pid)

    shot = await box.job_snapshot("j-1")

    assert (shot.state, shot.exit_code) == (BoxJobState.DIED, None)


async def test_a_pid_that_was_used_again_is_not_taken_for_the_job(sshd, box, gate) -> None:
    await box.start_job(order("sh", "-c", f"read x <{gate.path}"))
    runner, process = job_file(sshd, "runner"), job_file(sshd, "process")
    real = int(process.read_text().split()[0])
    # This test's own process lives, but it did not start when the job did.
    for path in (runner, process):
        path.write_text(f"{os.getpid()} 12345 {os.getpid()}\n")

    shot = await box.job_snapshot("j-1")
    await box.signal_job("j-1", "KILL")

    assert shot.state is BoxJobState.DIED
    os.kill(real, signal.SIGKILL)


async def test_a_job_that_was_never_started_is_absent(box) -> None:
    await box.prepare()

    shot = await box.job_snapshot("j-9")

    assert shot.state is BoxJobState.ABSENT
    assert await box.read_log("j-9", 0, 100) == b""


async def test_starting_twice_even_at_once_starts_once(sshd, box, gate) -> None:
    job = order("sh", "-c", f"echo begun; read x <{gate.path}")

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(box.start_job, job)
    await box.start_job(job)
    gate.open()
    await runner_ended(sshd)
    await box.start_job(job)

    assert await box.read_log("j-1", 0, 100) == b"begun\n"


@pytest.mark.req("RUN-01")
@pytest.mark.req("SSH-11")
async def test_the_job_outlives_its_connection_and_the_log_goes_on_by_offset(
    sshd, boxes, gate
) -> None:
    async with boxes.open(sshd.target()) as box:
        await box.start_job(order("sh", "-c", f"printf first-; read x <{gate.path}; printf second"))
        before = await box.read_log("j-1", 0, 100)
        sshd.cut()
        with pytest.raises(SshError):
            await box.job_snapshot("j-1")

    async with boxes.open(sshd.target()) as box:
        assert (await box.job_snapshot("j-1")).state is BoxJobState.RUNNING
        gate.open()
        await runner_ended(sshd)
        after = await box.read_log("j-1", len(before), 100)

    assert before + after == b"first-second"
    assert sshd.accepted == 2


async def test_any_slice_of_the_log_is_exactly_those_bytes(sshd, box) -> None:
    await box.start_job(
        order("sh", "-c", "i=0; while [ $i -lt 3000 ]; do printf %05d $i; i=$((i+1)); done")
    )
    await runner_ended(sshd)
    whole = (sshd.workspace / "logs" / "j-1.log").read_bytes()

    for offset, limit in [(0, 1), (4095, 2), (4096, 4096), (8191, 9000), (14999, 10), (15000, 10)]:
        assert await box.read_log("j-1", offset, limit) == whole[offset : offset + limit]
    assert (await box.job_snapshot("j-1")).log_bytes == len(whole) == 15000


async def test_ten_megabytes_of_log_are_read_in_bounded_pieces(sshd, box) -> None:
    await box.start_job(order("head", "-c", "10000000", "/dev/zero"))
    await runner_ended(sshd)

    assert (await box.job_snapshot("j-1")).log_bytes == 10_000_000
    assert len(await box.read_log("j-1", 9_000_000, 65536)) == 65536


@pytest.mark.req("CKP-05")
async def test_term_reaches_every_process_of_the_job(sshd, box, tmp_path: Path) -> None:
    ready, over = Gate(tmp_path / "ready"), tmp_path / "over"
    os.mkfifo(over)
    held = os.open(over, os.O_RDONLY | os.O_NONBLOCK)
    child = f"trap 'echo child >{sshd.home}/child; exit' TERM; echo x >{ready.path}; while :; do sleep 0.05; done"
    parent = f"sh -c \"{child}\" & trap 'wait; exit 7' TERM; wait"
    await box.start_job(order("sh", "-c", f"exec 9>{over}; {parent}"))
    with trio.fail_after(10):
        await trio.lowlevel.wait_readable(ready._descriptor)

    await box.signal_job("j-1", "TERM")
    with trio.fail_after(10):
        await trio.lowlevel.wait_readable(held)
    await runner_ended(sshd)

    assert (sshd.home / "child").read_text() == "child\n"
    assert (await box.job_snapshot("j-1")).exit_code == 7
    os.close(held)
    ready.close()


async def test_signalling_a_job_that_is_over_does_nothing(sshd, box) -> None:
    await box.start_job(order("true"))
    await runner_ended(sshd)

    await box.signal_job("j-1", "TERM")

    assert (await box.job_snapshot("j-1")).exit_code == 0


@pytest.mark.req("RUN-04")
@pytest.mark.req("RUN-05")
async def test_the_environment_comes_from_a_private_file_and_the_place_is_the_project(
    sshd, box, gate
) -> None:
    secret = 'it\'s $HOME `id` "x"\nsecond line'
    script = f'pwd; echo "$TOKEN|$CUDA_VISIBLE_DEVICES|$VASTD_JOB_ID|$PYTHONUNBUFFERED"; read x <{gate.path}'
    await box.start_job(order("sh", "-c", script, env={"TOKEN": secret}, gpu_indices=[0, 2]))

    seen = all_command_lines()
    gate.open()
    await runner_ended(sshd)

    log = (await box.read_log("j-1", 0, 1000)).decode()
    assert log == f"{sshd.workspace}/project\n{secret}|0,2|j-1|1\n"
    assert b"second line" not in seen
    assert job_file(sshd, "env").stat().st_mode & 0o777 == 0o600


async def test_a_variable_that_is_no_name_is_refused_before_anything_starts(sshd, box) -> None:
    with pytest.raises(InvalidRequest):
        await box.start_job(order("true", env={"A;rm -rf /": "x"}))
    with pytest.raises(InvalidRequest):
        await box.job_snapshot("../../etc")

    assert not sshd.workspace.exists()


async def test_the_heartbeat_is_read_with_its_time_and_the_gpu_load(sshd, box) -> None:
    (sshd.home / "gpus").write_text("A, 1, 1, 40, 5\nA, 1, 1, 60, 5\n")
    write = 'echo \'{"epoch": 2, "step": 5400, "loss": NaN, "timestamp": "t"}\' >beat'
    await box.start_job(order("sh", "-c", write, heartbeat_path="beat"))
    await runner_ended(sshd)
    os.utime(sshd.workspace / "project" / "beat", (1000, 1_700_000_000))

    shot = await box.job_snapshot("j-1")

    assert shot.heartbeat is not None
    assert (shot.heartbeat.step, shot.heartbeat.loss, shot.heartbeat.timestamp) == (5400, None, "t")
    assert shot.box_heartbeat_at == 1_700_000_000
    assert shot.gpu_util == 50
    assert shot.disk_free_bytes


@pytest.mark.req("RUN-03")
async def test_a_job_is_shown_in_a_tmux_session_of_its_exact_name(sshd, box, gate) -> None:
    await box.start_job(order("sh", "-c", f"read x <{gate.path}"))

    assert tmux(sshd, "has-session", "-t", "=vastd-j-1") == 0
    assert tmux(sshd, "has-session", "-t", "=vastd-j") == 1
    gate.open()
    await runner_ended(sshd)


async def test_a_killed_tmux_does_not_take_the_job_with_it(sshd, box, gate) -> None:
    await box.start_job(order("sh", "-c", f"read x <{gate.path}; exit 5"))

    assert tmux(sshd, "kill-server") == 0
    gate.open()
    await runner_ended(sshd)

    assert (await box.job_snapshot("j-1")).exit_code == 5


async def test_without_tmux_the_job_is_as_detached_and_as_well_recorded(
    tmp_path: Path, gate
) -> None:
    async with (
        running_sshd(tmp_path, hidden=("tmux",)) as sshd,
        open_boxes(
            tmp_path / "state", sshd.client_key, workspace=str(sshd.workspace), user=sshd.user
        ) as boxes,
    ):
        async with boxes.open(sshd.target()) as box:
            assert not (await box.probe()).has_tmux
            await box.start_job(order("sh", "-c", f"read x <{gate.path}; exit 5"))
            sshd.cut()
        gate.open()
        await runner_ended(sshd)
        async with boxes.open(sshd.target()) as box:
            assert (await box.job_snapshot("j-1")).exit_code == 5


@pytest.mark.req("SSH-05")
async def test_noise_from_the_login_files_does_not_reach_the_answers(tmp_path: Path) -> None:
    async with (
        running_sshd(tmp_path, login_shell=True) as sshd,
        open_boxes(
            tmp_path / "state", sshd.client_key, workspace=str(sshd.workspace), user=sshd.user
        ) as boxes,
        boxes.open(sshd.target()) as box,
    ):
        (sshd.home / "noise").write_text("state=running\n@@vastd-begin 0\nWelcome!")

        facts = await box.probe()
        shot = await box.job_snapshot("j-1")

    assert len(facts.gpus) == 1
    assert shot.state is BoxJobState.ABSENT


NEEDS_TERMINALS = pytest.mark.skipif(
    os.geteuid() != 0, reason="an sshd that is not root cannot hand out terminals"
)


@NEEDS_TERMINALS
@pytest.mark.req("SSH-10")
async def test_the_login_tmux_is_switched_off_once_through_a_terminal(tmp_path: Path) -> None:
    async with (
        running_sshd(tmp_path, login_shell=True) as sshd,
        open_boxes(
            tmp_path / "state", sshd.client_key, workspace=str(sshd.workspace), user=sshd.user
        ) as boxes,
        boxes.open(sshd.target()) as box,
    ):
        (sshd.home / "login-tmux").touch()

        facts = await box.probe()

        assert len(facts.gpus) == 1
        assert (sshd.home / ".no_auto_tmux").exists()


@NEEDS_TERMINALS
async def test_a_shell_that_runs_nothing_is_named_with_what_it_said(tmp_path: Path) -> None:
    async with (
        running_sshd(tmp_path, login_shell=True) as sshd,
        open_boxes(
            tmp_path / "state", sshd.client_key, workspace=str(sshd.workspace), user=sshd.user
        ) as boxes,
        boxes.open(sshd.target()) as box,
    ):
        (tmp_path / "wrapper").write_text("#!/bin/sh\necho This account is disabled\nexit 1\n")

        with pytest.raises(RemoteCommandFailed, match="account is disabled"):
            await box.probe()


async def test_a_command_ends_itself_on_the_machine_when_nobody_waits_any_more(
    box, tmp_path: Path
) -> None:
    over = tmp_path / "over"
    os.mkfifo(over)
    held = os.open(over, os.O_RDONLY | os.O_NONBLOCK)

    with pytest.raises(SshError):
        await box.run(f"exec 9>{over}; sleep 1000", timeout_s=0.3, limit_bytes=10)

    with trio.fail_after(10):
        await trio.lowlevel.wait_readable(held)
    assert os.read(held, 1) == b""
    os.close(held)


async def test_exec_returns_capped_output_and_the_commands_code(box) -> None:
    result = await box.run("echo 'it'\"'\"'s'; echo e >&2; exit 4", timeout_s=10, limit_bytes=3)

    assert (result.stdout, result.stderr, result.exit_code, result.truncated) == (
        b"it'", b"e\n", 4, True,
    )  # fmt: skip


async def test_a_full_disk_on_the_machine_does_not_cost_the_exit_code(
    sshd, boxes, small_disk: Path
) -> None:
    sshd.workspace.symlink_to(small_disk)
    async with boxes.open(sshd.target()) as box:
        await box.start_job(order("sh", "-c", "cat /dev/zero >fill; exit 3"))
        await runner_ended(sshd)

        shot = await box.job_snapshot("j-1")

    assert (shot.state, shot.exit_code, shot.disk_free_bytes) == (BoxJobState.EXITED, 3, 0)
    assert shot.box_ended_at is not None
