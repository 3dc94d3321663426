"""The composition root: the one place where ledger, ports, supervisor and socket are wired.

Order of a start: configuration, lock, store, which Vast it is of, socket, provider, first listing attempt, READY.
The socket comes before the provider, so that whoever is refused there started no simulator.
A stop destroys nothing: machines and jobs go on, and the next start resumes every rental.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import trio
from msgspec import Struct, structs

from vastd.clocks import newest_instant, process_clock
from vastd.config.load import load
from vastd.configuration import ConfigurationHolder
from vastd.core import events as ev
from vastd.core.hosts import Known
from vastd.core.instants import rfc3339
from vastd.core.job import Needs
from vastd.core.money import Micros
from vastd.core.onstart import onstart
from vastd.doctor import examine
from vastd.env_files import EnvFiles
from vastd.errors import StoreDamaged, StoreError
from vastd.housekeeping import Housekeeping
from vastd.jobs.boxes import open_boxes
from vastd.jobs.guard import core_text
from vastd.key_change import spread_key
from vastd.lease_keeper import LeaseKeeper
from vastd.ledger import Change, Ledger
from vastd.local_logs import LocalLogs
from vastd.owner import new_id, owner_word
from vastd.planner import MarketPlanner
from vastd.poller import Poller
from vastd.projection import Projection
from vastd.pulse import attend, reload_at_hangup, stop_text
from vastd.rebuild import adopt_orphans
from vastd.rpc import handlers
from vastd.rpc.context import Context
from vastd.rpc.dispatch import Dispatcher
from vastd.rpc.hub import Hub
from vastd.rpc.listen import Door, listening
from vastd.rpc.server import serve
from vastd.rpc.sources import JobLogs, StoredAnswers, Trail
from vastd.rpc.views.event import event_view
from vastd.service_manager import ServiceManager
from vastd.shell import Choice, Observations, Shell
from vastd.spending import note_caps
from vastd.ssh.identity import resolve_identity
from vastd.ssh.known_hosts import KnownHosts
from vastd.store.lock import locked
from vastd.store.renting_lock import RentingLock
from vastd.store.reserve import keep_reserve, release_reserve
from vastd.store.store import Store, opened
from vastd.supervisor import Supervisor
from vastd.vast_account import VastAccount, open_account
from vastd.vast_identity import hold_to, vast_identity
from vastd_protocol import paths
from vastd_protocol.methods.daemon import DaemonInfo
from vastd_protocol.methods.event import Progress
from vastd_protocol.version import VASTD_VERSION

_log = logging.getLogger(__name__)


class Options(Struct, frozen=True, kw_only=True):
    """How the daemon was started."""

    config: Path | None = None  # named with --config: must exist
    simulate: bool = False


async def run(options: Options, stop: trio.Event, manager: ServiceManager) -> None:
    """Run one daemon until `stop` is set, and tell `manager` how it is.

    Raises:
        VastdError: it cannot start; nothing was changed.
    """
    state_dir = paths.state_dir()
    config_path = options.config or paths.config_file()
    config = ConfigurationHolder(
        load(config_path, os.environ, must_exist=options.config is not None)
    )
    with locked(state_dir), _store(state_dir) as store:
        keep_reserve(state_dir)
        renting = RentingLock(state_dir)
        ledger = Ledger(
            store,
            on_full=partial(release_reserve, state_dir),
            on_room=partial(keep_reserve, state_dir),
        )
        identity = vast_identity(config.settings.vast.url, simulated=options.simulate)
        lost = renting.why is not None
        hold_to(state_dir, identity, len(ledger.live()), uncertain=lost)
        newest = newest_instant(ledger.rentals.values(), ledger.jobs.values())
        clock = process_clock(state_dir, newest)
        async with AsyncExitStack() as stack:
            door = await stack.enter_async_context(listening(os.environ))
            account = await stack.enter_async_context(
                open_account(config, state_dir, simulate=options.simulate, witness=clock)
            )
            connect_s = config.settings.timing.ssh_connect_s
            boxes = await stack.enter_async_context(
                open_boxes(
                    state_dir,
                    config.ssh_key(),
                    connect_timeout_s=connect_s,
                    login_timeout_s=connect_s,
                )
            )
            shell = Shell(
                ledger=ledger,
                provider=account.provider,
                boxes=boxes,
                observed=Observations(clock()),
                wall_clock=clock,
                clock=clock,
                limits=config.limits(),
                owner8=owner_word(state_dir),
                new_id=new_id,
                choose=_not_yet,
                logs=LocalLogs(state_dir, config.job_log_cap),
                envs=EnvFiles(state_dir),
                state_dir=state_dir,
                onstart=lambda: onstart(
                    boxes.public_key(), core_text(), shell.limits.lease.lease_s
                ),
                locked=lambda: renting.why,
            )
            shell.envs.keep_only({j.job_id for j in ledger.jobs.values() if not j.finished})
            context = _context(
                shell, config, account, door, renting, stop, manager, simulated=options.simulate
            )
            async with trio.open_nursery() as nursery:
                _watch(nursery, context, door, manager)
                nursery.start_soon(spread_key, shell)
                nursery.start_soon(Housekeeping(shell, config.retention).run)
                # Returns some time after `stop`: what is under way is answered first.
                await _serve(context, config, door)
                _log.info("stopping; machines and jobs go on")
                manager.stopping(stop_text(shell))
                nursery.cancel_scope.cancel()


async def _not_yet(needs: Needs, known: Known, budget: Micros | None) -> Choice:
    raise AssertionError("the planner is set before anything runs")


@contextmanager
def _store(state_dir: Path) -> Iterator[Store]:
    """Open the store; a damaged one was put aside and renting locked, so a new one is opened (I8)."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(opened(state_dir))
        except StoreDamaged as exc:
            _log.error("%s", exc)
            store = stack.enter_context(opened(state_dir))
        yield store


