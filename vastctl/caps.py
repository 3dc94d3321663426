"""Asking before a cap is changed so that machines end earlier than they were promised."""

from collections.abc import Mapping
from typing import Final

from vastctl import words
from vastctl.context import Context
from vastd_protocol.methods import budget
from vastd_protocol.methods.budget import CapView

HOLDERS_SHOWN: Final = 5  # guess: more is what `ls` is for
# Caps that machines share: at one of them every machine ends that it covers. `per_job_usd` and
# `max_dph_usd` are written into a machine's own limits when it is rented.
_SHARED: Final = frozenset({"day", "month", "project"})


def confirm_caps(ctx: Context, changes: Mapping[str, object]) -> None:
    """Ask before a shared cap is set below what is spent and promised of it already.

    `changes`: by key, with or without its table; None makes the default count again. Other
    settings among them are not looked at.
    """
    bare = {key.removeprefix("budget."): value for key, value in changes.items()}
    if not any(key.startswith("per_") for key in bare):
        return
    now = ctx.client.call(budget.GET, budget.BudgetGetParams(project=ctx.project))
    lines: list[str] = []
    said: list[str] = []
    for cap in now.caps:
        if cap.key not in bare or cap.window not in _SHARED or not cap.reserved_by:
            continue
        wanted = bare[cap.key]
        value = cap.default_usd if wanted is None else _number(wanted)
        if value is not None and (line := _harm(cap, value)):
            said.append(f"{cap.key} to {words.money(value)}")
            lines.append(f"  {line}")
    if lines:
        ctx.confirm(f"set {' and '.join(said)}", lines)


def _harm(cap: CapView, value: float) -> str:
    """Return what a cap of `value` would do to machines that run; empty when nothing."""
    spent, reserved = cap.spent_usd or 0.0, cap.reserved_usd or 0.0
    named = ", ".join(who.name for who in cap.reserved_by[:HOLDERS_SHOWN])
    more = len(cap.reserved_by) - HOLDERS_SHOWN
    named += f" and {more} more" if more > 0 else ""
    if value <= spent:
        return f"{words.money(spent)} is spent already: {named} would be collected and destroyed"
    if round(value - spent - reserved, 6) < 0:
        return (
            f"{words.money(spent)} is spent and {words.money(reserved)} is reserved by {named}: "
            "they would be collected and destroyed when spending reaches the cap, before they are due"
        )
    return ""


def _number(value: object) -> float | None:
    """Return what vastd will read; None for what it will refuse."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
