"""Evaluates Vast's filter object over raw offer rows (VAST_API 2.1).

Rules
1. Several fields, and several operators of a field, are ANDed.
2. Numbers and booleans may come as strings: the official client sends them so.
3. A field no row has filters nothing and is reported; `id` matches nothing at all, as seen live.
"""

import math
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from vastd.simulator.refusals import invalid_args, invalid_request

MAX_ROWS: Final = 64  # VAST_API 2.1: measured cap, whatever `limit` says
DEFAULT_DISK_GB: Final = 8.0  # VAST_API 2.1
DEFAULTS: Final[dict[str, dict[str, object]]] = {
    "verified": {"eq": True},
    "rentable": {"eq": True},
    "rented": {"eq": False},
}
# Keys of the body that are no filters.
DIRECTIVES: Final = frozenset(
    {
        "order", "type", "limit", "allocated_storage", "target_reliability", "extra_ids",
        "gpu_option", "show_incompatible", "sort_option", "template_id", "select_cols", "q",
        "client_id", "owner", "api_key", "disable_bundling",
    }
)  # fmt: skip
TYPES: Final = frozenset({"on-demand", "ondemand", "bid", "reserved", "interruptible"})
# Names that mean another column of the row.
SAME_COLUMN: Final = {"cuda_vers": "cuda_max_good"}
OPERATORS: Final = frozenset({"eq", "neq", "gt", "gte", "lt", "lte", "in", "notin", "nin"})
ORDERED: Final = frozenset({"gt", "gte", "lt", "lte"})

Row = dict[str, object]


class Search(Struct, frozen=True, kw_only=True):
    """A search as understood: what to filter, how to price, how to order."""

    filters: dict[str, dict[str, object]]
    order: list[tuple[str, bool]]  # (column, descending)
    limit: int = MAX_ROWS
    disk_gb: float = DEFAULT_DISK_GB
    interruptible: bool = False


def parse(body: dict[str, object], *, defaults: bool = True, leak: bool = False) -> Search:
    """Read a request body; `leak` forgets numeric bounds, as the live service did at times.

    Raises:
        MarketRefused: a filter is no operator object, or an operator is unknown.
    """
    filters: dict[str, dict[str, object]] = dict(DEFAULTS) if defaults else {}
    for name, value in body.items():
        if name in DIRECTIVES:
            continue
        if isinstance(value, bool) and name == "external":
            continue  # the typed client sends this one bare (VAST_API 2.1)
        if not isinstance(value, dict):
            raise invalid_request(f"q.{name}: Input should be a valid dictionary")
        unknown = set(value) - OPERATORS
        if unknown:
            raise invalid_args(f"q.{name}: unknown operator {sorted(unknown)[0]!r}")
        filters[name] = {op: v for op, v in value.items() if not (leak and op in ORDERED)}
    kind = body.get("type", "on-demand")
    if not isinstance(kind, str) or kind not in TYPES:
        raise invalid_args(f"type: unknown type {kind!r}")
    disk = _number(body.get("allocated_storage", DEFAULT_DISK_GB))
    limit = _number(body.get("limit", MAX_ROWS))
    return Search(
        filters=filters,
        order=_order(body.get("order")),
        limit=MAX_ROWS if limit is None or limit <= 0 else min(int(limit), MAX_ROWS),
        disk_gb=DEFAULT_DISK_GB if disk is None or disk < 0 else disk,
        interruptible=kind in ("bid", "interruptible"),
    )


def _order(value: object) -> list[tuple[str, bool]]:
    if value is None:
        return [("score", True)]
    if not isinstance(value, list | tuple):
        raise invalid_request("order: Input should be a valid list")
    order: list[tuple[str, bool]] = []
    for item in value:
        if not isinstance(item, list | tuple) or len(item) != 2:
            raise invalid_request("order: Input should be pairs of column and direction")
        column, direction = item
        order.append((str(column), str(direction).lower() == "desc"))
    return order


def select(rows: Iterable[Row], search: Search) -> list[Row]:
    """Return the rows that match, ordered and cut."""
    found = [row for row in rows if matches(row, search.filters)]
    for column, descending in reversed(search.order):
        _sort(found, SAME_COLUMN.get(column, column), descending=descending)
    return found[: search.limit]


def _sort(rows: list[Row], column: str, *, descending: bool) -> None:
    rows.sort(key=lambda row: _sort_key(row.get(column)), reverse=descending)
    # Rows without a value come last in both directions.
    rows.sort(key=lambda row: row.get(column) is None)


def unknown_fields(search: Search, known: Iterable[str]) -> list[str]:
    """Return the filtered fields that no row has, sorted: they filter nothing."""
    return sorted(set(search.filters) - {*known, "id", *SAME_COLUMN, "datacenter"})


def matches(row: Row, filters: dict[str, dict[str, object]]) -> bool:
    """Return whether a row passes every test of a column it has."""
    for name, tests in filters.items():
        if name == "id":
            return False  # seen live 2026-10-02: filtering on `id` returns nothing
        column = SAME_COLUMN.get(name, name)
        if column == "datacenter":
            value: object = row.get("hosting_type") == 1
        elif column == "geolocation":
            # The filter wants the country, the row says "Region, CC" (VAST_API 2.1).
            value = str(row.get(column))[-2:]
        elif column == "driver_version" and not any(isinstance(w, str) for w in tests.values()):
            value = row.get("driver_vers")  # the official client sends a number (VAST_API 2.3)
        elif column in row:
            value = row[column]
        else:
            continue
        if not all(_passes(value, op, wanted) for op, wanted in tests.items()):
            return False
    return True


def _passes(value: object, op: str, wanted: object) -> bool:
    match op:
        case "eq":
            return _same(value, wanted)
        case "neq":
            return not _same(value, wanted)
        case "in":
            return any(_same(value, item) for item in _items(wanted))
        case "notin" | "nin":
            return not any(_same(value, item) for item in _items(wanted))
        case _:
            return _compares(value, op, wanted)


def _compares(value: object, op: str, wanted: object) -> bool:
    left, right = _number(value), _number(wanted)
    if left is None or right is None:
        return False
    match op:
        case "gt":
            return left > right
        case "gte":
            return left >= right
        case "lt":
            return left < right
        case _:
            return left <= right


def _same(value: object, wanted: object) -> bool:
    if value is None or isinstance(value, bool):
        # `external` is null or a boolean; null counts as false.
        truth = _truth(wanted)
        return truth is not None and bool(value) == truth if wanted is not None else value is None
    if isinstance(value, int | float):
        number = _number(wanted)
        return number is not None and float(value) == number
    return value == wanted


def _truth(wanted: object) -> bool | None:
    if isinstance(wanted, bool):
        return wanted
    if isinstance(wanted, int | float):
        return bool(wanted)
    words = {"true": True, "false": False, "1": True, "0": False}
    return words.get(wanted.lower()) if isinstance(wanted, str) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _items(wanted: object) -> list[object]:
    return list(wanted) if isinstance(wanted, list | tuple) else [wanted]


def _sort_key(value: object) -> tuple[int, float, str]:
    number = _number(value) if not isinstance(value, str) else None
    return (0, number, "") if number is not None else (1, 0.0, str(value))
