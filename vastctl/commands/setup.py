"""`setup`: code, packages and proof on a machine that is there: ready for jobs afterwards."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, values
from vastctl.attend import follow_job
from vastctl.client import new_request_id
from vastctl.context import Context
from vastctl.errors import CliError
from vastctl.follow import newest_cursor
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import setup as wire
from vastd_protocol.methods.setup import SetupView

EXAMPLES: Final = """\
  vastctl setup                             requirements.txt of this project, if it has one
  vastctl setup box --requirements base.txt train.txt     two calls of pip, in this order
  vastctl setup box --packages ffmpeg git --detach"""


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)
    for option, metavar, text in (
        ("--requirements", "FILE", "pip requirements, one call of pip each (requirements.txt)"),
        ("--packages", "PKG", "packages for apt-get, before pip"),
        ("--include", "PATH", "send this although it looks secret"),
    ):
        parser.add_argument(
            option, metavar=metavar, type=values.path, nargs="+", action="extend", help=text
        )
    parser.add_argument("--no-requirements", action="store_true", help="call no pip")
    parser.add_argument(
        "--limit", metavar="DUR", type=values.duration, help="of each single step (1h)"
    )
    parser.add_argument("--detach", action="store_true", help="print the set-up's id and return")


def run(ctx: Context) -> int:
    args = ctx.args
    params = wire.SetupParams(
        project=ctx.project,
        rental=args.rental,
        requirements=[] if args.no_requirements else args.requirements,
        packages=args.packages or [],
        include=args.include or [],
        limit_s=args.limit,
        request_id=new_request_id(),
    )
    after = newest_cursor(ctx.client)
    body = ctx.client.raw(wire.RUN, params)
    begun = ctx.client.view(wire.RUN, body)
    where = "" if begun.rental is None else f" of machine {begun.rental.name}"
    ctx.screen.step("info", f"set-up {begun.job.job_id}{where} is on record")
    for step in begun.steps or ["nothing to install: the code is sent, Python and GPUs are proven"]:
        ctx.screen.note(f"  {step}")
    for warning in begun.warnings:
        ctx.screen.step("warning", warning)
    if args.detach:
        _hand_back(ctx, body, begun)
        return ExitCode.OK
    rental_id = None if begun.rental is None else begun.rental.rental_id
    settled = follow_job(ctx, begun.job, rental_id, after=after)
    if settled is None:
        return _detached(ctx, begun)
    wish = wire.SetupRef(setup=begun.job.job_id)
    body = ctx.client.raw(wire.GET, wish, limit_s=30.0)
    return _end(ctx, body, ctx.client.view(wire.GET, body))


def _hand_back(ctx: Context, body: bytes, begun: SetupView) -> None:
    if ctx.json:
        ctx.emit(body)
    else:
        ctx.screen.out(begun.job.job_id)


def _detached(ctx: Context, begun: SetupView) -> int:
    job_id = begun.job.job_id
    ctx.screen.say(f"detached: set-up {job_id} goes on")
    ctx.screen.say(f"  follow it: vastctl logs -f {job_id}")
    ctx.screen.say(f"  end it:    vastctl job cancel {job_id}")
    return ExitCode.OK


def _end(ctx: Context, body: bytes, done: SetupView) -> int:
    if ctx.json:
        ctx.emit(body)
    for check in done.checks:
        detail = f": {check.detail}" if check.detail else ""
        word = "" if check.ok else " failed"
        ctx.screen.step("info" if check.ok else "error", f"{check.name}{word}{detail}")
    if done.ok:
        name = done.rental.name if done.rental else ""
        ctx.screen.step("info", f"ready for `vastctl run --on {name} -- …`")
        return ExitCode.OK
    job = done.job
    state = job.state.replace("_", " ")
    raise CliError(
        f"set-up {job.job_id} {state}: {job.reason or 'it gave no reason'}",
        hint=f"its log: `vastctl logs {job.job_id}`; repeat it with `vastctl setup` once mended",
        exit_code=ExitCode.PROVISIONING_FAILED,
    )
