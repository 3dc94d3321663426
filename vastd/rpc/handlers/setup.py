"""`setup.*`: put a set-up on record as a job; the supervisor carries it out whoever listens."""

import re
from pathlib import Path, PurePosixPath
from typing import Final

from vastd.core.job import FINISHED, Job, JobState
from vastd.core.rental import Rental
from vastd.core.setup import (
    MAX_PHASE_LIMIT_S,
    PHASE_LIMIT_S,
    Setup,
    declares_torch,
    steps,
)
from vastd.effects.setup import checks_of, log_text
from vastd.errors import InvalidRequest, NotFound, PolicyRefused
from vastd.jobs.port import ProjectSource
from vastd.jobs.selection import select
from vastd.rpc.context import Context
from vastd.rpc.dispatch import handles
from vastd.rpc.handlers.asked import check_sendable
from vastd.rpc.handlers.jobs import onto, submitted_by
from vastd.rpc.handlers.resolve import find_job, find_rental
from vastd_protocol.methods import setup as wire

DEFAULT_REQUIREMENTS: Final = "requirements.txt"
LOG_END_LINES: Final = 30  # guess: pip's last words are shorter
LOG_END_CHARS: Final = 8192  # guess, as above
MAX_PACKAGES: Final = 200  # guess: far more than anybody types
MAX_REQUIREMENTS: Final = 20  # files; guess, as above
_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.:-]*(=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?")  # Debian's
_NESTED: Final = re.compile(r"\s*(?:-r|--requirement)[\s=]+([^#]+)")  # pip's file format
_NAME: Final = "setup"


@handles(wire.RUN)
async def run(ctx: Context, params: wire.SetupParams) -> wire.SetupView:
    """Put a set-up on record; it begins as soon as the machine is ready and free."""
    ledger = ctx.shell.ledger
    if (known := submitted_by(ctx, params.request_id)) is not None:
        return _view(ctx, known)
    rental = find_rental(ledger, params.rental, params.project)
    if rental.purpose == "job" and not rental.policy.keep:
        raise PolicyRefused(
            f"rental {rental.name!r} ends with its job: setting it up would serve nobody",
            hint="rent one to work on with `vastctl up`, or keep it with `vastctl run --keep`",
        )
    project = _directory(params.project)
    setup = await _setup(params, project, rental)
    job = Job(
        job_id=ctx.shell.new_id("j"),
        name=_NAME,
        command=[_NAME, *steps(setup)],
        project=str(project),
        submitted_at=ctx.shell.wall_clock(),
        rents=False,
        include=params.include,
        request_id=params.request_id,
        setup=setup,
    )
    await check_sendable(job)
    waits = [j for j in ledger.jobs_of(rental.rental_id) if not j.finished]
    onto(ctx, job, rental)
    warnings = [f"job {j.job_id} ({j.name}) has to end first" for j in waits]
    return _view(ctx, ledger.job(job.job_id), warnings)


def _directory(named: str) -> Path:
    project = Path(named)
    if not project.is_absolute() or not project.is_dir():
        raise InvalidRequest(f"{named!r} is not an existing absolute directory")
    return project


@handles(wire.GET)
async def get(ctx: Context, params: wire.SetupRef) -> wire.SetupView:
    """Return a set-up: its checks so far, and how it ended."""
    ledger = ctx.shell.ledger
    if params.setup is not None:
        job = find_job(ledger, params.setup, params.project)
        if job.setup is None:
            raise NotFound(f"job {job.job_id!r} is no set-up", hint="`vastctl job show` shows it")
        return _view(ctx, job)
    found = [
        j
        for j in ledger.jobs.values()
        if j.setup is not None and (params.project is None or j.project == params.project)
    ]
    if not found:
        raise NotFound("no set-up on record", hint="`vastctl setup` makes one")
    return _view(ctx, found[-1])


def _view(ctx: Context, job: Job, warnings: list[str] | None = None) -> wire.SetupView:
    assert job.setup is not None
    over = job.state in FINISHED
    failed = over and job.state is not JobState.SUCCEEDED
    rental = ctx.shell.ledger.rentals.get(job.rental_id or "")
    return wire.SetupView(
        job=ctx.show_job(job),
        rental=None if rental is None else ctx.show_rental(rental),
        steps=steps(job.setup),
        checks=[
            wire.SetupCheckView(name=c.name, ok=c.ok, detail=c.detail)
            for c in checks_of(ctx.shell, job)
        ],
        ok=not failed if over else None,
        log_end=_log_end(ctx, job.job_id) if failed else None,
        warnings=warnings or [],
    )


def _log_end(ctx: Context, job_id: str) -> str:
    text = log_text(ctx.shell, job_id)[-LOG_END_CHARS:]
    return "\n".join(text.splitlines()[-LOG_END_LINES:])


async def _setup(params: wire.SetupParams, project: Path, rental: Rental) -> Setup:
    """Return what is to be installed.

    Raises:
        InvalidRequest: names what cannot be meant, or would not be on the machine.
    """
    limit = PHASE_LIMIT_S if params.limit_s is None else params.limit_s
    if not 1 <= limit <= MAX_PHASE_LIMIT_S:
        raise InvalidRequest(f"limit_s must be 1 to {MAX_PHASE_LIMIT_S:.0f}, not {params.limit_s}")
    if len(params.packages) > MAX_PACKAGES:
        raise InvalidRequest(f"{len(params.packages)} packages, at most {MAX_PACKAGES}")
    for package in params.packages:
        if not _PACKAGE.fullmatch(package):
            raise InvalidRequest(
                f"{package!r} is no package of apt-get", hint="write it as in `apt-get install`"
            )
    files = await _requirements(params, project)
    return Setup(
        system_packages=tuple(params.packages),
        pip_phases=tuple(
            ("-r", file if not file.startswith("-") else f"./{file}") for file in files
        ),
        torch=declares_torch(_lines([project / file for file in files])),
        num_gpus=rental.order.offer.num_gpus,
        phase_limit_s=limit,
    )


async def _requirements(params: wire.SetupParams, project: Path) -> list[str]:
    if params.requirements is None:
        found = (project / DEFAULT_REQUIREMENTS).is_file()
        files = [DEFAULT_REQUIREMENTS] if found else []
    else:
        files = [_inside(project, named) for named in params.requirements]
    if len(files) > MAX_REQUIREMENTS:
        raise InvalidRequest(f"{len(files)} requirements files, at most {MAX_REQUIREMENTS}")
    if not files:
        return []
    sent = await select(ProjectSource(root=project, include=params.include))
    going = {file.path for file in sent.files}
    for file in files:
        if file not in going:
            raise InvalidRequest(
                f"{file!r} would not be on the machine: it is not sent with the project",
                hint=f"name it with `--include {file}`, or look into .gitignore and .vastdignore",
            )
    return files


def _inside(project: Path, named: str) -> str:
    """Return a requirements file as a path below the project."""
    root = project.resolve()
    path = Path(named) if named.startswith("/") else root / named
    if not path.is_file():
        raise InvalidRequest(f"there is no requirements file {named!r} in {project}")
    try:
        # The directory is resolved, not the file: a link inside the project is sent as a file.
        inside = (path.parent.resolve() / path.name).relative_to(root)
    except ValueError:
        raise InvalidRequest(
            f"{named!r} lies outside of the project {project}, so it is not sent"
        ) from None
    return str(PurePosixPath(inside))


def _lines(files: list[Path]) -> list[str]:
    """Return what requirements files say, and those they name (`-r other.txt`)."""
    lines: list[str] = []
    waiting, seen = list(files), set(files)
    while waiting:
        path = waiting.pop(0)
        try:
            found = path.read_text("utf-8", "replace").splitlines()
        except OSError as exc:
            if path in files:
                raise InvalidRequest(f"{str(path)!r} cannot be read: {exc.strerror}") from exc
            continue  # pip will say on the machine that it is missing, and where it is named
        lines += found
        named = (_NESTED.match(line) for line in found)
        for other in (path.parent / match[1].strip() for match in named if match):
            if other not in seen and len(seen) < MAX_REQUIREMENTS:
                seen.add(other)
                waiting.append(other)
    return lines
