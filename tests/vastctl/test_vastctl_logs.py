"""`logs`: all of it, the end of it, what matches, or live; never lost and never twice."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.json import decode

from vastd_protocol.methods import log

LINES = b"".join(b"line %d\n" % n for n in range(1, 21))


@pytest.fixture
def logged(daemon: Any, make: Any) -> Any:
    """A daemon with an ended job whose log can be read; pieces are small."""
    daemon.whole = LINES
    daemon.piece = 16
    daemon.on("job.get", make.job(state="failed", exit_code=9))
    daemon.on("log.subscribe", log.LogSubscriptionView(subscription_id="log", job_id="j-1"))

    def read(params: dict[str, Any]) -> log.LogView:
        size = len(daemon.whole)
        start = params.get("offset", 0)
        start = max(0, size + start) if start < 0 else start
        piece = daemon.whole[start : start + min(daemon.piece, params.get("limit", 65536))]
        return log.LogView(
            job_id="j-1", offset=start, data=base64.b64encode(piece).decode(),
            next_offset=start + len(piece), size=size, eof=start + len(piece) == size,
        )  # fmt: skip

    daemon.on("log.read", read)
    return daemon


def test_the_whole_log_is_printed_as_it_is(vastctl: Callable[..., Any], logged: Any) -> None:
    logged.whole = b"a\xff\x1b[2J\r\n" * 30

    ran = vastctl("logs", "j-1")

    assert (ran.code, ran.out_bytes) == (0, logged.whole)


def test_an_empty_log_prints_nothing(vastctl: Callable[..., Any], logged: Any) -> None:
    logged.whole = b""

    assert vastctl("logs").out == ""
    assert vastctl("logs", "-n", "3").out == ""


@pytest.mark.parametrize("last", [1, 3, 19, 20, 21, 1000])
@pytest.mark.parametrize("block", [20, 4096])
def test_the_last_lines_are_counted_from_the_end(
    vastctl: Callable[..., Any], logged: Any, monkeypatch: pytest.MonkeyPatch, last: int, block: int
) -> None:
    monkeypatch.setattr("vastctl.commands.logs.READ_LIMIT", block)

    ran = vastctl("logs", "-n", str(last))

    assert ran.out_bytes == b"".join(LINES.splitlines(keepends=True)[-last:])


def test_a_last_line_without_its_break_counts_as_a_line(
    vastctl: Callable[..., Any], logged: Any
) -> None:
    logged.whole = b"a\nb\nc"

    assert vastctl("logs", "-n", "2").out == "b\nc"


def test_a_search_sees_lines_cut_by_pieces(vastctl: Callable[..., Any], logged: Any) -> None:
    logged.whole = b"loss 0.5\nnothing\nerror: x" + b"\nmore" * 3 + b"\nlast loss"

    assert vastctl("logs", "--search", "^loss|error|loss$").out == "loss 0.5\nerror: x\nlast loss\n"


@pytest.mark.parametrize("block", [1, 3, 16, 4096])
@pytest.mark.parametrize("follow", [False, True])
def test_json_gives_the_lines_found_as_documents_of_their_own(
    vastctl: Callable[..., Any], logged: Any, block: int, follow: bool
) -> None:
    logged.whole, logged.piece = b"loss 0.5\nno\n\xfferror\nno\nlast loss", block

    def subscribe(_params: dict[str, Any]) -> log.LogSubscriptionView:
        logged.log(0, logged.whole, eof=True)
        return log.LogSubscriptionView(subscription_id="log", job_id="j-1")

    logged.on("log.subscribe", subscribe)
    words = ("logs", "--json", "--search", "loss|error", *(["-f"] if follow else []))

    found = [decode(line, type=log.LogView) for line in vastctl(*words).out.splitlines()]

    assert [(one.offset, base64.b64decode(one.data)) for one in found] == [
        (0, b"loss 0.5\n"), (12, b"\xfferror\n"), (22, b"last loss"),
    ]  # fmt: skip
    for one in found:
        assert logged.whole[one.offset : one.next_offset] == base64.b64decode(one.data)
        assert (one.size, one.job_id) == (len(logged.whole), "j-1")
    assert vastctl("logs", "--json", "--search", "nowhere").out == ""


def test_a_search_that_is_no_expression_is_a_usage_error(
    vastctl: Callable[..., Any], logged: Any
) -> None:
    ran = vastctl("logs", "--search", "(")

    assert ran.code == 2
    assert logged.requests == []


def test_exit_status_is_the_jobs(vastctl: Callable[..., Any], logged: Any, make: Any) -> None:
    assert vastctl("logs", "--exit-status").code == 9
    logged.on("job.get", make.job(state="running"))
    assert vastctl("logs", "--exit-status").code == 125
    logged.absent = 1
    assert vastctl("logs", "--exit-status").code == 125


@pytest.mark.parametrize("words", [("logs", "-f"), ("logs", "-f", "-n", "20")])
def test_following_goes_on_across_a_restart_until_the_end(
    vastctl: Callable[..., Any], logged: Any, make: Any, words: tuple[str, ...]
) -> None:
    def first(_params: dict[str, Any]) -> log.LogSubscriptionView:
        logged.log(0, LINES[:10])
        logged.links[-1].broken = True
        return log.LogSubscriptionView(subscription_id="log", job_id="j-1")

    def second(params: dict[str, Any]) -> log.LogSubscriptionView:
        assert params["offset"] == 10
        logged.log(5, LINES[5:60])
        logged.log(60, LINES[60:], eof=True)
        return log.LogSubscriptionView(subscription_id="log", job_id="j-1")

    logged.in_turn("log.subscribe", first, second)

    ran = vastctl(*words)

    assert (ran.code, ran.out_bytes) == (0, LINES)


def test_following_with_json_gives_one_notification_per_line(
    vastctl: Callable[..., Any], logged: Any
) -> None:
    def subscribe(_params: dict[str, Any]) -> log.LogSubscriptionView:
        logged.log(0, b"a\n")
        logged.log(2, b"", eof=True)
        return log.LogSubscriptionView(subscription_id="log", job_id="j-1")

    logged.on("log.subscribe", subscribe)

    lines = vastctl("logs", "-f", "--json").out.splitlines()

    assert [decode(line)["offset"] for line in lines] == [0, 2]


def test_ctrl_c_while_following_detaches(vastctl: Callable[..., Any], logged: Any) -> None:
    def interrupt(_params: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    logged.on("log.subscribe", interrupt)

    ran = vastctl("logs", "-f")

    assert ran.code == 0
    assert "detached: job j-1 goes on" in ran.err


def test_a_job_that_has_not_started_says_so_on_stderr(
    vastctl: Callable[..., Any], logged: Any, make: Any
) -> None:
    logged.whole = b""
    logged.on("job.get", make.job(state="placing"))

    ran = vastctl("logs", "j-1")

    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "job j-1 has not started yet (placing): nothing is logged\n"
