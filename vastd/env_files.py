"""Private files with the environment a user gave to a job: kept out of the store and the trail.

A job may wait minutes for its machine and must survive a restart of the daemon, so the values
have to be on disk; they are removed when the job has ended.
"""

import contextlib
from collections.abc import Collection
from pathlib import Path

import msgspec

from vastd.errors import StoreError
from vastd.files import write_atomic


class EnvFiles:
    """One file of mode 0600 per job under `<state>/env/`."""

    def __init__(self, state_dir: Path) -> None:
        self._dir = state_dir / "env"

    def save(self, job_id: str, env: dict[str, str]) -> None:
        """Keep `env` for `job_id`; nothing is written when it is empty.

        Raises:
            StoreError: the disk refuses.
        """
        if not env:
            return
        try:
            self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._dir / job_id, msgspec.json.encode(env), mode=0o600)
        except OSError as exc:
            raise StoreError(f"cannot keep the environment of job {job_id!r}: {exc}") from exc

    def load(self, job_id: str) -> dict[str, str]:
        """Return the environment of `job_id`; empty when none was given."""
        try:
            body = (self._dir / job_id).read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise StoreError(f"cannot read the environment of job {job_id!r}: {exc}") from exc
        try:
            return msgspec.json.decode(body, type=dict[str, str])
        except msgspec.MsgspecError as exc:
            raise StoreError(f"the kept environment of job {job_id!r} is damaged") from exc

    def drop(self, job_id: str) -> None:
        """Forget the environment of an ended job."""
        with contextlib.suppress(OSError):
            (self._dir / job_id).unlink()

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Forget every other environment: a kill between `save` and the record leaves one."""
        with contextlib.suppress(OSError):
            for path in list(self._dir.iterdir()):
                if path.name not in job_ids:
                    self.drop(path.name)
