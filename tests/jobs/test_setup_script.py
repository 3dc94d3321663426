"""`setup.sh` on stand-ins for python, pip, apt and nvidia-smi: order, first failure, honest checks."""

import os
import subprocess
from pathlib import Path

import pytest

from vastd.core.setup import Check, Setup, read_checks
from vastd.effects.setup import setup_command

pytestmark = pytest.mark.ssh  # it starts many small processes, as an SSH session would

PYTHON = """\
#!/bin/sh
case "$*" in
  *sys.version_info*) echo "3.11.2 at /opt/python" ;;
  *'-m pip --version'*) exit ${NO_PIP:-0} ;;
  *'-m pip install'*) echo "pip $*" >>"$CALLS"; sleep ${HANGS:-0}; case "$*" in *$FAILS*) exit 3 ;; esac ;;
  *torch*) echo "$TORCH"; exit ${TORCH_CODE:-0} ;;
esac
"""
TOOLS = {
    "python": PYTHON,
    "nvidia-smi": '#!/bin/sh\n[ -z "$NO_GPU" ] || { echo "No devices were found"; exit 6; }\n'
    "echo 'NVIDIA RTX 4090'\necho 'NVIDIA RTX 4090'\n",
    "dpkg": '#!/bin/sh\n[ "$2" = bash ]\n',
    "apt-get": '#!/bin/sh\necho "apt $*" >>"$CALLS"\n',
}
PHASES = Setup(pip_phases=(("-r", "a.txt"), ("-r", "b.txt"), ("-r", "c.txt")), num_gpus=2)


class Ran:
    def __init__(self, done: subprocess.CompletedProcess[str], calls: Path) -> None:
        self.code = done.returncode
        self.out = done.stdout + done.stderr
        self.checks = {c.name: c for c in read_checks(done.stdout, "j-1")}
        self.calls = calls.read_text().splitlines() if calls.exists() else []


def set_up(tmp_path: Path, setup: Setup, **env: str) -> Ran:
    """Run a set-up where only the stand-ins and the usual small tools are found."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in TOOLS.items():
        if env.get("WITHOUT") != name:
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
    for name in ("sh", "cat", "tr", "cut", "grep", "head", "tail", "timeout", "sleep"):
        found = next(p for p in (f"/usr/bin/{name}", f"/bin/{name}") if os.path.exists(p))
        (tools / name).symlink_to(found)
    calls = tmp_path / "calls"
    done = subprocess.run(
        setup_command(setup), cwd=tmp_path, text=True, capture_output=True, check=False, timeout=60,
        env={"PATH": str(tools), "CALLS": str(calls), "FAILS": "!", "VASTD_JOB_ID": "j-1", **env},
    )  # fmt: skip
    return Ran(done, calls)


@pytest.mark.req("ENV-03")
def test_pip_is_called_once_per_phase_in_order(tmp_path: Path) -> None:
    ran = set_up(tmp_path, PHASES)

    assert ran.code == 0, ran.out
    assert ran.calls == [f"pip -m pip install -r {name}.txt" for name in "abc"]
    assert [c.ok for c in ran.checks.values()] == [True] * 6
    assert ran.checks["nvidia-smi"].detail == "2x NVIDIA RTX 4090"


@pytest.mark.req("ENV-03")
def test_the_first_phase_that_fails_ends_it(tmp_path: Path) -> None:
    ran = set_up(tmp_path, PHASES, FAILS="b.txt")

    assert ran.code == 1
    assert len(ran.calls) == 2
    assert ran.checks["pip 2 of 3"] == Check(name="pip 2 of 3", ok=False, detail="exit code 3")
    assert "nvidia-smi" not in ran.checks


def test_packages_are_fetched_only_when_one_is_missing(tmp_path: Path) -> None:
    ran = set_up(tmp_path, Setup(system_packages=("bash", "git")))

    assert ran.code == 0, ran.out
    assert [line.split()[-1] for line in ran.calls] == ["update", "git"]
    assert "--no-install-recommends -- bash git" in ran.calls[1]
    (tmp_path / "again").mkdir()
    again = set_up(tmp_path / "again", Setup(system_packages=("bash",)))
    assert (again.code, again.calls) == (0, [])
    assert again.checks["apt"].detail == "bash (already there)"


@pytest.mark.parametrize(
    ("setup", "env", "check", "detail"),
    [
        (PHASES, {"WITHOUT": "python"}, "python", "no python"),
        (PHASES, {"NO_PIP": "1"}, "pip 1 of 3", "no pip"),
        (Setup(), {"NO_GPU": "1"}, "nvidia-smi", "No devices were found"),
        (Setup(num_gpus=3), {}, "nvidia-smi", "2 GPUs, not 3"),
        (Setup(system_packages=("git",)), {"WITHOUT": "apt-get"}, "apt", "no apt-get"),
        (
            Setup(torch=True),
            {"TORCH": "torch 2.6.0 for CUDA None sees 0 GPUs", "TORCH_CODE": "1"},
            "torch",
            "sees 0 GPUs",
        ),
    ],
)
@pytest.mark.req("ENV-08")
def test_a_machine_that_does_not_work_is_called_that(
    tmp_path: Path, setup: Setup, env: dict[str, str], check: str, detail: str
) -> None:
    ran = set_up(tmp_path, setup, **env)

    assert ran.code == 1
    assert ran.checks[check].ok is False
    assert detail in ran.checks[check].detail


def test_a_step_that_hangs_is_ended(tmp_path: Path) -> None:
    setup = Setup(pip_phases=(("-r", "a.txt"),), phase_limit_s=1.0)

    ran = set_up(tmp_path, setup, HANGS="30")

    assert ran.code == 1
    assert "ended after 1 s" in ran.checks["pip 1 of 1"].detail


def test_torch_tells_what_it_sees(tmp_path: Path) -> None:
    ran = set_up(tmp_path, Setup(torch=True), TORCH="torch 2.6.0 for CUDA 12.6 sees 1 GPUs")

    assert ran.code == 0
    assert ran.checks["torch"].detail == "torch 2.6.0 for CUDA 12.6 sees 1 GPUs"
