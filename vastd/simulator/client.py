"""Joins the simulated Vast of a state directory, or starts it: what the daemon and `demo` use.

Rules
1. Among several who come at the same time exactly one starts the service; the others join it.
2. The service is detached: own session, own log, no descriptor of ours. It outlives us.
"""

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import httpx2
import msgspec
import trio

from vastd.errors import ConfigError, VastdError
from vastd.simulator.announcement import DEMO_SCALE, IDLE_S, ServiceInfo, info_path

START_LIMIT_S: Final = 20.0  # guess; measured 0.5 s
TURN_S: Final = 0.05  # between two looks at whether another starter is done
CALL_LIMIT_S: Final = 10.0
LOG_NAME: Final = "service.log"
# Nothing of the user's real account goes to a program that only plays Vast (I10).
ENV_WITHHELD: Final = ("VAST_API_KEY", "VAST_URL", "CONTAINER_API_KEY")


class SimulatorUnreachable(VastdError):
    """The simulator does not answer, or answers something else."""


class SimulatorClient:
    """Asks a running simulator what only a simulator knows."""

    def __init__(self, info: ServiceInfo) -> None:
        self.info = info

    async def status(self) -> dict[str, object]:
        """Return live contracts (`live`), `billed_usd` and more.

        Raises:
            SimulatorUnreachable: no answer; so for all methods here.
        """
        return await self.call("GET", "/sim/status")

    async def journal(self) -> dict[str, object]:
        """Return the mutating calls that reached the market (`market`) and all `requests`."""
        return await self.call("GET", "/sim/journal")

    async def inject(self, order: dict[str, object]) -> None:
        """Add faults; see `facade.control.FaultOrder` for the form."""
        await self.call("POST", "/sim/faults", order)

    async def drop_connections(self, instance_id: int) -> None:
        """Break an instance's SSH connections."""
        await self.call("POST", f"/sim/drop/{instance_id}", {})

    async def wait_for(self, instance_id: int, state: str, *, limit_s: float) -> None:
        """Wait until sshd answers (`ssh`), nothing runs (`down`) or all is over (`gone`).

        Raises:
            SimulatorUnreachable: also when that takes longer than `limit_s`.
        """
        await self.call("GET", f"/sim/wait/{instance_id}?state={state}", limit_s=limit_s)

    async def shut_down(self) -> None:
        """End the service and every machine; returns when it has agreed."""
        await self.call("POST", "/sim/shutdown", {})

    async def call(
        self,
        method: str,
        path: str,
        body: dict[str, object] | None = None,
        *,
        limit_s: float = CALL_LIMIT_S,
    ) -> dict[str, object]:
        """Call a control route and return its JSON object."""
        headers = {"Authorization": f"Bearer {self.info.control_token}"}
        try:
            # Proxies of the environment must not see loopback traffic.
            async with httpx2.AsyncClient(trust_env=False, timeout=limit_s) as client:
                reply = await client.request(
                    method, f"{self.info.url}{path}", headers=headers, json=body
                )
            value = msgspec.json.decode(reply.content, type=dict[str, object])
        except (httpx2.HTTPError, msgspec.MsgspecError) as exc:
            raise SimulatorUnreachable(
                f"{method} {path} at the simulator {self.info.url} failed: {exc!r}"
            ) from exc
        if reply.status_code != 200:
            raise SimulatorUnreachable(
                f"{method} {path} at the simulator answered {reply.status_code}:"
                f" {value.get('msg', '')}"
            )
        return value


async def join(state_dir: Path) -> ServiceInfo | None:
    """Return the service that runs in a state directory, or None when none answers."""
    try:
        info = msgspec.json.decode(info_path(state_dir).read_bytes(), type=ServiceInfo)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    try:
        await SimulatorClient(info).status()
    except SimulatorUnreachable:
        return None
    return info


async def join_or_spawn(
    state_dir: Path,
    *,
    seed: int = 1,
    scale: float = DEMO_SCALE,
    faults: list[str] | None = None,
    rate_limits: bool = False,
    port: int = 0,
    idle_s: float = IDLE_S,
    start_limit_s: float = START_LIMIT_S,
) -> ServiceInfo:
    """Return the service of a state directory, started with these options unless it runs.

    Raises:
        ConfigError: it does not start; the message holds its last words.
    """
    info = await join(state_dir)
    if info is not None:
        return info
    options = ["--seed", str(seed), "--scale", repr(scale), "--port", str(port)]
    options += ["--idle", repr(idle_s)]
    for name in faults or []:
        options += ["--fault", name]
    if rate_limits:
        options.append("--rate-limits")
    with trio.move_on_after(start_limit_s):
        async with _turn(state_dir):
            info = await join(state_dir)  # whoever had the turn before may have started it
            if info is None:
                info = await _spawn(state_dir, options)
            return info
    raise ConfigError(
        f"the simulator in {str(state_dir)!r} did not start within {start_limit_s:g} s",
        hint=f"see {state_dir / LOG_NAME}",
    )


@contextlib.asynccontextmanager
async def _turn(state_dir: Path) -> AsyncIterator[None]:
    """Let one starter at a time pass."""
    _make_private(state_dir)
    with (state_dir / "starting").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await trio.sleep(TURN_S)
        yield


def _make_private(state_dir: Path) -> None:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)


async def _spawn(state_dir: Path, options: list[str]) -> ServiceInfo:
    log = state_dir / LOG_NAME
    with _pipe() as (ready, told), log.open("ab") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - forks in a millisecond
            [sys.executable, "-P", "-m", "vastd.simulator", "--state-dir", str(state_dir),
             "--ready-fd", str(told), "--log-file", str(log), *options],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/",
            env={k: v for k, v in os.environ.items() if k not in ENV_WITHHELD},
            start_new_session=True, pass_fds=(told,),
        )  # fmt: skip
        os.close(told)
        await trio.lowlevel.wait_readable(ready)
        started = os.read(ready, 16) != b""
    process.wait()  # at once: it forks before it serves, and ends when it cannot
    if not started:
        words = log.read_text(errors="replace").strip().splitlines()
        raise ConfigError(
            f"the simulator in {str(state_dir)!r} did not start: {words[-1] if words else ''}",
            hint=f"see {log}",
        )
    return msgspec.json.decode(info_path(state_dir).read_bytes(), type=ServiceInfo)


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Yield a pipe; the caller closes the writing end, we the reading one."""
    read_end, write_end = os.pipe()
    try:
        yield read_end, write_end
    finally:
        os.close(read_end)
