"""`down`: collect what was declared, destroy the project's machine, and tell what it came to."""

from argparse import ArgumentParser
from typing import Final

from vastctl import options, words
from vastctl.commands import destroy
from vastctl.context import Context
from vastctl.story import uncollected
from vastctl.transfer import resolve
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import job as jobs
from vastd_protocol.methods import rental as rentals
from vastd_protocol.methods.job import JobView
from vastd_protocol.methods.rental import RentalView

EXAMPLES: Final = """\
  vastctl down              the project's only machine
  vastctl down box -y"""


def arguments(parser: ArgumentParser) -> None:
    options.add_rental(parser)
    destroy.add_how(parser)


def run(ctx: Context) -> int:
    rental = resolve(ctx, ctx.args.rental)
    ctx.args.rentals, ctx.args.all = [rental.rental_id], False
    code = destroy.run(ctx)
    if code == ExitCode.OK and not ctx.json and not ctx.args.no_wait:
        _tell(ctx, rental.rental_id)
    return code


def _tell(ctx: Context, rental_id: str) -> None:
    rental = ctx.client.call(rentals.GET, rentals.RentalRef(rental=rental_id))
    listed = ctx.client.call(jobs.LIST, jobs.JobListParams(all=True)).jobs
    mine = [job for job in listed if job.rental_id == rental_id and not job.setup]
    for line in brought_home(mine):
        ctx.screen.step("info", line)
    for job in mine:
        if job.collected is False:
            ctx.screen.step("warning", f"job {job.name}: {uncollected(job)}")
    ctx.screen.step("info", f"it cost {words.money(rental.cost_usd)}{_lasted(rental)}")


def brought_home(mine: list[JobView]) -> list[str]:
    """Return what is home of the jobs of one machine, a line per directory."""
    homes: dict[str, list[JobView]] = {}
    for job in mine:
        if job.collected and job.results_dir and job.collected_files:
            homes.setdefault(job.results_dir, []).append(job)
    if not homes:
        return ["nothing was brought home: no job on it had declared outputs"]
    return [
        f"brought home to {where}: {words.count(sum(j.collected_files or 0 for j in done), 'file')}, "
        f"{words.size(sum(j.collected_bytes or 0 for j in done))}, of {words.count(len(done), 'job')}"
        for where, done in homes.items()
    ]


def _lasted(rental: RentalView) -> str:
    began, ended = words.epoch(rental.created_at), words.epoch(rental.ended_at)
    return "" if began is None or ended is None else f" in {words.span(ended - began)}"
