"""The code map in ARCHITECTURE.md is what the modules say of themselves."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from support.source_tree import ROOT, modules


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "code_map", Path(__file__).with_name("code_map.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_code_map_is_what_the_modules_say(maker: ModuleType) -> None:
    architecture = ROOT / "ARCHITECTURE.md"
    # Checked in with the first whole version; a text without it is caught by `section`.
    expected = maker.code_map()
    present = maker.section(architecture.read_text()) if architecture.exists() else expected

    assert present == expected, "run: python tests/repo/code_map.py --write"


def test_the_map_has_every_module_once(maker: ModuleType) -> None:
    lines = [line for line in maker.code_map().splitlines() if line.startswith("- `")]

    assert len(lines) == len([path for path in modules() if path.name != "__init__.py"])


def test_the_map_is_put_between_the_headings(maker: ModuleType) -> None:
    text = "# A\n\n## Code map\nold\n### x\n\n## Invariants\nI1\n"

    written = maker.with_map(text)

    assert written.startswith("# A\n\n## Code map\n\n### `protocol/vastd_protocol/`")
    assert written.endswith("\n\n## Invariants\nI1\n")
    assert maker.section(written) == maker.code_map()
    assert maker.with_map(written) == written
