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
  vastctl policy r-1 idle=off keep=yes
  vastctl policy r-1 bid=0.35 on_outbid=rerent"""

_KEYS: Final = {
    "budget": "budget_usd",
    "max_runtime": "max_runtime_s",
    "idle": "idle_s",
    "grace": "grace_s",
    "keep": "keep",
    "on_outbid": "on_outbid",
    "outbid_wait": "outbid_wait_s",
    "unreachable": "unreachable_end_s",
    "bid": "bid_usd",
}
_MAY_BE_CONFIRMED: Final = ("would end", "does not win")
_MONEY: Final = frozenset({"budget", "bid"})
_YES_NO: Final = {"yes": True, "true": True, "no": False, "false": False}


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)
    parser.add_argument(
        "changes",
        metavar="KEY=VALUE",
        nargs="*",
        help="budget=USD, max_runtime=DUR, idle=DUR and unreachable=DUR (or off: only warn), grace=DUR, keep=yes|no; "
        "of an interruptible machine bid=USD, on_outbid=resume|rerent|end, outbid_wait=DUR",
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


def _change(text: str) -> tuple[str, policy.Value]:
    name, equals, raw = text.partition("=")
    key, word = name.strip().replace("-", "_"), raw.strip()
    key = key.removesuffix("_usd").removesuffix("_s").removesuffix("_end")
    if not equals or key not in _KEYS:
        raise UsageError(
            f"{text!r} is no limit of a machine",
            hint=f"write KEY=VALUE; the keys are {', '.join(_KEYS)}",
        )
    try:
        return _KEYS[key], _value(key, word)
    except argparse.ArgumentTypeError as exc:
        raise UsageError(f"{key}: {exc}") from None


def _value(key: str, word: str) -> policy.Value:
    if key == "on_outbid":
        if word.lower() not in options.ON_OUTBID:
            raise UsageError(
                f"on_outbid must be one of {', '.join(options.ON_OUTBID)}, not {word!r}"
            )
        return word.lower()
    if key == "keep":
        if word.lower() not in _YES_NO:
            raise UsageError(f"keep must be yes or no, not {word!r}")
        return _YES_NO[word.lower()]
    if word.lower() == "off":
        if key not in ("idle", "unreachable"):
            raise UsageError(f"{key} cannot be off", hint="give a wider limit")
        return None
    if key == "grace" and word == "0":
        return 0.0
    return values.usd(word.removeprefix("$")) if key in _MONEY else values.duration(word)


def _set(ctx: Context, rental_id: str, name: str, changes: dict[str, policy.Value]) -> bytes:
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
            or not any(words in str(exc) for words in _MAY_BE_CONFIRMED)
        ):
            raise
        loses = "does not win" in str(exc)
        what = (
            f"bid less than wins machine {name}" if loses else f"end machine {name} by this limit"
        )
        ctx.confirm(what, [f"  {exc}"])
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
        ("unreachable", _unreachable(view)),
        ("grace", "-" if view.grace_s is None else words.limit(view.grace_s)),
        ("keep", "yes" if view.keep else "no"),
        ("bid", "" if view.bid_usd is None else f"{words.rate(view.bid_usd)}, the disk is extra"),
        ("on_outbid", _on_outbid(view)),
        ("heartbeat", _heartbeat(view)),
        ("checkpoint", view.checkpoint_path or ""),
    ]
    lines = pairs([row for row in rows if row[1]], columns=ctx.screen.out_columns)
    if view.max_dph_usd is not None:
        lines.append(f"never more than {words.rate(view.max_dph_usd)} (budget.max_dph_usd)")
    return lines


def _unreachable(view: PolicyView) -> str:
    limit = view.unreachable_end_s
    return "warns only" if limit is None else f"ended after {words.limit(limit)}"


def _on_outbid(view: PolicyView) -> str:
    if view.on_outbid != "resume" or view.outbid_wait_s is None:
        return view.on_outbid or ""
    return f"resume; given up after {words.limit(view.outbid_wait_s)}"


def _heartbeat(view: PolicyView) -> str:
    if view.heartbeat_path is None:
        return ""
    every = view.heartbeat_interval_s
    return view.heartbeat_path + ("" if every is None else f", every {words.limit(every)}")
