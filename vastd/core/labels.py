"""The label of an instance: its last word is our claim on it (I2, I9).

`[<project>/<task> ]vastd-<owner8>-<rental_id>`. `owner8` is random, made once per state
directory and kept outside the database, so that a lost database does not lose the claim.
"""

import re
from typing import Final

from msgspec import Struct

LABEL_MAX_CHARS: Final = 256  # VAST_API 3.1: at create; the label route would take 1,024
_CLAIM: Final = re.compile(r"^vastd-([a-z0-9]{8})-(r[a-z0-9]{1,32})$")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._/-]+")


class Claim(Struct, frozen=True):
    """Whose instance it is, and which rental it belongs to."""

    owner8: str
    rental_id: str


def claim_text(owner8: str, rental_id: str) -> str:
    """Return the word that marks an instance as ours."""
    return f"vastd-{owner8}-{rental_id}"


def make_label(owner8: str, rental_id: str, prefix: str = "") -> str:
    """Return the whole label; a prefix too long is cut, the claim never."""
    claim = claim_text(owner8, rental_id)
    room = LABEL_MAX_CHARS - len(claim) - 1
    shown = _UNSAFE.sub("-", prefix).strip("-")[:room]
    return f"{shown} {claim}" if shown else claim


def read_claim(label: str | None) -> Claim | None:
    """Return the claim in `label`, or None: then the instance is foreign and never touched."""
    words = (label or "").split()
    if not words:
        return None
    found = _CLAIM.match(words[-1])
    return Claim(found[1], found[2]) if found else None
