"""What a person reads while a job or a machine is followed, and at the end."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from vastctl import words
from vastctl.screen import Screen
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods.event import EventView, Progress
from vastd_protocol.methods.job import JobView
from vastd_protocol.methods.rental import RentalView

# Event -> the long step that begins with it; "" ends one. Names of events: vastd.core.events.
_WAIT_AFTER: Final = {
    "create_sent": "rent",
    "create_confirmed": "boot",
    "instance_found": "boot",
    "instance_running": "check",
    "became_ready": "",
    "job_started": "",
    "destroy_decided": "proof of the end",
    "found_absent": "",
}

# Event -> the one before it that told a person the same; the audit trail has both.
_SAID_BY: Final = {
    "rental_planned": "chosen",  # not an event: the command told what was chosen
    "job_began": "job_started",
    "job_left": "job_finished",
    "collect_verified": "collected",
    "destroy_decided": "end_decided",
}

# `JobView.failure` -> exit code; a failure that is not listed is told by state and copy.
_EXIT_OF_FAILURE: Final = {
    "provisioning": ExitCode.PROVISIONING_FAILED,
    "no_offers": ExitCode.NO_OFFER,
    "budget": ExitCode.REFUSED,
    "collection": ExitCode.COLLECTION_FAILED,
    "auth": ExitCode.AUTH_OR_CONFIG,
}


class Story:
    """Tells events and progress on stderr, the log on stdout (`log=False`: not at all).

    Told is what concerns `job`, the machines it is placed on, and `rentals`.
    """

    def __init__(
        self,
        screen: Screen,
        *,
        log: bool = True,
        job: str | None = None,
        rentals: Iterable[str] = (),
        chosen: str | None = None,  # the rental whose offer was told already
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen = screen
        self._log = log
        self._job = job
        self._rentals = set(rentals)
        self._machine = chosen  # where the job is: not every event of a job names it
        self._clock = clock
        self._said: set[tuple[str, str | None]] = {("chosen", chosen)} if chosen else set()
        self._waits_for = ""  # the long step under way
        self._since = 0.0
        self.failed_copies: set[str] = set()  # rental ids whose newest collection failed

    def event(self, event: EventView) -> None:
        if not self._concerns(event.rental_id, event.job_id):
            return
        rental_id = event.rental_id or ""
        if event.job_id == self._job and event.rental_id is not None:
            self._machine = rental_id
            self._rentals.add(rental_id)  # a next attempt runs on another machine
        if event.kind == "collect_failed":
            self.failed_copies.add(rental_id)
        elif event.kind == "collect_verified":
            self.failed_copies.discard(rental_id)
        if event.kind in _WAIT_AFTER:
            self._waits_for, self._since = _WAIT_AFTER[event.kind], self._clock()
        if not self._said_already(event):
            self._screen.step(event.severity, event.reason or event.kind.replace("_", " "))

    def _said_already(self, event: EventView) -> bool:
        """Return whether a person read this a line or two ago, on the same machine."""
        first = (_SAID_BY.get(event.kind, ""), event.rental_id)
        if event.severity == "info" and first in self._said:
            self._said.remove(first)
            return True
        if event.kind in _SAID_BY.values():
            self._said.add((event.kind, event.rental_id or self._machine))
        return False

    def progress(self, progress: Progress) -> None:
        # The log's own progress is the log.
        if progress.step != "log" and self._concerns(progress.rental_id, progress.job_id):
            self._screen.progress(progress.step, progress.done, progress.total, progress.unit)

    def idle(self) -> None:
        if self._waits_for:
            waited = int(self._clock() - self._since)
            self._screen.progress(self._waits_for, waited, None, "seconds")

    def log(self, data: bytes) -> None:
        if self._log:
            self._screen.log(data)

    def _concerns(self, rental_id: str | None, job_id: str | None) -> bool:
        return rental_id in self._rentals or (job_id is not None and job_id == self._job)


def tell_end(
    screen: Screen, job: JobView, rental: RentalView | None, *, log_stays: bool = True
) -> None:
    """Write how a job ended, where its results are, what it cost and what still bills."""
    good = job.state == "succeeded"
    code = "" if job.exit_code is None else f" (exit code {job.exit_code})"
    # The reason of a plain failure is its exit code, which is told already.
    plain = good or not job.reason or job.reason == f"exit code {job.exit_code}"
    why = "" if plain else f": {job.reason}"
    state = job.state.replace("_", " ")
    screen.step("info" if good else "error", f"job {job.name} {state}{code}{why}")
    _tell_results(screen, job)
    if job.log_path and log_stays:
        screen.step("info", f"its log is in {job.log_path}")
    if job.cost_usd is not None:
        machines = f" on {words.count(len(job.attempts), 'machine')}" if job.attempts else ""
        screen.step("info", f"total cost {words.money(job.cost_usd)}{machines}")
    if rental is not None:
        tell_billing(screen, rental)


def _tell_results(screen: Screen, job: JobView) -> None:
    if job.results_dir and job.collected:
        files = words.count(job.collected_files or 0, "file")
        screen.step(
            "info", f"results in {job.results_dir}: {files}, {words.size(job.collected_bytes or 0)}"
        )
        if job.collected_earlier:
            screen.step("warning", not_its_own(job))
    elif job.collected is False:
        screen.step("error", uncollected(job))
    if job.missing:
        screen.step("warning", f"declared but not found: {', '.join(job.missing)}")


def not_its_own(job: JobView) -> str:
    """Return that some of the files were there before the job began."""
    count = job.collected_earlier
    many = f"{count} of them are" if count > 1 else "one of them is"
    return f"{many} older than the job: left by an earlier one, or copied there with an old date"


def uncollected(job: JobView) -> str:
    """Return what became of results that are not home."""
    if not job.results_lost:
        return "the results could not be copied; the machine is kept for them"
    what = ", ".join(job.outputs) or "what it wrote"
    return f"the results are lost with the machine: {what}"


def tell_billing(screen: Screen, rental: RentalView) -> None:
    """Write whether a machine is gone, and otherwise what it costs and how to end it."""
    if rental.phase == "gone" and rental.end_reason == "vanished":
        text = f"machine {rental.name} vanished, vastd did not end it: billing ended"
        screen.step("warning", text)
        return
    if rental.phase == "gone":
        screen.step("info", f"machine {rental.name} is gone: billing ended")
        return
    price = words.rate(rental.dph_usd)
    screen.step(
        "warning",
        f"machine {rental.name} is {words.phase(rental.phase)} and still bills {price}; "
        f"end it with `vastctl destroy {rental.name}`",
    )


def exit_code(
    job: JobView, rental: RentalView | None, *, kept: bool = False, pass_on: bool = False
) -> int:
    """Return what a command ends with after `job` was settled.

    `kept`: the machine was not meant to end. `pass_on`: the job's own code wins (`--exit-status`).
    """
    if pass_on and job.exit_code:
        return job.exit_code
    if job.failure in _EXIT_OF_FAILURE:
        return _EXIT_OF_FAILURE[job.failure]
    if job.results_lost and job.failure == "machine":
        return ExitCode.FAILED  # the job itself was lost; there was nothing to try a copy from
    if job.collected is False:
        return ExitCode.COLLECTION_FAILED
    if job.state != "succeeded":
        return ExitCode.FAILED
    if rental is not None and rental.phase != "gone" and not kept:
        return ExitCode.UNCONFIRMED
    return ExitCode.OK
