"""The note that forbids renting after the store was lost, until the user has acknowledged (I8).

A file beside the database, written *before* the damaged one is put aside: a kill at any point
leaves either the damage or the note, never a fresh store that rents.
"""

from pathlib import Path

from vastd.errors import StoreError
from vastd.files import write_atomic

NAME = "renting-locked"


class RentingLock:
    """The note of one state directory. `why` is None while renting is allowed."""

    def __init__(self, state_dir: Path) -> None:
        """Read the note.

        Raises:
            StoreError: it cannot be read; that is not the same as its absence.
        """
        self._path = state_dir / NAME
        try:
            self.why: str | None = self._path.read_text("utf-8", "replace").strip() or "unknown"
        except FileNotFoundError:
            self.why = None
        except OSError as exc:
            raise StoreError(f"cannot read {self._path}: {exc.strerror}") from exc

    def lock(self, why: str) -> None:
        """Forbid renting; durable on return.

        Raises:
            StoreError: the disk refuses, and nothing may be put aside.
        """
        try:
            write_atomic(self._path, f"{why}\n".encode(), mode=0o600)
        except OSError as exc:
            raise StoreError(
                f"cannot write {self._path}: {exc.strerror}",
                hint="free some space: the store is damaged and must be put aside",
            ) from exc
        self.why = why

    def lift(self) -> None:
        """Allow renting again.

        Raises:
            StoreError: the note could not be removed, so it stays in force.
        """
        try:
            self._path.unlink(missing_ok=True)
        except OSError as exc:
            raise StoreError(f"cannot remove {self._path}: {exc.strerror}") from exc
        self.why = None
