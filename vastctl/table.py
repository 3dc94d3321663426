"""Plain tables: columns as wide as their widest cell, two spaces between.

On a terminal too narrow for that a line per cell: broken rows cannot be read.
"""

from collections.abc import Sequence
from typing import Final

from vastctl.columns import width
from vastctl.screen import one_line

NARROW_COLUMNS: Final = 60  # guess: on wider ones a row that is broken once can still be read


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    columns: int | None = None,
) -> list[str]:
    """Return the lines of a table; columns named in `right` are aligned to the right.

    A cell stays in its row: names of machines may come from a file of somebody else. `columns`: of
    the terminal, if there is one.
    """
    cells = [list(header), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(width(row[i]) for row in cells) for i in range(len(header))]
    if columns is not None and columns < min(NARROW_COLUMNS, sum(widths) + 2 * len(widths) - 2):
        return _blocks(header, cells[1:], columns)
    to_right = [title in right for title in header]
    return [
        "  ".join(_pad(*cell) for cell in zip(row, widths, to_right, strict=True)).rstrip()
        for row in cells
    ]


def _blocks(header: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Return a few lines per row: its first cell, and under it the others with their titles."""
    lines = [header[0]]
    for first, *others in rows:
        lines += _wrapped(first, columns, "")
        told = [(title, cell) for title, cell in zip(header[1:], others, strict=True) if cell]
        lines += pairs(told, indent="  ", columns=columns)
    return lines


def _pad(text: str, columns: int, to_right: bool) -> str:
    gap = " " * (columns - width(text))
    return gap + text if to_right else text + gap


def pairs(
    rows: Sequence[tuple[str, str]], *, indent: str = "", columns: int | None = None
) -> list[str]:
    """Return `key   value` lines with the values under each other, or under their keys where a
    terminal is too narrow (`columns`)."""
    widest = max((width(key) for key, _ in rows), default=0)
    lines: list[str] = []
    for key, value in rows:
        line = f"{indent}{_pad(key, widest, False)}  {one_line(value)}".rstrip()
        if columns is None or columns >= NARROW_COLUMNS or width(line) <= columns:
            lines.append(line)
        else:
            lines += [indent + key, *_wrapped(one_line(value), columns, f"{indent}  ")]
    return lines


def _wrapped(text: str, columns: int, indent: str) -> list[str]:
    from textwrap import wrap  # only narrow terminals need it

    # A name or an id is not broken: it is to be copied.
    room = max(columns, len(indent) + 1)
    return wrap(
        text, room, initial_indent=indent, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
