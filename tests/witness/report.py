"""The replay of the official client's recorded runs, as numbers and as a text.

`python tests/witness/report.py` prints it; it needs the client's environment.
"""

import sys
import tempfile
import time
from pathlib import Path

import trio
from msgspec import Struct

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from witness.compare import request_of, request_seen
from witness.official_client import Client, official_client
from witness.recording import NO_ROUTE, Run, load
from witness.replay import Outcome, replay, without_a_clean_404
from witness.scenes import EPOCH, Scene


class Report(Struct, kw_only=True):
    """What came of it. Every list of differences is empty when all is well."""

    recorded: int = 0
    in_scope: int = 0
    without_route: int = 0
    unlike: list[str] = []  # answers that differ from the recorded ones, in scope
    unclean: list[str] = []  # routes we lack that are not answered with the usual 404
    asked_otherwise: list[str] = []  # runs in scope in which the client sends something else now
    same_requests: int = 0  # of all runs, in scope or not
    tracebacks: list[int] = []  # runs in scope that ended in a traceback of the client


async def replay_all(runs: list[Run], report: Report) -> None:
    """Send the recorded requests to the façade without the client."""
    report.recorded = len(runs)
    for run in runs:
        if run.in_scope:
            report.in_scope += 1
            outcome: Outcome = await replay(run)
            report.unlike += [f"{run.number}: {problem}" for problem in outcome.problems]
        elif run.verdict == NO_ROUTE:
            report.without_route += 1
            report.unclean += [f"{run.number}: {it}" for it in await without_a_clean_404(run)]


async def drive_all(runs: list[Run], report: Report, client: Client) -> None:
    """Let the client run every command line again, and compare what it sends."""
    for run in runs:
        now = time.time() if run.scene == "billed-late" else EPOCH
        scene = Scene(run.scene, client.url, now=now)
        said, exchanges = await client.run(run, scene)
        recorded = [request_of(ask, run, scene) for ask in run.asks]
        seen = [request_seen(asked, run, str(client.home)) for asked, _ in exchanges]
        if recorded == seen:
            report.same_requests += 1
        elif run.in_scope:
            report.asked_otherwise.append(f"{run.number}: {seen} instead of {recorded}")
        if run.in_scope and "Traceback" in said.stderr:
            report.tracebacks.append(run.number)


def text_of(report: Report, runs: list[Run]) -> str:
    """Return the report for people."""
    equal = report.in_scope - len({line.partition(":")[0] for line in report.unlike})
    lines = [
        f"recorded runs of the official client: {report.recorded}",
        f"in scope {report.in_scope}, equal {equal}",
        f"out of scope {report.recorded - report.in_scope}",
        f"  without a route here, answered with a clean 404: {report.without_route}",
        f"runs in which the client now sends what was recorded: {report.same_requests}",
        "",
        *report.unlike,
        *report.unclean,
        *report.asked_otherwise,
        "out of scope:",
        *(f"  {run.number:3} {' '.join(run.argv):.60}: {run.reason}" for run in runs if run.reason),
    ]
    return "\n".join(lines)


async def _main() -> None:
    runs, report = load(), Report()
    await replay_all(runs, report)
    with tempfile.TemporaryDirectory() as directory:
        async with official_client(Path(directory) / "home") as client:
            await drive_all(runs, report, client)
    print(text_of(report, runs))


if __name__ == "__main__":
    trio.run(_main)
