"""Waiting for child processes and finding theirs, without threads: pidfd and /proc, Linux only."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

MOST_PASSES: Final = 50  # guess; a process without any variable makes every pass look unfinished


async def wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    """Wait until the child ended and return its code, negative for a signal."""
    if process.poll() is not None:
        return process.returncode
    descriptor = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)
    return process.wait()


def children_of(pid: int) -> list[int]:
    """Return the process ids of the children, as the host sees them; empty when it is gone."""
    with suppress(OSError):
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def signal_group(pid: int, signum: int) -> None:
    """Send a signal to the process group led by `pid`; nothing happens when it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signum)


def kill_marked(mark: str) -> None:
    """Kill every process of ours with a variable that begins with `mark` (`KEY=begin of value`).

    How an instance without a sandbox ends: nothing else ties its processes together.
    """
    needle = mark.encode()
    for _ in range(MOST_PASSES):
        # Children may have been born behind our back, and in the middle of an exec a process
        # shows no variables at all: look again until a look finds neither.
        if not [pid for pid in _own_processes() if _kill_if_marked(pid, needle)]:
            return


def _own_processes() -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            if pid != os.getpid() and entry.stat().st_uid == os.geteuid():
                found.append(pid)
    return found


def _kill_if_marked(pid: int, needle: bytes) -> bool:
    """Kill a process that is marked; return whether there is a reason to look again."""
    with suppress(OSError):
        directory = Path(f"/proc/{pid}")
        state = (directory / "stat").read_text().rpartition(")")[2].split()[0]
        if state in "ZX":
            return False
        text = (directory / "environ").read_bytes()
        if any(variable.startswith(needle) for variable in text.split(b"\0")):
            os.kill(pid, signal.SIGKILL)
            return True
        return not text and (directory / "exe").exists()
    return False
