"""One run of the local `rsync` over the local `ssh`: command line, progress, what went wrong.

Rules
1. Which files go is a NUL-separated list on standard input; rsync chooses nothing itself.
2. An exit code that only says "some files changed meanwhile" is no error here: whoever called
   verifies every file.
3. Links are never created on either side (no `-l`): what a machine sends cannot point out of
   the directory it is put into.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import trio
from msgspec import Struct

from vastd.errors import (
    SshAuthRejected,
    SshClosed,
    SshHostKeyChanged,
    SshRefused,
    SshTimeout,
    TransferFailed,
    VastdError,
)
from vastd.jobs.port import Endpoint, Progress
from vastd.ssh.openssh import rsync_shell

_STALL_TIMEOUT_S: Final = 60  # rsync's own: no byte either way for so long
_OLDEST: Final = (3, 1)  # --info=progress2 came with 3.1.0 (NEWS of rsync, 2013)
_PARTIAL_OK: Final = frozenset({0, 23, 24})  # some files failed or vanished: verified afterwards
_UNUSABLE: Final = (
    "rsync: command not found",
    "rsync: not found",
    "is your shell clean",
    "protocol version mismatch",
)
_NEWEST_BYTES: Final = 512  # holds several lines of progress, each about 60 bytes
_PARTIAL_DIR: Final = ".vastd-partial"


class RsyncUnusable(VastdError):
    """rsync cannot be used with this machine; nothing was copied, another way may work."""


class RsyncJob(Struct, frozen=True, kw_only=True):
    """What to copy: `names` below `source` to the same names below `target`."""

    source: str
    target: str
    names: list[bytes]
    total_bytes: int
    step: str  # the name its progress goes by
    keep_modes: bool = False  # permission bits as the sender has them


class RsyncLink(Struct, frozen=True, kw_only=True):
    """How rsync reaches the machine."""

    endpoint: Endpoint
    ssh_argv: list[str]

    def place(self, directory: str) -> str:
        """Return a remote directory as rsync writes it, with its slash at the end."""
        host = self.endpoint.host
        host = f"[{host}]" if ":" in host else host
        return f"{host}:{directory.rstrip('/')}/"


async def local_rsync_works() -> bool:
    """Tell whether this computer has `ssh` and an rsync that is new enough."""
    if shutil.which("rsync") is None or shutil.which("ssh") is None:
        return False
    try:
        told = await trio.run_process(
            ["rsync", "--version"], capture_stdout=True, stderr=subprocess.DEVNULL, check=False
        )
    except OSError:
        return False
    match = re.search(rb"rsync +version v?(\d+)\.(\d+)", told.stdout)  # openrsync says otherwise
    return match is not None and (int(match[1]), int(match[2])) >= _OLDEST


async def copy(
    link: RsyncLink,
    job: RsyncJob,
    progress: Progress,
    *,
    compare: bool = False,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> int:
    """Copy and return how many files were sent; `compare` reads both sides instead of times.

    `meanwhile` runs while rsync connects, to its end in any case; rsync learns what to copy, and
    begins, when it is done. It has to be done within `_STALL_TIMEOUT_S`.

    Raises:
        VastdError: as `meanwhile` raised it; nothing was copied.
        RsyncUnusable: not there, or the machine's shell prints text at login.
        SshError: the way broke; a repeat goes on where it was.
        TransferFailed: a disk is full, or rsync failed otherwise.
    """
    argv = [
        "rsync", "--no-links", "--copy-links", "--times", "--omit-dir-times", "--files-from=-", "--from0", f"--partial-dir={_PARTIAL_DIR}",
        "--info=progress2", "--no-human-readable", "--stats", "--protect-args",
        f"--timeout={_STALL_TIMEOUT_S}", "--rsh", rsync_shell(link.ssh_argv),
        *(["--ignore-times"] if compare else []), *(["--perms"] if job.keep_modes else []), "--", job.source, job.target,
    ]  # fmt: skip
    code, told, complaint = await _run(argv, job, progress, meanwhile)
    if code not in _PARTIAL_OK or b"No space left" in complaint:
        raise explain(code, complaint.decode(errors="replace"), link.endpoint)
    match = re.search(rb"files transferred: (\d+)", told)
    return int(match[1]) if match else 0


async def _run(
    argv: list[str],
    job: RsyncJob,
    progress: Progress,
    meanwhile: Callable[[], Awaitable[None]] | None,
) -> tuple[int, bytes, bytes]:
    """Run rsync, reporting progress; return exit code, the end of stdout, and stderr."""
    tail = b""
    failed: list[VastdError] = []
    started: subprocess.CompletedProcess[bytes] | None = None
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[trio.Process]) -> None:
            nonlocal started
            started = await trio.run_process(
                argv,
                stdin=subprocess.PIPE,
                capture_stderr=True,
                check=False,
                stdout=subprocess.PIPE,
                env=_environment(),
                task_status=task_status,
            )

        async def feed(process: trio.Process) -> None:
            assert process.stdin is not None
            try:
                if meanwhile is not None:
                    await meanwhile()
            except VastdError as exc:
                failed.append(exc)
                nursery.cancel_scope.cancel()
                return
            async with process.stdin:
                # If it ended before, its exit code and words tell why.
                with suppress(trio.BrokenResourceError):
                    await process.stdin.send_all(b"".join(n + b"\0" for n in job.names))

        process: trio.Process = await nursery.start(run)
        nursery.start_soon(feed, process)
        assert process.stdout is not None
        async for data in process.stdout:
            tail = (tail + data)[-8192:]
            done = transferred(tail[-_NEWEST_BYTES:])
            if done is not None:
                progress(job.step, min(done, job.total_bytes), job.total_bytes, "bytes")
    if failed:
        raise failed[0]
    assert started is not None
    return started.returncode, tail, started.stderr


def transferred(told: bytes) -> int | None:
    """Return the bytes that rsync's newest progress line names."""
    found = re.findall(rb"(?:^|[\r\n]) *(\d+) +\d+% ", told)
    return int(found[-1]) if found else None


def _environment() -> dict[str, str]:
    # Nothing of the user's session: no agent, no RSYNC_* that changes what the options mean.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C"}


def explain(code: int, complaint: str, endpoint: Endpoint) -> VastdError:
    """Turn an exit code and rsync's words into the class that says what to conclude."""
    where = f"{endpoint.host}:{endpoint.port}"
    said = " ".join(complaint.split())[-300:]
    if "No space left" in complaint or "Disk quota" in complaint:
        return TransferFailed(
            f"a disk is full while copying with {where}: {said}",
            hint="free space there and repeat: the copy goes on where it was",
        )
    table: Sequence[tuple[tuple[str, ...], type[VastdError]]] = (
        (("Permission denied (publickey",), SshAuthRejected),
        (("Host key verification failed", "IDENTIFICATION HAS CHANGED"), SshHostKeyChanged),
        (("Connection refused", "No route to host", "Could not resolve"), SshRefused),
        (("timed out", "Timeout, server", "timeout in data send/receive"), SshTimeout),
        (_UNUSABLE, RsyncUnusable),
    )
    for words, kind in table:
        if any(word in complaint for word in words):
            return kind(f"rsync with {where} failed: {said}")
    if code in (10, 12, 30, 35, 255):  # socket, protocol stream, time-outs, ssh itself
        return SshClosed(f"rsync with {where} was cut off: {said or f'exit code {code}'}")
    return TransferFailed(f"rsync with {where} failed with exit code {code}: {said}")
