"""`policy.*`: what one rental is allowed, shown and changed while it lives."""

import math
from typing import Final

from msgspec import structs

from vastd.bidding import check_bid, send_bid
from vastd.core import billing, endings, every_watchdog, steps, watchdogs
from vastd.core import events as ev
from vastd.core.alarms import End
from vastd.core.instants import maybe
from vastd.core.money import Micros, from_usd, show, show_two, to_usd
from vastd.core.rental import OnOutbid, Phase, Policy, Rental
from vastd.errors import BudgetExceeded, InvalidRequest, PolicyRefused
from vastd.rpc.context import Context
from vastd.rpc.dispatch import Call, handles
from vastd.rpc.handlers.resolve import find_rental
from vastd.rpc.views.explain import watchdog_view
from vastd.spending import admit
from vastd_protocol.methods import policy as wire
from vastd_protocol.methods.rental import RentalRef

MAX_SECONDS: Final = 31_536_000.0  # a year, as in the configuration: more is a unit mistaken
_KEYS: Final = (
    "budget_usd", "max_runtime_s", "idle_s", "grace_s", "keep", "on_outbid", "outbid_wait_s",
    "unreachable_end_s", "bid_usd",
)  # fmt: skip


@handles(wire.GET)
async def get(ctx: Context, params: RentalRef) -> wire.PolicyView:
    """Return the limits of one rental, with what every watchdog makes of them."""
    return _view(ctx, find_rental(ctx.shell.ledger, params.rental, params.project))


@handles(wire.SET)
async def change(ctx: Context, params: wire.PolicySetParams, call: Call) -> wire.PolicyView:
    """Change limits; the watchdogs look at the new ones from now on."""
    shell = ctx.shell
    rental = find_rental(shell.ledger, params.rental, params.project)
    if rental.ending is not None or rental.phase in (Phase.DESTROYING, Phase.GONE):
        raise PolicyRefused(
            f"the end of rental {rental.name!r} is decided ({rental.end_reason}): "
            "its limits change nothing any more"
        )
    bid = _bid(ctx, rental, params)
    policy = _changed(rental.policy, params.changes, cap=ctx.config.caps()[0])
    longer = policy.max_runtime_s - rental.policy.max_runtime_s
    deadline = None if rental.deadline_at is None else rental.deadline_at + longer
    after = structs.replace(rental, policy=policy, deadline_at=deadline)
    if not params.even_if_it_ends and (why := _ends_now(ctx, after)) is not None:
        raise PolicyRefused(
            f"that would end rental {rental.name!r} now: {why}; nothing was changed",
            hint="choose a wider limit, or confirm it with `-y`",
        )
    runs = rental.phase is not Phase.STOPPED or rental.start_asked_at is not None
    if _loosens(rental.policy, policy) and runs:
        admit(shell, after)  # it may spend more than was reserved for it
    events: list[ev.Event] = []
    if bid is not None:
        events.append(await send_bid(shell, rental, bid))
    event = ev.PolicyChanged(
        rental_id=rental.rental_id,
        at=shell.wall_clock(),
        policy=policy,
        deadline_at=deadline,
        changes=_told(rental.policy, policy),
    )
    if event.changes or not events:
        events.append(event)
    return ctx.commit(call, lambda: _view(ctx, shell.ledger.rental(rental.rental_id)), *events)


def _bid(ctx: Context, rental: Rental, params: wire.PolicySetParams) -> Micros | None:
    """Return the bid that is wanted, if it may be sent."""
    value = params.changes.get("bid_usd")
    if value is None or isinstance(value, (bool, str)):
        return None  # `_check` says what is wrong with it
    _check("bid_usd", value)
    bid = from_usd(float(value))
    check_bid(ctx.shell, rental, bid, losing=params.even_if_it_ends)
    return bid


@handles(wire.ENDINGS)
async def table(ctx: Context, params: wire.EndingsParams) -> wire.EndingsView:
    """Return the ending table: it is the same for every machine."""
    return wire.EndingsView(
        situations=list(endings.Situation),
        outcomes={outcome.name.lower(): outcome.value for outcome in endings.Outcome},
        endings=[
            wire.EndingView(
                trigger=trigger,
                when=endings.WHEN[trigger],
                rulings=[
                    wire.RulingView(
                        situation=situation,
                        outcome=row[situation].outcome.name.lower(),
                        why=row[situation].why,
                    )
                    for situation in endings.Situation
                ],
            )
            for trigger, row in endings.ENDINGS.items()
        ],
    )


