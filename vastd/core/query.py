"""Vast's offer query language, as its command line client reads it: text to a filter object.

Where the client is known to be wrong or merely silent, we differ (client 1.9.1, VAST_API 2.3):
1. Numbers are numbers: the client sends `"1"` for most fields and lets the server convert.
2. Single quotes quote; the client keeps them inside the value.
3. `gpu_name=[A,B]` means *in*, `!=` with a list *not in*; the client sends one string "A,B".
4. A field nobody knows is an error with a suggestion; the client warns and sends it.
5. `id` becomes `ask_contract_id`: filtering on `id` was seen to return nothing (2026-10-02).
6. A GPU may be named as people do (`4090`, `H100`, `rtx_4090`): Vast matches exact names only.
7. The same test twice on one field is an error; the client silently keeps the last.
8. `driver_version>=570` is understood; the client sends anything but x.y.z as text.
"""

import difflib
import math
import re
from typing import Final

from msgspec import Struct, field

from vastd.core import gpus
from vastd.errors import InvalidRequest

MB_PER_GB: Final = 1000.0  # Vast's memory is decimal (VAST_API 2.3)
SECONDS_PER_DAY: Final = 86_400.0
MULTIPLIERS: Final = {
    "cpu_ram": MB_PER_GB,
    "gpu_ram": MB_PER_GB,
    "gpu_total_ram": MB_PER_GB,
    "duration": SECONDS_PER_DAY,
}
ALIASES: Final = {
    "cuda_vers": "cuda_max_good",
    "display_active": "gpu_display_active",
    "dlperf_usd": "dlperf_per_dphtotal",
    "dph": "dph_total",
    "flops_usd": "flops_per_dphtotal",
    "id": "ask_contract_id",
}
TEXT_FIELDS: Final = frozenset(
    {"cpu_arch", "gpu_arch", "gpu_name", "mobo_name", "ubuntu_version", "verification", "geolocation"}
)  # fmt: skip
BOOL_FIELDS: Final = frozenset(
    {
        "datacenter", "external", "gpu_display_active", "has_avx", "rentable", "rented",
        "static_ip", "verified", "vms_enabled",
    }
)  # fmt: skip
NUMBER_FIELDS: Final = frozenset(
    {
        "ask_contract_id", "bw_nvlink", "cluster_id", "compute_cap", "cpu_cores",
        "cpu_cores_effective", "cpu_ghz", "cpu_ram", "cuda_max_good", "direct_port_count",
        "disk_bw", "disk_space", "dlperf", "dlperf_per_dphtotal", "dph_base", "dph_total",
        "driver_version", "duration", "flops_per_dphtotal", "gpu_frac", "gpu_max_power",
        "gpu_max_temp", "gpu_mem_bw", "gpu_ram", "gpu_total_ram", "host_id", "hosting_type",
        "inet_down", "inet_down_cost", "inet_up", "inet_up_cost", "machine_id", "min_bid",
        "num_gpus", "pci_gen", "pcie_bw", "reliability", "reliability2", "score",
        "storage_cost", "total_flops",
    }
)  # fmt: skip
FIELDS: Final = TEXT_FIELDS | BOOL_FIELDS | NUMBER_FIELDS
SYMBOLS: Final = {
    "==": "eq", "!=": "neq", ">=": "gte", "<=": "lte", "=": "eq", ">": "gt", "<": "lt",
}  # fmt: skip
WORDS: Final = {
    "not eq": "neq", "not in": "notin", "noteq": "neq", "notin": "notin", "nin": "notin",
    "neq": "neq", "gte": "gte", "lte": "lte", "eq": "eq", "gt": "gt", "lt": "lt", "in": "in",
}  # fmt: skip
LISTS: Final = {"eq": "in", "neq": "notin", "in": "in", "notin": "notin"}
WILDCARDS: Final = frozenset({"any", "*", "?"})
# What the client adds unless the query names the field.
DEFAULTS: Final = {"verified": True, "external": False, "rentable": True}

