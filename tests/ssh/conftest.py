"""Fixtures of the SSH tests: a machine to reach, and the dialer to reach it with."""

from pathlib import Path

import pytest

from ssh.sshd_rig import running_sshd
from vastd.ssh.asyncssh_adapter import open_dialer
from vastd.ssh.known_hosts import KnownHosts


@pytest.fixture
async def sshd(tmp_path: Path):
    async with running_sshd(tmp_path) as rig:
        yield rig


@pytest.fixture
def known_hosts(tmp_path: Path) -> KnownHosts:
    return KnownHosts(tmp_path / "known_hosts")


@pytest.fixture
async def dialer(sshd, known_hosts: KnownHosts):
    async with open_dialer(sshd.client_key, known_hosts) as dialer:
        yield dialer
