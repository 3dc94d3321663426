"""Copying single paths to and from a real OpenSSH server."""

import os
from pathlib import Path

import pytest

from jobs.transfer_rig import a_box, read_tree, silent, write_tree
from vastd.errors import InvalidRequest, NotFound, UnsafePath

pytestmark = pytest.mark.ssh

METHODS = pytest.mark.parametrize("method", ["rsync", "sftp"])


@METHODS
async def test_push_sends_data_and_weights_but_no_secret_that_was_not_named(
    tmp_path: Path, method: str
) -> None:
    local = write_tree(
        tmp_path / "local",
        {"set/a.csv": "a", "set/deep/w.pt": "w", "set/.env": "T=1", "one.bin": "o", "k.pem": "k"},
    )
    async with a_box(tmp_path, method) as (sshd, box):
        target = sshd.home / "data/in"

        sent = await box.push_paths(
            [local / "set", local / "one.bin", local / "k.pem"], str(target), silent
        )

    assert read_tree(target) == {
        "set/a.csv": b"a", "set/deep/w.pt": b"w", "one.bin": b"o", "k.pem": b"k",
    }  # fmt: skip
    assert sent == 4


@METHODS
async def test_pull_brings_files_and_directories_and_deletes_nothing(
    tmp_path: Path, method: str
) -> None:
    home = write_tree(tmp_path / "out", {"ckpt/old": "stays", "x[1].txt": "mine"})
    async with a_box(tmp_path, method) as (sshd, box):
        write_tree(sshd.workspace / "project", {"ckpt/a b": "1", "ckpt/d/c": "2"})
        write_tree(sshd.home, {"abs/x[1].txt": "theirs", "abs/x1.txt": "no"})

        got = await box.pull_paths(["ckpt", str(sshd.home / "abs/x[1].txt")], home, silent)

    assert read_tree(home) == {
        "ckpt/a b": b"1", "ckpt/d/c": b"2", "ckpt/old": b"stays",
        "x[1].txt": b"theirs", "x[1].txt.before-pull": b"mine",
    }  # fmt: skip
    assert got == 8


@pytest.mark.req("SYN-05")
async def test_a_push_to_a_link_that_leads_to_root_is_refused(tmp_path: Path) -> None:
    local = write_tree(tmp_path / "local", {"a": "a"})
    async with a_box(tmp_path, "rsync") as (sshd, box):
        (sshd.home / "link").symlink_to("/")
        (sshd.home / "home-link").symlink_to(sshd.home)

        for destination in ("/", "/root", "/root/../root", "//", str(sshd.home / "link"),
                            str(sshd.home / "link/etc"), str(sshd.home), str(sshd.home / "home-link"),
                            "relative", "/root/.ssh"):  # fmt: skip
            with pytest.raises(UnsafePath):
                await box.push_paths([local / "a"], destination, silent)

    assert "a" not in os.listdir("/")


async def test_what_does_not_exist_is_said_so_on_either_side(tmp_path: Path) -> None:
    async with a_box(tmp_path, "rsync") as (sshd, box):
        with pytest.raises(InvalidRequest):
            await box.push_paths([tmp_path / "nope"], str(sshd.home / "d"), silent)
        with pytest.raises(NotFound):
            await box.pull_paths(["nope"], tmp_path / "out", silent)
