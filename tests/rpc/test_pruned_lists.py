"""A list that reaches back beyond what is kept says so, and only then."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.builders import T0
from vastd.core import events as ev
from vastd.core.instants import rfc3339
from vastd.rpc.handlers.following import _pruned
from vastd.store.retention import drop_events
from vastd.store.store import Store, opened

LAST = 10
DROPPED = rfc3339(T0 + 5)  # the events of cursors 1 to 5


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as found:
        found.write([ev.CancelAsked(job_id="j", at=T0 + n) for n in range(LAST)], [], [])
        drop_events(found, T0 + 5)
        yield found


@pytest.mark.parametrize(
    ("after", "told"), [(0, DROPPED), (4, DROPPED), (5, None), (7, None), (LAST, None)]
)
def test_events_after_a_cursor_tell_of_a_gap(store: Store, after: int, told: str | None) -> None:
    assert _pruned(store, 100, store.events_after(after, 100), after, None) == told


@pytest.mark.parametrize(("began", "told"), [(T0 + 4, DROPPED), (T0 + 5, None)])
def test_events_since_an_instant_tell_when_it_is_older(
    store: Store, began: float, told: str | None
) -> None:
    assert _pruned(store, 100, store.events_since(began, 100), None, began) == told


@pytest.mark.parametrize(("limit", "told"), [(3, None), (100, DROPPED)])
def test_the_newest_events_tell_when_there_were_more(
    store: Store, limit: int, told: str | None
) -> None:
    assert _pruned(store, limit, store.events_before_end(limit), None, None) == told


def test_a_store_that_was_never_pruned_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with opened(tmp_path / "new") as fresh:
        assert _pruned(fresh, 100, [], 0, None) is None
