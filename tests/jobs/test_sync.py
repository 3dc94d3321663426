"""Sending a project to a real OpenSSH server, by rsync and over SFTP."""

import os
from pathlib import Path

import pytest

from jobs.transfer_rig import (
    Seen,
    StallingRsync,
    a_box,
    cut_when_stalled,
    read_tree,
    silent,
    write_tree,
)
from vastd.errors import SshError, TransferFailed
from vastd.jobs.port import JobOrder, ProjectSource

pytestmark = pytest.mark.ssh

PROJECT: dict[str, bytes | str] = {
    "train.py": "print('hi')",
    "conf/a b.yaml": "x: 1",
    "conf/-dash": "-",
    "conf/new\nline.txt": "n",
    "conf/'quote\"$(id).txt": "q",
    "pkg/data/__init__.py": "",
    "pkg/umlaut-\u00fc.txt": "u",
    ".env": "TOKEN=1",
    "id_ed25519": "private",
    "model.pt": b"\0" * 100,
    ".git/config": "g",
    "data/big.csv": "d",
}
SENT = {
    "train.py", "conf/a b.yaml", "conf/-dash", "conf/new\nline.txt", "conf/'quote\"$(id).txt",
    "pkg/data/__init__.py", "pkg/umlaut-\u00fc.txt",
}  # fmt: skip
METHODS = pytest.mark.parametrize("method", ["rsync", "sftp"])


