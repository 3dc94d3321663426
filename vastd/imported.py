"""Records of machines that others kept before vastd, or another vastd: history to read, no more.

Rules
1. They lie beside the database, in a file of their own: nothing that decides about money or
   machines reads them, so a wrong file can neither use up a cap nor claim a machine (I9).
2. One record per instance id; the first one taken in stands.
3. A file that cannot be read is never written over.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from vastd import files
from vastd.core.instants import rfc3339
from vastd.errors import StoreError
from vastd_protocol.methods.record import ImportedView, Record

NAME: Final = "imported.json"
MAX_RECORDS: Final = 10_000  # guess: a life of renting by hand; the file is written as a whole


class _File(Struct, frozen=True, kw_only=True):
    imported: list[ImportedView]


class ImportedRecords:
    """The imported records of a state directory, read when asked for."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / NAME

    def all(self) -> list[ImportedView]:
        """Return every record, oldest import first.

        Raises:
            StoreError: the file is there and cannot be read.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise StoreError(f"cannot read {self._path}: {exc.strerror}") from exc
        try:
            return msgspec.json.decode(data, type=_File).imported
        except msgspec.MsgspecError as exc:
            raise StoreError(
                f"cannot read {self._path}: {exc}",
                hint="move it away and import again; vastd itself does not need it",
            ) from exc

    def add(self, records: Sequence[Record], source: str, now: float) -> None:
        """Take `records` in, none of which may be there already; durable on return.

        Raises:
            StoreError: nothing was changed.
        """
        if not records:
            return
        before = self.all()
        if len(before) + len(records) > MAX_RECORDS:
            raise StoreError(
                f"{len(before)} records were imported already, at most {MAX_RECORDS} are kept",
                hint=f"move {self._path} away if you do not need them any more",
            )
        at = rfc3339(now)
        new = [ImportedView(record=record, source=source, imported_at=at) for record in records]
        body = msgspec.json.encode(_File(imported=[*before, *new]))
        try:
            files.write_atomic(self._path, msgspec.json.format(body, indent=1) + b"\n", mode=0o600)
        except OSError as exc:
            raise StoreError(f"cannot write {self._path}: {exc.strerror}") from exc
