"""Plans and offers as people read them, and the one question before money is spent."""

from collections.abc import Mapping, Sequence
from typing import Final

from vastctl import words
from vastctl.context import Context
from vastctl.errors import CliError, UsageError
from vastctl.table import pairs, table
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import config, task
from vastd_protocol.methods.task import Fact, Needs, OptionView, PlanView, Range

ROLE_WORDS: Final = {"cheapest": "cheapest", "best_value": "best value", "fastest": "fastest"}

_WEIGHS: Final = "a wait counts"  # how vastd begins the reason that tells what time is worth
_BUDGET: Final = "budget.per_job_usd"
_RUNTIME: Final = "defaults.max_runtime_s"


def option_lines(options: Sequence[OptionView], columns: int | None = None) -> list[str]:
    """Return the table of options, numbered from 1."""
    rows = [
        (
            str(number),
            ", ".join(ROLE_WORDS.get(role, role) for role in option.roles) or words.UNKNOWN,
            str(option.offer_id),
            words.gpu(option.gpu_name, option.num_gpus),
            f"{option.gpu_ram_mb / 1024:.0f} GB",
            words.rate(option.dph_usd),
            words.UNKNOWN if option.hours is None else f"{option.hours:.3g}",
            words.money(option.total_usd),
            words.UNKNOWN if option.reliability is None else f"{100 * option.reliability:.1f}%",
            option.geolocation or words.UNKNOWN,
        )
        for number, option in enumerate(options, 1)
    ]
    header = ("#", "ROLE", "OFFER", "GPU", "VRAM", "PRICE", "HOURS", "TOTAL", "RELIABLE", "PLACE")
    right = ("#", "VRAM", "PRICE", "HOURS", "TOTAL", "RELIABLE")
    return table(header, rows, right=right, columns=columns)


def value_lines(options: Sequence[OptionView]) -> list[str]:
    """Return one line on what the best value costs and saves, if it is not the cheapest."""
    best = next((o for o in options if "best_value" in o.roles), None)
    cheapest = next((o for o in options if "cheapest" in o.roles), None)
    if best is None or cheapest is None or best.offer_id == cheapest.offer_id:
        return []
    if None in (best.total_usd, cheapest.total_usd, best.hours, cheapest.hours):
        return []
    extra = (best.total_usd or 0.0) - (cheapest.total_usd or 0.0)
    saved = (cheapest.hours or 0.0) - (best.hours or 0.0)
    # vastd says how it weighs time, with the numbers of its configuration.
    weighed = next((r.partition(";")[0] for r in best.reasons if r.startswith(_WEIGHS)), "")
    line = f"best value: {words.money(extra)} more than the cheapest, done {saved:.1f} h sooner"
    return [line + (f" ({weighed})" if weighed else "")]


def flag_lines(options: Sequence[OptionView], *, reasons: bool) -> list[str]:
    """Return what is worth knowing of single options: flags, and `reasons` if asked for."""
    lines: list[str] = []
    for number, option in enumerate(options, 1):
        remarks = [*option.flags, *(option.reasons if reasons else ())]
        lines += [f"  {number}: {remark}" for remark in remarks]
    return lines


