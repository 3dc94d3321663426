"""The ledger: all or nothing, told in order, and ends go on when the disk does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from support.builders import JOB_ID, RENTAL_ID, T0, a_job, a_rental, sample
from support.daemon_in_memory import CutStore
from vastd.core import events as ev
from vastd.core.job import JobState
from vastd.core.rental import Phase
from vastd.errors import IllegalTransition, NotFound, StoreError
from vastd.ledger import _GOES_ON, Change, Ledger
from vastd.store.store import Answer, opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CutStore]:
    with opened(tmp_path) as plain:
        store = CutStore(plain._connection, plain._path)
        store.write([], [a_rental(Phase.BUSY)], [a_job()])
        yield store


@pytest.fixture
def ledger(store: CutStore) -> Ledger:
    return Ledger(store)


def heard(ledger: Ledger) -> list[tuple[int, str]]:
    told: list[tuple[int, str]] = []

    def listener(change: Change) -> None:
        told.append((change.cursor, ev.kind(change.event)))

    ledger.listen(listener)
    return told


END = ev.EndDecided(rental_id=RENTAL_ID, at=T0 + 1, trigger="user", why="now")  # type: ignore[arg-type]
LEFT = ev.JobLeft(rental_id=RENTAL_ID, job_id=JOB_ID, at=T0 + 2)
DONE = ev.JobFinished(job_id=JOB_ID, at=T0 + 2, state="failed", why="exit code 1")


def test_a_commit_changes_disk_memory_and_listeners_in_order(
    ledger: Ledger, store: CutStore
) -> None:
    told = heard(ledger)

    ledger.commit(DONE, LEFT)

    assert told == [(1, "job_finished"), (2, "job_left")]
    assert ledger.rental(RENTAL_ID).phase is Phase.COLLECTING
    assert Ledger(store).rentals == ledger.rentals
    assert Ledger(store).jobs == ledger.jobs
    assert ledger.jobs[JOB_ID].state is JobState.FAILED


def test_a_second_event_that_is_illegal_changes_nothing_at_all(
    ledger: Ledger, store: CutStore
) -> None:
    told, before = heard(ledger), dict(ledger.rentals)

    with pytest.raises(IllegalTransition):
        ledger.commit(LEFT, sample(ev.JobBegan))

    assert ledger.rentals == before
    assert (told, store.last_cursor()) == ([], 0)


def test_events_of_one_commit_build_on_each_other(ledger: Ledger) -> None:
    ledger.commit(END, LEFT, sample(ev.CollectVerified), sample(ev.DestroyDecided))

    assert ledger.rental(RENTAL_ID).phase is Phase.DESTROYING


def test_a_listener_sees_the_memory_already_changed(ledger: Ledger) -> None:
    seen: list[Phase] = []
    ledger.listen(lambda change: seen.append(ledger.rental(RENTAL_ID).phase))

    ledger.commit(LEFT)

    assert seen == [Phase.COLLECTING]


def test_reading_what_is_not_on_record_names_it(ledger: Ledger) -> None:
    with pytest.raises(NotFound, match="'r9'"):
        ledger.rental("r9")
    with pytest.raises(NotFound, match="'j9'"):
        ledger.job("j9")
    assert [job.job_id for job in ledger.jobs_of(RENTAL_ID)] == [JOB_ID]
    assert ledger.live() == [ledger.rental(RENTAL_ID)]


async def test_waiting_ends_with_a_commit_or_a_wake(ledger: Ledger) -> None:
    woken: list[int] = []

    async def wait(number: int) -> None:
        await ledger.wait_changed()
        woken.append(number)

    async with trio.open_nursery() as nursery:
        for act in (lambda: ledger.commit(END), ledger.wake):
            nursery.start_soon(wait, len(woken))
            await wait_all_tasks_blocked()
            before = len(woken)
            act()
            await wait_all_tasks_blocked()
            assert len(woken) == before + 1


# -- a full disk


def test_a_start_on_a_full_disk_is_refused_and_changes_nothing(
    ledger: Ledger, store: CutStore
) -> None:
    store.full = True
    planned = sample(ev.RentalPlanned, rental_id="r2")

    with pytest.raises(StoreError):
        ledger.commit(planned)

    assert "r2" not in ledger.rentals
    assert ledger.write_error is not None


@pytest.mark.parametrize(
    "kind",
    [ev.RentalPlanned, ev.RentalAdopted, ev.CreateSent, ev.JobSubmitted, ev.JobPlaced,
     ev.SyncBegan],
)  # fmt: skip
def test_nothing_that_starts_or_spends_goes_on_without_a_disk(kind: type[ev.Event]) -> None:
    assert kind not in _GOES_ON


def test_an_end_goes_on_in_memory_and_is_written_and_told_with_its_cursor_later(
    ledger: Ledger, store: CutStore
) -> None:
    told = heard(ledger)
    store.full = True
    ledger.commit(END)
    ledger.commit(DONE, LEFT)
    ledger.flush()
    assert ledger.rental(RENTAL_ID).phase is Phase.COLLECTING
    assert told == [(0, "end_decided"), (0, "job_finished"), (0, "job_left")]
    told.clear()

    store.full = False
    ledger.flush()
    ledger.flush()

    assert told == [(1, "end_decided"), (2, "job_finished"), (3, "job_left")]
    assert store.last_cursor() == 3
    assert ledger.write_error is None
    assert Ledger(store).rentals == ledger.rentals
    assert Ledger(store).jobs == ledger.jobs


def test_what_is_late_is_written_before_what_is_new(ledger: Ledger, store: CutStore) -> None:
    store.full = True
    ledger.commit(END)
    told = heard(ledger)
    store.full = False

    ledger.commit(LEFT)

    assert told == [(1, "end_decided"), (2, "job_left")]
    assert [ev.kind(s.event) for s in store.events_after(0, 9)] == ["end_decided", "job_left"]
    assert Ledger(store).rentals == ledger.rentals


def test_a_disk_that_takes_writes_again_is_noticed_without_a_change(
    ledger: Ledger, store: CutStore
) -> None:
    """Otherwise a refused start would lock renting until a restart."""
    store.full = True
    with pytest.raises(StoreError):
        ledger.commit(sample(ev.RentalPlanned, rental_id="r2"))
    ledger.flush()
    assert ledger.write_error is not None

    store.full = False
    ledger.flush()

    assert ledger.write_error is None


def test_the_reserve_is_given_back_to_a_full_disk_once(store: CutStore) -> None:
    store.full = True
    asked: list[int] = []

    def release() -> bool:
        asked.append(1)
        store.full = False
        return True

    ledger = Ledger(store, on_full=release)
    ledger.commit(sample(ev.RentalPlanned, rental_id="r2", rental=a_rental(rental_id="r2")))

    assert asked == [1]
    assert "r2" in Ledger(store).rentals


# -- answers in the transaction of their change


def kept(ledger: Ledger, request_id: str = "q1") -> Answer:
    """Return the answer a handler would make of what it sees."""
    return Answer(
        request_id=request_id, method="rental.destroy", body=ledger.rental(RENTAL_ID).phase.encode()
    )


def test_an_answer_sees_the_change_and_is_stored_in_its_transaction(
    ledger: Ledger, store: CutStore
) -> None:
    moments: list[tuple[str, bytes | None]] = []
    store.on_commit = lambda where: moments.append((where.split()[0], store.answer("q1")))

    ledger.commit(DONE, LEFT, answer=lambda: kept(ledger))

    assert moments == [("before", None), ("after", b"collecting")]
    assert ledger.answer("q1") == b"collecting"


def test_a_change_that_cannot_be_written_leaves_memory_as_it_was(
    ledger: Ledger, store: CutStore
) -> None:
    before = (dict(ledger.rentals), dict(ledger.jobs), ledger.jobs_of(RENTAL_ID))
    submitted = ev.JobSubmitted(job_id="j9", at=T0, job=a_job(JobState.QUEUED, job_id="j9"))
    store.full = True

    with pytest.raises(StoreError):
        ledger.commit(DONE, LEFT, submitted, answer=lambda: kept(ledger))

    assert (dict(ledger.rentals), dict(ledger.jobs), ledger.jobs_of(RENTAL_ID)) == before
    assert ledger.answer("q1") is None


def test_an_answer_that_cannot_be_made_undoes_its_change(ledger: Ledger, store: CutStore) -> None:
    before = dict(ledger.rentals)

    with pytest.raises(ZeroDivisionError):
        ledger.commit(END, answer=lambda: 1 / 0)  # type: ignore[arg-type, return-value]

    assert ledger.rentals == before
    assert store.last_cursor() == 0


def test_the_answer_to_an_end_that_a_full_disk_keeps_in_memory_is_kept_with_it(
    ledger: Ledger, store: CutStore
) -> None:
    store.full = True
    ledger.commit(END, answer=lambda: kept(ledger))
    in_memory = (ledger.answer("q1"), store.answer("q1"))
    store.full = False

    ledger.flush()

    assert in_memory == (b"busy", None)
    assert store.answer("q1") == b"busy"


def test_nothing_new_is_spent_while_the_reserve_is_in_use(store: CutStore) -> None:
    reserved, room = [True], [False]

    def release() -> bool:
        store.full = False
        return reserved.pop() if reserved else False

    ledger = Ledger(store, on_full=release, on_room=lambda: room[0])
    store.full = True

    ledger.commit(END)
    ledger.flush()

    assert store.last_cursor() == 1  # written, into what was reserved
    assert ledger.write_error is not None
    assert "reserved for endings" in ledger.write_error
    room[0] = True
    ledger.flush()
    assert ledger.write_error is None
