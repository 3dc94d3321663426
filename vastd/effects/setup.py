"""A set-up on its way: what is started on the machine, and how its log is judged at the end."""

from importlib import resources
from typing import Final

from vastd.core.job import Job, JobState
from vastd.core.setup import Check, Setup, fights, read_checks, script, verdict
from vastd.shell import Shell

LOG_READ_BYTES: Final = 4 * 1024 * 1024  # guess: pip without bars writes some hundred kB
FAILURE: Final = "setup"  # `Job.failure` of a set-up that did not come to its end


def setup_command(setup: Setup) -> list[str]:
    """Return the argv of a set-up, with the script of this version of vastd."""
    functions = resources.files("vastd.jobs").joinpath("setup.sh").read_text("utf-8")
    return script(setup, functions)


def setup_verdict(shell: Shell, job: Job, exit_code: int) -> tuple[JobState, str, str | None]:
    """Return state, reason and failure of a set-up whose log is home."""
    text = log_text(shell, job.job_id)
    said = verdict(read_checks(text, job.job_id))
    if exit_code == 0:
        return JobState.SUCCEEDED, said or "exit code 0", None
    why = said or f"exit code {exit_code}"
    if fights(text):
        why += "; requirements exclude each other: install them in phases, one file each"
    return JobState.FAILED, why, FAILURE


def checks_of(shell: Shell, job: Job) -> list[Check]:
    """Return what is known so far of a set-up's steps."""
    return read_checks(log_text(shell, job.job_id), job.job_id)


def log_text(shell: Shell, job_id: str) -> str:
    """Return the log that is home, its newest part if it is very long."""
    size = shell.logs.size(job_id)
    data = shell.logs.read(job_id, max(0, size - LOG_READ_BYTES), LOG_READ_BYTES)
    return data.decode("utf-8", "replace")
