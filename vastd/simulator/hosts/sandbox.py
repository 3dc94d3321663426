"""The walls around one simulated instance: a holder process, and how commands enter it (D12).

Rules
1. A holder (bubblewrap) keeps the namespaces; its first process is number 1 of the instance's
   process namespace, so ending it ends everything, also what left its session.
2. Nothing an instance controls reaches the environment or the command line of a program that
   runs outside: variables go to the holder through a file, session settings as arguments.
3. Entering a user namespace grants every capability in it. So the namespaces' owner is an outer
   user namespace, and commands end up in an inner one that owns nothing (`--disable-userns`);
   they drop what they still hold before their first instruction. With one level, a job that
   replaces the loader of `setpriv` remounts `/usr` writable (seen 2026-11).
   Where root inside is root outside, `/proc/sys` is writable without any capability (seen
   2026-11): it and its like are covered read-only.
4. The network is the host's: a job reaches the façade, and everything else on loopback.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec
import trio
from msgspec import Struct

from vastd.errors import VastdError
from vastd.simulator.hosts.image import (
    ETC_FROM_HOST,
    PATH_INSIDE,
    TOOLS_DIR,
    InstanceDisk,
    mend_mount_points,
    python_prefixes,
    usr_directories,
)
from vastd.simulator.hosts.processes import children_of, wait_for_exit

START_LIMIT_S: Final = 10.0  # guess; measured 30 ms
# Below /proc, writable for uid 0 without any capability when it is the host's uid 0.
PROC_READ_ONLY: Final = (
    "sys", "sysrq-trigger", "irq", "bus", "mtrr", "fs", "acpi", "scsi", "asound", "driver",
)  # fmt: skip
OUTSIDE_ENV: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
FULL_DISK_BYTES: Final = 65_536  # the size of /workspace on a machine whose disk is full
NS_GET_PARENT: Final = 0xB702  # ioctl_ns(2)
NEEDED: Final = ("bwrap", "nsenter", "setpriv", "setsid")


class SandboxFailed(VastdError):
    """The instance's process namespace could not be set up."""


class _Info(Struct):
    child_pid: int = msgspec.field(name="child-pid")


class Sandbox(Protocol):
    """One instance's surroundings. Started once, stopped once."""

    @property
    def running(self) -> bool:
        """Whether commands can enter."""
        ...

    async def start(self, env: Mapping[str, str], *, disk_full: bool = False) -> None:
        """Bring the instance up; `env` is what its first process and onstart see.

        Raises:
            SandboxFailed: nothing runs.
        """
        ...

    def argv(self, session: Sequence[str], settings: Mapping[str, str], *, tty: bool) -> list[str]:
        """Return the host command that runs the session script inside with these arguments.

        With `tty`, standard input becomes the controlling terminal. `settings` are variables
        that are no secrets.

        Raises:
            SandboxFailed: the instance is down.
        """
        ...

    def open_pty(self) -> int:
        """Return the master of a new terminal of the instance."""
        ...

    def leader_of(self, pid: int) -> int | None:
        """Return the leader of the process group that runs for our child `pid`, or None."""
        ...

    async def stop(self) -> None:
        """End every process of the instance; what it wrote stays."""
        ...


