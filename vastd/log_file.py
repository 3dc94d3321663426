"""A log file that vastd opens itself, so that it can begin a new one before the old grows too large.

Everything the process writes goes there, also what Python prints when it crashes: standard output
and error are moved along to each new file.
"""

import io
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from vastd.errors import StoreError
from vastd.journal import PLAIN_FORMAT

MAX_BYTES: Final = 10_000_000  # guess: a month of a quiet daemon, a day of a very busy one
OLD_FILES: Final = 5  # guess; NAME.1 is the newest of them. Together: 60 MB


class LogFile(RotatingFileHandler):
    """Writes to `path` (0600), and to a new file once it holds `max_bytes`.

    A disk that refuses costs lines of the log, never the process.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=OLD_FILES, encoding="utf-8")

    def _open(self) -> io.TextIOWrapper:
        """Open the file for us alone, and let what the process writes by itself follow."""
        opened = open(  # noqa: SIM115  the handler closes it
            self.baseFilename, "a", encoding="utf-8", errors="backslashreplace", opener=_private
        )
        for descriptor in (sys.__stdout__, sys.__stderr__):
            if descriptor is not None:
                os.dup2(opened.fileno(), descriptor.fileno())
        return opened

    def handleError(self, record: logging.LogRecord) -> None:
        """Say nothing: where it would be said is the disk that refuses."""


def log_to_file(path: Path, level: int) -> None:
    """Send all logs of this process, and whatever it prints, to `path`.

    Raises:
        StoreError: the file cannot be made or written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = LogFile(path)
    except OSError as exc:
        raise StoreError(
            f"cannot write the log {path}: {exc.strerror}",
            hint="make its directory writable, or start vastd without --log-file",
        ) from exc
    handler.setFormatter(logging.Formatter(PLAIN_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