def _context(
    shell: Shell,
    config: ConfigurationHolder,
    account: VastAccount,
    door: Door,
    renting: RentingLock,
    stop: trio.Event,
    manager: ServiceManager,
    *,
    simulated: bool,
) -> Context:
    """Make everything that lives as long as the daemon, and tie the ledger to its listeners."""
    poller = Poller(shell)
    supervisor = Supervisor(shell, poller)
    planner = MarketPlanner(shell, config)
    shell.choose = planner.choose_again
    hub = Hub(Trail(shell.ledger), JobLogs(shell.ledger, shell.logs))
    shell.ledger.listen(partial(_publish, hub))
    shell.progress = partial(_progress, hub, shell.ledger)
    known_hosts = KnownHosts(shell.state_dir / "ssh" / "known_hosts")
    shell.ledger.listen(partial(_forget_host, known_hosts))

    def identity() -> Path:
        return resolve_identity(shell.state_dir, config.ssh_key()).private_path

    budget = config.config.value.budget

    def on_config() -> None:
        nonlocal budget
        before, budget = budget, config.config.value.budget
        note_caps(shell, before, budget)
        shell.limits = config.limits()
        account.refresh()
        shell.provider = account.provider
        shell.ledger.wake()

    config.on_change = on_config
    started = rfc3339(shell.wall_clock())
    return Context(
        shell=shell,
        supervisor=supervisor,
        poller=poller,
        hub=hub,
        planner=planner,
        config=config,
        doctor=partial(
            examine,
            shell,
            key_origin=account.key_origin,
            identity=identity,
            config_error=config.error_on_disk,
            simulated=simulated,
            managed=manager.present,
        ),
        info=DaemonInfo(
            version=VASTD_VERSION, pid=os.getpid(), started_at=started, simulated=simulated
        ),
        socket=door.path,
        vast_url=account.url,
        key_origin=account.key_origin,
        identity=identity,
        known_hosts_file=known_hosts.path,
        acknowledge=renting.lift,
        stop=stop,
    )


def _watch(nursery: trio.Nursery, context: Context, door: Door, manager: ServiceManager) -> None:
    """Start everything that goes on without any client."""
    nursery.start_soon(context.poller.run)
    nursery.start_soon(context.supervisor.run)
    nursery.start_soon(LeaseKeeper(context.shell).run)
    nursery.start_soon(Projection(context.shell).run)
    nursery.start_soon(_rebuild, context)
    nursery.start_soon(_announce, context, door)
    nursery.start_soon(attend, manager, context.shell, context.supervisor, context.poller)
    nursery.start_soon(reload_at_hangup, manager, context.shell, context.config.reload)


async def _serve(context: Context, config: ConfigurationHolder, door: Door) -> None:
    """Serve clients until the daemon stops."""
    answers = StoredAnswers(context.shell.ledger)
    dispatcher = Dispatcher(context, handlers.all_handlers(), answers)
    origins = config.config.value.websocket.origins
    await serve(door.listeners, dispatcher, stop=context.stop, origins=origins)


async def _announce(context: Context, door: Door) -> None:
    """Say once that the first listing was attempted: from now on rentals are acted on."""
    await context.poller.attempted.wait()
    live = len(context.shell.ledger.live())
    _log.info("ready at %s; %d rentals on record", door.path, live)


async def _rebuild(context: Context) -> None:
    """While renting is locked after a damaged store, take over what carries our claim (I8)."""
    shell = context.shell
    while True:
        try:
            if shell.locked() is not None:
                policy = structs.replace(context.config.policy(), budget=context.config.caps()[0])
                if adopt_orphans(shell, policy):
                    context.poller.hurry()  # the inventory calls them orphans until the next one
        except StoreError as exc:
            _log.error("machines not taken over: %s", exc)  # again at the next change
        await shell.ledger.wait_changed()


def _publish(hub: Hub, change: Change) -> None:
    if change.cursor:
        hub.publish_event(event_view(change.cursor, change.event))
    if isinstance(change.event, ev.JobFinished):
        hub.log_grew(change.event.job_id)


def _forget_host(known_hosts: KnownHosts, change: Change) -> None:
    """Of a machine that is gone nobody needs the host key."""
    gone = change.rental
    if isinstance(change.event, ev.FoundAbsent) and gone is not None and gone.instance_id:
        with suppress(OSError):
            known_hosts.forget(gone.instance_id)


def _progress(
    hub: Hub,
    ledger: Ledger,
    step: str,
    done: int,
    total: int | None,
    unit: str,
    rental_id: str | None,
    job_id: str | None,
) -> None:
    if step == "log":
        assert job_id is not None
        hub.log_grew(job_id)
        return
    hub.publish_progress(
        Progress(step=step, done=done, total=total, unit=unit, rental_id=rental_id, job_id=job_id)
    )