_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SYMBOL: Final = re.compile(r"[=!<>]+")
_WORD: Final = re.compile(r"(not ?eq|not ?in|nin|neq|gte|lte|eq|gt|lt|in)(?=[\s\[\"'])")
_BARE: Final = re.compile(r"[^\s\"'\[\]]+")

Filters = dict[str, dict[str, object]]


class OfferFilter(Struct, frozen=True, kw_only=True):
    """A query as understood. `named` are the fields it mentions, also those it sets to `any`."""

    filters: Filters = field(default_factory=dict)  # field -> {operator: value}
    named: frozenset[str] = frozenset()


def parse(text: str) -> OfferFilter:
    """Read a query; an empty one asks for nothing. Vast's defaults are not added: `with_defaults`.

    Raises:
        InvalidRequest: names the position (from 1), what was found and what would be right.
    """
    return _Reader(text).read()


def with_defaults(query: OfferFilter) -> Filters:
    """Return the filters of `query` with Vast's defaults for the fields it does not name."""
    defaults: Filters = {
        name: {"eq": value} for name, value in DEFAULTS.items() if name not in query.named
    }
    return {**defaults, **query.filters}


def driver_number(version: str) -> int | None:
    """Return a driver version as Vast compares it: `535.86.05` is 535086005; None if it is none."""
    parts = version.strip().split(".")
    if not 1 <= len(parts) <= 3 or not all(part.isdecimal() and len(part) <= 3 for part in parts):
        return None
    return int("".join(part.zfill(3) for part in [*parts, "0", "0"][:3]))


