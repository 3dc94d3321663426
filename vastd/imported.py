"""Records of machines that others kept before vastd, or another vastd: history to read, no more.

Rules
1. They lie beside the database, in a file of their own: nothing that decides about money or
   machines reads them, so a wrong file can neither use up a cap nor claim a machine (I9).
2. One record per instance id; the first one taken in stands.
3. A file that cannot be read is never written over.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from vastd import files
from vastd.core.instants import rfc3339
from vastd.errors import InvalidRequest, StoreError
from vastd_protocol.methods.record import ImportedView, Record

NAME: Final = "imported.json"
MAX_RECORDS: Final = 10_000  # guess: a life of renting by hand; the file is written as a whole


_MAX_TEXT: Final = 500  # characters of one field, as vastctl sends at most
_MAX_ID: Final = 2**53  # what every reader of JSON holds exactly
_YEARS: Final = range(2000, 2101)  # guess; nobody rented a GPU before
# What a terminal may obey: controls, line breaks, marks that reorder text (vastctl shows them).
_OBEYED: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_DATES: Final = ("created_at", "ended_at")


def check_record(record: Record, number: int) -> None:
    """Return if what a file says can be meant; it is shown to people ever after.

    Raises:
        InvalidRequest: names the record by its number, and the field.
    """
    for field, value in structs.asdict(record).items():
        texts = value if isinstance(value, list) else [value]
        for text in texts:
            if isinstance(text, str) and (len(text) > _MAX_TEXT or _OBEYED.search(text)):
                raise InvalidRequest(
                    f"record {number}: {field} is no plain text of at most {_MAX_TEXT} characters"
                )
        if field in _DATES and value is not None and not _is_date(value):
            raise InvalidRequest(f"record {number}: {field} is no instant as in RFC 3339")
        if field in ("instance_id", "offer_id") and value is not None and not 0 < value < _MAX_ID:
            raise InvalidRequest(f"record {number}: {field} is no id of Vast's")


def _is_date(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).year in _YEARS
    except ValueError:
        return False


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

    def add(self, records: Sequence[Record], source: str, now: float, *, more: int = 0) -> None:
        """Take `records` in, none of which may be there already; durable on return. There must
        also be room for the `more` that follow: a file is not taken in by halves.

        Raises:
            StoreError: nothing was changed.
        """
        if not records:
            return
        before = self.all()
        if len(before) + len(records) + more > MAX_RECORDS:
            raise StoreError(
                f"{len(records) + more} records have no room: {len(before)} were imported already, "
                f"at most {MAX_RECORDS} are kept, and nothing was changed",
                hint=f"move {self._path} away if you do not need them any more",
            )
        at = rfc3339(now)
        new = [ImportedView(record=record, source=source, imported_at=at) for record in records]
        body = msgspec.json.encode(_File(imported=[*before, *new]))
        try:
            files.write_atomic(self._path, msgspec.json.format(body, indent=1) + b"\n", mode=0o600)
        except OSError as exc:
            raise StoreError(f"cannot write {self._path}: {exc.strerror}") from exc
