"""Code sync beside plain rsync, through the same sshd: many small files, and one large one."""

import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import trio

from bench.report import Row
from jobs.transfer_rig import a_box, silent
from ssh.sshd_rig import Sshd
from vastd.jobs.known_sums import LocalSums
from vastd.jobs.port import Box, ProjectSource
from vastd.jobs.remote_sums import RemoteSums
from vastd.jobs.sync import KnownFiles

LIMIT = 1.3  # DESIGN 5
DIRECTORIES = 40
CHANGED = 10
LARGE_BYTES = 1_000_000_000
TOOLS = ("sshd", "rsync", "tmux")


def measure(*, quick: bool) -> list[Row]:
    """Return first and second sync of a project, and a single large file."""
    missing = [tool for tool in TOOLS if shutil.which(tool, path="/usr/sbin:/usr/bin:/bin") is None]
    if missing:
        what = "code sync beside plain rsync"
        return [Row(what=what, note=f"no {' '.join(missing)}", peer_what="rsync", limit=LIMIT)]
    return trio.run(_measure, quick)


async def _measure(quick: bool) -> list[Row]:
    files, large, runs = (50, 1_000_000, 1) if quick else (2000, LARGE_BYTES, 5)
    with tempfile.TemporaryDirectory(prefix="vb-", dir="/tmp") as made:
        tmp = Path(made)
        rig = tmp / "rig"
        rig.mkdir()
        project = tmp / "project"
        _write_project(project, files)
        big = tmp / "big"
        big.mkdir()
        _write_large(big / "weights.dat", large)
        async with a_box(rig, "rsync") as (sshd, box):
            await box.prepare()
            both = _Both(sshd, box, tmp / "plain")
            first, second = await both.compare(project, runs)
            one, _ = await both.compare(big, 1 if quick else 2, again=False)
    size = f"{large // 1_000_000:,} MB"
    return [
        _row(f"first sync of {files:,} files", first),
        _row(f"sync of {files:,} files again, {CHANGED} changed", second),
        _row(f"sync of one file of {size}", one),
    ]


def _row(what: str, pair: tuple[float, float]) -> Row:
    ours, peer = pair
    return Row(what=what, ours=ours, peer=peer, unit="s", peer_what="rsync -a", limit=LIMIT)


class _Both:
    """The same copy by vastd and by rsync alone, each to a place of its own."""

    def __init__(self, sshd: Sshd, box: Box, plain: Path) -> None:
        self._sshd = sshd
        self._box = box
        self._plain = plain
        self._ours_first = False

    async def compare(
        self, root: Path, runs: int, *, again: bool = True
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the medians of first copies, and of second ones after some files changed."""
        first: list[tuple[float, float]] = []
        second: list[tuple[float, float]] = []
        for number in range(runs + 1):
            # Whoever comes second pays for writing back the first one's files: take turns at that.
            self._ours_first = number % 2 == 0
            for place in (self._sshd.workspace / "project", self._plain):
                shutil.rmtree(place, ignore_errors=True)
            (self._sshd.workspace / ".vastd" / "sync" / "project").unlink(missing_ok=True)
            # A first sync finds a daemon that knows nothing of either side's files.
            self._box._known = KnownFiles(here=LocalSums(), there=RemoteSums())  # type: ignore[attr-defined]
            first.append(await self._pair(root))
            if again:
                _change(root, number)
                second.append(await self._pair(root))
        # The first of all is the warm-up: disk caches, the check for rsync on both ends.
        return _medians(first[1:]), _medians(second[1:] or [(0.0, 0.0)])

    async def _pair(self, root: Path) -> tuple[float, float]:

        async def ours() -> None:
            await self._box.push_project(ProjectSource(root=root), silent)

        async def peer() -> None:
            await trio.run_process(self._rsync(root), capture_stdout=True, capture_stderr=True)

        if self._ours_first:
            return await _seconds(ours), await _seconds(peer)
        theirs = await _seconds(peer)
        return await _seconds(ours), theirs

    def _rsync(self, root: Path) -> list[str]:
        sshd = self._sshd
        ssh = (
            f"ssh -F none -i {sshd.client_key} -p {sshd.port} -o StrictHostKeyChecking=no "
            "-o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes -o IdentityAgent=none"
        )
        target = f"{sshd.user}@127.0.0.1:{self._plain}/"
        return ["rsync", "-a", "--rsh", ssh, f"{root}/", target]


async def _seconds(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def _medians(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return median(a for a, _ in pairs), median(b for _, b in pairs)


def _write_project(root: Path, count: int) -> None:
    """Write sources of 0.4 to 16 kB, as a large project of scripts has them."""
    chance = random.Random(1)
    for n in range(count):
        path = root / f"package{n % DIRECTORIES:02d}" / f"module{n:04d}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(chance.randbytes(chance.randrange(200, 8000)).hex())


def _write_large(path: Path, size: int) -> None:
    block = random.Random(2).randbytes(1_000_000)
    with path.open("wb") as file:
        for _ in range(size // len(block)):
            file.write(block)


def _change(root: Path, number: int) -> None:
    for path in sorted(root.rglob("*.py"))[:CHANGED]:
        path.write_text(f"# changed {number}\n" + "x" * 4000)
