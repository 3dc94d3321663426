"""What a terminal gets to see, and what a pipe gets."""

from typing import Any

import pytest

from vastctl.screen import Screen, printable, progress_text


@pytest.mark.req("SEC-05")
@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("a\x1b]0;owned\x07b", "a\\x1b]0;owned\\x07b"),
        ("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
        ("\x9b31m\x7f\x00\x08", "\\x9b31m\\x7f\\x00\\x08"),
        ("a\u202egpj", "a\\u202egpj"),
        ("tab\tline\n", "tab\tline\n"),
        ("over\rwrite", "over\\rwrite"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
    ],
)
def test_control_characters_are_shown_not_obeyed(dirty: str, clean: str) -> None:
    assert printable(dirty) == clean


def test_colour_passes_where_colour_is_on_and_nothing_else_does() -> None:
    assert printable("\x1b[1;31mred\x1b[0m\x1b[2J", colour=True) == "\x1b[1;31mred\x1b[0m\\x1b[2J"


def test_a_log_is_raw_bytes_where_stdout_is_no_terminal(make: Any) -> None:
    out, err = make.stream(), make.stream()
    screen = Screen(out, err)

    screen.log(b"\x1b[2J\xff\x00")
    screen.end_log()

    assert out.bytes == b"\x1b[2J\xff\x00"


@pytest.mark.req("SEC-05")
def test_a_log_on_a_terminal_keeps_colours_and_progress_bars_however_it_is_cut(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    log = "10%\r20%\r\x1b[32mgrün\x1b[0m\x1b]0;x\x07\n".encode()
    whole: set[str] = set()
    for cut in range(len(log) + 1):
        out = make.stream(tty=True)
        screen = Screen(out, make.stream(tty=True))
        screen.log(log[:cut])
        screen.log(log[cut:])
        screen.end_log()
        whole.add(out.text)

    assert whole == {"10%\r20%\r\x1b[32mgrün\x1b[0m\\x1b]0;x\\x07\n\x1b[0m"}


def test_progress_is_rewritten_on_a_terminal_and_cleared_before_other_lines(make: Any) -> None:
    err = make.stream(tty=True)
    now = [0.0]
    screen = Screen(make.stream(tty=True), err, colour=False, clock=lambda: now[0])

    screen.progress("sync", 0, 4_000_000, "bytes")
    now[0] = 1.0
    screen.progress("sync", 1_000_000, 4_000_000, "bytes")
    screen.step("info", "synced")

    first, second, cleared, line = (
        "sync: 0 B of 4.0 MB (0%)",
        "sync: 1.0 MB of 4.0 MB (25%)",
        " " * 28,
        "✓ synced\n",
    )
    assert err.text == f"\r{first}\r{second}\r{cleared}\r{line}"


def test_progress_without_a_terminal_is_a_line_now_and_then(make: Any) -> None:
    err = make.stream()
    now = [0.0]
    screen = Screen(make.stream(), err, clock=lambda: now[0])

    for second in range(25):
        now[0] = float(second)
        screen.progress("boot", second, None, "seconds")
    screen.progress("boot", 25, 25, "seconds")
    screen.progress("boot", 25, 25, "seconds")

    assert err.text.splitlines() == [
        "boot: 0s",
        "boot: 10s",
        "boot: 20s",
        "boot: 25s of 25s (100%)",
    ]


def test_marks_are_plain_where_the_terminal_lacks_them(make: Any) -> None:
    err = make.stream(encoding="ascii")
    screen = Screen(make.stream(), err)

    screen.step("info", "rented")
    screen.step("error", "lost")

    assert err.text == "ok rented\nx lost\n"


def test_quiet_keeps_warnings_and_errors(make: Any) -> None:
    err = make.stream()
    screen = Screen(make.stream(), err, quiet=True)

    screen.step("info", "a")
    screen.note("b")
    screen.progress("c", 1, 1, "")
    screen.step("warning", "d")
    screen.error("e", "f")

    assert err.text == "! d\nerror: e\nhint: f\n"


def test_progress_of_an_empty_copy_divides_by_nothing() -> None:
    assert progress_text(0, 0, "bytes") == "0 B"