@METHODS
@pytest.mark.req("SYN-01")
@pytest.mark.req("SYN-02")
@pytest.mark.req("SYN-08")
async def test_both_ways_leave_the_selected_tree_and_keep_secrets_home(
    tmp_path: Path, method: str
) -> None:
    root = write_tree(tmp_path / "project", PROJECT)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "empty").mkdir()
    seen = Seen()
    async with a_box(tmp_path, method) as (sshd, box):
        report = await box.push_project(ProjectSource(root=root), seen)

    there = sshd.workspace / "project"
    assert read_tree(there) == {name: (root / name).read_bytes() for name in {*SENT, "run.sh"}}
    assert (there / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (there / "empty").is_dir()
    assert report.method == method
    assert report.secrets_kept == [".env", "id_ed25519"]
    assert (report.files, report.files_sent) == (8, 8)
    assert seen.calls[-1] == ("sync", report.bytes, report.bytes, "bytes")


@METHODS
async def test_a_second_sync_sends_only_what_changed(tmp_path: Path, method: str) -> None:
    root = write_tree(tmp_path / "project", PROJECT)
    async with a_box(tmp_path, method) as (sshd, box):
        await box.push_project(ProjectSource(root=root), silent)
        (root / "train.py").write_text("print('changed, and longer')")

        report = await box.push_project(ProjectSource(root=root), silent)

    assert report.files_sent == 1
    assert (sshd.workspace / "project/train.py").read_text() == "print('changed, and longer')"


@METHODS
async def test_a_change_that_leaves_size_and_time_alone_is_sent_too(
    tmp_path: Path, method: str
) -> None:
    root = write_tree(tmp_path / "project", {"a.txt": "one"})
    os.utime(root / "a.txt", (1000, 1000))
    async with a_box(tmp_path, method) as (sshd, box):
        await box.push_project(ProjectSource(root=root), silent)
        (root / "a.txt").write_text("two")
        os.utime(root / "a.txt", (1000, 1000))

        await box.push_project(ProjectSource(root=root), silent)

    assert (sshd.workspace / "project/a.txt").read_text() == "two"


@METHODS
async def test_only_files_we_placed_and_nobody_changed_are_removed(
    tmp_path: Path, method: str
) -> None:
    root = write_tree(
        tmp_path / "project", {"keep.py": "k", "old/gone.py": "g", "tuned.yaml": "lr: 1"}
    )
    async with a_box(tmp_path, method) as (sshd, box):
        await box.push_project(ProjectSource(root=root), silent)
        there = write_tree(
            sshd.workspace / "project", {"results/r.json": "r", "tuned.yaml": "lr: 2"}
        )
        for name in ("old/gone.py", "tuned.yaml"):
            (root / name).unlink()

        await box.push_project(ProjectSource(root=root), silent)

    # The job's own file stays, and so does ours that the job changed; ours alone goes.
    assert read_tree(there) == {"keep.py": b"k", "results/r.json": b"r", "tuned.yaml": b"lr: 2"}
    assert not (there / "old").exists()


@METHODS
async def test_a_cut_copy_is_taken_up_again(tmp_path: Path, method: str, nursery) -> None:
    root = write_tree(tmp_path / "project", {"small.txt": "s", "large.dat": os.urandom(20_000_000)})
    async with a_box(tmp_path, method) as (sshd, box):
        await box.prepare()
        if method == "rsync":
            nursery.start_soon(cut_when_stalled, sshd, StallingRsync(tmp_path, "in"))

        def cut_midway(step: str, done: int, total: int | None, unit: str) -> None:
            if method == "sftp" and done > 4_000_000:
                sshd.cut()

        with pytest.raises(SshError) as caught:
            await box.push_project(ProjectSource(root=root), cut_midway)
        assert caught.value.retryable
        there = sshd.workspace / "project"
        assert not (there / "large.dat").exists()
        partial = [p for p in there.rglob("*") if p.is_file() and p.stat().st_size > 1_000_000]
        assert len(partial) == 1
    # A later attempt over a new connection starts where that one ended.
    seen = Seen()
    (tmp_path / "again").mkdir()
    async with a_box(tmp_path / "again", method) as (later, box):
        later.workspace.symlink_to(sshd.workspace)
        await box.push_project(ProjectSource(root=root), seen)

    assert (there / "large.dat").read_bytes() == (root / "large.dat").read_bytes()
    assert list(there.rglob("*vastd-part*")) == []
    if method == "sftp":
        assert seen.calls[0][1] > 1_000_000


async def test_a_machine_without_rsync_gets_the_tree_over_sftp(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "project", PROJECT)
    async with a_box(tmp_path, "rsync", hidden=("rsync",)) as (sshd, box):
        report = await box.push_project(ProjectSource(root=root), silent)

    assert report.method == "sftp"
    assert set(read_tree(sshd.workspace / "project")) == SENT


async def test_an_edit_during_the_copy_arrives_in_its_last_form(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "project", {"a.py": "old", "b.dat": os.urandom(3_000_000)})
    async with a_box(tmp_path, "sftp") as (sshd, box):

        def edit(step: str, done: int, total: int | None, unit: str) -> None:
            (root / "a.py").write_text("edited meanwhile")

        await box.push_project(ProjectSource(root=root), edit)

    assert (sshd.workspace / "project/a.py").read_text() == "edited meanwhile"


@METHODS
async def test_what_cannot_be_written_there_is_a_failed_transfer(
    tmp_path: Path, method: str
) -> None:
    root = write_tree(tmp_path / "project", {"conf": "a file"})
    async with a_box(tmp_path, method) as (sshd, box):
        write_tree(sshd.workspace / "project", {"conf/in-the-way.txt": "x"})

        with pytest.raises(TransferFailed):
            await box.push_project(ProjectSource(root=root), silent)

    assert (sshd.workspace / "project/conf/in-the-way.txt").read_text() == "x"


async def test_the_sent_project_runs(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "project", {"job.sh": "cat conf/c.txt", "conf/c.txt": "works"})
    async with a_box(tmp_path, "rsync") as (sshd, box):
        await box.push_project(ProjectSource(root=root), silent)
        await box.start_job(JobOrder(job_id="j-1", command=["sh", "job.sh"]))
        from jobs.test_ssh_box_jobs import runner_ended

        await runner_ended(sshd)

        assert await box.read_log("j-1", 0, 100) == b"works"
