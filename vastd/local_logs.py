"""The copies of job logs at home: raw bytes, appended as they arrive, read by offset.

The size of the local file *is* the offset reached, so a restart resumes without loss or repeats
and there is no second truth to disagree with.
"""

import os
from pathlib import Path

from vastd.errors import StoreError


class LocalLogs:
    """`<state>/logs/jobs/<job_id>.log`."""

    def __init__(self, state_dir: Path) -> None:
        self._dir = state_dir / "logs" / "jobs"

    def path(self, job_id: str) -> Path:
        """Return where the log of `job_id` lies, whether or not it exists yet."""
        return self._dir / f"{job_id}.log"

    def size(self, job_id: str) -> int:
        """Return how many bytes are home; 0 before the first."""
        try:
            return self.path(job_id).stat().st_size
        except OSError:
            return 0

    def append(self, job_id: str, offset: int, data: bytes) -> int:
        """Write `data` at `offset` and return the new size.

        Raises:
            StoreError: the disk refuses; nothing of `data` counts as home.
        """
        try:
            self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
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
