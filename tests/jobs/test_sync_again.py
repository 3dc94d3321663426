"""Syncing a project again: what is known from before spares the work, and is never believed too long."""

import os
import shutil
from pathlib import Path

import pytest

from jobs.transfer_rig import a_box, read_tree, silent, write_tree
from ssh.sshd_rig import write_script
from vastd.errors import SshClosed, SshError, TransferFailed
from vastd.jobs.carrier import Carrier
from vastd.jobs.port import ProjectSource

pytestmark = pytest.mark.ssh

METHODS = pytest.mark.parametrize("method", ["rsync", "sftp"])
PROJECT: dict[str, bytes | str] = {
    "train.py": "print(1)",
    "pkg/a.py": "a = 1",
    "pkg/new\nline.txt": "n",
}


@METHODS
async def test_what_a_job_did_to_our_files_is_undone(tmp_path: Path, method: str) -> None:
    root = write_tree(tmp_path / "project", PROJECT | {"pkg/gone.py": "g", "pkg/link.py": "l"})
    async with a_box(tmp_path, method) as (sshd, box):
        there = sshd.workspace / "project"
        for _ in range(2):
            await box.push_project(ProjectSource(root=root), silent)
        # Same size, and the time of content set back.
        before = (there / "train.py").stat()
        (there / "train.py").write_text("print(2)")
        os.utime(there / "train.py", ns=(before.st_atime_ns, before.st_mtime_ns))
        (there / "pkg/gone.py").unlink()
        (there / "other.py").write_text("o")
        (there / "pkg/link.py").unlink()
        (there / "pkg/link.py").symlink_to("../other.py")

        report = await box.push_project(ProjectSource(root=root), silent)

    assert read_tree(there) == read_tree(root) | {"other.py": b"o"}
    assert report.files_sent == 3


@METHODS
async def test_only_what_changed_is_read_on_the_machine(tmp_path: Path, method: str) -> None:
    root = write_tree(tmp_path / "project", PROJECT)
    async with a_box(tmp_path, method) as (_, box):
        for _ in range(2):  # twice: what was copied in the moment of the look is not believed
            await box.push_project(ProjectSource(root=root), silent)
        read = _log_of_sums(tmp_path)
        (root / "train.py").write_text("print(33)")

        await box.push_project(ProjectSource(root=root), silent)

    assert read.read_text().split() == ["./train.py"]


async def test_a_daemon_that_knows_nothing_any_more_reads_everything(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "project", PROJECT)
    async with a_box(tmp_path, "rsync") as (sshd, box):
        await box.push_project(ProjectSource(root=root), silent)
        there = sshd.workspace / "project"
        before = (there / "train.py").stat()
        (there / "train.py").write_text("print(2)")
        os.utime(there / "train.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "again").mkdir()
    async with a_box(tmp_path / "again", "rsync") as (later, box):
        later.workspace.symlink_to(sshd.workspace)

        await box.push_project(ProjectSource(root=root), silent)

    assert read_tree(there) == read_tree(root)


async def test_another_project_on_the_same_machine_gets_its_own_files(tmp_path: Path) -> None:
    one = write_tree(tmp_path / "one", {"train.py": "print(1)", "same.py": "s"})
    two = write_tree(tmp_path / "two", {"train.py": "print(2)", "same.py": "s"})
    for path in (one, two):
        os.utime(path / "train.py", (1000, 1000))
    async with a_box(tmp_path, "rsync") as (sshd, box):
        for root in (one, two, one, two):
            await box.push_project(ProjectSource(root=root), silent)

            assert read_tree(sshd.workspace / "project") == read_tree(root)


async def test_a_machine_that_tells_no_states_has_its_files_read_every_time(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "project", {"train.py": "print(1)", "a.py": "a"})
    async with a_box(tmp_path, "sftp") as (sshd, box):
        write_script(tmp_path / "stubs" / "stat", "#!/bin/sh\necho no such option >&2\nexit 1\n")
        await box.push_project(ProjectSource(root=root), silent)
        read = _log_of_sums(tmp_path)
        (sshd.workspace / "project/train.py").write_text("print(2)")

        await box.push_project(ProjectSource(root=root), silent)

        assert read_tree(sshd.workspace / "project") == read_tree(root)
    assert sorted(read.read_text().split()) == ["./a.py", "./train.py", "./train.py"]


async def test_few_small_files_go_over_the_open_connection_and_many_by_rsync(
    tmp_path: Path,
) -> None:
    root = write_tree(tmp_path / "project", {f"m{n}.py": "1" for n in range(40)})
    methods = []
    async with a_box(tmp_path, "rsync") as (sshd, box):
        for changed in (0, 2, 40):
            write_tree(root, {f"new/{changed}/m{n}.py": str(changed) for n in range(changed)})
            methods.append((await box.push_project(ProjectSource(root=root), silent)).method)

        assert read_tree(sshd.workspace / "project") == read_tree(root)
    assert methods == ["rsync", "sftp", "rsync"]


async def test_where_sftp_fails_rsync_carries_the_few_files(tmp_path: Path, monkeypatch) -> None:
    root = write_tree(tmp_path / "project", PROJECT)

    async def fail(*_: object) -> None:
        raise TransferFailed("no file service")

    async with a_box(tmp_path, "rsync") as (sshd, box):
        await box.push_project(ProjectSource(root=root), silent)
        monkeypatch.setattr(Carrier, "_send_by_sftp", fail)
        (root / "train.py").write_text("print(2)")

        report = await box.push_project(ProjectSource(root=root), silent)

        assert read_tree(sshd.workspace / "project") == read_tree(root)
    assert (report.method, report.files_sent) == ("rsync", 1)


async def test_a_copy_cut_before_it_began_is_on_record_and_made_up_for(
    tmp_path: Path, monkeypatch
) -> None:
    root = write_tree(tmp_path / "project", PROJECT)
    send = Carrier.send

    async def cut(self, *args, meanwhile=None, **kwargs):
        await meanwhile()
        raise SshClosed("cut off")

    async with a_box(tmp_path, "rsync") as (sshd, box):
        await box.push_project(ProjectSource(root=root), silent)
        (root / "pkg/added.py").write_text("new")
        monkeypatch.setattr(Carrier, "send", cut)
        with pytest.raises(SshError):
            await box.push_project(ProjectSource(root=root), silent)
        assert "pkg/added.py" in (sshd.workspace / ".vastd/sync/project").read_text()
        monkeypatch.setattr(Carrier, "send", send)

        await box.push_project(ProjectSource(root=root), silent)

        assert read_tree(sshd.workspace / "project") == read_tree(root)


def _log_of_sums(tmp_path: Path) -> Path:
    """Make the machine's sha256sum write down what it reads; return where."""
    log = tmp_path / "read"
    log.touch()
    real = shutil.which("sha256sum")
    told = f'for f in "$@"; do case $f in ./*) printf "%s\\n" "$f" >>{log};; esac; done'
    here = f'[ $# -gt 0 ] || readlink /proc/self/fd/0 | sed "s|.*/|./|" >>{log}'
    write_script(tmp_path / "stubs" / "sha256sum", f'#!/bin/sh\n{told}\n{here}\nexec {real} "$@"\n')
    return log
