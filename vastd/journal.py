"""How log lines look: with the time in a file or terminal, with a priority for systemd's journal."""

import logging
import os
from collections.abc import Mapping
from typing import Final

PLAIN_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
JOURNAL_FORMAT: Final = "%(name)s %(message)s"  # the journal adds time and priority
# sd-daemon(3): `<N>` before a line is its syslog priority.
_PRIORITIES: Final = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG_PRIORITY: Final = 7


class JournalFormatter(logging.Formatter):
    """Puts the priority before each line, so that `journalctl -p warning` finds what matters."""

    def __init__(self) -> None:
        super().__init__(JOURNAL_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's lines, each with its priority."""
        levels = (number for level, number in _PRIORITIES if record.levelno >= level)
        mark = f"<{next(levels, _DEBUG_PRIORITY)}>"
        return "\n".join(mark + line for line in super().format(record).split("\n"))


def to_journal(environ: Mapping[str, str], descriptor: int) -> bool:
    """Return whether `descriptor` leads to the journal itself, not to a file or a pipe.

    systemd sets `JOURNAL_STREAM` to the device and inode it gave us (systemd.exec(5)).
    """
    try:
        info = os.fstat(descriptor)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{info.st_dev}:{info.st_ino}"
