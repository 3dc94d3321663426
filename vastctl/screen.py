"""The terminal: results to stdout, everything else to stderr, one rewritten line of progress.

Rules
1. Whatever came from a machine or from the daemon is data: control characters are shown, not
   obeyed. Only line breaks and tabs pass, colours where colour is on, and `\\r` in logs.
2. Without a terminal there is no colour, no rewriting, and a job's log passes as raw bytes.
"""

import codecs
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO

from vastctl import words
from vastctl.columns import columns_of, cut, width
from vastctl.errors import CliError

PROGRESS_EVERY_S: Final = 10.0  # guess; one line per step this often where lines stay
REDRAW_EVERY_S: Final = 0.1  # guess; faster only burns CPU

# C0 without tab, line feed and carriage return; DEL; C1; line separators; marks that reorder text.
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_COLOUR: Final = re.compile("\x1b\\[[0-9;:]*m")
_UNFINISHED: Final = re.compile("\x1b(?:\\[[0-9;:]{0,40})?\\Z")
_MARKS: Final = {"info": ("✓", "ok", "32"), "warning": ("!", "!", "33"), "error": ("✗", "x", "31")}


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def printable(text: str, *, colour: bool = False, returns: bool = False) -> str:
    """Return `text` with control characters made visible.

    `colour` lets colour sequences (SGR) pass, `returns` lets `\\r` pass.
    """
    if not returns:
        text = text.replace("\r\n", "\n").replace("\r", "\\r")
    if not colour:
        return _CONTROL.sub(_shown, text)
    parts: list[str] = []
    end = 0
    for match in _COLOUR.finditer(text):
        parts += (_CONTROL.sub(_shown, text[end : match.start()]), match[0])
        end = match.end()
    parts.append(_CONTROL.sub(_shown, text[end:]))
    return "".join(parts)


