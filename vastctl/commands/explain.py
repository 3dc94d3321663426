"""`explain`: one machine's story, what its money was spent on, and what would happen next and when."""

from argparse import ArgumentParser
from textwrap import wrap
from typing import Final

from vastctl import options, words
from vastctl.context import Context
from vastctl.errors import UsageError
from vastctl.table import pairs, table
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import policy
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.policy import EndingsView
from vastd_protocol.methods.rental import BillView, ExplainView, StepView, WatchdogView

EXAMPLES: Final = """\
  vastctl explain r-1
  vastctl explain r-1 --all       every watchdog, also those that are not armed
  vastctl explain --endings       how a machine ends, for every reason and situation"""

_HAS_WARNED: Final = "has warned already"  # vastd's words for a watchdog that only warns once
_STANDING: Final = {
    "warned": _HAS_WARNED,
    "unknown": "when is not known",
    "frozen": "waits for your network",
}
_SURE_CHARS: Final = 4  # guess: what is that long and occurs, is meant
_MARKS: Final = {"info": " ", "warning": "!", "error": "x"}


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)
    parser.add_argument(
        "--all", action="store_true", help="also the watchdogs that would do nothing now"
    )
    parser.add_argument(
        "--endings", action="store_true", help="how every reason to end a machine ends it"
    )


def run(ctx: Context) -> int:
    if ctx.args.endings:
        return _endings(ctx)
    wish = rentals.RentalRef(rental=ctx.args.rental, project=ctx.project)
    body = ctx.client.raw(rentals.EXPLAIN, wish)
    if ctx.json:
        ctx.emit(body)
        return 0
    for line in explain_lines(ctx, ctx.client.view(rentals.EXPLAIN, body)):
        ctx.screen.out(line)
    return 0


def _endings(ctx: Context) -> int:
    if ctx.args.rental is not None or ctx.args.all:
        raise UsageError(
            "--endings is about every machine: it takes neither RENTAL nor --all",
            hint=f"`vastctl explain {ctx.args.rental or 'RENTAL'}` tells one machine's story",
        )
    body = ctx.client.raw(policy.ENDINGS, policy.EndingsParams())
    if ctx.json:
        ctx.emit(body)
        return ExitCode.OK
    for line in endings_lines(ctx, ctx.client.view(policy.ENDINGS, body)):
        ctx.screen.out(line)
    return ExitCode.OK


def endings_lines(ctx: Context, view: EndingsView) -> list[str]:
    """Return the whole ending table as text: each cell with its reason."""
    bold = ctx.screen.bold
    lines = [bold("how a machine ends: the first situation that holds counts"), ""]
    header = ("END REASON", *(situation.upper() for situation in view.situations))
    rows = [(one.trigger, *(cell.outcome for cell in one.rulings)) for one in view.endings]
    lines += table(header, rows)
    lines += ["", bold("what is done"), *pairs(list(view.outcomes.items()), indent="  ")]
    whens = [(one.trigger, one.when) for one in view.endings]
    lines += ["", bold("when"), *pairs(whens, indent="  ")]
    alike: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for one in view.endings:
        cells = tuple((cell.situation, cell.outcome, cell.why) for cell in one.rulings)
        alike.setdefault(cells, []).append(one.trigger)
    for cells, triggers in alike.items():
        lines += ["", *(bold(line) for line in wrap(f"why: {', '.join(triggers)}", 100))]
        reasons = [(where, f"{outcome}: {why}") for where, outcome, why in cells]
        lines += pairs(reasons, indent="  ")
    return lines


def explain_lines(ctx: Context, story: ExplainView) -> list[str]:
    """Return the whole story as text."""
    rental, bold = story.rental, ctx.screen.bold
    gpu = words.gpu(rental.gpu_name, rental.num_gpus)
    head = f"{rental.name} ({rental.rental_id}): {words.phase(rental.phase)}, {gpu}"
    lines = [bold(f"{head}, {words.rate(rental.dph_usd)}")]
    if rental.waiting is not None:
        lines.append(
            f"it {rental.waiting}" if rental.waiting.startswith("ends") else rental.waiting
        )
    if story.timeline:
        lines += ["", bold("what happened"), *_timeline(ctx, story)]
    if story.bill is not None and story.bill.pieces:
        lines += ["", bold("what it cost"), *_bill_lines(ctx, story, story.bill)]
    elif story.phases:
        lines += ["", bold("what it cost"), *_cost_lines(story)]
    dogs = story.watchdogs if ctx.args.all else _awake(story)
    if dogs or rental.phase != "gone":
        lines += ["", bold("what the watchdogs would do")]
        lines += _watchdog_lines(dogs, ctx.now()) or ["  nothing is armed"]
    return lines + [f"warning: {warning}" for warning in rental.warnings]


