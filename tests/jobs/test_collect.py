"""Bringing outputs home from a real OpenSSH server: verified, resumable, losing nothing."""

import contextlib
import hashlib
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
from ssh.sshd_rig import write_script
from vastd.errors import SshError, TransferFailed, UnsafePath
from vastd.jobs.port import CollectOrder

pytestmark = pytest.mark.ssh

METHODS = pytest.mark.parametrize("method", ["rsync", "sftp"])


def order(destination: Path, *outputs: str, job_id: str | None = "j-1") -> CollectOrder:
    return CollectOrder(job_id=job_id, outputs=list(outputs), destination=destination)


def remote_tree(sshd, files: dict[str, bytes | str]) -> Path:
    return write_tree(sshd.workspace, files)


@METHODS
@pytest.mark.req("COL-01")
@pytest.mark.req("COL-05")
async def test_declared_outputs_and_the_jobs_log_come_home_verified(
    tmp_path: Path, method: str
) -> None:
    home = tmp_path / "home-project"
    seen = Seen()
    async with a_box(tmp_path, method) as (sshd, box):
        remote_tree(
            sshd,
            {
                "project/results/a.json": "{}",
                "project/results/deep/b c.bin": os.urandom(100_000),
                "project/results/odd\n'\"$(x)\\name": "odd",
                "project/run.log": "r",
                "project/other.txt": "stays",
                "logs/j-1.log": "the log",
                "logs/j-2.log": "another job's",
            },
        )

        report = await box.collect(order(home, "results/", "*.log"), seen)

    there = read_tree(sshd.workspace / "project")
    expected = {
        name: there[name]
        for name in (
            "results/a.json",
            "results/deep/b c.bin",
            "results/odd\n'\"$(x)\\name",
            "run.log",
        )
    } | {"logs/j-1.log": b"the log"}
    assert read_tree(home) == expected
    assert {file.path: file.sha256 for file in report.files} == {
        name: hashlib.sha256(data).hexdigest() for name, data in expected.items()
    }
    assert report.missing == []
    assert report.bytes == sum(map(len, expected.values()))
    assert seen.calls[-1] == ("collect", report.bytes, report.bytes, "bytes")


@pytest.mark.req("COL-02")
@pytest.mark.req("COL-03")
async def test_outputs_that_do_not_exist_are_listed_as_they_were_declared(tmp_path: Path) -> None:
    async with a_box(tmp_path, "rsync") as (sshd, box):
        remote_tree(sshd, {"project/ckpt/last.pt": "w", "logs/j-1.log": "l"})
        (sshd.workspace / "project" / "results").mkdir()

        report = await box.collect(
            order(tmp_path / "out", "results/", "ckpt/*.pt", "nope/**/*.json", "*.log"), silent
        )

    assert report.missing == ["results/", "nope/**/*.json"]
    assert sorted(file.path for file in report.files) == ["ckpt/last.pt", "logs/j-1.log"]


@pytest.mark.parametrize(
    ("began", "earlier"),
    [("1800000000", 2), ("1700000001", 1), ("1700000000", 0), ("", 0), ("x", 0)],
)
async def test_files_from_before_the_job_are_counted_as_not_its_own(
    tmp_path: Path, began: str, earlier: int
) -> None:
    async with a_box(tmp_path, "rsync") as (sshd, box):
        remote_tree(sshd, {"project/results/a": "a", "project/results/b": "b", "logs/j-1.log": "l"})
        for n, name in enumerate(("project/results/a", "project/results/b")):
            os.utime(sshd.workspace / name, (1_700_000_000 + n, 1_700_000_000 + n))
        os.utime(sshd.workspace / "logs/j-1.log", (1_900_000_000, 1_900_000_000))
        if began:
            remote_tree(sshd, {".vastd/jobs/j-1/started_at": f"{began}\n"})

        report = await box.collect(order(tmp_path / "out", "results/", "*.log"), silent)

    assert (len(report.files), report.earlier) == (3, earlier)


async def test_nothing_declared_means_results_and_logs(tmp_path: Path) -> None:
    async with a_box(tmp_path, "rsync") as (sshd, box):
        remote_tree(sshd, {"project/results/r": "r", "project/x.log": "x", "project/y.txt": "y"})

        report = await box.collect(order(tmp_path / "out", job_id=None), silent)

    assert [file.path for file in report.files] == ["results/r", "x.log"]


