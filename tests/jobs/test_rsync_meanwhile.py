"""What is done while rsync connects: it is done before anything is copied, whatever becomes of rsync."""

import os

import pytest
import trio

from jobs.transfer_rig import silent
from ssh.sshd_rig import write_script
from vastd.errors import SshRefused, TransferFailed
from vastd.jobs.port import Endpoint
from vastd.jobs.rsync import RsyncJob, RsyncLink, copy

JOB = RsyncJob(source="/a/", target="h:/b/", names=[b"one", b"two"], total_bytes=2, step="sync")
LINK = RsyncLink(
    endpoint=Endpoint(host="h", port=22, user="root", route="direct"), ssh_argv=["ssh"]
)


@pytest.fixture
def told(tmp_path, monkeypatch):
    """An rsync that keeps what it is told to copy; the path is where."""
    tools = tmp_path / "tools"
    tools.mkdir()
    write_script(tools / "rsync", f"#!/bin/sh\ncat >{tmp_path}/told\n")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return tmp_path / "told"


async def test_rsync_learns_what_to_copy_when_the_rest_is_done(told):
    async def announce():
        await trio.lowlevel.checkpoint()
        assert not told.exists() or told.read_bytes() == b""

    await copy(LINK, JOB, silent, meanwhile=announce)

    assert told.read_bytes() == b"one\0two\0"


async def test_an_error_meanwhile_is_told_as_it_is_and_nothing_is_copied(told):
    async def announce():
        raise TransferFailed("the disk there is full")

    with pytest.raises(TransferFailed, match="the disk there is full"):
        await copy(LINK, JOB, silent, meanwhile=announce)

    assert not told.exists() or told.read_bytes() == b""


async def test_an_rsync_that_ends_at_once_tells_why_after_the_rest_is_done(told):
    write_script(
        told.parent / "tools" / "rsync", "#!/bin/sh\necho Connection refused >&2; exit 255\n"
    )
    done = []

    async def announce():
        await trio.lowlevel.checkpoint()
        done.append("announced")

    with pytest.raises(SshRefused):
        await copy(LINK, JOB, silent, meanwhile=announce)

    assert done == ["announced"]