class _Reader:
    """One pass over the text; `_at` is where it stands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._filters: Filters = {}
        self._named: set[str] = set()

    def read(self) -> OfferFilter:
        self._skip_spaces()
        while self._at < len(self._text):
            self._read_test()
            self._skip_spaces()
        return OfferFilter(filters=self._filters, named=frozenset(self._named))

    def _read_test(self) -> None:
        start = self._at
        name = self._read_field()
        self._skip_spaces()
        op = self._read_operator(name)
        self._skip_spaces()
        value_at = self._at
        raw = self._read_value(name)
        self._named.add(name)
        if isinstance(raw, str) and raw.lower() in WILDCARDS:
            if op != "eq":
                raise self._error(start, f"`any` goes only with `=`, not with {op!r}")
            if name in self._filters:
                raise self._error(start, f"{name!r} cannot be tested and be `any` as well")
            return
        op, value = self._convert(name, op, raw, value_at)
        tests = self._filters.setdefault(name, {})
        if op in tests:
            hint = f"several values: {name} {LISTS[op]} [A,B]" if op in LISTS else ""
            raise self._error(start, f"{name!r} is tested twice with {op!r}", hint)
        tests[op] = value

    def _read_field(self) -> str:
        found = _FIELD.match(self._text, self._at)
        if found is None:
            word = self._text[self._at :].split(maxsplit=1)[0]
            raise self._error(
                self._at,
                f"expected a field name, found {word!r}; a value with spaces needs quotes"
                " or underscores",
            )
        name = ALIASES.get(found.group(), found.group())
        if name not in FIELDS:
            raise self._unknown_field(found.group())
        self._at = found.end()
        return name

    def _unknown_field(self, name: str) -> InvalidRequest:
        close = difflib.get_close_matches(name, sorted(FIELDS | set(ALIASES)), n=2)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else ""
        return self._error(self._at, f"no offer field is called {name!r}", hint)

    def _read_operator(self, name: str) -> str:
        symbol = _SYMBOL.match(self._text, self._at)
        if symbol is not None:
            if symbol.group() not in SYMBOLS:
                raise self._error(self._at, f"unknown operator {symbol.group()!r} after {name!r}")
            self._at = symbol.end()
            return SYMBOLS[symbol.group()]
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise self._error(
                self._at,
                f"expected an operator after {name!r}",
                "operators: = != > >= < <= in notin (also eq neq gt gte lt lte)",
            )
        self._at = word.end()
        return WORDS[word.group()]

    def _read_value(self, name: str) -> str | list[str]:
        rest = self._text[self._at : self._at + 1]
        if rest == "[":
            return self._read_list(name)
        if rest in ("'", '"') and rest:
            return self._read_quoted(rest)
        found = _BARE.match(self._text, self._at)
        if found is None:
            raise self._error(self._at, f"{name!r} has no value")
        self._at = found.end()
        return found.group()

    def _read_quoted(self, quote: str) -> str:
        end = self._text.find(quote, self._at + 1)
        if end < 0:
            raise self._error(self._at, f"the quote {quote} is never closed")
        value = self._text[self._at + 1 : end]
        self._at = end + 1
        return value

    def _read_list(self, name: str) -> list[str]:
        end = self._text.find("]", self._at)
        if end < 0:
            raise self._error(self._at, "the list is never closed with ]")
        inside = self._text[self._at + 1 : end]
        items = [item.strip().strip("'\"") for item in inside.split(",")]
        if not all(items):
            raise self._error(self._at, f"the list of {name!r} has an empty item")
        self._at = end + 1
        return items

    def _convert(self, name: str, op: str, raw: str | list[str], at: int) -> tuple[str, object]:
        if isinstance(raw, list) and op not in LISTS:
            raise self._error(at, f"a list goes with in, notin, = or !=, not with {op!r}")
        if op in ("in", "notin") and isinstance(raw, str):
            raw = [raw]  # `geolocation in SE` can only mean a list of one
        if name in TEXT_FIELDS and op not in LISTS:
            raise self._error(at, f"{name!r} is text: it can be =, !=, in or notin, not {op!r}")
        if name == "gpu_name":
            return self._gpu_names(op, raw)
        if isinstance(raw, list):
            return LISTS[op], [self._scalar(name, op, item, at) for item in raw]
        return op, self._scalar(name, op, raw, at)

    def _gpu_names(self, op: str, raw: str | list[str]) -> tuple[str, object]:
        names: list[str] = []
        for item in raw if isinstance(raw, list) else [raw]:
            spelt = item.replace("_", " ")
            names += gpus.expand(spelt) or (spelt,)
        names = list(dict.fromkeys(names))
        if op in ("eq", "neq") and len(names) == 1:
            return op, names[0]
        return LISTS[op], names

    def _scalar(self, name: str, op: str, raw: str, at: int) -> object:
        if raw.lower() in ("none", "null"):
            return None
        if name in TEXT_FIELDS:
            return raw.replace("_", " ")
        if name in BOOL_FIELDS:
            return self._truth(name, op, raw, at)
        if name == "driver_version" and (version := driver_number(raw)) is not None:
            return version
        return self._number(name, raw, at)

    def _truth(self, name: str, op: str, raw: str, at: int) -> bool:
        words = {"true": True, "false": False, "1": True, "0": False}
        if raw.lower() not in words or op not in LISTS:
            raise self._error(at, f"{name!r} is true or false (or `any`), not {op} {raw!r}")
        return words[raw.lower()]

    def _number(self, name: str, raw: str, at: int) -> float | int:
        try:
            number = float(raw)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            units = {"gpu_ram": " in GB", "cpu_ram": " in GB", "duration": " in days"}
            wanted = f"a number{units.get(name, '')}"
            raise self._error(at, f"{name!r} needs {wanted}, not {raw!r}")
        if name in MULTIPLIERS:
            return number * MULTIPLIERS[name]
        return int(number) if re.fullmatch(r"[+-]?[0-9]+", raw) else number

    def _skip_spaces(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _error(self, at: int, what: str, hint: str = "") -> InvalidRequest:
        return InvalidRequest(
            f"cannot read the query at position {at + 1}: {what}",
            hint=hint or "example: vastctl offers 'gpu_ram>=24 num_gpus=1 reliability>0.98'",
        )