def _changed(policy: Policy, changes: dict[str, wire.Value], *, cap: int) -> Policy:
    if not changes:
        raise InvalidRequest(f"no change: name at least one of {', '.join(_KEYS)}")
    for key, value in changes.items():
        if key not in _KEYS:
            raise InvalidRequest(
                f"{key[:40]!r} is no limit of a rental", hint=f"there are {', '.join(_KEYS)}"
            )
        _check(key, value)
    fields: dict[str, object] = {
        k: OnOutbid(str(v)) if k == "on_outbid" else v
        for k, v in changes.items()
        if not k.endswith("_usd")
    }
    if (usd := changes.get("budget_usd")) is not None:
        fields["budget"] = budget = from_usd(float(usd))
        if budget > cap:
            asked, allowed = show_two(budget, cap)
            raise BudgetExceeded(
                f"a budget of {asked} is over the cap of {allowed} for one job",
                hint="raise the cap with `vastctl budget per_job_usd=N`, or ask for less",
            )
    return structs.replace(policy, **fields)


def _check(key: str, value: wire.Value) -> None:
    if key == "on_outbid":
        if value not in {*OnOutbid}:
            raise InvalidRequest(f"on_outbid must be one of {', '.join(OnOutbid)}")
        return
    if key == "keep":
        if not isinstance(value, bool):
            raise InvalidRequest("keep must be true or false")
        return
    if value is None:
        if key in ("idle_s", "unreachable_end_s"):
            return  # then it is only warned about
        raise InvalidRequest(f"{key} cannot be switched off", hint="give a wider limit")
    if isinstance(value, (bool, str)) or not math.isfinite(value):
        raise InvalidRequest(f"{key} must be a number")
    least = 0 if key == "grace_s" else math.ulp(0.0)
    most = {"budget_usd": 1e6, "grace_s": 3600.0}.get(key, MAX_SECONDS)
    if not least <= value <= most:
        raise InvalidRequest(f"{key} must be {'0' if least == 0 else 'more than 0'} to {most:g}")


def _ends_now(ctx: Context, after: Rental) -> str | None:
    """Return why the new limits would end the rental at once, or None."""
    watch = ctx.supervisor.watch(after)
    now = ctx.shell.wall_clock()
    actions, _ = watchdogs.check([watch], now, every_watchdog.ALL)
    why = next((action.why for action in actions if isinstance(action, End)), None)
    if why is not None:
        return why
    step = steps.next_step(after, watch.jobs, watch.seen, watch.limits, now)
    return step.why if step.do is steps.Do.DECIDE_END else None  # keep=no, and its jobs are done


def _loosens(before: Policy, after: Policy) -> bool:
    dearer = (after.budget or math.inf) > (before.budget or math.inf)
    return dearer or after.max_runtime_s > before.max_runtime_s or (after.keep and not before.keep)


def _told(before: Policy, after: Policy) -> dict[str, tuple[str, str]]:
    names = (
        "budget", "max_runtime_s", "idle_s", "grace_s", "keep", "on_outbid", "outbid_wait_s",
        "unreachable_end_s",
    )  # fmt: skip
    values = [(name, getattr(before, name), getattr(after, name)) for name in names]
    return {name: (_text(name, old), _text(name, new)) for name, old, new in values if old != new}


def _text(name: str, value: wire.Value) -> str:
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return str(value)
    return show(int(value)) if name == "budget" else f"{value:g} s"


def _view(ctx: Context, rental: Rental) -> wire.PolicyView:
    policy, now = rental.policy, ctx.shell.wall_clock()
    spent = billing.cost(rental, now)
    watch = ctx.supervisor.watch(rental)
    return wire.PolicyView(
        rental_id=rental.rental_id,
        name=rental.name,
        phase=rental.phase,
        budget_usd=None if policy.budget is None else to_usd(policy.budget),
        max_runtime_s=policy.max_runtime_s,
        idle_s=policy.idle_s,
        grace_s=policy.grace_s,
        keep=policy.keep,
        unreachable_end_s=policy.unreachable_end_s,
        on_outbid=None if rental.order.bid is None else policy.on_outbid,
        outbid_wait_s=None if rental.order.bid is None else policy.outbid_wait_s,
        bid_usd=None if rental.order.bid is None else to_usd(rental.order.bid),
        max_dph_usd=None if policy.max_dph is None else to_usd(policy.max_dph),
        heartbeat_path=policy.heartbeat_path,
        heartbeat_interval_s=policy.heartbeat_interval_s if policy.heartbeat_path else None,
        checkpoint_path=policy.checkpoint_path,
        deadline_at=None if rental.paused_at is not None else maybe(rental.deadline_at),
        cost_usd=to_usd(spent),
        budget_left_usd=None if policy.budget is None else to_usd(max(0, policy.budget - spent)),
        watchdogs=[watchdog_view(dog, watch, now) for dog in every_watchdog.ALL],
    )
