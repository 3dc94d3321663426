"""`logs --since` and `--timestamps`: by arrival, and unknown where nobody noted it."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.json import decode

from vastctl.stamping import UNKNOWN, WIDTH, Stamper, Stamps
from vastd_protocol.methods import log
from vastd_protocol.methods.log import LogTime

AT = ("2026-12-01T10:00:00.000Z", "2026-12-01T10:00:05.500Z")
FIRST, SECOND = b"2026-12-01 10:00:00  ", b"2026-12-01 10:00:05  "
NEVER = f"{UNKNOWN:<{WIDTH}}  ".encode()
WHOLE = b"one\ntwo\nthree\nfour"  # "thr" came with the first piece, "four" at an unknown time
TIMES = [LogTime(end=11, at=AT[0]), LogTime(end=14, at=AT[1])]
STAMPED = (
    FIRST + b"one\n" + FIRST + b"two\n" + FIRST + b"three\n" + NEVER + b"four"
)  # fmt: skip


@pytest.fixture
def logged(daemon: Any, make: Any) -> Any:
    """A daemon with an ended job, whose log comes in pieces of five bytes."""
    daemon.begin, daemon.known = 4, True
    daemon.on("job.get", make.job(state="succeeded", exit_code=0))
    daemon.on("log.subscribe", log.LogSubscriptionView(subscription_id="log", job_id="j-1"))

    def read(params: dict[str, Any]) -> log.LogView:
        start = params.get("offset", 0)
        start = max(0, len(WHOLE) + start) if start < 0 else start
        if "since_s" in params:
            start = max(start, daemon.begin)
        piece = WHOLE[start : start + min(5, params.get("limit", 65536))]
        after = start + len(piece)
        return log.LogView(
            job_id="j-1", offset=start, data=base64.b64encode(piece).decode(), next_offset=after,
            size=len(WHOLE), eof=after == len(WHOLE),
            times=[t for t in TIMES if t.end > start] if params.get("times") else None,
            since_known=daemon.known if "since_s" in params else None,
        )  # fmt: skip

    daemon.on("log.read", read)
    return daemon


def test_each_line_has_the_time_its_first_byte_came(
    vastctl: Callable[..., Any], logged: Any
) -> None:
    ran = vastctl("logs", "--timestamps", "j-1")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out_bytes == STAMPED


def test_without_the_option_no_times_are_asked_for(
    vastctl: Callable[..., Any], logged: Any
) -> None:
    assert vastctl("logs", "j-1").out_bytes == WHOLE
    assert all("times" not in params for params in logged.asked("log.read"))


def test_a_search_looks_at_the_line_and_not_at_its_time(
    vastctl: Callable[..., Any], logged: Any
) -> None:
    found = vastctl("logs", "--timestamps", "--search", "^t|^four$", "j-1").out_bytes

    assert found == FIRST + b"two\n" + FIRST + b"three\n" + NEVER + b"four\n"
    assert vastctl("logs", "--timestamps", "--search", "2026", "j-1").out == ""


def test_a_line_found_as_json_has_its_time_beside_it(
    vastctl: Callable[..., Any], logged: Any
) -> None:
    ran = vastctl("--json", "logs", "--timestamps", "--search", "^t|^four$", "j-1")

    found = [decode(line, type=log.LogView) for line in ran.out.splitlines()]
    assert [one.times for one in found] == [
        [LogTime(end=8, at=AT[0])], [LogTime(end=14, at=AT[0])], [LogTime(end=18, at=None)],
    ]  # fmt: skip


def test_since_begins_where_vastd_says(vastctl: Callable[..., Any], logged: Any) -> None:
    ran = vastctl("logs", "--since", "10m", "j-1")

    assert (ran.out_bytes, ran.err) == (WHOLE[4:], "")
    assert [p["since_s"] for p in logged.asked("log.read") if "since_s" in p] == [600.0]


def test_since_and_the_last_lines_show_what_is_in_both(
    vastctl: Callable[..., Any], logged: Any
) -> None:
    assert vastctl("logs", "--since", "1h", "-n", "2", "j-1").out_bytes == b"three\nfour"
    assert vastctl("logs", "--since", "1h", "-n", "9", "j-1").out_bytes == WHOLE[4:]


@pytest.mark.parametrize(
    ("begin", "told"), [(0, "all of it is shown"), (4, "lines without a time are shown")]
)
def test_unknown_times_are_told_and_nothing_is_hidden(
    vastctl: Callable[..., Any], logged: Any, begin: int, told: str
) -> None:
    logged.begin, logged.known = begin, False

    ran = vastctl("logs", "--since", "10m", "j-1")

    assert ran.out_bytes == WHOLE[begin:]
    assert told in ran.err


def test_following_shows_the_time_vastd_noted_for_each_line(
    vastctl: Callable[..., Any], logged: Any
) -> None:
    def subscribe(_params: dict[str, Any]) -> log.LogSubscriptionView:
        logged.log(0, WHOLE[:6])
        logged.log(6, WHOLE[6:], eof=True)
        return log.LogSubscriptionView(subscription_id="log", job_id="j-1")

    logged.on("log.subscribe", subscribe)

    assert vastctl("logs", "-f", "--timestamps", "j-1").out_bytes == STAMPED
    logged.begin = 8
    since = vastctl("logs", "-f", "--timestamps", "--since", "10m", "j-1").out_bytes
    assert since == FIRST + b"three\n" + NEVER + b"four"


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_json_is_what_vastd_answered_times_included(
    vastctl: Callable[..., Any], logged: Any, follow: tuple[str, ...]
) -> None:
    def subscribe(_params: dict[str, Any]) -> log.LogSubscriptionView:
        logged.log(0, WHOLE, eof=True)
        return log.LogSubscriptionView(subscription_id="log", job_id="j-1")

    logged.on("log.subscribe", subscribe)

    ran = vastctl("logs", *follow, "--timestamps", "--json", "j-1")
    pieces = [decode(line, type=log.LogView) for line in ran.out.splitlines()]

    assert b"".join(base64.b64decode(piece.data) for piece in pieces) == WHOLE
    assert pieces[0].times == TIMES


def test_a_line_cut_by_pieces_is_stamped_once() -> None:
    stamper, stamps = Stamper(), Stamps(TIMES)

    pieces = [stamper.stamped(at, WHOLE[at : at + 1], stamps) for at in range(len(WHOLE))]

    assert b"".join(pieces) == STAMPED


def test_help_says_whose_clock_it_is(vastctl: Callable[..., Any]) -> None:
    told = " ".join(vastctl("logs", "--help").out.split())

    assert "when each line reached this computer, in front of it; not when it was written" in told
