"""Where in a TOML text a key stands: the parser knows values, people need line numbers."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

# Possessive (`++`): the text may come from somebody else's repository, and none of these may ever
# try a second way through a long line.
_TABLE: Final = re.compile(r"^\s*+\[{1,2}+([^\[\]]++)\]")
_NAME: Final = r"""(?:[A-Za-z0-9_-]++|"[^"]*+"|'[^']*+')"""
_KEY: Final = re.compile(rf"^\s*+({_NAME}(?:\s*+\.\s*+{_NAME})*+)\s*+=")
_PART: Final = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_FENCES: Final = ('"""', "'''")


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the line (from 1) where `path` is defined, else where its table is, else None.

    Meant for texts that parse; a key inside an inline table is found at that table's line.
    """
    wanted = tuple(path)
    best: tuple[int, int] | None = None  # (how many parts matched, line)
    for number, found in _definitions(text):
        depth = len(found)
        if found == wanted[:depth] and (best is None or depth > best[0]):
            best = (depth, number)
    return best[1] if best else None


def _definitions(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield every table header and key with its line, as the full path of names."""
    table: tuple[str, ...] = ()
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if fence:  # inside a text of several lines, where anything may look like a key
            if fence in line:
                fence = ""
            continue
        if header := _TABLE.match(line):
            table = _parts(header[1])
            yield number, table
        elif key := _KEY.match(line):
            yield number, table + _parts(key[1])
            fence = _opened(line[key.end() :])


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _opened(value: str) -> str:
    """Return the fence of a text that begins on this line and does not end on it."""
    for fence in _FENCES:
        if value.lstrip().startswith(fence) and value.count(fence) == 1:
            return fence
    return ""
