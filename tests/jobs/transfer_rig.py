"""What the transfer tests share: trees as plain mappings, and boxes that copy one way or the other."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from ssh.sshd_rig import Sshd, running_sshd, write_script
from vastd.jobs.boxes import open_boxes
from vastd.jobs.port import Box


def write_tree(root: Path, files: dict[str, bytes | str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def read_tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def silent(step: str, done: int, total: int | None, unit: str) -> None:
    """A progress callback that tells nobody."""


class Seen:
    """A progress callback that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int | None, str]] = []

    def __call__(self, step: str, done: int, total: int | None, unit: str) -> None:
        self.calls.append((step, done, total, unit))


class StallingRsync:
    """Makes the machine's rsync pass on only some megabytes, then tell and wait for the cut."""

    def __init__(self, directory: Path, direction: str) -> None:
        """`direction` is "in" for what the machine receives, "out" for what it sends."""
        self._told = directory / f"stalled-{direction}"
        os.mkfifo(self._told)
        self._descriptor = os.open(self._told, os.O_RDONLY | os.O_NONBLOCK)
        rsync = shutil.which("rsync")
        # dd passes on what it reads at once; head would hold back the first greetings.
        part = (
            f"{{ dd bs=65536 count=150 2>/dev/null; echo stalled >{self._told}; cat >/dev/null; }}"
        )
        pipe = f'{part} | {rsync} "$@"' if direction == "in" else f'{rsync} "$@" | {part}'
        write_script(directory / "stubs" / "rsync", f"#!/bin/sh\n{pipe}\n")

    async def stalled(self) -> None:
        await trio.lowlevel.wait_readable(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


@asynccontextmanager
async def a_box(tmp_path: Path, method: str, **rig_options) -> AsyncIterator[tuple[Sshd, Box]]:
    async with (
        running_sshd(tmp_path, **rig_options) as sshd,
        open_boxes(
            tmp_path / "state",
            sshd.client_key,
            workspace=str(sshd.workspace),
            user=sshd.user,
            use_rsync=False if method == "sftp" else None,
        ) as boxes,
        boxes.open(sshd.target()) as box,
    ):
        yield sshd, box


async def cut_when_stalled(sshd: Sshd, rsync: StallingRsync) -> None:
    await rsync.stalled()
    sshd.cut()
    rsync.close()
