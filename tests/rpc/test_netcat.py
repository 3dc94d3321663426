"""`nc -U` and one JSON line."""

import json
import subprocess
from functools import partial

import pytest
import trio


@pytest.mark.e2e
@pytest.mark.parametrize("half_close", [True, False])
async def test_one_json_line_through_netcat_gets_its_answer(rig, half_close):
    options = ["-N"] if half_close else []
    async with trio.open_nursery() as nursery:
        process = await nursery.start(
            partial(
                trio.run_process,
                ["nc", *options, "-U", str(rig.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                check=False,
            )
        )
        await process.stdin.send_all(b'{"id":1,"method":"daemon.status"}\n')
        if half_close:
            await process.stdin.aclose()
        data = b""
        while not data.endswith(b"\n"):
            data += await process.stdout.receive_some()
        if half_close:
            assert await process.wait() == 0
        else:
            process.terminate()

    assert json.loads(data)["result"]["daemon"]["pid"] == 1
