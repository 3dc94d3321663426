"""Fixtures of the job tests: a machine, and the box that stands for it."""

import subprocess
from pathlib import Path

import pytest

from ssh.sshd_rig import running_sshd
from vastd.jobs.boxes import open_boxes


@pytest.fixture
async def sshd(tmp_path: Path):
    async with running_sshd(tmp_path) as rig:
        yield rig


@pytest.fixture
async def boxes(sshd, tmp_path: Path):
    async with open_boxes(
        tmp_path / "state", sshd.client_key, workspace=str(sshd.workspace), user=sshd.user
    ) as boxes:
        yield boxes


@pytest.fixture
async def box(sshd, boxes):
    async with boxes.open(sshd.target()) as box:
        yield box


@pytest.fixture
def small_disk(tmp_path: Path):
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
