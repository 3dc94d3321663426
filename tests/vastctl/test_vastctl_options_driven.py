"""Every option of every command is used by some test."""

import re
from pathlib import Path

import pytest

from vastctl.arguments import load, make_parser
from vastctl.commands import COMMANDS

TESTS = Path(__file__).parent.parent
# Not found by their names: both are short for, or long for, one that is.
SPELLINGS = {"--help": "-h", "--yes": "-y", "--quiet": "-q", "--follow": "-f", "--lines": "-n"}


@pytest.fixture(scope="module")
def used() -> set[str]:
    """Return all words of all tests that look like an option."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        found.update(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", path.read_text()))
    return found


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"help"}))
def test_every_option_is_used_by_some_test(name: str, used: set[str]) -> None:
    command = load(name)
    for action in getattr(command, "ACTIONS", None) or (None,):
        parser = make_parser(f"vastctl {name}", name, command, action)
        options = {
            option for act in parser._actions for option in act.option_strings
        }  # as `_unknown` reads them
        unused = {o for o in options - used if SPELLINGS.get(o, o) not in used}
        assert unused == set()
