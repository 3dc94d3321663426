"""A daemon without a socket on the simulated market in memory, on virtual time.

`Lab` owns what outlives a daemon (market, machines, state directory); `Lab.boot` starts one
daemon on it. A kill cuts store, provider and boxes first and cancels afterwards, because a
cancelled task may still run shielded code.
"""

import random
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import trio
from msgspec import structs

from vastd import clocks
from vastd.clocks import Clock, newest_instant
from vastd.core import events as ev
from vastd.core.hosts import Known
from vastd.core.job import Job, Needs
from vastd.core.limits import Limits
from vastd.core.market import OfferQuery
from vastd.core.money import Micros
from vastd.core.onstart import onstart
from vastd.core.rental import Phase, Policy
from vastd.env_files import EnvFiles
from vastd.errors import NoOffers, StoreDamaged, StoreError
from vastd.jobs.guard import core_text
from vastd.lease_keeper import LeaseKeeper
from vastd.ledger import Ledger
from vastd.local_logs import LocalLogs
from vastd.poller import Poller
from vastd.provider.port import Provider
from vastd.rebuild import adopt_orphans
from vastd.shell import Choice, Observations, Shell
from vastd.simulator.boxes import SimBoxes
from vastd.simulator.faults import Faults
from vastd.simulator.market import Market
from vastd.simulator.provider import SimProvider
from vastd.store.mark import Mark
from vastd.store.renting_lock import RentingLock
from vastd.store.store import Store, opened
from vastd.supervisor import Supervisor

EPOCH = 1_800_000_000.0  # 2027-01-15: any fixed instant does
OWNER8 = "sim00001"
MEMORY_FS = "/dev/shm"  # fsync is free there; the database is still a real one


def virtual_clock() -> float:
    """Return wall-clock time that follows trio's (virtual) clock."""
    return EPOCH + trio.current_time()