@METHODS
@pytest.mark.req("COL-07")
async def test_a_different_local_file_is_kept_beside_and_an_equal_one_left_alone(
    tmp_path: Path, method: str
) -> None:
    home = write_tree(
        tmp_path / "home-project",
        {"results/a.json": "mine", "results/same.txt": "same", "results/local.txt": "only here"},
    )
    os.utime(home / "results/same.txt", (1000, 1000))
    async with a_box(tmp_path, method) as (sshd, box):
        remote_tree(sshd, {"project/results/a.json": "new", "project/results/same.txt": "same"})

        await box.collect(order(home, "results"), silent)
        await box.collect(order(home, "results"), silent)

    assert read_tree(home) == {
        "results/a.json": b"new",
        "results/a.json.before-j-1": b"mine",
        "results/local.txt": b"only here",
        "results/same.txt": b"same",
    }
    assert (home / "results/same.txt").stat().st_mtime == 1000


async def test_a_log_collected_again_grows_in_place(tmp_path: Path) -> None:
    home = tmp_path / "out"
    async with a_box(tmp_path, "rsync") as (sshd, box):
        remote_tree(sshd, {"logs/j-1.log": "one\n"})
        await box.collect(order(home, "results"), silent)
        remote_tree(sshd, {"logs/j-1.log": "one\ntwo\n"})

        await box.collect(order(home, "results"), silent)

    assert read_tree(home) == {"logs/j-1.log": b"one\ntwo\n"}


@METHODS
@pytest.mark.req("COL-07")
async def test_a_cut_collection_leaves_no_half_file_and_goes_on_later(
    tmp_path: Path, method: str, nursery
) -> None:
    home, content = tmp_path / "out", os.urandom(20_000_000)
    seen = Seen()
    async with a_box(tmp_path, method) as (sshd, box):
        remote_tree(sshd, {"project/results/large.bin": content})
        if method == "rsync":
            nursery.start_soon(cut_when_stalled, sshd, StallingRsync(tmp_path, "out"))

        def cut_midway(step: str, done: int, total: int | None, unit: str) -> None:
            if method == "sftp" and done > 4_000_000:
                sshd.cut()

        with pytest.raises(SshError):
            await box.collect(order(home, "results"), cut_midway)
        assert not (home / "results").exists()
    (tmp_path / "again").mkdir()
    async with a_box(tmp_path / "again", method) as (later, box):
        later.workspace.symlink_to(sshd.workspace)

        await box.collect(order(home, "results"), seen)

    assert read_tree(home) == {"results/large.bin": content}
    if method == "sftp":
        assert seen.calls[0][1] > 1_000_000


@METHODS
@pytest.mark.req("COL-05")
async def test_what_changes_or_appears_during_the_copy_is_copied_again(
    tmp_path: Path, method: str
) -> None:
    home = tmp_path / "out"
    async with a_box(tmp_path, method) as (sshd, box):
        results = remote_tree(
            sshd, {"project/results/a.txt": "first", "project/results/big": os.urandom(4_000_000)}
        ) / "project/results"  # fmt: skip

        def change(step: str, done: int, total: int | None, unit: str) -> None:
            (results / "a.txt").write_text("rewritten, longer")
            (results / "late.txt").write_text("late")

        await box.collect(order(home, "results"), change)

    assert (home / "results/a.txt").read_text() == "rewritten, longer"
    assert (home / "results/late.txt").read_text() == "late"
    assert [p.name for p in home.rglob("*before*")] == []


@METHODS
@pytest.mark.req("COL-04")
async def test_a_file_that_never_holds_still_fails_the_collection(
    tmp_path: Path, method: str
) -> None:
    home = tmp_path / "out"
    async with a_box(tmp_path, method) as (sshd, box):
        target = remote_tree(sshd, {"project/results/hot": "0" * 200_000}) / "project/results/hot"
        # The machine's own checksum tool rewrites the file after reading it.
        tool = tmp_path / "stubs" / "sha256sum"
        tool.write_text(
            f'#!/bin/sh\n/usr/bin/sha256sum "$@"; od -An -N8 -tx1 /dev/urandom >{target}\n'
        )
        tool.chmod(0o755)

        with pytest.raises(TransferFailed, match="results/hot"):
            await box.collect(order(home, "results"), silent)

    assert not (home / "results").exists()


