"""What is known of machines is on disk with the event that taught it, or not at all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.builders import T0, a_rental
from support.daemon_in_memory import CutStore
from support.old_store import make_v1
from vastd.core import events as ev
from vastd.core.hosts import Host
from vastd.core.rental import Phase, Trigger
from vastd.errors import StoreError
from vastd.ledger import Ledger
from vastd.store.store import opened

MACHINE = 1007
FAILED = ev.EndDecided(rental_id="r1", at=T0 + 9, trigger=Trigger.BOOT_OVERDUE, why="stuck")
BLOCKED = ev.HostBlocked(at=T0, machine_id=3, why="noisy")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CutStore]:
    with opened(tmp_path) as plain:
        cut = CutStore(plain._connection, plain._path)
        cut.write([], [a_rental(Phase.BOOTING)], [])
        yield cut


def test_a_block_survives_a_restart(store: CutStore) -> None:
    Ledger(store).commit(FAILED)
    Ledger(store).commit(BLOCKED)

    hosts = Ledger(store).hosts

    assert list(hosts) == [3, MACHINE]
    assert hosts[MACHINE].failed == 1
    assert hosts[3].block is not None


def test_a_disk_that_refuses_an_order_of_the_user_changes_nothing(store: CutStore) -> None:
    ledger = Ledger(store)
    store.full = True

    with pytest.raises(StoreError):
        ledger.commit(BLOCKED)

    assert 3 not in ledger.hosts
    store.full = False
    ledger.flush()
    assert 3 not in Ledger(store).hosts


def test_what_a_full_disk_kept_in_memory_is_written_with_the_event_later(store: CutStore) -> None:
    ledger = Ledger(store)
    store.full = True
    ledger.commit(FAILED)
    assert ledger.hosts[MACHINE].failed == 1

    store.full = False
    ledger.flush()

    assert Ledger(store).hosts[MACHINE] == ledger.hosts[MACHINE]


def test_the_machines_of_an_older_store_are_known_and_written_with_the_next_event(
    tmp_path: Path,
) -> None:
    make_v1(tmp_path)
    with opened(tmp_path) as store:
        ledger = Ledger(store)
        known = dict(ledger.hosts)
        assert known
        assert all(isinstance(host, Host) and host.rented for host in known.values())
        ledger.commit(BLOCKED)

        assert {m: h for m, h in Ledger(store).hosts.items() if m != 3} == known