def _timeline(ctx: Context, story: ExplainView) -> list[str]:
    """Return what happened and what it had cost by then; decisions with their rule and inputs."""
    priced = any(step.cost_usd for step in story.timeline)
    lines = []
    for step in story.timeline:
        job = f" [{step.job_id}]" if step.job_id else ""
        mark = _MARKS.get(step.severity, " ")
        spent = f" {words.money(step.cost_usd):>8}" if priced and step.cost_usd is not None else ""
        lines.append(f"  {words.clock(step.at)}{spent} {mark} {step.text}{job}")
        if step.rule is not None:
            lines.append(f"  {'':8}{' ' * len(spent)}     rule: {step.rule}{_inputs(step)}")
    return lines


def _inputs(step: StepView) -> str:
    known = ((key.replace("_", " "), _fact(value)) for key, value in step.inputs.items())
    # What the sentence says already is not said twice; a short number may be part of another.
    said = step.text.replace(":", " ").split()
    facts = [
        f"{key} {fact}"
        for key, fact in known
        if fact not in (said if len(fact) < _SURE_CHARS else step.text)
    ]
    return f" ({'; '.join(facts)})" if facts else ""


def _fact(value: str | float | bool | None) -> str:
    if isinstance(value, str) and words.epoch(value) is not None:
        return words.clock(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _bill_lines(ctx: Context, story: ExplainView, bill: BillView) -> list[str]:
    rows = [
        (
            words.kind(piece.kind),
            words.span(piece.seconds),
            words.money(piece.cost_usd),
            words.money(piece.waste_usd) if piece.waste_usd else words.UNKNOWN,
        )
        for piece in bill.pieces
    ]
    seconds = sum(piece.seconds for piece in bill.pieces)
    whole = (words.span(seconds), words.money(bill.cost_usd), words.money(bill.waste_usd))
    rows.append(("in all", *whole))
    lines = table(("FOR", "TIME", "COST", "WASTED"), rows, right=("TIME", "COST", "WASTED"))
    found = [f"  {line}" for line in lines]
    if bill.waste_why is not None:
        found.append(f"  all of it bought nothing: {bill.waste_why}")
    return [*found, f"  {_bound(ctx, story, bill)}"]


def _bound(ctx: Context, story: ExplainView, bill: BillView) -> str:
    """Return how sure the sum is: it is never below what Vast bills."""
    if story.rental.phase == "gone":
        return "at most: counted until it was proven that nothing bills"
    if bill.seen_at is None:
        return "at most: counted on at the rate Vast showed last, before vastd was started"
    age = words.age(bill.seen_at, ctx.now())
    return f"at most: Vast showed it last {age} ago, since then it is counted at the same rate"


def _cost_lines(story: ExplainView) -> list[str]:
    rows = [
        (words.phase(cost.phase), words.span(cost.seconds), words.money(cost.cost_usd))
        for cost in story.phases
    ]
    seconds = sum(cost.seconds for cost in story.phases)
    rows.append(("in all", words.span(seconds), words.money(story.rental.cost_usd)))
    lines = table(("PHASE", "TIME", "COST"), rows, right=("TIME", "COST"))
    return [f"  {line}" for line in lines]


def _awake(story: ExplainView) -> list[WatchdogView]:
    """Return the watchdogs of a live machine that will fire, have warned, or do not know when."""
    if story.rental.phase == "gone":
        return []
    return [dog for dog in story.watchdogs if dog.fires_at or _standing(dog) is not None]


def _standing(dog: WatchdogView) -> str | None:
    """Return how it stands with a watchdog that names no instant; None when it has nothing to do."""
    if dog.state in _STANDING:
        return _STANDING[dog.state]
    return _HAS_WARNED if dog.why == _HAS_WARNED else None


def _watchdog_lines(dogs: list[WatchdogView], now: float) -> list[str]:
    if not dogs:
        return []
    # The next to fire comes first; those that are not armed come last.
    ordered = sorted(dogs, key=lambda dog: words.epoch(dog.fires_at) or float("inf"))
    names = {dog.name: dog.title or dog.name for dog in ordered}
    widest = max(len(name) for name in names.values())
    lines: list[str] = []
    for dog in ordered:
        lines.append(f"  {names[dog.name]:<{widest}}  {_fires(dog, now)}: {dog.action}")
        about = f"looks at {dog.watches}; limit {words.without_seconds(dog.limit)}"
        told = dog.fires_at or dog.state in ("unknown", "frozen")
        why = f"; {words.without_seconds(dog.why)}" if told else ""
        lines.append(f"  {'':<{widest}}  {about}{why}")
    return lines


def _fires(dog: WatchdogView, now: float) -> str:
    if words.epoch(dog.fires_at) is None:
        return _standing(dog) or "not armed"  # then `why` only says so again
    when = f"{words.countdown(dog.fires_at, now)} ({words.clock(dog.fires_at)})"
    return f"due, waits for evidence {when}" if dog.state == "waiting" else when
