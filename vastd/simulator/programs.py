"""What a job does over virtual time, read from its command line.

`sim-job --seconds 600 --exit 0 --output results/a.txt:1000` describes a job; any other command
gets a default: a minute of work, exit 0 and one output, `results/metrics.json`.
"""

import argparse
import hashlib
from typing import Final, NoReturn

from msgspec import Struct, field

LOG_LINE_BYTES: Final = 48  # every line is this long, so that offsets are arithmetic
EXIT_ON_TERM: Final = 143  # 128 + SIGTERM
EXIT_ON_KILL: Final = 137  # 128 + SIGKILL
CHECKPOINT: Final = "results/checkpoint.bin"
CHECKPOINT_BYTES: Final = 2_000
DEFAULT_HEARTBEAT_S: Final = 30.0


class Program(Struct, frozen=True, kw_only=True):
    """A job's behaviour."""

    seconds: float = 60.0  # how long it works
    exit_code: int = 0
    log_lines: int = 20  # spread evenly over its time
    # path -> bytes, written at the end
    outputs: dict[str, int] = field(default_factory=lambda: {"results/metrics.json": 300})
    heartbeat_s: float | None = DEFAULT_HEARTBEAT_S  # None: it writes none
    heartbeats_stop_s: float | None = None  # it hangs silently from then on
    nan_loss: bool = False
    dies: bool = False  # at the end it is gone without an exit code
    ignores_term: bool = False
    term_s: float = 2.0  # what it needs to write its checkpoint on TERM
    error: str | None = None  # the command line makes no sense: it says so and exits at once

    def end_s(self, term_s: float | None, kill_s: float | None) -> float:
        """Return when it ends, in seconds from its start, given when it was signalled."""
        end = self.seconds
        if term_s is not None and not self.ignores_term:
            end = min(end, term_s + self.term_s)
        return end if kill_s is None else min(end, kill_s)

    def exit_of(self, term_s: float | None, kill_s: float | None) -> int | None:
        """Return its exit code once it has ended, or None when it leaves none."""
        end = self.end_s(term_s, kill_s)
        if kill_s is not None and end == kill_s and kill_s < self.seconds:
            return EXIT_ON_KILL
        if term_s is not None and end < self.seconds:
            return EXIT_ON_TERM
        return None if self.dies else self.exit_code

    def log_bytes(self, ran_s: float) -> int:
        """Return the size of its log after `ran_s` seconds."""
        if self.error is not None:
            return len(self.error)
        if self.seconds <= 0:
            return self.log_lines * LOG_LINE_BYTES
        done = int(self.log_lines * min(1.0, max(0.0, ran_s) / self.seconds))
        return done * LOG_LINE_BYTES

    def log_slice(self, start: int, end: int) -> bytes:
        """Return bytes `start` to `end` of its log."""
        if self.error is not None:
            return self.error.encode()[start:end]
        if end <= start:
            return b""
        first = start // LOG_LINE_BYTES
        lines = b"".join(self._line(n) for n in range(first, -(-end // LOG_LINE_BYTES)))
        return lines[start - first * LOG_LINE_BYTES :][: end - start]

    def _line(self, index: int) -> bytes:
        text = f"step {index + 1}/{self.log_lines} loss {self.loss(index + 1):.5f}"
        return text.ljust(LOG_LINE_BYTES - 1).encode() + b"\n"

    def loss(self, step: int) -> float:
        """Return the loss after a step; it falls."""
        return 2.5 / (1.0 + 0.05 * step)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse(command: list[str]) -> Program:
    """Read a command line; one that makes no sense yields a program that fails with exit 2."""
    if not command or command[0] != "sim-job":
        return Program()
    parser = _Parser(prog="sim-job", add_help=False, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--log-lines", type=int, default=20)
    parser.add_argument("--output", action="append", default=[])
    parser.add_argument("--heartbeat-every", type=float, default=DEFAULT_HEARTBEAT_S)
    parser.add_argument("--heartbeats-stop", type=float)
    parser.add_argument("--nan-loss", action="store_true")
    parser.add_argument("--dies", action="store_true")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--term-seconds", type=float, default=2.0)
    try:
        args = parser.parse_args(command[1:])
        outputs = dict(_output(text) for text in args.output)
    except ValueError as exc:
        return Program(seconds=0.0, exit_code=2, outputs={}, error=f"sim-job: {exc}\n")
    return Program(
        seconds=args.seconds,
        exit_code=args.exit,
        log_lines=args.log_lines,
        outputs=outputs,
        heartbeat_s=args.heartbeat_every or None,
        heartbeats_stop_s=args.heartbeats_stop,
        nan_loss=args.nan_loss,
        dies=args.dies,
        ignores_term=args.ignore_term,
        term_s=args.term_seconds,
    )


def _output(text: str) -> tuple[str, int]:
    path, colon, size = text.rpartition(":")
    if not colon or not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"output {text!r} is not PATH:BYTES below the project")
    return path, int(size)


def content(seed: str, n_bytes: int) -> bytes:
    """Return `n_bytes` that depend on `seed` alone."""
    block = hashlib.sha256(seed.encode()).hexdigest().encode() + b"\n"
    return (block * (n_bytes // len(block) + 1))[:n_bytes]