def removed_lines(removed: Mapping[str, int], considered: int) -> list[str]:
    """Return what each filter took away, the greediest first."""
    if not removed:
        return []
    listed = sorted(removed.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{name} {count}" for name, count in listed)
    return [f"of {considered} offers, removed by: {parts}"]


def plan_lines(plan: PlanView, *, explain: bool = False, columns: int | None = None) -> list[str]:
    """Return the whole plan as text."""
    needs = plan.requirements
    rows = [
        ("GPUs", _fact(needs.num_gpus, "")),
        ("memory per GPU", _fact(needs.min_vram_gb, " GB") or _range(needs.vram_gb, " GB")),
        ("disk", _fact(needs.disk_gb, " GB")),
        ("CUDA", _fact(needs.cuda, "")),
        ("image", _fact(needs.image, "")),
        ("hours", _range(needs.hours, "")),
    ]
    lines = ["needs:", *pairs([row for row in rows if row[1]], indent="  ")]
    lines += _limit_lines(plan, explain=explain)
    if explain:
        known = {name: getattr(plan.task, name) for name in plan.task.__struct_fields__}
        facts = [(name, _fact(fact, "")) for name, fact in known.items() if fact is not None]
        lines += ["task as understood:", *pairs(facts, indent="  ")] if facts else []
    if plan.options:
        lines += ["", *option_lines(plan.options, columns), *value_lines(plan.options)]
        lines += flag_lines(plan.options, reasons=explain)
    lines += removed_lines(plan.removed, plan.considered) if explain or not plan.options else []
    lines += [f"warning: {warning}" for warning in plan.warnings]
    if plan.question:
        lines.append(f"would help to know: {plan.question}")
    return lines


def _limit_lines(plan: PlanView, *, explain: bool) -> list[str]:
    """Return whose defaults count and what bounds the spending; defaults only if asked for."""
    facts = dict(plan.limits)
    if plan.profile is not None:
        facts = {"profile": plan.profile, **facts}
    rows = [
        (key, f"{_plain(fact.value)}  ({fact.source})")
        for key, fact in facts.items()
        if explain or fact.source != "default"
    ]
    return ["limits:", *pairs(rows, indent="  ")] if rows else []


def _plain(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _fact(fact: Fact | None, unit: str) -> str:
    if fact is None:
        return ""
    value = f"{fact.value:g}" if isinstance(fact.value, float) else str(fact.value)
    return f"{value}{unit}  ({fact.confidence}: {fact.source})"


def _range(spread: Range | None, unit: str) -> str:
    if spread is None:
        return ""
    source = f"  ({spread.source})" if spread.source else ""
    if spread.low == spread.high:
        return f"{spread.mid:g}{unit}{source}"
    return f"{spread.low:g} to {spread.high:g}{unit}, probably {spread.mid:g}{source}"


def none_fits(removed: Mapping[str, int], considered: int) -> CliError:
    """Return the error for a search without a result."""
    why = "; ".join(removed_lines(removed, considered))
    return CliError(
        f"none of {considered} offers fits" + (f"; {why}" if why else ""),
        hint="loosen the filter that removed most: price, memory, disk or GPU name",
        exit_code=ExitCode.NO_OFFER,
    )


def most(ctx: Context) -> str:
    """Return the most that can be lost: what the options say, else vastd's defaults."""
    usd, seconds = ctx.args.budget, ctx.args.max_runtime
    money = f"{words.money(usd)} (--budget)"
    time = f"{words.limit(seconds or 0)} (--max-runtime)"
    if usd is None or seconds is None:
        found = ctx.client.call(config.GET, config.ConfigGetParams(project=ctx.project)).settings
        defaults = {setting.key: setting.value for setting in found}
        origins = {setting.key: setting.origin for setting in found}
        if usd is None:
            usd = defaults.get(_BUDGET)
            shown = words.money(usd) if isinstance(usd, int | float) else f"the cap {_BUDGET}"
            money = f"{shown} ({origins.get(_BUDGET, 'default')}; --budget)"
        if seconds is None:
            seconds = defaults.get(_RUNTIME)
            shown = words.limit(seconds) if isinstance(seconds, int | float) else _RUNTIME
            time = f"{shown} ({origins.get(_RUNTIME, 'default')}; --max-runtime)"
    return f"at most {money} and {time}"


def choose(
    ctx: Context, needs: Needs, *, what: str, budget_usd: float | None, explain: bool = False
) -> Needs:
    """Return `needs` after the user agreed to spend, with his offer if he picked one.

    Whatever way he agreed, he is told the most that can be lost.

    With `-y`, or a budget where nobody can be asked, vastd takes the best value itself: it knows
    the next best offer when one is gone meanwhile.

    Raises:
        UsageError: the answer is no, or nobody can be asked.
        CliError: no offer fits.
    """
    if not ctx.args.yes and not ctx.interactive and budget_usd is None:
        raise UsageError(
            f"{what} spends money, and there is no terminal to ask on",
            hint="add `-y`, or say what it may cost with `--budget USD`",
        )
    if ctx.args.yes or not ctx.interactive:
        if not ctx.json and not ctx.screen.quiet:
            ctx.screen.note(most(ctx))
        return needs
    limits = most(ctx)
    ctx.screen.note("searching offers")
    plan = ctx.client.call(
        task.PLAN, task.PlanParams(needs=needs, project=ctx.project, budget_usd=budget_usd)
    )
    if not plan.options:
        raise none_fits(plan.removed, plan.considered)
    return with_offer(needs, _ask(ctx, plan, limits, explain=explain))


def with_offer(needs: Needs, offer_id: int) -> Needs:
    """Return `needs` for this offer and no other."""
    fields = {name: getattr(needs, name) for name in needs.__struct_fields__}
    return Needs(**{**fields, "offer_id": offer_id})


def rent_lines(ctx: Context, offers: Sequence[OptionView]) -> list[str]:
    """Return for each offer the command that rents it as it was planned here."""
    from shlex import join

    said = vars(ctx.args)
    words_of = {
        "--name": said.get("name"),
        "--profile": said.get("profile"),
        "--hours": said.get("hours"),
        "--disk": said.get("disk"),
        "--image": said.get("image"),
        "--max-price": said.get("max_price"),
        "--budget": said.get("budget"),
        "--max-runtime": said.get("max_runtime"),
        "--idle": said.get("idle"),
    }
    options: list[str] = []
    for option, value in words_of.items():
        if value is not None:
            timed = option in ("--max-runtime", "--idle")
            options += [option, _typed(value) if timed else _number(value)]
    if said.get("spot") is not None:
        options += ["--spot", *([_number(said["spot"])] if isinstance(said["spot"], float) else [])]
    options += ["--on-demand"] if said.get("on_demand") else []
    return [join(["vastctl", "rent", str(o.offer_id), *options, "-y"]) for o in offers]


def _number(value: float | str) -> str:
    """Return a number with all its digits, as options take it."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _typed(seconds: float) -> str:
    """Return a length of time as options take it: one number and one unit."""
    units = ((86_400, "d"), (3600, "h"), (60, "m"))
    fitting = ((unit_s, unit) for unit_s, unit in units if seconds % unit_s == 0)
    unit_s, unit = next(fitting, (1, "s"))
    return f"{_number(seconds / unit_s)}{unit}"


def _ask(ctx: Context, plan: PlanView, limits: str, *, explain: bool) -> int:
    options = plan.options
    best = next((i for i, o in enumerate(options, 1) if "best_value" in o.roles), 1)
    numbers = "1" if len(options) == 1 else f"1-{len(options)}"
    above = [*plan_lines(plan, explain=explain), limits]
    for _ in range(3):
        answer = ctx.screen.ask(f"rent which? [{numbers}: number to rent, Enter to abort]", above)
        if answer in ("y", "yes"):
            return options[best - 1].offer_id
        if answer.isdigit() and 1 <= int(answer) <= len(options):
            return options[int(answer) - 1].offer_id
        if answer.isdigit() and any(int(answer) == option.offer_id for option in options):
            return int(answer)
        if answer in ("", "n", "no", "q"):
            break
        above = [f"{answer[:20]!r} is none of the answers"]
    raise UsageError("not confirmed: nothing was rented")
