"""`reconcile`: compare with Vast now: what is ours, what is nobody's, what is somebody else's."""

from argparse import ArgumentParser
from typing import Final

from vastctl import strangers, words
from vastctl.client import new_request_id
from vastctl.commands.ls import inventory_lines
from vastctl.context import Context
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import reconcile
from vastd_protocol.methods.reconcile import ReconcileView

EXAMPLES: Final = """\
  vastctl reconcile
  vastctl reconcile --destroy-orphans"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--destroy-orphans",
        action="store_true",
        help="end what carries our label without a rental; nothing else is ever touched",
    )


def run(ctx: Context) -> int:
    body = ctx.client.raw(reconcile.RUN, reconcile.ReconcileParams(request_id=new_request_id()))
    view = ctx.client.view(reconcile.RUN, body)
    if not ctx.args.destroy_orphans:
        return _tell(ctx, body, view)
    if view.orphans:
        ctx.confirm(
            f"destroy {words.count(len(view.orphans), 'orphan')}",
            [*strangers.lines_of(view.orphans, ctx.now()), "what is on their disks is lost"],
        )
    wish = reconcile.ReconcileParams(destroy_orphans=True, request_id=new_request_id())
    body = ctx.client.raw(reconcile.RUN, wish)
    return _tell(ctx, body, ctx.client.view(reconcile.RUN, body))


def _tell(ctx: Context, body: bytes, view: ReconcileView) -> int:
    """Say what was found; 7 if that is not the whole truth, so that nobody takes it for it."""
    code = ExitCode.OK if view.inventory.state == "fresh" else ExitCode.UNCONFIRMED
    if ctx.json:
        ctx.emit(body)
        return code
    for line in _lines(ctx, view):
        ctx.screen.out(line)
    return code


def _lines(ctx: Context, view: ReconcileView) -> list[str]:
    ours = f"{words.count(view.ours, 'machine')} of this vastd, {words.rate(view.ours_dph_usd)}"
    lines = [ours, *strangers.lines_of([*view.orphans, *view.foreign], ctx.now())]
    if view.ended:
        ids = ", ".join(map(str, view.ended))
        lines.append(f"ending {ids}: `vastctl ls` shows them until Vast proves that they are gone")
    elif view.orphans:
        lines.append(
            "an orphan bills and nobody watches it: `vastctl adopt INSTANCE` takes it over, "
            "`vastctl reconcile --destroy-orphans` ends it"
        )
    if view.renting_locked:
        lines.append(f"renting is locked: {view.renting_locked}; `vastctl daemon acknowledge`")
    return lines + inventory_lines(view.inventory)[:1]
