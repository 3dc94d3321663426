"""Reading the runner's answers strictly, and the machine's tools tolerantly."""

import pytest

from vastd.errors import HardwareMismatch, RemoteCommandFailed
from vastd.jobs.facts import parse_facts, parse_snapshot
from vastd.jobs.port import BoxJobState, Endpoint, Route

ENDPOINT = Endpoint(host="h", port=1, route=Route.DIRECT)
PROBE = b"clock=1700000000\nhas_tmux=1\ndisk_free_kb=1000\nsmi_exit=0\n"


def probe(*lines: str) -> bytes:
    return PROBE + "".join(f"{line}\n" for line in lines).encode()


@pytest.mark.req("VER-01")
@pytest.mark.parametrize("count", [1, 2, 8])
def test_every_gpu_is_listed(count: int) -> None:
    facts = parse_facts(probe(*["gpu=RTX 4090, 24564, 3, 7, 550.54"] * count), ENDPOINT)

    assert [gpu.memory_mib for gpu in facts.gpus] == [24564] * count
    assert (facts.gpus[0].driver_version, facts.gpus[0].util_percent) == ("550.54", 7)
    assert (facts.has_rsync, facts.has_tmux) == (False, True)
    assert facts.disk_free_bytes == 1_024_000


@pytest.mark.req("VER-03")
def test_what_the_tools_leave_out_is_none() -> None:
    facts = parse_facts(probe("gpu=GH200, 97871, [N/A], [Not Supported], 1"), ENDPOINT)

    assert (facts.gpus[0].memory_used_mib, facts.gpus[0].util_percent) == (None, None)
    assert (facts.cuda_version, facts.toolkit_version) == (None, None)


@pytest.mark.parametrize(
    "body",
    [probe(), probe("gpu="), probe("gpu=RTX, [N/A], 1, 1, 1"), probe("gpu=nonsense"),
     b"clock=1\ndisk_free_kb=1\nsmi_exit=127\nsmi_error=nvidia-smi: not found\n"],
)  # fmt: skip
def test_a_machine_without_a_usable_gpu_is_a_hardware_mismatch(body: bytes) -> None:
    with pytest.raises(HardwareMismatch):
        parse_facts(body, ENDPOINT)


@pytest.mark.parametrize(
    "body",
    [b"", b"state=running\n", b"state=sleeping\nclock=1\n", b"clock=1\n", b"state=exited\nclock=x\n",
     b"state=running\nclock=1\nwelcome to the machine\n", b"state=running\nclock=1\nheartbeat_hex=zz\n"],
)  # fmt: skip
def test_an_answer_that_is_no_snapshot_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteCommandFailed):
        parse_snapshot(body)


def test_a_snapshot_is_read_whole() -> None:
    shot = parse_snapshot(
        b"state=exited\nclock=1700000100\ndisk_free_kb=2\npid=77\nexit_code=143\n"
        b"started_at=1700000000\nended_at=1700000090   \nlog_bytes=12\nheartbeat_at=1700000050\n"
        b"heartbeat_hex=" + b'{"step": 5}'.hex().encode() + b"\ngpu_util=10\ngpu_util=[N/A]\n"
    )

    assert (shot.state, shot.pid, shot.exit_code) == (BoxJobState.EXITED, 77, 143)
    assert (shot.box_started_at, shot.box_ended_at, shot.box_clock) == (
        1700000000, 1700000090, 1700000100,
    )  # fmt: skip
    assert (shot.log_bytes, shot.gpu_util, shot.disk_free_bytes) == (12, 10, 2048)
    assert shot.heartbeat is not None
    assert shot.heartbeat.step == 5


def test_a_job_without_a_process_has_no_pid() -> None:
    assert parse_snapshot(b"state=died\nclock=1\npid=0\n").pid is None
