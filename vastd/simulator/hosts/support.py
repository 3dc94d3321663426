"""Whether instances can be walled in on this machine, and what to tell the user when not."""

import os
import platform
import subprocess
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import IO

import trio
from msgspec import Struct

from vastd.errors import ConfigError, VastdError
from vastd.simulator.hosts.image import GpuSetup, InstanceDisk, build_disk
from vastd.simulator.hosts.plain import PlainSandbox
from vastd.simulator.hosts.processes import wait_for_exit
from vastd.simulator.hosts.sandbox import OUTSIDE_ENV, BubbleSandbox, Sandbox, missing_tools

# What a sandbox must hold; the trial fails where the kernel or the tools let one of these through.
TRIAL = (
    'test "$(id -u)" = 0 && ! touch /usr/.vastd-trial 2>/dev/null'
    " && ! test -w /proc/sys/kernel/core_pattern"
    " && grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status"
)


class Walls(StrEnum):
    """What separates a job from the machine it runs on."""

    SANDBOX = "sandbox"
    NONE = "none"


class Support(Struct, frozen=True, kw_only=True):
    """What this machine can do. `warning` is for the user and empty when all is well."""

    walls: Walls
    warning: str = ""

    def sandbox(self, disk: InstanceDisk, *, hostname: str, state_dir: Path, log: Path) -> Sandbox:
        """Return the surroundings of one instance, not started yet."""
        if self.walls is Walls.SANDBOX:
            return BubbleSandbox(disk, hostname=hostname, state_dir=state_dir, log=log)
        return PlainSandbox(disk, state_dir=state_dir)


async def find_support(state_dir: Path) -> Support:
    """Try a real sandbox below `state_dir`, which must exist, and return what came of it.

    Raises:
        ConfigError: there is none and we are root: jobs would run as root on this machine.
    """
    problem = await _problem(state_dir)
    if problem is None:
        return Support(walls=Walls.SANDBOX)
    where = state_dir / "instances"
    if os.geteuid() == 0:
        raise ConfigError(
            f"no sandbox for simulated instances: {problem}; as root their jobs would run"
            f" unconfined as root in {str(where)!r}",
            hint="install bubblewrap 0.8 or newer where user namespaces are allowed, or run the"
            " simulator as a normal user",
        )
    return Support(
        walls=Walls.NONE,
        warning=f"no sandbox: the job runs as you in {str(where)!r} ({problem}); onstart scripts"
        " are not run",
    )


async def _problem(state_dir: Path) -> str | None:
    if platform.system() != "Linux":
        return f"{platform.system()} has no namespaces"
    if missing := missing_tools():
        return f"not installed: {', '.join(missing)}"
    with tempfile.TemporaryDirectory(prefix="trial-", dir=state_dir) as name:
        directory = Path(name)
        gpu = GpuSetup(name="none", count=0, memory_mib=0, driver_version="0", cuda_version="0",
                       compute_cap=0, power_w=0)  # fmt: skip
        disk = build_disk(directory, hostname="trial", gpu=gpu)
        sandbox = BubbleSandbox(disk, hostname="trial", state_dir=state_dir, log=directory / "log")
        try:
            await sandbox.start({})
        except (VastdError, OSError) as exc:
            return str(exc)
        try:
            code = await run_inside(sandbox, TRIAL)
        finally:
            with trio.CancelScope(shield=True):
                await sandbox.stop()
    return None if code == 0 else "a trial command in a sandbox was not confined"


async def run_inside(sandbox: Sandbox, command: str, *, output: IO[bytes] | None = None) -> int:
    """Run a shell command in an instance, without input; return its exit code.

    What it prints on either stream goes to `output`, or nowhere. Cancelling ends only our waiting.
    """
    sink = subprocess.DEVNULL if output is None else output.fileno()
    process = subprocess.Popen(  # noqa: ASYNC220 - forks in a millisecond
        sandbox.argv(["command", command], {}, tty=False),
        stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=OUTSIDE_ENV, cwd="/",
    )  # fmt: skip
    try:
        return await wait_for_exit(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