def one_line(text: str) -> str:
    """Return `text` with line breaks and tabs made visible as well: it cannot leave its place."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _as_escapes(document: bytes) -> bytes:
    """Return a JSON document with what a terminal might obey as escapes: the same document."""
    # JSON itself escapes what is below a space; the rest can only stand inside its texts.
    text = document.decode(errors="replace")
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


class Screen:
    """Where a command writes. `colour` only ever takes effect on a terminal."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        colour: bool = True,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.out_tty = out.isatty()
        self.err_tty = err.isatty()
        # Of the terminal; None: there is none, or nobody knows.
        self.out_columns = columns_of(out) if self.out_tty else None
        self.quiet = quiet
        self._out, self._err = out, err
        self._clock = clock
        allowed = colour and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.out_colour = allowed and self.out_tty
        self.err_colour = allowed and self.err_tty
        self._fancy = (err.encoding or "").lower().replace("-", "").startswith("utf")
        self._drawn = 0  # columns of the progress line on the terminal now
        self._drawn_at = float("-inf")
        self._told: dict[str, tuple[float, str]] = {}  # step -> when and what, without a terminal
        self._coloured = False  # the log may have left a colour switched on
        self._open_line = False  # the log on the terminal stopped inside a line
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the beginning of a colour sequence cut by a chunk

    # -- stdout ----------------------------------------------------------------------------

    def out(self, text: str = "") -> None:
        """Write a line of the result."""
        self._clear()
        self._put(printable(text, colour=self.out_colour) + "\n")

    def bold(self, text: str) -> str:
        """Return `text` in bold for stdout, if it shows colours."""
        return f"\x1b[1m{text}\x1b[0m" if self.out_colour else text

    def raw(self, body: bytes) -> None:
        """Write one JSON document as it came, and a line break."""
        self.bytes_out(body + b"\n")

    def bytes_out(self, data: bytes) -> None:
        """Write a piece of a document as it is: of JSON, or text without control characters."""
        if self.out_tty:
            data = _as_escapes(data)
        self._put_bytes(data)

    def log(self, data: bytes) -> None:
        """Write a piece of a job's log: raw, or made harmless on a terminal."""
        if not data:
            return
        if not self.out_tty:
            self._put_bytes(data)
            return
        text = self._held + self._decoder.decode(data)
        self._held = ""
        if unfinished := _UNFINISHED.search(text):
            self._held = unfinished[0]
            text = text[: unfinished.start()]
        self._clear()
        self._coloured = self._coloured or (self.out_colour and "\x1b" in text)
        self._put(printable(text, colour=self.out_colour, returns=True), flush=True)
        if text:
            self._open_line = not text.endswith("\n")

    def end_log(self) -> None:
        """Finish a log on a terminal: colours off, and the cursor at the start of a line."""
        if not self.out_tty:
            return
        rest = self._held + self._decoder.decode(b"", final=True)
        self._held = ""
        text = printable(rest) + ("\x1b[0m" if self._coloured else "")
        self._coloured = False
        if self._open_line or rest:
            text += "\n"
        self._open_line = False
        self._put(text, flush=True)

    # -- stderr ----------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Write a remark, unless `--quiet`."""
        if not self.quiet:
            self._err_line(printable(text))

    def say(self, text: str) -> None:
        """Write a line on stderr that even `--quiet` must not hide."""
        self._err_line(printable(text))

    def step(self, severity: str, text: str) -> None:
        """Write one step with its mark; `--quiet` leaves only warnings and errors."""
        if self.quiet and severity == "info":
            return
        fancy, plain, colour = _MARKS.get(severity, _MARKS["info"])
        mark = fancy if self._fancy else plain
        if self.err_colour:
            mark = f"\x1b[{colour}m{mark}\x1b[0m"
        self._err_line(f"{mark} {printable(text)}")

    def error(self, message: str, hint: str = "") -> None:
        """Write an error and its remedy."""
        label = "\x1b[31merror:\x1b[0m" if self.err_colour else "error:"
        self._err_line(f"{label} {printable(message)}")
        if hint:
            first, *more = hint.split("\n")  # several ways on are several lines
            self._err_line(f"hint: {printable(first)}")
            for line in more:
                self._err_line(f"  {printable(line)}")

    def json_error(self, body: bytes) -> None:
        """Write an error as `--json` promises: one document on stderr."""
        self._err_line(body.decode())

    def progress(self, step: str, done: int, total: int | None, unit: str) -> None:
        """Show how far a long step is: rewritten on a terminal, now and then elsewhere."""
        if self.quiet:
            return
        now = self._clock()
        complete = total is not None and done >= total
        text = printable(f"{step}: {progress_text(done, total, unit)}")
        if not self.err_tty:
            told_at, told = self._told.get(step, (float("-inf"), ""))
            if text != told and (complete or now - told_at >= PROGRESS_EVERY_S):
                self._told[step] = now, text
                self._err_line(text)
        elif complete or now - self._drawn_at >= REDRAW_EVERY_S:
            self._break_log_line()
            self._drawn_at = now
            # A line that is broken is not rewritten by a return: every state would stay.
            columns = columns_of(self._err)
            text = text if columns is None else cut(text, columns - 1)
            drawn = width(text)
            self._put_err("\r" + text + " " * (self._drawn - drawn))
            self._drawn = drawn

    def ask(self, question: str, above: Sequence[str] = ()) -> str:
        """Ask on the terminal and return the answer in small letters, empty at end of file.

        `above` are the lines one must have read to answer: `--quiet` does not hide them.
        """
        for line in above:
            self._err_line(printable(line))
        self._clear()
        self._put_err(printable(question) + " ")
        return sys.stdin.readline().strip().lower()

    def flush(self) -> None:
        """Write out everything; a closed pipe shows here at the latest."""
        self._clear()
        self._put("", flush=True)

    def _err_line(self, text: str) -> None:
        self._break_log_line()
        self._clear()
        if self.out_tty:
            self._put("", flush=True)  # keeps both streams in order where they are one terminal
        self._put_err(text + "\n")

    def _break_log_line(self) -> None:
        if self._open_line and self.err_tty:
            self._put("\n", flush=True)
            self._open_line = False

    def _clear(self) -> None:
        if self._drawn:
            self._put_err("\r" + " " * self._drawn + "\r")
            self._drawn = 0

    # -- the only writes

    def _put(self, text: str, *, flush: bool = False) -> None:
        with _told():
            self._out.write(text)
            if flush:
                self._out.flush()

    def _put_bytes(self, data: bytes) -> None:
        with _told():
            self._out.flush()
            self._out.buffer.write(data)
            self._out.buffer.flush()

    def _put_err(self, text: str) -> None:
        """Write to stderr. If it is full or closed nobody can be told, and the work goes on; a
        pipe whose reader left ends us as it ends every program."""
        try:
            self._err.write(text)
            self._err.flush()
        except BrokenPipeError:
            raise
        except (OSError, ValueError):
            return


@contextmanager
def _told() -> Iterator[None]:
    """Turn what stdout refuses into our error, except that nobody reads it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as exc:  # ValueError: closed by ourselves
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
        raise CliError(
            f"cannot write the result to stdout: {why}",
            hint="what was asked of vastd may be done; `vastctl ls` and `vastctl events` tell",
        ) from exc


def progress_text(done: int, total: int | None, unit: str) -> str:
    """Return `1.2 MB of 4.0 MB (30%)`, or what is known of it."""
    known = {"bytes": words.size, "seconds": words.limit}
    show = known.get(unit) or (lambda n: f"{n} {unit}" if unit else str(n))
    if not total:
        return show(done)
    return f"{show(done)} of {show(total)} ({min(100, 100 * done // total)}%)"
