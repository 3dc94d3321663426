"""A home in which the guard's scripts run in a real shell: only the tools it is given, a clock the
test sets, and a `sleep` that waits for the test instead of for time.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from support.loopback_http import Arrived, Behaviour, LoopbackServer, http, saying, serving
from vastd.core.lease import LeaseFacts, LeaseTerms, OnExpiry
from vastd.core.onstart import pack
from vastd.jobs.facts import parse_lease
from vastd.jobs.guard import core_text, guard_text, hold_arguments
from vastd.jobs.remote_shell import runner_text
from vastd.simulator.hosts.processes import children_of

KEY = "instance-key-4711"
NOW = 1_800_000_000
LEASE_S = 600
TOOLS = (
    "awk", "cat", "cut", "env", "grep", "head", "kill", "ls", "mkdir", "mv", "nohup", "rm", "sed",
    "setsid", "sh", "stat", "tail", "timeout", "tr",
)  # fmt: skip
ACCEPTED = saying(http(200, b'{"success":true}'))
DESTROY = ("DELETE", "/api/v0/instances/42/", b"{}")
STOP = ("PUT", "/api/v0/instances/42/", b'{"state":"stopped"}')


def terms(**changes: object) -> LeaseTerms:
    """A lease of 900 s, 7,200 s at most."""
    fields: dict[str, object] = {
        "lease_s": LEASE_S,
        "for_s": 900,
        "hard_s": 7200,
        "on_expiry": OnExpiry.STOP_IF_UNCOLLECTED,
        "grace_s": 2,
    }
    return LeaseTerms(**{**fields, **changes})  # type: ignore[arg-type]


class GuardBox:
    """One machine with one guard at most."""

    def __init__(self, home: Path, server: LoopbackServer, *tools: str) -> None:
        self.home, self.server = home, server
        self._children: list[subprocess.Popen[bytes]] = []
        self.state, self.bin = home / ".vastd", home / "bin"
        self.workspace = home / "workspace"
        self.project = self.workspace / "project"
        for path in (self.bin, self.state / "uncollected", self.project, self.workspace / "logs"):
            path.mkdir(parents=True)
        for name in (*TOOLS, *tools):
            found = sys.executable if name == "python3" else shutil.which(name)
            assert found is not None, f"{name} is missing here"
            (self.bin / name).symlink_to(os.path.realpath(found))
        self.script("date", f'exec cat "{home}/clock"')
        self.set_clock(NOW)
        self._asleep, self._go = _pipe(home / "asleep"), _pipe(home / "go")
        # The guard sleeps for whole seconds; what waits for a process to come up for less.
        self.script(
            "sleep",
            f'case $1 in 0*) exec /bin/sleep $1;; esac; echo >"{home}/asleep"; read x <"{home}/go"',
        )
        self.env = {
            "PATH": str(self.bin),
            "HOME": str(home),
            "CONTAINER_ID": "42",
            "CONTAINER_API_KEY": KEY,
            "VAST_URL": server.url,
        }

    def script(self, name: str, line: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def set_clock(self, at: int) -> None:
        fresh = self.home / "clock.new"
        fresh.write_text(f"{at}\n")
        fresh.rename(self.home / "clock")

    def number(self, name: str) -> int | None:
        path = self.state / name
        return int(path.read_text()) if path.exists() else None

    def mark(self, *jobs: str) -> None:
        for job in jobs:
            (self.state / "uncollected" / job).touch()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the guard as onstart does."""
        core = self.state / "guard_core.sh"
        core.write_text(pack(core_text()))
        words = [self.bin / "sh", core, str(LEASE_S)]
        guard = subprocess.Popen(words, env=self.env, start_new_session=True)
        self._children.append(guard)
        return guard

    def hold(self, wanted: LeaseTerms) -> LeaseFacts:
        """Renew as the daemon does by SSH."""
        runner, guard = runner_text(), guard_text()
        whole = f"{runner}\n{guard}"
        arguments = hold_arguments(wanted, pack(core_text()), whole, str(self.workspace))
        done = subprocess.run(
            [self.bin / "sh", "-c", f'{whole}\nvastd_lease_hold "$@"', "x", *arguments],
            env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True,
        )  # fmt: skip
        return parse_lease(done.stdout)

    def job(self, script: str) -> subprocess.Popen[bytes]:
        """Run a job that the guard finds where the runner would have put it."""
        directory = self.workspace / ".vastd" / "jobs" / "j1"
        directory.mkdir(parents=True)
        words = ["/bin/sh", "-c", script]
        process = subprocess.Popen(
            words, cwd=self.project, stdout=subprocess.PIPE, start_new_session=True
        )
        self._children.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"  # its trap is set
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (directory / "process").write_text(f"{process.pid} {ticks} {process.pid}\n")
        return process

    async def asleep(self) -> None:
        """Wait until the guard sleeps: everything that was due is done."""
        with trio.fail_after(20):
            await trio.lowlevel.wait_readable(self._asleep)
        assert os.read(self._asleep, 1) == b"\n"

    async def step(self, at: int | None = None) -> list[tuple[str, str, bytes]]:
        """Wake the guard (at `at`) and wait until it sleeps again; return all requests so far."""
        if at is not None:
            self.set_clock(at)
        os.write(self._go, b"\n")
        await self.asleep()
        return self.asked

    @property
    def asked(self) -> list[tuple[str, str, bytes]]:
        return [(came.method, came.target, came.body) for came in self.server.arrived]

    def end_guard(self) -> None:
        pid = self.number("pid")
        if pid is None or b"guard_core" not in _command_line(pid):
            return
        for process in (*children_of(pid), pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def close(self) -> None:
        self.end_guard()
        for child in self._children:
            child.kill()
            child.communicate()
        os.close(self._asleep)
        os.close(self._go)


def _pipe(path: Path) -> int:
    os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def command_lines() -> list[bytes]:
    """Return what a list of processes shows of every process."""
    return [_command_line(int(path.name)) for path in Path("/proc").glob("[0-9]*")]


@asynccontextmanager
async def a_guard_box(
    home: Path, *tools: str, behaviour: Behaviour = ACCEPTED
) -> AsyncIterator[GuardBox]:
    """Yield a machine with `tools` to call Vast with, which behaves as told."""
    async with serving(behaviour) as server:
        box = GuardBox(home, server, *tools)
        try:
            yield box
        finally:
            box.close()


def in_turn(*statuses: int) -> Behaviour:
    """Answer with one status after the other, then with success."""
    left = list(statuses)

    async def behave(stream: trio.SocketStream, _: Arrived) -> None:
        await stream.send_all(http(left.pop(0) if left else 200, b"{}"))

    return behave
