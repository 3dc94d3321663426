"""The copies of job logs at home: raw bytes, appended as they arrive, read by offset.

The size of the local file *is* the offset reached, so a restart resumes without loss or repeats
and there is no second truth to disagree with.

A log is kept up to a cap. What is over it stays on the machine: the file ends with a line that
says so, an empty `JOB.capped` lies beside it, and every offset before that line stays true.
`JOB.times` tells when its pieces came (`log_times`); without it a log is whole nevertheless.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from vastd.errors import StoreError
from vastd.log_times import LogTimes

CAP_BYTES: Final = 1_000_000_000  # guess: a day of 10 kB/s; the daemon asks `[retention]`
_LOG: Final = ".log"
_CAPPED: Final = ".capped"


class StoredLog(Struct, frozen=True, kw_only=True):
    """A log that lies at home."""

    job_id: str
    size: int  # bytes
    written_at: float  # epoch seconds of its last piece


class LocalLogs:
    """`<state>/logs/jobs/<job_id>.log`, each up to `cap_bytes()`."""

    def __init__(self, state_dir: Path, cap_bytes: Callable[[], int] = lambda: CAP_BYTES) -> None:
        self._dir = state_dir / "logs" / "jobs"
        self._cap_bytes = cap_bytes
        self.times = LogTimes(self._dir)

    def path(self, job_id: str) -> Path:
        """Return where the log of `job_id` lies, whether or not it exists yet."""
        return self._dir / f"{job_id}{_LOG}"

    def size(self, job_id: str) -> int:
        """Return how many bytes are home; 0 before the first."""
        try:
            return self.path(job_id).stat().st_size
        except OSError:
            return 0

    def capped(self, job_id: str) -> bool:
        """Return whether this log reached its cap, so that nothing more of it is wanted."""
        return self._capped(job_id).exists()

    def stored(self) -> list[StoredLog]:
        """Return the logs that lie at home, the longest silent first."""
        found = []
        with contextlib.suppress(OSError):
            for path in self._dir.glob(f"*{_LOG}"):
                with contextlib.suppress(OSError):
                    info = path.stat()
                    found.append(
                        StoredLog(job_id=path.stem, size=info.st_size, written_at=info.st_mtime)
                    )
        return sorted(found, key=lambda log: (log.written_at, log.job_id))

    def drop(self, job_id: str) -> None:
        """Remove the log of a job that ended; one that cannot be removed stays."""
        for path in (self.path(job_id), self._capped(job_id)):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        self.times.drop(job_id)

    def _capped(self, job_id: str) -> Path:
        return self._dir / f"{job_id}{_CAPPED}"

    def append(self, job_id: str, offset: int, data: bytes) -> int:
        """Write `data` at `offset`, as far as the cap allows, and return the new size.

        Raises:
            StoreError: the disk refuses; nothing of `data` counts as home.
        """
        try:
            self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            cap = self._cap_bytes()
            if offset + len(data) > cap:
                self._capped(job_id).touch(0o600)
                data = data[: max(0, cap - offset)] + _last_words(cap)
            handle = os.open(self.path(job_id), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(handle, data[written:], offset + written)
                return offset + written
            except OSError:
                # A half-written piece would count as home: cut it off again.
                os.ftruncate(handle, offset)
                raise
            finally:
                os.close(handle)
        except OSError as exc:
            raise StoreError(f"cannot keep the log of job {job_id!r}: {exc.strerror}") from exc

    def read(self, job_id: str, offset: int, limit: int) -> bytes:
        """Return up to `limit` bytes from `offset`; empty at the end."""
        try:
            handle = os.open(self.path(job_id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        except OSError as exc:
            raise StoreError(f"cannot read the log of job {job_id!r}: {exc.strerror}") from exc
        try:
            return os.pread(handle, limit, offset)
        finally:
            os.close(handle)


def _last_words(cap: int) -> bytes:
    return (
        f"\n[vastd: this copy ends here, after {cap} bytes (retention.job_log_max_mb); the job goes"
        " on, and its whole log stays on its machine]\n"
    ).encode()