class CutStore(Store):
    """A store that can be cut from its disk, as by a kill, and can count its commits."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, mark: Mark | None = None
    ) -> None:
        super().__init__(connection, path, mark)
        self.cut = False
        self.full = False
        self.on_commit: Callable[[str], None] = lambda _: None

    def write(self, events, rentals, jobs, answers=(), hosts=()):  # type: ignore[no-untyped-def, override]
        """Write, unless cut or full; `on_commit` is told before and after."""
        if self.cut or self.full:
            raise StoreError("database or disk is full" if self.full else "cut")
        names = "+".join(ev.kind(event) for event in events)
        self.on_commit(f"before {names}")
        if self.cut:
            raise StoreError("cut")
        cursors = super().write(events, rentals, jobs, answers, hosts)
        self.on_commit(f"after {names}")
        return cursors


class Daemon:
    """One running daemon: its shell, and a way to kill it."""

    def __init__(
        self, shell: Shell, supervisor: Supervisor, poller: Poller, store: CutStore
    ) -> None:
        self.shell = shell
        self.supervisor = supervisor
        self.poller = poller
        self.store = store
        self.ledger = shell.ledger
        self.scope = trio.CancelScope()
        self.stopping = False
        self.stopped = trio.Event()

    def stop(self) -> None:
        """Ask it to end as SIGTERM does; `Lab.boot` waits until its tasks have ended."""
        self.stopping = True
        self.scope.cancel()
        self.ledger.wake()  # whoever follows it looks at once

    def kill(self) -> None:
        """Cut it from the world, then stop its tasks."""
        self.store.cut = True
        self.shell.provider.cut()  # type: ignore[attr-defined]
        self.shell.boxes.cut()  # type: ignore[attr-defined]
        self.scope.cancel()

    def submit(
        self,
        *command: str,
        project: Path,
        policy: Policy | None = None,
        needs: Needs | None = None,
        name: str = "job",
        **fields: object,
    ) -> str:
        """Put a job on record as the handler would; return its id."""
        job_id = self.shell.new_id("j")
        job = Job(
            job_id=job_id,
            name=name,
            command=["sim-job", *command],
            project=str(project),
            submitted_at=self.shell.wall_clock(),
            needs=needs or Needs(),
            policy=policy or Policy(),
            **fields,  # type: ignore[arg-type]
        )
        self.ledger.commit(ev.JobSubmitted(job_id=job_id, at=job.submitted_at, job=job))
        return job_id

    async def until(self, condition: Callable[[], bool], *, within_s: float) -> None:
        """Wait for a change of the ledger that makes `condition` true."""
        with trio.fail_after(within_s):
            while not condition():
                await self.ledger.wait_changed()

    async def settled(self, *, within_s: float = 7200.0) -> None:
        """Wait until every job is finished and every rental gone."""
        await self.until(
            lambda: (
                all(j.finished for j in self.ledger.jobs.values())
                and all(r.phase is Phase.GONE for r in self.ledger.rentals.values())
            ),
            within_s=within_s,
        )


async def _rebuild(shell: Shell) -> None:
    while True:
        adopt_orphans(shell, Policy())
        await shell.ledger.wait_changed()


@contextmanager
def _store(state_dir: Path) -> Iterator[Store]:
    with ExitStack() as stack:
        try:
            store = stack.enter_context(opened(state_dir))
        except StoreDamaged:
            store = stack.enter_context(opened(state_dir))
        yield store


class Lab:
    """Everything that outlives a daemon."""

    def __init__(self, seed: int = 1, limits: Limits | None = None) -> None:
        self.seed = seed
        self.limits = limits or Limits()
        self.asleep_s = 0.0  # suspended: real time went on, trio's did not
        self.step_s = 0.0  # by how much the wall clock was set wrong
        self.paused_s = 0.0  # of `asleep_s`, what neither of our clocks counted
        self.boots = 1
        self.clock: Callable[[], float] = self.wall_clock
        self.market = Market(seed, self.true_time)
        self.faults = Faults(self.true_time)
        self.boxes = SimBoxes(self.market, self.faults, self.true_time)
        self._temp = tempfile.mkdtemp(prefix="vastd-sim-", dir=MEMORY_FS)
        self.root = Path(self._temp)
        self.state_dir = self.root / "state"
        self.state_dir.mkdir()
        self.project = self.root / "project"
        self.project.mkdir()
        self.random = random.Random(f"lab:{seed}")
        self.observer: Callable[..., None] | None = None
        self.on_commit: Callable[[str], None] = lambda _: None
        self._numbers = 0

    def true_time(self) -> float:
        """Return what Vast's clock says."""
        return virtual_clock() + self.asleep_s

    def wall_clock(self) -> float:
        """Return what our computer's wall clock says."""
        return self.true_time() - self.paused_s + self.step_s

    def boot_clock(self) -> float:
        """Return what its boot clock says: a reboot begins it anew."""
        return 1000.0 + trio.current_time() + self.asleep_s - self.paused_s - 1e6 * (self.boots - 1)

    def suspend(self, seconds: float, *, counted: bool = True) -> None:
        """Close the lid: time goes on, the daemon does not run. A paused virtual machine does not
        even have it counted."""
        self.asleep_s += seconds
        self.paused_s += 0.0 if counted else seconds

    def reboot(self, *, wrong_s: float) -> None:
        """Begin the boot clock anew, with a battery clock that is `wrong_s` off."""
        self.boots += 1
        self.step_s = wrong_s + self.paused_s

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self._temp, ignore_errors=True)

    def new_id(self, prefix: str) -> str:
        """Return the next id; the same in every run of a seed."""
        self._numbers += 1
        return f"{prefix}{self._numbers:06d}"

    async def choose(
        self, provider: Provider, needs: Needs, known: Known, budget: Micros | None
    ) -> Choice:
        """Choose the cheapest offer: choosing well is not what is simulated here."""
        offers = await provider.search_offers(OfferQuery(disk_gb=needs.disk_gb or 50.0))
        fitting = [
            o for o in offers if o.machine_id not in known.blocked and o.offer_id not in known.taken
        ]
        if not fitting:
            raise NoOffers("no offer fits")
        disk_gb, image = needs.disk_gb or 50.0, needs.image or "sim/image"
        best, *others = (
            Choice(offer=o, image=image, disk_gb=disk_gb, hours=1.0)
            for o in sorted(fitting, key=lambda o: (o.dph, o.offer_id))[:5]
        )
        return structs.replace(best, others=tuple(others))

    @asynccontextmanager
    async def boot(self) -> AsyncIterator[Daemon]:
        """Start a daemon on the state directory; it ends with the block."""
        with ExitStack() as stack:
            plain = stack.enter_context(_store(self.state_dir))
            renting = RentingLock(self.state_dir)
            store = CutStore(plain._connection, plain._path, plain._mark)
            store.on_commit = self.on_commit
            self.boxes = self.boxes.reborn()
            ledger = Ledger(store)
            clock = Clock(
                wall=lambda: self.clock(),
                boot=self.boot_clock,
                boot_id=f"boot-{self.boots}",
                path=self.state_dir / clocks.NAME,
                newest_at=newest_instant(ledger.rentals.values(), ledger.jobs.values()),
            )
            provider = SimProvider(
                self.market,
                self.faults,
                observer=self.observer,
                date=lambda: clock.heard(self.true_time(), 0.0),
            )

            async def choose(needs: Needs, known: Known, budget: Micros | None) -> Choice:
                return await self.choose(provider, needs, known, budget)

            shell = Shell(
                ledger=ledger,
                provider=provider,
                boxes=self.boxes,
                observed=Observations(clock()),
                wall_clock=clock,
                clock=clock,
                limits=self.limits,
                owner8=OWNER8,
                new_id=self.new_id,
                choose=choose,
                logs=LocalLogs(self.state_dir),
                envs=EnvFiles(self.state_dir),
                state_dir=self.state_dir,
                onstart=lambda: onstart(
                    self.boxes.public_key(), core_text(), shell.limits.lease.lease_s
                ),
                locked=lambda: renting.why,
            )
            poller = Poller(shell)
            daemon = Daemon(shell, Supervisor(shell, poller), poller, store)
            async with trio.open_nursery() as nursery:

                async def run() -> None:
                    with daemon.scope:
                        async with trio.open_nursery() as inner:
                            inner.start_soon(poller.run)
                            inner.start_soon(daemon.supervisor.run)
                            inner.start_soon(LeaseKeeper(shell).run)
                            if renting.why is not None:
                                inner.start_soon(_rebuild, shell)
                    daemon.stopped.set()

                nursery.start_soon(run)
                await poller.attempted.wait()
                try:
                    yield daemon
                finally:
                    if daemon.stopping:
                        with trio.CancelScope(shield=True):
                            await daemon.stopped.wait()
                    daemon.kill()
                    nursery.cancel_scope.cancel()
