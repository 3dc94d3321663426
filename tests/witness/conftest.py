"""The session that the tests of a module share."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from witness.session import Session, session


@pytest.fixture(scope="module")
def user() -> Iterator[Session]:
    """A user of the official client, with a simulated Vast of their own."""
    root = Path(tempfile.mkdtemp(prefix="vw-", dir="/tmp"))  # a socket's path must be short
    try:
        with session(root) as made:
            yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)
