"""Waiting for child processes and finding theirs, without threads: pidfd and /proc, Linux only."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import trio


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
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            if any(variable.startswith(needle) for variable in variables):
                os.kill(int(entry.name), signal.SIGKILL)