class BubbleSandbox:
    """An instance behind user, mount, process, host name and IPC namespaces."""

    def __init__(self, disk: InstanceDisk, *, hostname: str, state_dir: Path, log: Path) -> None:
        self._disk = disk
        self._hostname = hostname
        self._state_dir = state_dir
        self._log = log  # what onstart prints
        self._holder: subprocess.Popen[bytes] | None = None
        self._pid = 0  # of the first process, as the host sees it
        self._outer = -1  # descriptor of the outer user namespace

    @property
    def running(self) -> bool:
        return self._holder is not None and self._holder.poll() is None

    async def start(self, env: Mapping[str, str], *, disk_full: bool = False) -> None:
        mounts = self._mounts(disk_full=disk_full)
        mend_mount_points(self._disk.root, mounts.targets)
        options = [*_NAMESPACES, "--hostname", self._hostname, *mounts.options]
        for key, value in {"PATH": PATH_INSIDE, "HOME": "/root", **env}.items():
            options += ["--setenv", key, value]
        with _options_file(options) as arguments, self._log.open("ab") as log:
            info_read, info_write = os.pipe()
            ready_read, ready_write = os.pipe()
            try:
                self._holder = subprocess.Popen(  # noqa: ASYNC220 - forks in a millisecond
                    [_tool("bwrap"), "--args", str(arguments), "--info-fd",
                     str(info_write), "--", f"{TOOLS_DIR}/init"],
                    stdin=ready_write, stdout=log, stderr=log, env=OUTSIDE_ENV, cwd="/",
                    pass_fds=(arguments, info_write),
                )  # fmt: skip
            finally:
                os.close(info_write)
                os.close(ready_write)
            try:
                await self._wait_until_up(ready_read)
                self._pid = msgspec.json.decode(os.read(info_read, 4096), type=_Info).child_pid
                self._outer = _parent_namespace(f"/proc/{self._pid}/ns/user")
            except BaseException:
                # Cancelled or failed: leave no holder that nobody knows.
                self._holder.kill()
                self._holder.wait()
                raise
            finally:
                os.close(info_read)
                os.close(ready_read)

    async def _wait_until_up(self, ready: int) -> None:
        with trio.move_on_after(START_LIMIT_S):
            await trio.lowlevel.wait_readable(ready)
            if os.read(ready, 16):
                return
        raise SandboxFailed(
            f"could not start the sandbox of {self._hostname!r}: {self._last_words()}",
            hint="see the log of the simulator",
        )

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "bwrap ended without a word"

    def _mounts(self, *, disk_full: bool) -> "_Mounts":
        mounts = _Mounts(["--bind", str(self._disk.root), "/"])
        for path in usr_directories():
            mounts.read_only(path)
        mounts.options += ["--proc", "/proc", "--dev", "/dev"]
        for name in PROC_READ_ONLY:
            if Path("/proc", name).exists():
                mounts.options += ["--ro-bind", f"/proc/{name}", f"/proc/{name}"]
        for name in ETC_FROM_HOST:
            if Path(name).exists():
                mounts.read_only(Path(name))
        for path in python_prefixes(self._state_dir):
            mounts.read_only(path)
        mounts.read_only(self._disk.tools, TOOLS_DIR)
        if disk_full:
            mounts.options += ["--size", str(FULL_DISK_BYTES), "--tmpfs", "/workspace"]
        return mounts

    def argv(self, session: Sequence[str], settings: Mapping[str, str], *, tty: bool) -> list[str]:
        if not self.running:
            raise SandboxFailed(f"the sandbox of {self._hostname!r} is down: nobody may enter")
        nsenter = [_tool("nsenter"), "--preserve-credentials"]
        return [
            # Two steps: only the outer namespace may join the mounts, only the inner is harmless.
            *nsenter, f"--user=/proc/{os.getpid()}/fd/{self._outer}", "--",
            *nsenter, "--user", "--mount", "--pid", "--uts", "--ipc",
            "--target", str(self._pid), "--",
            _tool("setpriv"), "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--",
            _tool("setsid"), *(["--ctty"] if tty else []), "--wait",
            "/usr/bin/env", "-i", *_assignments(settings), f"{TOOLS_DIR}/session", *session,
        ]  # fmt: skip

    def open_pty(self) -> int:
        # The instance's own /dev/pts, so that programs inside find their terminal by name. The
        # way there is made of mount points, which nothing inside can replace.
        flags = os.O_RDWR | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(f"/proc/{self._pid}/root/dev/pts/ptmx", flags)

    def leader_of(self, pid: int) -> int | None:
        # Our child only waits outside; its child leads a session inside.
        return next(iter(children_of(pid)), None)

    async def stop(self) -> None:
        if self._holder is None:
            return
        if self._holder.poll() is None and self._pid > 0:
            os.kill(self._pid, signal.SIGKILL)
        await wait_for_exit(self._holder)
        if self._outer >= 0:
            os.close(self._outer)
            self._outer = -1


_NAMESPACES: Final = (
    "--unshare-user", "--uid", "0", "--gid", "0", "--disable-userns", "--unshare-pid",
    "--unshare-uts", "--unshare-ipc", "--unshare-cgroup-try", "--cap-drop", "ALL",
    "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv",
)  # fmt: skip


class _Mounts:
    """Options of bubblewrap, and the places below the root that they mount on."""

    def __init__(self, options: list[str]) -> None:
        self.options = options
        self.targets: list[str] = []

    def read_only(self, source: Path, target: str | None = None) -> None:
        at = target or str(source)
        self.options += ["--ro-bind", str(source), at]
        self.targets.append(at)


def _parent_namespace(path: str) -> int:
    inner = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(inner, NS_GET_PARENT)
    finally:
        os.close(inner)


@contextmanager
def _options_file(options: Sequence[str]) -> Iterator[int]:
    """Yield the descriptor of a nameless file that holds the options, for `--args`."""
    if any("\0" in option for option in options):
        # It would begin an option of its own, such as a mount of the renter's choice.
        raise SandboxFailed("a variable of the container holds a NUL character")
    with tempfile.TemporaryFile() as file:
        file.write(b"".join(option.encode() + b"\0" for option in options))
        file.seek(0)
        yield file.fileno()


def _assignments(settings: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def _tool(name: str) -> str:
    path = shutil.which(name, path=OUTSIDE_ENV["PATH"])
    assert path is not None, f"{name} was there when the simulator started"
    return path


def missing_tools() -> list[str]:
    """Return the programs a sandbox needs and this machine lacks, in alphabetical order."""
    return sorted(n for n in NEEDED if shutil.which(n, path=OUTSIDE_ENV["PATH"]) is None)
