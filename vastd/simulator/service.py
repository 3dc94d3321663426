"""The simulated Vast as a service of its own: façade, machines, and the files that announce it.

Rules
1. One service per state directory (`flock`); `service.json` exists only while it can be used.
2. Contracts live in memory: they end with the service, and every process of theirs with them,
   also when it is killed. Instance ids never come twice from one state directory.
3. It ends by itself when for a while there was neither a contract nor a request.
"""

import contextlib
import fcntl
import functools
import logging
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import msgspec
import trio
from msgspec import Struct

from vastd.errors import StoreLocked
from vastd.simulator.accounts import MarketAccount
from vastd.simulator.announcement import DEMO_SCALE, IDLE_S, ServiceInfo, info_path
from vastd.simulator.facade.app import Facade
from vastd.simulator.facade.backend import Backend
from vastd.simulator.facade.fault_names import NamedFault, parse_fault
from vastd.simulator.facade.http import serve_connection
from vastd.simulator.faults import Faults
from vastd.simulator.hosts.fleet import Fleet, open_fleet
from vastd.simulator.hosts.host import remove_tree
from vastd.simulator.hosts.plain import end_leftovers
from vastd.simulator.hosts.support import find_support
from vastd.simulator.market import Market, MarketSettings

LOG: Final = logging.getLogger(__name__)
LOOPBACK: Final = "127.0.0.1"
FIRST_INSTANCE_ID: Final = 20_000_000  # of the order of live ids in 2026
IDS_PER_START: Final = 100_000  # more than one service ever gives out
TOKEN_BYTES: Final = 32


class ServiceSettings(Struct, frozen=True, kw_only=True):
    """How to run the service."""

    state_dir: Path
    port: int = 0  # 0: any free one
    seed: int = 1
    scale: float = DEMO_SCALE  # factor on boot, pull and destroy latencies
    faults: list[str] = []  # names, see `parse_fault`
    rate_limits: bool = False  # the real thresholds would make a demo wait
    idle_s: float = IDLE_S
    ready_fd: int | None = None  # told "ready" once `service.json` is there, then closed


async def serve(settings: ServiceSettings) -> None:
    """Run until told to stop (signal, `/sim/shutdown`) or idle; then end every machine.

    Raises:
        StoreLocked: another service has the state directory.
        ConfigError: no sandbox can be had and we are root.
        InvalidRequest: a fault's name is unknown.
    """
    named = [parse_fault(name) for name in settings.faults]
    state_dir = settings.state_dir
    with _locked(state_dir):
        end_leftovers(state_dir)
        await remove_tree(state_dir / "instances")
        support = await find_support(state_dir)
        if support.warning:
            LOG.warning("%s", support.warning)
        market = _open_market(settings)
        listeners = await trio.open_tcp_listeners(settings.port, host=LOOPBACK)
        url = f"http://{LOOPBACK}:{listeners[0].socket.getsockname()[1]}"
        faults = Faults(time.time)
        async with open_fleet(market, support, state_dir, facade_url=url, faults=faults) as fleet:
            backend = Backend(market, faults, fleet, time.time)
            backend.url = url
            _inject(named, backend, fleet)
            info = ServiceInfo(
                url=url,
                api_key=_own_key(market.account, state_dir),
                control_token=secrets.token_hex(TOKEN_BYTES),
                pid=os.getpid(),
                warning=support.warning,
            )
            await _serve_until_stopped(settings, info, backend, listeners)


async def _serve_until_stopped(
    settings: ServiceSettings,
    info: ServiceInfo,
    backend: Backend,
    listeners: list[trio.SocketListener],
) -> None:
    stop = trio.Event()
    facade = Facade(
        backend,
        control_token=info.control_token,
        shut_down=stop.set,
        rate_limits=settings.rate_limits,
    )
    answer = functools.partial(serve_connection, handler=facade.handle)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, answer, listeners)
            nursery.start_soon(_stop_on_signal, signals, stop)
            nursery.start_soon(stop_when_idle, settings.idle_s, facade, backend, stop)
            with _announced(settings, info):
                LOG.info("serving at %s, state in %s", info.url, settings.state_dir)
                await stop.wait()
                nursery.cancel_scope.cancel()


async def _stop_on_signal(signals: AsyncIterator[int], stop: trio.Event) -> None:
    async for number in signals:
        LOG.info("stopping: %s", signal.Signals(number).name)
        stop.set()


async def stop_when_idle(idle_s: float, facade: Facade, backend: Backend, stop: trio.Event) -> None:
    """Set `stop` once there was neither a contract of the renter nor a request for `idle_s`."""
    last_use = backend.clock()
    while (left := last_use + idle_s - backend.clock()) > 0:
        await trio.sleep(left)
        if any(not contract.foreign for contract in backend.market.live_contracts()):
            last_use = backend.clock()
        last_use = max(last_use, facade.last_request_at)
    LOG.info("stopping: no contract and no request for %.0f s", idle_s)
    stop.set()


def _inject(named: list[NamedFault], backend: Backend, fleet: Fleet) -> None:
    for fault in named:
        if fault.call is not None:
            backend.faults.add(fault.call)
        if fault.machine is not None:
            backend.market.afflict(fault.machine)
        fleet.command_tmux = fleet.command_tmux or fault.login_tmux


def _open_market(settings: ServiceSettings) -> Market:
    first = FIRST_INSTANCE_ID + _next_start(settings.state_dir) * IDS_PER_START
    return Market(
        settings.seed,
        time.time,
        scale=settings.scale,
        settings=MarketSettings(first_instance_id=first),
    )


def _next_start(state_dir: Path) -> int:
    """Return how often a service was started here before, and count this start."""
    path = state_dir / "starts"
    try:
        count = int(path.read_text())
    except (FileNotFoundError, ValueError):
        count = 0
    path.write_text(str(count + 1))
    return count


def _own_key(account: MarketAccount, state_dir: Path) -> str:
    """Return the renter's key, the same at every start; nobody can guess it from the seed."""
    path = state_dir / "api_key"
    if not path.exists():
        _write_private(path, secrets.token_hex(TOKEN_BYTES).encode())
    key = path.read_text().strip()
    account.revoke_api_key(account.owner_key)
    account.add_api_key("owner", token=key)
    return key


@contextlib.contextmanager
def _locked(state_dir: Path) -> Iterator[None]:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (state_dir / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise StoreLocked(
                f"another simulator serves {str(state_dir)!r}",
                hint="use it, or give another --state-dir",
            ) from exc
        yield


@contextlib.contextmanager
def _announced(settings: ServiceSettings, info: ServiceInfo) -> Iterator[None]:
    path = info_path(settings.state_dir)
    _write_private(path, msgspec.json.encode(info))
    if settings.ready_fd is not None:
        with contextlib.suppress(BrokenPipeError):  # who started us has left
            os.write(settings.ready_fd, b"ready\n")
        os.close(settings.ready_fd)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _write_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 that is never seen half written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)
