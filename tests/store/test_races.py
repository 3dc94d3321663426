"""A hundred races of two processes for one state directory and one socket: exactly one wins each."""

import os
import select
from pathlib import Path

import pytest

from vastd.errors import StoreLocked
from vastd.rpc.listen import bind
from vastd.store.lock import locked

pytestmark = pytest.mark.e2e  # two seconds of processes

RACES = 100
LIMIT_S = 30.0
WON, LOST, BROKEN = 0, 1, 2


def test_of_two_that_start_at_once_exactly_one_gets_lock_and_socket(short_root: Path) -> None:
    state = short_root / "race"
    for number in range(RACES):
        go, hold = os.pipe(), os.pipe()
        racers = [_racer(state, short_root / "race.sock", go, hold) for _ in range(2)]
        ends = {os.pidfd_open(pid): pid for pid in racers}
        os.close(go[0])
        os.close(go[1])  # both are off

        (first, *_), _, _ = select.select(list(ends), [], [], LIMIT_S)
        loser = _code(ends.pop(first))  # the winner holds on until it is told
        os.close(hold[0])
        os.close(hold[1])
        ((other, pid),) = ends.items()
        winner = _code(pid)
        os.close(first)
        os.close(other)

        assert (loser, winner) == (LOST, WON), f"race {number}"


def _code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _racer(state: Path, path: Path, go: tuple[int, int], hold: tuple[int, int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN
    try:
        os.close(go[1])
        os.close(hold[1])
        os.read(go[0], 1)  # until the parent closes its end
        with locked(state):
            with bind(path, own_directory=False):
                os.read(hold[0], 1)
            code = WON
    except StoreLocked:
        code = LOST
    finally:
        os._exit(code)
