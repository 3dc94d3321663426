"""The method table: one module per noun, imported when a call of that noun is made."""

from importlib import import_module
from typing import Any, Final

from vastd_protocol.method import Method

# The first word of a method's name -> the module that holds its row. `initialize` has no dot.
MODULE_OF: Final[dict[str, str]] = {
    "initialize": "daemon",
    "rpc": "daemon",
    "daemon": "daemon",
    "doctor": "doctor",
    "config": "config",
    "task": "task",
    "offer": "offer",
    "rental": "rental",
    "policy": "policy",
    "lease": "lease",
    "reconcile": "reconcile",
    "job": "job",
    "setup": "setup",
    "record": "record",
    "log": "log",
    "host": "host",
    "exec": "access",
    "ssh": "access",
    "file": "file",
    "event": "event",
    "cost": "cost",
    "budget": "budget",
}


def find(name: str) -> Method[Any, Any] | None:
    """Return the row of method `name`, or None if there is no such method."""
    module = MODULE_OF.get(name.partition(".")[0])
    if module is None:
        return None
    rows: tuple[Method[Any, Any], ...] = import_module(f"{__name__}.{module}").METHODS
    return next((row for row in rows if row.name == name), None)


def every() -> list[Method[Any, Any]]:
    """Return all rows, by name. Imports every module: for `rpc.discover` and the daemon."""
    rows: list[Method[Any, Any]] = []
    for module in sorted(set(MODULE_OF.values())):
        rows.extend(import_module(f"{__name__}.{module}").METHODS)
    return sorted(rows, key=lambda row: row.name)
