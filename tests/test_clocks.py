"""The clock of the daemon: never backward, its note, and the zones it must not mind."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from support.builders import T0, a_rental
from vastd.clocks import NAME, Clock, boot_clock, boot_id, newest_instant
from vastd.core.instants import rfc3339, shown
from vastd.core.job import Job, JobState
from vastd.core.rental import Phase
from vastd.core.spending import day_of
from vastd.core.timekeeping import Jump, Note


class Hands:
    """Two clocks that a test sets."""

    def __init__(self) -> None:
        self.wall, self.boot = T0, 50.0

    def clock(self, path: Path | None = None, **fields: object) -> Clock:
        fields.setdefault("boot_id", "b1")
        return Clock(wall=lambda: self.wall, boot=lambda: self.boot, path=path, **fields)  # type: ignore[arg-type]

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.boot += seconds


def test_it_never_runs_backward_for_a_small_step() -> None:
    hands = Hands()
    clock = hands.clock()
    assert clock() == T0

    hands.wall -= 20
    assert clock() == T0
    hands.go(25)
    assert clock() == T0 + 5


def test_a_step_is_told_once_and_has_its_size() -> None:
    hands = Hands()
    clock = hands.clock()
    hands.go(10)
    hands.wall += 3600

    assert clock.look(free=False) == [(Jump.STEPPED, 3600.0)]
    assert clock.look(free=False) == []
    assert (clock(), clock.ahead) == (T0 + 10, 3600.0)
    assert clock.look(free=True) == [(Jump.BELIEVED, 3600.0)]
    assert (clock(), clock.ahead) == (T0 + 3610, 0.0)


def test_a_step_back_is_followed_when_nothing_depends_on_it() -> None:
    hands = Hands()
    clock = hands.clock()
    hands.wall -= 86_400

    assert clock.look(free=True) == [(Jump.BELIEVED, -86_400.0)]
    assert clock() == T0 - 86_400


def test_an_answer_that_took_long_tells_no_time() -> None:
    hands = Hands()
    clock = hands.clock()
    clock.heard(T0 + 900, took_s=16.0)
    assert clock.behind_vast is None

    clock.heard(T0 + 900, took_s=2.0)
    assert clock.behind_vast == 900.0


def test_the_time_is_good_for_calling_things_old_when_vast_confirmed_it() -> None:
    hands = Hands()
    clock = hands.clock()
    assert not clock.agrees
    clock.heard(T0 + 60, took_s=1.0)
    assert clock.agrees

    hands.wall += 365 * 86_400.0
    clock.look(free=False)
    assert clock.agrees  # the record goes on as before
    clock.look(free=True)
    assert not clock.agrees  # now it follows a clock that nobody confirmed
    hands.wall -= 365 * 86_400.0
    clock.look(free=True)
    assert clock.agrees


def test_the_next_start_goes_on_with_a_step_this_one_met(tmp_path: Path) -> None:
    hands = Hands()
    clock = hands.clock(tmp_path / NAME)
    hands.wall += 3600
    clock.look(free=False)
    hands.go(100)

    again = hands.clock(tmp_path / NAME, newest_at=T0)

    assert again() == T0 + 100
    assert again.look(free=False) == [(Jump.STEPPED, 3600.0)]


def test_what_vast_told_is_noted_at_once(tmp_path: Path) -> None:
    hands = Hands()
    clock = hands.clock(tmp_path / NAME)
    clock.look(free=True)
    clock.heard(T0 + 600, took_s=0.1)

    again = hands.clock(tmp_path / NAME, newest_at=T0)  # killed right after

    again.heard(T0 + 600, took_s=0.1)
    again.heard(T0 + 600, took_s=0.1)
    assert (again(), again.look(free=False)) == (T0, [])


def test_a_quiet_clock_writes_its_note_once(tmp_path: Path) -> None:
    hands, path = Hands(), tmp_path / NAME
    clock = hands.clock(path)
    clock.look(free=False)
    first = path.stat().st_mtime_ns
    for _ in range(5):
        hands.go(600)
        clock.look(free=False)
        assert path.stat().st_mtime_ns == first

    hands.go(601)
    clock.look(free=False)
    assert msgspec.json.decode(path.read_bytes(), type=Note).at == T0 + 3601
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"boot_id": 5}', b"\xff" * 9000])
def test_a_note_that_cannot_be_read_is_no_reason_not_to_start(tmp_path: Path, body: bytes) -> None:
    (tmp_path / NAME).write_bytes(body)

    assert Hands().clock(tmp_path / NAME, newest_at=T0)() == T0


def test_a_note_that_cannot_be_written_is_no_reason_to_end(tmp_path: Path) -> None:
    clock = Hands().clock(tmp_path / "gone" / NAME)

    assert clock.look(free=False) == []


def test_this_computer_has_a_clock_that_goes_on_in_a_suspend() -> None:
    assert boot_clock() >= time.monotonic() - 1  # counts what that one does, and suspends
    assert boot_id() == boot_id()


def test_what_ended_depends_on_no_time() -> None:
    live, gone = a_rental(phase=Phase.READY, phase_since=T0 + 5), a_rental(phase=Phase.GONE)
    done = Job(job_id="j1", name="a", command=["x"], project="/p", submitted_at=T0 + 9,
               state=JobState.SUCCEEDED)  # fmt: skip

    assert newest_instant([gone], [done]) == 0.0
    assert newest_instant([live, gone], [done]) == T0 + 5
    waiting = Job(job_id="j1", name="a", command=["x"], project="/p", submitted_at=T0 + 9)
    assert newest_instant([live], [waiting]) == T0 + 9


@pytest.fixture
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


# 2026-03-29 01:00 UTC: Berlin's clocks go from 02:00 to 03:00; 2026-10-25 01:00 UTC: back again.
@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Chatham"], indirect=True
)
@pytest.mark.parametrize("epoch_s", [1_774_746_000.0 - 1, 1_774_746_000.0, 1_792_890_000.0])
def test_a_time_zone_and_its_summer_time_change_nothing(zone: str, epoch_s: float) -> None:
    utc = {1_774_745_999.0: "2026-03-29T00:59:59.000Z", 1_774_746_000.0: "2026-03-29T01:00:00.000Z",
           1_792_890_000.0: "2026-10-25T01:00:00.000Z"}  # fmt: skip

    assert rfc3339(epoch_s) == utc[epoch_s]
    assert shown(epoch_s).replace(" UTC", "Z").replace(" ", "T") == utc[epoch_s].replace(".000", "")
    assert day_of(epoch_s).start % 86_400 == 0
    assert day_of(epoch_s).end == day_of(epoch_s).start + 86_400
