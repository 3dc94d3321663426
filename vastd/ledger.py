"""The ledger: the only place where state changes (I5). Everything else reads or asks.

A commit is: evolve (pure, may refuse) -> memory -> answer -> disk -> listeners -> wake the waiting.
It is synchronous, so that nothing comes between the parts; a disk that refuses puts the memory back
before anybody looks (I6).
"""

import logging
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import trio
from msgspec import Struct

from vastd.core import events as ev
from vastd.core import hosts as machines
from vastd.core.hosts import Host
from vastd.core.job import Job
from vastd.core.job_lifecycle import evolve_job
from vastd.core.lifecycle import evolve
from vastd.core.rental import Phase, Rental
from vastd.errors import NotFound, StoreError
from vastd.store.store import Answer, Store

_log = logging.getLogger(__name__)

# Ending a machine must go on when the disk is full (I6); everything that starts or spends not.
_GOES_ON = (
    ev.EndDecided,
    ev.DestroyDecided,
    ev.DestroyTried,
    ev.StopAsked,
    ev.StopTried,
    ev.StartTried,
    ev.FoundAbsent,
    ev.InstanceFound,
    ev.CreateConfirmed,
    ev.CreateUnresolved,
    ev.CreateRefused,
    ev.Resurfaced,
    ev.InstanceStopped,
    ev.InstanceResumed,
    ev.BillingChanged,
    ev.Warned,
    ev.Quarantined,
    ev.JobLeft,
    ev.JobFinished,
    ev.JobStarted,  # it runs already, whether we note it or not
    ev.JobBegan,
    ev.TermSent,
    ev.Collected,
    ev.CollectVerified,
    ev.CollectFailed,
    ev.NotCollected,
    ev.JobReachable,
    ev.JobUnreachable,
    ev.AttemptFailed,
    ev.CancelAsked,
)


_K = TypeVar("_K")
_R = TypeVar("_R")
_Step = tuple[ev.Event, Rental | None, Job | None]


class Change(Struct, frozen=True, kw_only=True):
    """One committed event with the record it led to.

    `cursor` 0: a full disk keeps it out of the audit trail. It is announced a second time, with
    its cursor, once it is there.
    """

    cursor: int
    event: ev.Event
    rental: Rental | None = None
    job: Job | None = None


def _changes(cursors: Sequence[int], trail: Sequence[_Step]) -> list[Change]:
    return [
        Change(cursor=cursor, event=event, rental=rental, job=job)
        for cursor, (event, rental, job) in zip(cursors, trail, strict=True)
    ]


def _no_answer() -> None:
    return None


def _restore(records: dict[_K, _R], before: Mapping[_K, _R | None]) -> None:
    for name, record in before.items():
        if record is None:
            del records[name]
        else:
            records[name] = record


