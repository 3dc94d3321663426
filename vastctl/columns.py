"""How much room text takes on a terminal, and how much there is."""

import os
from typing import TextIO
from unicodedata import east_asian_width


def width(text: str) -> int:
    """Return how many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def cut(text: str, columns: int) -> str:
    """Return `text` so that it takes at most so many columns."""
    if width(text) <= columns:
        return text
    left, kept = max(columns - 1, 0), ""
    for char in text:
        left -= width(char)
        if left < 0:
            break
        kept += char
    return kept + ("~" if columns > 0 else "")


def columns_of(stream: TextIO) -> int | None:
    """Return how wide the terminal behind `stream` is; None when that is not known."""
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdigit() and int(said[:6]) > 0:
        return int(said[:6])
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None
