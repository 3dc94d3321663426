"""Small facts of a state directory that must outlive the database: our claim's owner word."""

import secrets
import string
from pathlib import Path
from typing import Final

from vastd.errors import StoreError
from vastd.files import write_atomic

_ALPHABET: Final = string.ascii_lowercase + string.digits
OWNER_CHARS: Final = 8  # DESIGN I2
_ID_CHARS: Final = 7  # 36^7: two of a million rentals collide with odds of 1 in 160


def owner_word(state_dir: Path) -> str:
    """Return `owner8`, made once per state directory and kept outside the database (I2).

    Raises:
        StoreError: it cannot be read or written, or is not one: guessing a new one would
            disown every machine.
    """
    path = state_dir / "owner"
    try:
        if path.exists():
            word = path.read_text("ascii").strip()
            if len(word) == OWNER_CHARS and all(c in _ALPHABET for c in word):
                return word
            raise StoreError(
                f"{path} does not hold an owner word, so our machines cannot be told from others",
                hint="restore it: it is the middle word of your instances' labels, vastd-OWNER-…",
            )
        word = _random(OWNER_CHARS)
        write_atomic(path, f"{word}\n".encode(), mode=0o600)
    except (OSError, UnicodeDecodeError) as exc:
        raise StoreError(f"cannot read or write {path}: {exc}") from exc
    return word


def new_id(prefix: str) -> str:
    """Return a fresh id: the prefix letter and random letters and digits."""
    return prefix + _random(_ID_CHARS)


def _random(count: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(count))
