"""What the console script runs: a process whose streams may be missing, full, or nobody's any more.

Rules
1. Ctrl-C at any moment ends it without a word, also while modules are imported.
2. A stream that was closed by whoever started us must not become the next file we open: a message
   would be written into a socket.
3. What cannot be written to stdout is an error; what cannot be written to stderr is not.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Final, TextIO

INTERRUPTED: Final = 130  # 128 + SIGINT, as shells count


def run() -> int:
    """Run `vastctl` as a process of its own; return its exit code."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:  # else whoever started us wants it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _complete_streams()
    from vastctl.__main__ import main

    code = _guarded(main) if ours else main()
    _settle(sys.stdout)
    _settle(sys.stderr)
    return code


def _guarded(main: Callable[[], int]) -> int:
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main()
        # From here on the interpreter only ends, and would tell where it was interrupted.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return INTERRUPTED
    return code


def _complete_streams() -> None:
    """Put something on the descriptors 0, 1 and 2 that are closed."""
    while (free := os.open(os.devnull, os.O_RDONLY)) <= 2:
        if free == 2:
            # Nobody is there to be told: messages go nowhere.
            os.dup2(nowhere := os.open(os.devnull, os.O_WRONLY), 2)
            os.close(nowhere)
        # On 1 it stays what cannot be written to: what was asked for must not get lost unseen.
    os.close(free)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _settle(stream: TextIO) -> None:
    """Let the interpreter's own last flush find nothing to fail at: it would change the code."""
    try:
        stream.flush()
    except (OSError, ValueError):
        try:
            os.dup2(nowhere := os.open(os.devnull, os.O_WRONLY), stream.fileno())
            os.close(nowhere)
        except (OSError, ValueError):
            return


if __name__ == "__main__":
    sys.exit(run())
