"""`log.read` with `since_s` and `times`."""

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.builders import T0, a_done_job
from vastd.core.instants import rfc3339
from vastd.errors import InvalidRequest
from vastd.local_logs import LocalLogs
from vastd.rpc.handlers import following
from vastd.rpc.handlers.following import read
from vastd_protocol.methods.log import LogReadParams, LogTime, LogView

NOW = T0 + 1000
JOB = a_done_job()


@pytest.fixture
def logs(tmp_path: Path) -> LocalLogs:
    return LocalLogs(tmp_path)


def come(logs: LocalLogs, data: bytes, second: float) -> None:
    """Let a piece come home, as the effect does."""
    start = logs.size(JOB.job_id)
    logs.times.note(JOB.job_id, start, logs.append(JOB.job_id, start, data), T0 + second)


async def ask(logs: LocalLogs, **params: Any) -> LogView:
    ledger = SimpleNamespace(jobs={JOB.job_id: JOB}, rentals={})
    shell = SimpleNamespace(ledger=ledger, logs=logs, wall_clock=lambda: NOW)
    ctx: Any = SimpleNamespace(shell=shell)
    return await read(ctx, LogReadParams(job=JOB.job_id, **params))


def text(view: LogView) -> bytes:
    return base64.b64decode(view.data)


async def test_times_cover_the_piece_and_are_asked_for(logs: LocalLogs) -> None:
    come(logs, b"one\n", 0)
    come(logs, b"two\n", 9)

    view = await ask(logs, times=True)

    assert view.times == [LogTime(end=4, at=rfc3339(T0)), LogTime(end=8, at=rfc3339(T0 + 9))]
    assert (await ask(logs)).times is None
    assert (await ask(logs, offset=4, times=True)).times == view.times[1:]


async def test_since_begins_with_a_whole_line(logs: LocalLogs) -> None:
    come(logs, b"one\ntw", 0)
    come(logs, b"o\nthree\n", 900)

    view = await ask(logs, since_s=200)

    assert (view.offset, text(view), view.since_known) == (4, b"two\nthree\n", True)
    assert text(await ask(logs, since_s=2000)) == b"one\ntwo\nthree\n"
    assert text(await ask(logs, since_s=200, offset=6)) == b"o\nthree\n"


async def test_nothing_new_is_nothing_even_inside_a_line(logs: LocalLogs) -> None:
    come(logs, b"one\ntw", 0)

    view = await ask(logs, since_s=5)

    assert (view.offset, text(view), view.since_known, view.eof) == (6, b"", True, True)


async def test_a_line_without_end_is_not_looked_for_for_ever(
    logs: LocalLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MAX_LINE_BYTES", 3)
    come(logs, b"x" * 10, 0)
    come(logs, b"y\n", 900)

    assert (await ask(logs, since_s=200)).offset == 10


async def test_without_an_index_all_is_given_and_told(logs: LocalLogs) -> None:
    come(logs, b"one\n", 0)
    logs.times.drop(JOB.job_id)

    view = await ask(logs, since_s=5, times=True)

    assert (text(view), view.since_known, view.times) == (b"one\n", False, [])


async def test_more_times_than_fit_shorten_the_piece_and_nothing_is_lost(
    logs: LocalLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MAX_TIMES", 3)
    for number in range(10):
        come(logs, b"%d\n" % number, 10 * number)

    found, view = b"", await ask(logs, times=True)
    while True:
        assert view.times is not None
        assert len(view.times) <= 3
        assert view.times[-1].end >= view.next_offset  # no byte is given without its time
        found += text(view)
        if view.eof:
            break
        view = await ask(logs, offset=view.next_offset, times=True)

    assert found == b"".join(b"%d\n" % number for number in range(10))


@pytest.mark.parametrize("since", [0, -1])
async def test_a_since_that_cannot_be_meant_is_refused(logs: LocalLogs, since: float) -> None:
    with pytest.raises(InvalidRequest, match="since_s"):
        await ask(logs, since_s=since)
