"""The rows of a run as data, as one table for people, and as JSON for programs."""

import os
import platform
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins


class Row(Struct, frozen=True, kw_only=True):
    """One measurement. With a peer the limit is on the ratio, without one on our own figure."""

    what: str
    ours: float | None = None  # None: not measured, `note` says why
    unit: str = "ms"
    peer: float | None = None  # None: there is none
    peer_what: str = ""
    faster: bool = False  # the ratio is peer / ours: how many times faster we are
    limit: float | None = None  # None: for information
    at_least: bool = False  # the limit is a lower bound
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Return ours against the peer; None without one."""
        if not self.ours or not self.peer:
            return None
        return self.peer / self.ours if self.faster else self.ours / self.peer

    @property
    def met(self) -> bool | None:
        """Return whether the limit is kept; None if there is none, or nothing was measured."""
        value = self.ratio if self.peer_what else self.ours
        if value is None or self.limit is None:
            return None
        return value >= self.limit if self.at_least else value <= self.limit


def machine() -> str:
    """Return the machine's size; nothing that tells which machine it is."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def document(rows: Sequence[Row], *, quick: bool) -> dict[str, Any]:
    """Return a run for programs: the rows as they are, with ratio and verdict."""
    return {
        "machine": machine(),
        "quick": quick,
        "rows": [{**to_builtins(row), "ratio": row.ratio, "met": row.met} for row in rows],
    }


def table(rows: Sequence[Row]) -> str:
    """Return the rows as one table in Markdown, which reads well on a terminal too."""
    head = ("what", "ours", "peer", "ratio", "limit", "met")
    cells = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[n]) for line in cells) for n in range(len(head))]
    lines = [_line(line, widths) for line in cells]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "| " + " | ".join(padded) + " |"


def _cells(row: Row) -> tuple[str, ...]:
    if row.ours is None:
        return (row.what, f"not measured: {row.note}", "", "", _limit(row), "")
    peer = f"{_figure(row.peer, row.unit)} {row.peer_what}" if row.peer is not None else ""
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    met = {None: "", True: "yes", False: "no"}[row.met]
    return (row.what, _figure(row.ours, row.unit), peer, ratio, _limit(row), met)


def _figure(value: float, unit: str) -> str:
    digits = 0 if value >= 1000 or value == round(value) else 2 if value < 10 else 1
    return f"{value:,.{digits}f} {unit}".rstrip()


def _limit(row: Row) -> str:
    if row.limit is None:
        return ""
    sign = "≥" if row.at_least else "≤"
    return (
        f"{sign} {row.limit:g} x" if row.peer_what else f"{sign} {row.limit:g} {row.unit}".rstrip()
    )
