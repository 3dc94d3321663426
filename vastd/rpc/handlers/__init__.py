"""One module per noun: what each method does. Handlers decide and answer; effects do the work."""

from typing import Any

from vastd.rpc.context import Context
from vastd.rpc.dispatch import Handler, collect
from vastd.rpc.handlers import (
    access,
    choosing,
    daemons,
    following,
    hosts,
    jobs,
    leases,
    money,
    pausing,
    policies,
    records,
    rentals,
    setup,
    strangers,
)


def all_handlers() -> list[Handler[Context, Any, Any]]:
    """Return the handlers of every method."""
    return collect(
        access,
        choosing,
        daemons,
        following,
        hosts,
        jobs,
        leases,
        money,
        pausing,
        policies,
        records,
        rentals,
        setup,
        strangers,
    )
