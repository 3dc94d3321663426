"""The protocol's version has a history, and starting a client loads nothing heavy."""

import subprocess
import sys
from pathlib import Path

import pytest

from vastd_protocol.methods import MODULE_OF
from vastd_protocol.version import PROTOCOL_VERSION

ROOT = Path(__file__).parents[2]


def test_the_protocol_version_has_a_line_in_its_history():
    text = (ROOT / "protocol/vastd_protocol/version.py").read_text()

    assert f"\n{PROTOCOL_VERSION} (" in text


CHECK = """
import sys
import vastd_protocol.envelope, vastd_protocol.framing, vastd_protocol.paths
import vastd_protocol.errors, vastd_protocol.version
from vastd_protocol.methods import find
assert find(sys.argv[1]) is not None
loaded = {name.partition(".")[0] for name in sys.modules}
print(*sorted(loaded & set(sys.argv[2].split(","))))
print(*sorted(name for name in sys.modules if name.startswith("vastd_protocol.methods.")))
"""
# What costs more than a whole start may (DESIGN D6).
HEAVY = "trio,asyncio,asyncssh,httpx2,platformdirs,rich,vastd,pathlib2,ssl,http,email,sqlite3"


@pytest.mark.parametrize(
    ("method", "modules"),
    [
        ("rental.list", {"rental", "task"}),
        ("daemon.status", {"daemon"}),
        ("log.read", {"log"}),
        ("job.wait", {"job", "rental", "task"}),
        ("event.list", {"event"}),
    ],
)
def test_a_call_loads_the_modules_of_its_noun_and_nothing_heavy(method, modules):
    made = subprocess.run(
        [sys.executable, "-c", CHECK, method, HEAVY], capture_output=True, text=True, check=True
    )

    heavy, ours = made.stdout.split("\n")[:2]
    assert heavy == ""
    assert set(ours.split()) == {f"vastd_protocol.methods.{name}" for name in modules}


def test_every_noun_names_a_module_that_has_rows_for_it():
    for noun, module in MODULE_OF.items():
        __import__(f"vastd_protocol.methods.{module}")
        rows = sys.modules[f"vastd_protocol.methods.{module}"].METHODS
        assert any(row.name.partition(".")[0] == noun for row in rows), noun
