"""A set-up: what is started, and what its log is taken to say."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from vastd.core import events as ev
from vastd.core.job import Job, JobState
from vastd.core.setup import (
    Check,
    Setup,
    declares_torch,
    fights,
    read_checks,
    script,
    steps,
    verdict,
)
from vastd.core.story import tell
from vastd.effects.collect import outputs_of
from vastd.effects.setup import setup_verdict
from vastd.local_logs import LocalLogs

FULL = Setup(
    system_packages=("git", "ffmpeg"),
    pip_phases=(("-r", "base.txt"), ("-r", "my deps.txt")),
    torch=True,
    num_gpus=2,
    phase_limit_s=90.0,
)


FIGHT = "requirements exclude each other: install them in phases, one file each"


@pytest.mark.req("ENV-03")
def test_packages_come_before_pip_and_each_file_is_a_call_of_its_own() -> None:
    assert steps(FULL) == [
        "apt-get install git ffmpeg",
        "pip install -r base.txt",
        "pip install -r 'my deps.txt'",
    ]
    shell, option, text, name = script(FULL, "FUNCTIONS")
    assert (shell, option, name) == ("sh", "-c", "vastd-setup")
    assert text.splitlines() == [
        "FUNCTIONS",
        "setup_python || exit 1",
        "setup_apt 90 git ffmpeg || exit 1",
        "setup_pip 90 'pip 1 of 2' -r base.txt || exit 1",
        "setup_pip 90 'pip 2 of 2' -r 'my deps.txt' || exit 1",
        "setup_gpus 2 || exit 1",
        "setup_torch 2 || exit 1",
        "setup_done",
    ]


def test_without_anything_declared_it_only_proves_that_the_machine_works() -> None:
    assert steps(Setup()) == []
    assert "setup_torch 1" not in script(Setup(), "")[2]


@pytest.mark.parametrize(
    ("line", "declared"),
    [
        ("torch", True), ("torch==2.6.0", True), ("  torch>=2 ; python_version<'3.13'", True),
        ("Torch[opt]", True), ("torch @ https://x/y.whl", True), ("torchvision", False),
        ("torch-geometric", False), ("torch.extra", False), ("# torch", False), ("", False),
        ("pytorch", False),
    ],
)  # fmt: skip
def test_torch_is_found_by_its_own_name(line: str, declared: bool) -> None:
    assert declares_torch(["numpy", line]) is declared


def test_only_lines_with_the_id_of_the_set_up_speak_for_it() -> None:
    log = (
        "Collecting x\n[setup j-1] python: ok, 3.11.2 at /usr/bin/python\n"
        "[setup j-2] torch: ok\n  [setup j-1] indented: ok\n[setup j-1] odd: maybe\n"
        "[setup j-1] pip 1 of 1: failed, exit code 1\r\n[setup j-1] x: ok"
    )

    assert read_checks(log, "j-1") == [
        Check(name="python", ok=True, detail="3.11.2 at /usr/bin/python"),
        Check(name="pip 1 of 1", ok=False, detail="exit code 1"),
        Check(name="x", ok=True),
    ]
    assert verdict(read_checks(log, "j-1")) == "pip 1 of 1 failed: exit code 1"
    assert verdict([]) is None
    assert verdict([Check(name="python", ok=True, detail="3.11.2")]) == "python 3.11.2"


def test_a_machine_cannot_fill_the_record_with_what_it_prints() -> None:
    lines = "".join(f"[setup j-1] x{n}: failed, {'y' * 5000}\n" for n in range(500))

    found = read_checks(lines, "j-1")

    assert (len(found), {len(c.detail) for c in found}) == (100, {300})


@pytest.mark.req("ENV-05")
def test_a_fight_over_versions_is_recognised() -> None:
    assert fights("ERROR: ResolutionImpossible: for help visit")
    assert fights("because these package versions have conflicting dependencies.")
    assert not fights("ERROR: No matching distribution found for x")


@pytest.mark.parametrize(
    ("log", "code", "outcome"),
    [
        ("[setup j-1] python: ok, 3.11.2\n", 0, (JobState.SUCCEEDED, "python 3.11.2", None)),
        ("", 127, (JobState.FAILED, "exit code 127", "setup")),
        (
            "ERROR: ResolutionImpossible\n[setup j-1] pip 1 of 1: failed, exit code 1\n",
            1,
            (
                JobState.FAILED,
                f"pip 1 of 1 failed: exit code 1; {FIGHT}",
                "setup",
            ),
        ),
    ],
)
def test_the_log_that_is_home_says_how_it_ended(
    tmp_path: Path, log: str, code: int, outcome: tuple[JobState, str, str | None]
) -> None:
    logs = LocalLogs(tmp_path)
    logs.append("j-1", 0, log.encode())
    job = Job(
        job_id="j-1", name="setup", command=["setup"], project="/p", submitted_at=0.0, setup=FULL
    )

    assert setup_verdict(SimpleNamespace(logs=logs), job, code) == outcome  # type: ignore[arg-type]


def test_a_set_up_is_told_by_what_it_installs_and_leaves_no_outputs() -> None:
    job = Job(
        job_id="j-1", name="setup", command=["setup"], project="/p", submitted_at=0.0, setup=FULL
    )

    line = tell(ev.JobSubmitted(job_id="j-1", at=0.0, job=job))

    assert line.text.startswith("set-up asked: apt-get install git ffmpeg; pip install -r base.txt")
    assert outputs_of(job) == []
    stored = ev.from_bytes(ev.to_bytes(ev.JobSubmitted(job_id="j-1", at=0.0, job=job)))
    assert isinstance(stored, ev.JobSubmitted)
    assert stored.job.setup == FULL
