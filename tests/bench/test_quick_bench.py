"""The benchmarks still run: each kind once, small, with the installed programs and a real sshd."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.e2e
@pytest.mark.ssh
def test_a_quick_run_measures_a_row_of_every_kind(tmp_path):
    found = tmp_path / "found.json"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("VAST")}

    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--json", str(found)], cwd=ROOT, text=True,
        env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    rows = json.loads(found.read_bytes())["rows"]
    for kind in (
        "vastctl ls", "RPC round trip, lines", "RPC round trip, headers", "RPC round trip, WebSocket",
        "notifications", "watch cycle", "daemon at rest", "restart", "first sync", "sync of one file",
        "our own overhead in run",
    ):  # fmt: skip
        measured = [row for row in rows if row["what"].startswith(kind)]
        assert measured, kind
        assert any(row["ours"] is not None for row in measured), kind
    assert len(done.stdout.splitlines()) == len(rows) + 3  # machine, head, rule