async def test_a_link_to_a_file_comes_as_its_content_and_one_to_a_directory_is_not_followed(
    tmp_path: Path,
) -> None:
    async with a_box(tmp_path, "rsync") as (sshd, box):
        results = remote_tree(sshd, {"project/results/ckpt-9": "w", "elsewhere/x": "x"}) / (
            "project/results"
        )
        (results / "latest").symlink_to("ckpt-9")
        (results / "all").symlink_to("/")

        await box.collect(order(tmp_path / "out", "results"), silent)

    assert read_tree(tmp_path / "out") == {"results/ckpt-9": b"w", "results/latest": b"w"}
    assert not (tmp_path / "out/results/latest").is_symlink()


@pytest.mark.parametrize("output", ["/etc/passwd", "../secret", "a/../../b", "~/x", ""])
async def test_an_output_outside_the_project_is_refused(tmp_path: Path, output: str) -> None:
    async with a_box(tmp_path, "rsync") as (_, box):
        with pytest.raises(UnsafePath):
            await box.collect(order(tmp_path / "out", output), silent)


async def test_names_that_climb_out_end_the_collection(tmp_path: Path) -> None:
    async with a_box(tmp_path, "rsync") as (sshd, box):
        remote_tree(sshd, {"project/results/a": "a"})
        tool = tmp_path / "stubs" / "find"
        tool.write_text("#!/bin/sh\nprintf './project/results/../../../../evil\\0'\n")
        tool.chmod(0o755)

        with pytest.raises(UnsafePath):
            await box.collect(order(tmp_path / "out", "results"), silent)

    assert read_tree(tmp_path / "out") == {}


@METHODS
async def test_a_local_link_does_not_lead_a_file_out_of_the_destination(
    tmp_path: Path, method: str
) -> None:
    home = tmp_path / "out"
    (tmp_path / "outside").mkdir()
    home.mkdir()
    (home / "results").symlink_to(tmp_path / "outside")
    async with a_box(tmp_path, method) as (sshd, box):
        remote_tree(sshd, {"project/results/a": "a"})

        with pytest.raises(UnsafePath):
            await box.collect(order(home, "results"), silent)

    assert read_tree(tmp_path / "outside") == {}


async def test_a_local_link_in_the_files_place_is_kept_not_written_through(tmp_path: Path) -> None:
    home = write_tree(tmp_path / "out", {"precious": "mine"})
    (home / "results").mkdir()
    (home / "results/a").symlink_to(home / "precious")
    async with a_box(tmp_path, "rsync") as (sshd, box):
        remote_tree(sshd, {"project/results/a": "new"})

        await box.collect(order(home, "results"), silent)

    assert (home / "precious").read_text() == "mine"
    assert (home / "results/a").read_text() == "new"
    assert (home / "results/a.before-j-1").is_symlink()


@pytest.mark.req("COL-04")
async def test_what_does_not_fit_on_the_local_disk_is_not_even_begun(
    tmp_path: Path, small_disk: Path
) -> None:
    async with a_box(tmp_path, "rsync") as (sshd, box):
        remote_tree(sshd, {"project/results/big": bytes(20_000_000)})

        with pytest.raises(TransferFailed, match=r"20\.0 MB do not fit"):
            await box.collect(order(small_disk, "results"), silent)

    assert read_tree(small_disk) == {}


@METHODS
@pytest.mark.req("COL-04")
async def test_a_disk_that_fills_during_the_copy_fails_it_and_leaves_no_half_file(
    tmp_path: Path, method: str, small_disk: Path
) -> None:
    async with a_box(tmp_path, method) as (sshd, box):
        remote_tree(sshd, {"project/results/big": os.urandom(6_000_000)})
        others = small_disk / "others"
        # Somebody else takes the space: for rsync when it starts, for SFTP after a first part.
        script = f'#!/bin/sh\nhead -c 30000000 /dev/zero >{others}\nexec /usr/bin/rsync "$@"\n'
        write_script(tmp_path / "stubs" / "rsync", script)

        def fill(step: str, done: int, total: int | None, unit: str) -> None:
            if method == "sftp":
                with contextlib.suppress(OSError), others.open("ab") as file:
                    file.write(bytes(30_000_000))

        with pytest.raises(TransferFailed, match=r"(?i)no space|full"):
            await box.collect(order(small_disk, "results"), fill)

    assert not (small_disk / "results").exists()
