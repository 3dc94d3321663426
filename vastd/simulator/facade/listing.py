"""The paged instance list: filters, order, limit and page tokens (VAST_API 4.1).

Rules
1. A page token holds the sort key of the last row, so that rows which come or go between two
   pages neither repeat nor hide others.
2. `id` is always the last criterion of the order.
"""

import base64
import functools
from typing import Final

import msgspec
from msgspec import Struct

from vastd.simulator import search
from vastd.simulator.refusals import MarketRefused, invalid_request

Row = dict[str, object]
Order = list[tuple[str, bool]]  # (column, descending)

PAGE_ROWS: Final = 25  # VAST_API 4.1: default and maximum
PAGE_ROWS_FOR_NONSENSE: Final = 5  # VAST_API 4.1: a limit of 0 or less
# Columns of the database; what is computed for a reply cannot be filtered or sorted by.
COLUMNS: Final = frozenset(
    {
        "actual_status", "bundle_id", "cur_state", "end_date", "geolocation", "gpu_name",
        "gpu_ram", "host_id", "id", "image_runtype", "image_uuid", "intended_status", "is_bid",
        "label", "machine_id", "next_state", "num_gpus", "start_date", "template_hash_id",
        "verification",
    }
)  # fmt: skip
OPERATORS: Final = frozenset({"eq", "neq", "gt", "gte", "lt", "lte", "in", "notin"})
# `search.matches` treats `id` as offers do (it matches nothing), so it is renamed for it.
ID_ALIAS: Final = "instance_id"


class Query(Struct, frozen=True, kw_only=True):
    """What a client asked for, decoded and not yet checked."""

    filters: object = None
    order_by: object = None
    limit: object = None
    after_token: str | None = None
    columns: object = None


class _Token(Struct, frozen=True):
    order: Order
    values: list[str | float | int | bool | None]


def page(rows: list[Row], query: Query) -> Row:
    """Return the reply to a list request over all `rows`.

    Raises:
        MarketRefused: a filter, a column or the token makes no sense.
    """
    filters = _filters(query.filters)
    found = [row for row in rows if _passes(row, filters)]
    order = _order(query.order_by)
    found.sort(
        key=functools.cmp_to_key(lambda a, b: _compare(_key(a, order), _key(b, order), order))
    )
    total = len(found)
    if query.after_token:
        last = _read_token(query.after_token, order)
        found = [row for row in found if _compare(_key(row, order), last, order) > 0]
    limit = _limit(query.limit)
    shown = found[:limit]
    token = _write_token(shown[-1], order) if len(found) > limit else None
    return {
        "success": True,
        "instances_found": len(shown),
        "total_instances": total,
        "label_counts": _label_counts(rows),
        "next_token": token,
        "instances": [_columns(row, query.columns) for row in shown],
    }


def _filters(value: object) -> dict[str, dict[str, object]]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_request("select_filters: Input should be a valid dictionary")
    filters: dict[str, dict[str, object]] = {}
    for name, tests in value.items():
        if name not in COLUMNS:
            raise invalid_request(f"{name} is not a valid search key")
        if not isinstance(tests, dict) or set(tests) - OPERATORS:
            raise invalid_request(f"select_filters.{name}: Input should be a valid dictionary")
        filters[ID_ALIAS if name == "id" else name] = tests
    return filters


def _passes(row: Row, filters: dict[str, dict[str, object]]) -> bool:
    return not filters or search.matches({**row, ID_ALIAS: row["id"]}, filters)


def _order(value: object) -> Order:
    order: Order = []
    for item in value if isinstance(value, list) else []:
        column = item.get("col") if isinstance(item, dict) else None
        if not isinstance(column, str) or column not in COLUMNS:
            raise invalid_request(f"{column} is not a valid search key")
        order.append((column, item.get("dir") == "desc"))
    if "id" not in {column for column, _ in order}:
        order.append(("id", False))
    return order


def _limit(value: object) -> int:
    if value is None:
        return PAGE_ROWS
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid_request("limit: Input should be a valid integer")
    return min(value, PAGE_ROWS) if value > 0 else PAGE_ROWS_FOR_NONSENSE


def _key(row: Row, order: Order) -> list[object]:
    return [row.get(column) for column, _ in order]


def _compare(left: list[object], right: list[object], order: Order) -> int:
    for a, b, (_, descending) in zip(left, right, order, strict=True):
        sign = _compare_values(a, b)
        if sign:
            return -sign if descending else sign
    return 0


def _compare_values(a: object, b: object) -> int:
    if a is None or b is None:
        return (a is not None) - (b is not None)
    if isinstance(a, int | float) and isinstance(b, int | float):
        return (a > b) - (a < b)
    return (str(a) > str(b)) - (str(a) < str(b))


def _write_token(row: Row, order: Order) -> str:
    return base64.urlsafe_b64encode(
        msgspec.json.encode({"order": order, "values": _key(row, order)})
    ).decode()


def _read_token(text: str, order: Order) -> list[object]:
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Token)
    except (ValueError, msgspec.MsgspecError) as exc:
        raise MarketRefused(400, "invalid_token", "Invalid page token.") from exc
    if token.order != order or len(token.values) != len(order):
        raise MarketRefused(400, "invalid_token", "The page token is of another query.")
    return list(token.values)


def _label_counts(rows: list[Row]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        label = str(row["label"] or "")
        counts[label] = counts.get(label, 0) + 1
    return counts


def _columns(row: Row, columns: object) -> Row:
    if not isinstance(columns, list) or not columns or "*" in columns:
        return row
    return {name: row.get(name) for name in columns if isinstance(name, str)}
