"""Plain tables: columns as wide as their widest cell, two spaces between."""

from collections.abc import Sequence
from unicodedata import east_asian_width

from vastctl.screen import one_line


def width(text: str) -> int:
    """Return how many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()
) -> list[str]:
    """Return the lines of a table; columns named in `right` are aligned to the right.

    A cell stays in its row: names of machines may come from a file of somebody else.
    """
    cells = [list(header), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(width(row[i]) for row in cells) for i in range(len(header))]
    to_right = [title in right for title in header]
    return [
        "  ".join(_pad(*cell) for cell in zip(row, widths, to_right, strict=True)).rstrip()
        for row in cells
    ]


def _pad(text: str, columns: int, to_right: bool) -> str:
    gap = " " * (columns - width(text))
    return gap + text if to_right else text + gap


def pairs(rows: Sequence[tuple[str, str]], *, indent: str = "") -> list[str]:
    """Return `key   value` lines with the values under each other."""
    widest = max((width(key) for key, _ in rows), default=0)
    return [
        f"{indent}{_pad(key, widest, False)}  {one_line(value)}".rstrip() for key, value in rows
    ]
