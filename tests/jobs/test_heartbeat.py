"""Reading heartbeats, however badly they were written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastd.jobs.heartbeat import parse_heartbeat
from vastd.jobs.port import Heartbeat

GOOD = b'{"epoch": 2, "step": 5400, "loss": 1.873, "timestamp": "2026-11-12T09:41:00Z"}'
READ = Heartbeat(epoch=2, step=5400, loss=1.873, timestamp="2026-11-12T09:41:00Z")


@pytest.mark.req("CKP-04")
@pytest.mark.parametrize("data", [GOOD, GOOD + b"\n", b"  " + GOOD, b'{"epoch": 1}\n' + GOOD + b"\n",
                                  GOOD + b'\n{"epoch": 3, "st'])  # fmt: skip
def test_the_newest_whole_object_is_read(data: bytes) -> None:
    assert parse_heartbeat(data) == READ


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"epoch": 1, "loss": NaN}', Heartbeat(epoch=1)),
        (b'{"step": 7, "loss": -Infinity}', Heartbeat(step=7)),
        (b'{"loss": null, "step": "7"}', Heartbeat()),
        (b'{"step": true, "epoch": [1], "timestamp": 5}', Heartbeat()),
        (b'{"step": 7.9, "epoch": 1.5}', Heartbeat(step=7, epoch=1.5)),
        (b'{"step": 1e400, "epoch": 99999999999999999999999}', Heartbeat(epoch=1e23)),
        (b'{"step": 99999999999999999999999}', Heartbeat()),
        (b'{"step": ' + b"9" * 500 + b"}", Heartbeat()),
        (b"[]", Heartbeat()), (b"7", Heartbeat()), (b"", Heartbeat()), (b"\xff\xfe\x00", Heartbeat()),
        (b"[" * 4000, Heartbeat()),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_none_and_costs_nothing_else(
    text: bytes, expected: Heartbeat
) -> None:
    assert parse_heartbeat(text) == expected


@pytest.mark.req("CKP-09")
@given(st.integers(min_value=0, max_value=len(GOOD)))
def test_a_file_cut_anywhere_is_either_whole_or_empty(length: int) -> None:
    assert parse_heartbeat(GOOD[:length]) in (READ, Heartbeat())


@given(st.binary(max_size=300))
def test_no_bytes_at_all_can_raise(data: bytes) -> None:
    assert isinstance(parse_heartbeat(data), Heartbeat)
