"""`explain`: one machine's story, its cost by phase, and what would happen next and when."""

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
from vastd_protocol.methods.rental import ExplainView, WatchdogView

EXAMPLES: Final = """\
  vastctl explain r-1
  vastctl explain r-1 --all       every watchdog, also those that are not armed
  vastctl explain --endings       how a machine ends, for every reason and situation"""

_HAS_WARNED: Final = "has warned already"  # vastd's words for a watchdog that only warns once
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
    if story.timeline:
        lines += ["", bold("what happened")]
        for step in story.timeline:
            job = f" [{step.job_id}]" if step.job_id else ""
            mark = _MARKS.get(step.severity, " ")
            lines.append(f"  {words.clock(step.at)} {mark} {step.text}{job}")
    if story.phases:
        lines += ["", bold("what it cost"), *_cost_lines(story)]
    dogs = story.watchdogs if ctx.args.all else _awake(story)
    if dogs or rental.phase != "gone":
        lines += ["", bold("what the watchdogs would do")]
        lines += _watchdog_lines(dogs, ctx.now()) or ["  nothing is armed"]
    return lines + [f"warning: {warning}" for warning in rental.warnings]


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
    """Return the watchdogs of a live machine that will fire or have warned."""
    if story.rental.phase == "gone":
        return []
    return [dog for dog in story.watchdogs if dog.fires_at or dog.why == _HAS_WARNED]


def _watchdog_lines(dogs: list[WatchdogView], now: float) -> list[str]:
    if not dogs:
        return []
    # The next to fire comes first; those that are not armed come last.
    ordered = sorted(dogs, key=lambda dog: words.epoch(dog.fires_at) or float("inf"))
    fires = {dog.name: _fires(dog, now) for dog in ordered}
    widest = max(len(name) for name in fires)
    lines: list[str] = []
    for dog in ordered:
        lines.append(f"  {dog.name:<{widest}}  {fires[dog.name]}: {dog.action}")
        about = f"looks at {dog.watches}; limit {words.without_seconds(dog.limit)}"
        why = f"; {words.without_seconds(dog.why)}" if dog.fires_at else ""
        lines.append(f"  {'':<{widest}}  {about}{why}")
    return lines


def _fires(dog: WatchdogView, now: float) -> str:
    if words.epoch(dog.fires_at) is None:
        return (
            _HAS_WARNED if dog.why == _HAS_WARNED else "not armed"
        )  # then `why` only says so again
    return f"{words.countdown(dog.fires_at, now)} ({words.clock(dog.fires_at)})"
