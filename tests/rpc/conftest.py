"""The server the tests of this directory talk to."""

import pytest

from rpc.rig import running


@pytest.fixture
async def rig(tmp_path):
    async with running(tmp_path / "s") as found:
        yield found
