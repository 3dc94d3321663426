"""Tests of missing permissions: root has all of them, so they are put down for a while."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

NOBODY_UID = 65534  # the kernel's overflow uid, on every Linux


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Run the block without root's right to read and write everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY_UID)
    try:
        yield
    finally:
        if before == 0:
            os.seteuid(before)