class Ledger:
    """All rentals, jobs and known machines in memory, backed by the store.

    `rentals`: by rental_id, any phase, in order of creation. `jobs`: by job_id, any state.
    `hosts`: by machine_id, every machine that was rented or blocked.
    Read them freely; change them only through `commit`.
    """

    def __init__(
        self,
        store: Store,
        *,
        on_full: Callable[[], bool] = lambda: False,
        on_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """Read everything. `on_full` gives the disk back what was reserved for endings, and tells
        whether there was something; `on_room` tells whether it could be reserved again."""
        self._store = store
        self._on_full = on_full
        self._on_room = on_room
        self._reserve_used: str | None = None  # why; what starts or spends waits until it is back
        self.rentals: dict[str, Rental] = {r.rental_id: r for r in store.rentals()}
        self.jobs: dict[str, Job] = {j.job_id: j for j in store.jobs()}
        self.hosts: dict[int, Host] = store.hosts()
        self._unsaved_hosts: set[int] = set()
        if not self.hosts:  # of an older vastd
            self.hosts = machines.of_records(self.rentals)
            self._unsaved_hosts = set(self.hosts)
        self._placed: dict[str, list[str]] = {}  # rental_id -> job ids, by placement
        self._index()
        self._listeners: list[Callable[[Change], None]] = []
        self._changed = trio.Event()
        self._unsaved: list[_Step] = []  # with the record each event led to
        self._unsaved_answers: list[Answer] = []
        self.write_error: str | None = None  # why the disk is behind; None when it is not

    # -- reading

    def rental(self, rental_id: str) -> Rental:
        """Return a rental by its id.

        Raises:
            NotFound: the id was never ours.
        """
        try:
            return self.rentals[rental_id]
        except KeyError:
            raise NotFound(
                f"no rental {rental_id!r} on record", hint="`vastctl ls --all` lists them"
            ) from None

    def job(self, job_id: str) -> Job:
        """Return a job by its id.

        Raises:
            NotFound: the id was never ours.
        """
        try:
            return self.jobs[job_id]
        except KeyError:
            raise NotFound(
                f"no job {job_id!r} on record", hint="`vastctl jobs --all` lists them"
            ) from None

    def jobs_of(self, rental_id: str) -> list[Job]:
        """Return the jobs placed on a rental, by submission."""
        return [self.jobs[job_id] for job_id in self._placed.get(rental_id, ())]

    def live(self) -> list[Rental]:
        """Return the rentals that are not gone."""
        return [r for r in self.rentals.values() if r.phase is not Phase.GONE]

    @property
    def store(self) -> Store:
        """The store, for reading the audit trail."""
        return self._store

    # -- changing

    def commit(self, *events: ev.Event, answer: Callable[[], Answer | None] = _no_answer) -> None:
        """Make `events` durable in one transaction and apply them, in order.

        `answer` is asked once the records are as the events make them, and what it returns is
        stored in the same transaction: a kill leaves the change with its answer, or neither.

        On return they are on disk, or, if all of them belong to ending a machine and the disk
        refuses, in memory and written with the next commit that succeeds.

        Raises:
            IllegalTransition: a bug; nothing was changed.
            StoreError: nothing was changed.
        """
        rentals, jobs, hosts, trail = self._evolved(events)
        before = {name: self.rentals.get(name) for name in rentals}
        jobs_before = {name: self.jobs.get(name) for name in jobs}
        hosts_before = {machine_id: self.hosts.get(machine_id) for machine_id in hosts}
        unsaved_before = set(self._unsaved_hosts)
        self._apply(rentals, jobs)
        self.hosts.update(hosts)
        self._unsaved_hosts.update(hosts)
        try:
            changes = self._write(trail, rentals, jobs, answer())
        except BaseException:
            # Nobody has seen it: there is no await between here and `_apply`.
            _restore(self.rentals, before)
            _restore(self.jobs, jobs_before)
            _restore(self.hosts, hosts_before)
            self._unsaved_hosts = unsaved_before
            self._index()
            raise
        self._announce(changes)
        self.wake()

    def answer(self, request_id: str) -> bytes | None:
        """Return the stored answer to a change; also one that a full disk keeps in memory."""
        for kept in self._unsaved_answers:
            if kept.request_id == request_id:
                return kept.body
        return self._store.answer(request_id)

    def forget(self, rental_ids: Collection[str], job_ids: Collection[str]) -> None:
        """Let go of records that were dropped from the store."""
        for rental_id in rental_ids:
            del self.rentals[rental_id]
        for job_id in job_ids:
            del self.jobs[job_id]
        self._index()

    def flush(self) -> None:
        """Look whether a disk that refused takes writes again; nothing happens if it never did.

        What was kept in memory only is written, and announced with its place in the trail.
        """
        if not self._unsaved and self.write_error is None and self._in_place():
            return
        if self._reserve_used is not None and self._on_room():
            self._reserve_used = None
        try:
            self._announce(self._write([], {}, {}, None))
        except StoreError as exc:
            _log.debug("still not on disk: %s", exc)

    def _in_place(self) -> bool:
        """A store that was removed under us is noticed at the next look, not at the next change."""
        try:
            self._store.require_in_place()
        except StoreError as exc:
            _log.error("%s", exc)
            self.write_error = str(exc)
        return self.write_error is None

    def _apply(self, rentals: dict[str, Rental], jobs: dict[str, Job]) -> None:
        self.rentals.update(rentals)
        for job_id, job in jobs.items():
            self._place(job, self.jobs.get(job_id))
            self.jobs[job_id] = job

    def _index(self) -> None:
        self._placed.clear()
        for job in self.jobs.values():
            self._place(job, None)

    def _place(self, job: Job, before: Job | None) -> None:
        """Keep the jobs of each rental at hand: every look asks for them, of every rental."""
        old = before.rental_id if before else None
        if old == job.rental_id:
            return
        if old is not None:
            self._placed[old].remove(job.job_id)
        if job.rental_id is not None:
            self._placed.setdefault(job.rental_id, []).append(job.job_id)

    def _announce(self, changes: Sequence[Change]) -> None:
        for change in changes:
            for listener in self._listeners:
                listener(change)

    def _evolved(
        self, events: Sequence[ev.Event]
    ) -> tuple[dict[str, Rental], dict[str, Job], dict[int, Host], list[_Step]]:
        rentals: dict[str, Rental] = {}
        jobs: dict[str, Job] = {}
        hosts: dict[int, Host] = {}
        trail: list[_Step] = []
        for event in events:
            about = getattr(event, "rental_id", "")
            was = rentals.get(about) or self.rentals.get(about)
            if isinstance(event, ev.RentalEvent):
                held = rentals.get(event.rental_id) or self.rentals.get(event.rental_id)
                rentals[event.rental_id] = after = evolve(held, event)
                trail.append((event, after, None))
            elif isinstance(event, ev.DaemonEvent):
                trail.append((event, None, None))
            else:
                known = jobs.get(event.job_id) or self.jobs.get(event.job_id)
                jobs[event.job_id] = done = evolve_job(known, event)
                trail.append((event, None, done))
            now = rentals.get(about) or self.rentals.get(about)
            learnt = machines.learn(ChainMap(hosts, self.hosts), event, was, now)
            if learnt is not None:
                hosts[learnt.machine_id] = learnt
        return rentals, jobs, hosts, trail

    def _write(
        self,
        trail: Sequence[_Step],
        rentals: dict[str, Rental],
        jobs: dict[str, Job],
        answer: Answer | None,
    ) -> list[Change]:
        """Return what to announce: the events that were late, then those of `trail`."""
        late, late_jobs = [r for _, r, _ in self._unsaved if r], [j for *_, j in self._unsaved if j]
        rows = {**{r.rental_id: self.rentals[r.rental_id] for r in late}, **rentals}
        job_rows = {**{j.job_id: self.jobs[j.job_id] for j in late_jobs}, **jobs}
        everything = [*self._unsaved, *trail]
        answers = [*self._unsaved_answers, *([answer] if answer else [])]
        try:
            cursors = self._store_all([event for event, *_ in everything], rows, job_rows, answers)
        except StoreError as exc:
            self.write_error = str(exc)
            if not trail or not all(isinstance(event, _GOES_ON) for event, *_ in trail):
                raise
            _log.error("not on disk, kept in memory: %s", exc)
            self._unsaved.extend(trail)
            self._unsaved_answers = answers
            return _changes([0] * len(trail), trail)
        self._unsaved.clear()
        self._unsaved_answers.clear()
        self._unsaved_hosts.clear()
        self.write_error = self._reserve_used
        return _changes(cursors, everything)

    def _store_all(
        self,
        events: Sequence[ev.Event],
        rentals: dict[str, Rental],
        jobs: dict[str, Job],
        answers: Sequence[Answer],
    ) -> list[int]:
        def write() -> list[int]:
            rows, job_rows = list(rentals.values()), list(jobs.values())
            known = [self.hosts[machine_id] for machine_id in sorted(self._unsaved_hosts)]
            return self._store.write(events, rows, job_rows, answers, known)

        try:
            return write()
        except StoreError as exc:
            if not self._on_full():
                raise
            self._reserve_used = f"{exc}; what was reserved for endings is in use"
            _log.error("%s", self._reserve_used)
            return write()

    # -- waiting

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` after each committed event. It must not block, raise or commit."""
        self._listeners.append(listener)

    def wake(self) -> None:
        """Wake everyone in `wait_changed`, also without a commit (new observations)."""
        self._changed.set()
        self._changed = trio.Event()

    async def wait_changed(self) -> None:
        """Return after the next commit or `wake`. Look at the state first, then wait."""
        await self._changed.wait()
