"""An instance where no sandbox can be had: its commands run as the user, in one directory.

Rules
1. No onstart is run, and root is refused (D12): `support.find_support` sees to the latter.
2. Every process carries a mark in its environment, by which it is ended.
"""

import os
import pty
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

from vastd.simulator.hosts.image import InstanceDisk
from vastd.simulator.hosts.processes import kill_marked

MARK: Final = "VASTD_SIMULATED_INSTANCE"


class PlainSandbox:
    """No walls: `HOME` and the working directory are the instance's, everything else is yours."""

    def __init__(self, disk: InstanceDisk, *, state_dir: Path) -> None:
        self._disk = disk
        self._mark = f"{state_dir}#{secrets.token_hex(8)}"
        self._running = False

    @property
    def running(self) -> bool:
        return self._running

    async def start(self, env: Mapping[str, str], *, disk_full: bool = False) -> None:
        """Let commands in. `env` reaches them as `/etc/environment` does elsewhere.

        There is no first process to hold it, and no onstart to write that file.
        """
        await trio.lowlevel.checkpoint()
        path = self._disk.root / "etc" / "environment"
        path.touch(mode=0o600)
        path.write_text("".join(f"{key}={value}\n" for key, value in env.items()))
        self._running = True

    def argv(self, session: Sequence[str], settings: Mapping[str, str], *, tty: bool) -> list[str]:
        root = self._disk.root
        variables = {
            **settings,
            MARK: self._mark,
            "INSTANCE_HOME": str(root / "root"),
            "INSTANCE_ETC": str(root / "etc"),
            "WORKSPACE": str(root / "workspace"),  # where /workspace would be
        }
        return [
            "/usr/bin/env", "-i", *(f"{key}={value}" for key, value in variables.items()),
            "setsid", *(["--ctty"] if tty else []), "--wait",
            str(self._disk.tools / "session"), *session,
        ]  # fmt: skip

    def open_pty(self) -> int:
        master, slave = pty.openpty()
        os.close(slave)
        return master

    def leader_of(self, pid: int) -> int | None:
        return pid

    async def stop(self) -> None:
        self._running = False
        kill_marked(f"{MARK}={self._mark}")
        await trio.lowlevel.checkpoint()


def end_leftovers(state_dir: Path) -> None:
    """Kill what a simulator that was killed has left running without a sandbox."""
    kill_marked(f"{MARK}={state_dir}#")
