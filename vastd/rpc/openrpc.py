"""The OpenRPC document of the method table, for `rpc.discover`."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from vastd_protocol.errors import ErrorCode, ErrorData
from vastd_protocol.method import Method
from vastd_protocol.methods import event, log
from vastd_protocol.methods.event import EventView, Progress
from vastd_protocol.methods.log import LogAppended
from vastd_protocol.version import PROTOCOL_VERSION, VASTD_VERSION

OPENRPC_VERSION: Final = "1.3.2"  # spec.open-rpc.org, the newest that tools read
_REF: Final = "#/components/schemas/{name}"

# OpenRPC has no word for what a server sends unasked, so these stand under an extension.
NOTIFICATIONS: Final[dict[str, type[msgspec.Struct]]] = {
    event.PUBLISHED: EventView,
    event.PROGRESS: Progress,
    log.APPENDED: LogAppended,
}

Json = dict[str, Any]


def document(methods: Iterable[Method[Any, Any]]) -> Json:
    """Return the OpenRPC document of `methods`, as plain JSON data."""
    rows = list(methods)
    types: list[Any] = [ErrorData, *NOTIFICATIONS.values()]
    for row in rows:
        types += [row.params, row.result]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    found = iter(schemas)
    error_data = next(found)
    notifications = [
        {"name": name, "params": schema} for name, schema in zip(NOTIFICATIONS, found, strict=False)
    ]
    return {
        "openrpc": OPENRPC_VERSION,
        "info": {
            "title": "vastd",
            "version": VASTD_VERSION,
            "x-protocol-version": PROTOCOL_VERSION,
        },
        "methods": [_method(row, next(found), next(found), components) for row in rows],
        "components": {
            "schemas": components,
            "errors": {
                code.name: {
                    "code": code.value,
                    "message": code.name.lower().replace("_", " "),
                }
                for code in ErrorCode
            },
        },
        "x-error-data": error_data,
        "x-notifications": notifications,
    }


def _method(row: Method[Any, Any], params: Json, result: Json, components: Json) -> Json:
    schema = components[params["$ref"].rpartition("/")[2]]
    required = schema.get("required", [])
    # Required ones first: OpenRPC forbids the other order, whatever the structure.
    names = sorted(schema["properties"], key=lambda name: name not in required)
    return {
        "name": row.name,
        "summary": row.summary,
        "paramStructure": "by-name",
        "params": [
            {
                "name": name,
                "required": name in required,
                "schema": schema["properties"][name],
            }
            for name in names
        ],
        "result": {"name": "result", "schema": result},
        "x-mutates": row.mutates,
    }
