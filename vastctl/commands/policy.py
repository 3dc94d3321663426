"""`policy`: what one machine is allowed, and changing it while it runs."""

import argparse
from argparse import ArgumentParser
from typing import Final

from vastctl import options, values, words
from vastctl.client import DaemonError, new_request_id
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.table import pairs
from vastctl.transfer import resolve
from vastd_protocol.errors import ErrorCode, ExitCode
from vastd_protocol.methods import policy
from vastd_protocol.methods.policy import PolicyView
from vastd_protocol.methods.rental import RentalRef

EXAMPLES: Final = """\
  vastctl policy r-1
  vastctl policy r-1 max_runtime=8h budget=5
  vastctl policy r-1 idle=off keep=yes"""

_KEYS: Final = {
    "budget": "budget_usd",
    "max_runtime": "max_runtime_s",
    "idle": "idle_s",
    "grace": "grace_s",
    "keep": "keep",
}
_YES_NO: Final = {"yes": True, "true": True, "no": False, "false": False}


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)
    parser.add_argument(
        "changes",
        metavar="KEY=VALUE",
        nargs="*",
        help="budget=USD, max_runtime=DUR, idle=DUR (or off: only warn), grace=DUR, keep=yes|no",
    )


def run(ctx: Context) -> int:
    args = ctx.args
    words_of_change = list(args.changes)
    if args.rental is not None and "=" in args.rental:
        # Without a machine's name the first word is a change.
        words_of_change.insert(0, args.rental)
        args.rental = None
    changes = values.once(_change(text) for text in words_of_change)
    rental = resolve(ctx, args.rental)
    if changes:
        body = _set(ctx, rental.rental_id, rental.name, changes)
    else:
        body = ctx.client.raw(policy.GET, RentalRef(rental=rental.rental_id))
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    for line in _lines(ctx, ctx.client.view(policy.GET, body)):
        ctx.screen.out(line)
    return ExitCode.OK


def _change(text: str) -> tuple[str, float | bool | None]:
    name, equals, raw = text.partition("=")
    key, word = name.strip().replace("-", "_"), raw.strip()
    key = key.removesuffix("_usd").removesuffix("_s")
    if not equals or key not in _KEYS:
        raise UsageError(
            f"{text!r} is no limit of a machine",
            hint=f"write KEY=VALUE; the keys are {', '.join(_KEYS)}",
        )
    try:
        return _KEYS[key], _value(key, word)
    except argparse.ArgumentTypeError as exc:
        raise UsageError(f"{key}: {exc}") from None


def _value(key: str, word: str) -> float | bool | None:
    if key == "keep":
        if word.lower() not in _YES_NO:
            raise UsageError(f"keep must be yes or no, not {word!r}")
        return _YES_NO[word.lower()]
    if word.lower() == "off":
        if key != "idle":
            raise UsageError(f"{key} cannot be off", hint="give a wider limit")
        return None
    if key == "grace" and word == "0":
        return 0.0
    return values.usd(word.removeprefix("$")) if key == "budget" else values.duration(word)


def _set(ctx: Context, rental_id: str, name: str, changes: dict[str, float | bool | None]) -> bytes:
    def wish(*, confirmed: bool) -> policy.PolicySetParams:
        return policy.PolicySetParams(
            rental=rental_id,
            changes=changes,
            even_if_it_ends=confirmed,
            request_id=new_request_id(),
        )

    try:
        return ctx.client.raw(policy.SET, wish(confirmed=ctx.args.yes))
    except DaemonError as exc:
        if (
            exc.code != ErrorCode.POLICY_REFUSED
            or not ctx.interactive
            or "would end" not in str(exc)
        ):
            raise
        ctx.confirm(f"end machine {name} by this limit", [f"  {exc}"])
        return ctx.client.raw(policy.SET, wish(confirmed=True))


def _lines(ctx: Context, view: PolicyView) -> list[str]:
    now = ctx.now()
    left = "" if view.budget_left_usd is None else f" ({words.money(view.budget_left_usd)} left)"
    at = words.epoch(view.deadline_at)
    ends = "" if at is None else f" ({words.countdown(view.deadline_at, now)})"
    idle = "warns only" if view.idle_s is None else words.limit(view.idle_s)
    rows = [
        ("machine", f"{view.name} ({view.rental_id}), {words.phase(view.phase)}"),
        ("budget", "-" if view.budget_usd is None else words.money(view.budget_usd) + left),
        (
            "max_runtime",
            "-" if view.max_runtime_s is None else words.limit(view.max_runtime_s) + ends,
        ),
        ("idle", idle),
        ("grace", "-" if view.grace_s is None else words.limit(view.grace_s)),
        ("keep", "yes" if view.keep else "no"),
        ("heartbeat", _heartbeat(view)),
        ("checkpoint", view.checkpoint_path or ""),
    ]
    lines = pairs([row for row in rows if row[1]], columns=ctx.screen.out_columns)
    if view.max_dph_usd is not None:
        lines.append(f"never more than {words.rate(view.max_dph_usd)} (budget.max_dph_usd)")
    return lines


def _heartbeat(view: PolicyView) -> str:
    if view.heartbeat_path is None:
        return ""
    every = view.heartbeat_interval_s
    return view.heartbeat_path + ("" if every is None else f", every {words.limit(every)}")
