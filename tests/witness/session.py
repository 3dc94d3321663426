"""One user's session with the official client against the simulator as a service."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import trio

from support.sim_hosts import make_ssh_key
from vastd.simulator.announcement import ServiceInfo
from vastd.simulator.client import SimulatorClient, join_or_spawn
from witness.official_client import Driver, Said, environment, environment_dir

SCALE: Final = 0.002  # a boot takes 0.2 s
LIMIT_S: Final = 60.0


class Session:
    """What the user types, and what only the simulator knows."""

    def __init__(self, info: ServiceInfo, root: Path) -> None:
        self.info = info
        self.home = root / "home"
        self.key = info.api_key
        self._control = SimulatorClient(info)
        cards = self._ask("GET", "/api/v0/gpu_names/unique/")["gpu_names"]
        self._driver = Driver(self.home, info.url, cards)
        self.identity = root / "id"
        self.public_key = make_ssh_key(self.identity).strip()

    def program(self, *words: str) -> Said:
        """Start the installed program."""
        done = subprocess.run(
            [environment_dir() / "bin" / "vastai", *words], text=True, input="y\n", check=False,
            env={**environment(self.home, self.info.url), "VAST_API_KEY": self.key},
            capture_output=True, timeout=LIMIT_S,
        )  # fmt: skip
        return Said(exit=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def type(self, *words: str, key: str | None = None) -> Said:
        """Run the program's `main` without starting Python again; the home stays as it is."""
        return self._driver.run(list(words), key=key or self.key, home="keep")

    def says(self, *words: str) -> str:
        """Return what a command that must succeed prints."""
        said = self.type(*words)
        assert (said.exit, said.stderr) == (0, ""), (words, said)
        return said.stdout

    def raw(self, *words: str) -> Any:
        """Return the JSON a command prints with `--raw`."""
        return json.loads(self.says(*words, "--raw"))

    def rent(self, *options: str, gpu: str = "RTX_4090") -> int:
        """Rent the cheapest offer with a direct port; return the instance id."""
        query = f"num_gpus=1 direct_port_count>0 gpu_name={gpu} verified=any"
        offer = self.raw("search", "offers", query, "-o", "dph", "--limit", "1")[0]
        words = ["create", "instance", str(offer["id"]), "--image", "ubuntu:22.04", *options]
        made = self.raw(*words)
        assert made["success"] is True
        return int(made["new_contract"])

    def wait(self, instance_id: int, state: str = "ssh") -> None:
        """Wait until sshd answers, nothing runs ("down") or all is over ("gone")."""
        trio.run(lambda: self._control.wait_for(instance_id, state, limit_s=LIMIT_S))

    def row(self, instance_id: int) -> dict[str, Any]:
        """Return one instance as `show instance --raw` prints it."""
        row: dict[str, Any] = self.raw("show", "instance", str(instance_id))
        return row

    def journal(self) -> list[dict[str, Any]]:
        """Return the requests the service has answered."""
        requests = trio.run(self._control.journal)["requests"]
        assert isinstance(requests, list)
        return requests

    def ssh(self, *words: str, identity: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run ssh or scp as a user without configuration does, with our key or another."""
        program, *rest = words
        options = ["-F", "none", "-i", str(identity or self.identity), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
                   "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]  # fmt: skip
        return subprocess.run(
            [program, *options, *rest], capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=LIMIT_S,
        )  # fmt: skip

    def end(self) -> None:
        """End the client and the service with all its machines."""
        self._driver.end()
        trio.run(self._control.shut_down)

    def _ask(self, method: str, path: str) -> Any:
        return trio.run(self._control.call, method, path)


def plain(text: str) -> str:
    """Return a table without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@contextmanager
def session(root: Path) -> Iterator[Session]:
    """Yield a session with a service of its own."""
    info = trio.run(lambda: join_or_spawn(root / "sim", scale=SCALE, idle_s=300.0))
    made = Session(info, root)
    try:
        yield made
    finally:
        made.end()
