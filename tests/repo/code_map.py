"""The code map of `ARCHITECTURE.md`, made from the first sentence of every module.

python tests/repo/code_map.py            prints it
python tests/repo/code_map.py --write    puts it into ARCHITECTURE.md
"""

import re
import sys
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.source_tree import ROOT, modules, summary

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
HEADING = "## Code map\n"


def code_map() -> str:
    """Return one line per module, grouped by directory."""
    parts = []
    for directory, paths in groupby(modules(), key=lambda path: path.parent):
        lines = [_line(path) for path in paths]
        parts.append(f"### `{directory}/`\n\n" + "\n".join(line for line in lines if line))
    return "\n\n".join(parts) + "\n"


def section(text: str) -> str | None:
    """Return what `text` has below the heading of the code map, or None without one."""
    found = re.search(rf"^{HEADING}(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1].strip() + "\n" if found else None


def with_map(text: str) -> str:
    """Return `text` with the section replaced by the map of today."""
    before, heading, after = text.partition(f"\n{HEADING}")
    if not heading:
        raise SystemExit("ARCHITECTURE.md has no line '## Code map'")
    rest = re.search(r"^## ", after, re.MULTILINE)
    return f"{before}{heading}\n{code_map()}\n{after[rest.start() :] if rest else ''}"


def _line(path: Path) -> str:
    sentence = summary(path)
    if path.name == "__init__.py":
        return f"{sentence}\n" if sentence else ""
    return f"- `{path.name}`: {sentence}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        ARCHITECTURE.write_text(with_map(ARCHITECTURE.read_text()))
    else:
        sys.stdout.write(code_map())
