"""What handlers may use: the shell of the effects, and the daemon's own facts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import trio
from msgspec import Struct

from vastd.core import events as ev
from vastd.core.hosts import Known
from vastd.core.job import Job, Needs
from vastd.core.money import Micros
from vastd.core.rental import Policy, Rental
from vastd.core.waiting import waiting
from vastd.defaults import Defaults
from vastd.poller import Poller
from vastd.rpc.dispatch import Call
from vastd.rpc.hub import Hub
from vastd.rpc.views.job import job_view
from vastd.rpc.views.rental import rental_view
from vastd.shell import Choice, Shell
from vastd.store.store import Answer
from vastd.supervisor import Supervisor
from vastd_protocol.methods.config import ConfigView, SettingView, Value
from vastd_protocol.methods.daemon import DaemonInfo
from vastd_protocol.methods.doctor import DoctorView
from vastd_protocol.methods.job import JobView
from vastd_protocol.methods.offer import OfferSearchParams, OffersView
from vastd_protocol.methods.rental import RentalView
from vastd_protocol.methods.task import OptionView, PlanParams, PlanView

R = TypeVar("R", bound=Struct)


class Planner(Protocol):
    """Sizing, searching and choosing."""

    async def plan(self, params: PlanParams) -> PlanView:
        """Return what a task needs and up to three options."""
        ...

    async def search(self, params: OfferSearchParams) -> OffersView:
        """Return ranked offers."""
        ...

    async def choose(
        self, needs: Needs, known: Known, budget: Micros | None, project: str | None = None
    ) -> tuple[Choice, OptionView | None]:
        """Return the best choice now, with how it is shown."""
        ...


class Configuration(Defaults, Protocol):
    """The settings in force."""

    @property
    def warnings(self) -> Sequence[str]:
        """Return what the project asks for and does not get."""
        ...

    def of_project(self, project: str | None) -> "Configuration":
        """Return the settings for calls from that directory."""
        ...

    def outputs(self) -> list[str]:
        """Return what a job brings home when the command names nothing."""
        ...

    def view(self, key: str | None, project: str | None = None) -> ConfigView:
        """Return settings with their origin."""
        ...

    def waiting(self) -> list[str]:
        """Return the keys whose new value counts from the next start on."""
        ...

    def set(self, changes: Mapping[str, Value]) -> list[SettingView]:
        """Write settings, all or none, and take them into force."""
        ...

    def reload(self) -> list[str]:
        """Read the file again; return the keys that changed."""
        ...

    def policy(self) -> Policy:
        """Return the policy a rental gets when the user says nothing."""
        ...

    def caps(self) -> tuple[Micros, Micros]:
        """Return the cap of one job in dollars, and of one machine per hour."""
        ...

    def ssh_connect_s(self) -> float:
        """Return how many seconds a connection may take."""
        ...

    def image(self) -> str | None:
        """Return the image of `[defaults]`."""
        ...


@dataclass(slots=True)
class Context:
    """Handed to every handler. `stop` ends the daemon when set."""

    shell: Shell
    supervisor: Supervisor
    poller: Poller
    hub: Hub
    planner: Planner
    config: Configuration
    doctor: Callable[[], Awaitable[DoctorView]]
    info: DaemonInfo
    socket: Path
    vast_url: str
    key_origin: Callable[[], str | None]
    identity: Callable[[], Path]
    known_hosts_file: Callable[[int], Path]
    acknowledge: Callable[[], None]
    stop: trio.Event = field(default_factory=trio.Event)

    def show_rental(self, rental: Rental) -> RentalView:
        """Return a rental as clients see it."""
        shell = self.shell
        jobs, world = shell.ledger.jobs_of(rental.rental_id), shell.observed.world
        now = shell.wall_clock()
        held_up = waiting(rental, jobs, world, shell.limits, now)
        seen = world.of(rental.rental_id)
        return rental_view(rental, jobs, seen, now, shell.ledger.write_error, held_up)

    def show_job(self, job: Job) -> JobView:
        """Return a job as clients see it."""
        shell = self.shell
        seen = shell.observed.world.of(job.rental_id or "")
        return job_view(job, shell.ledger.rentals, seen, shell.logs, shell.wall_clock())

    def commit(self, call: Call | None, view: Callable[[], R], *events: ev.Event) -> R:
        """Make a change and its answer durable in one transaction; return the answer, which `view`
        makes of the records after the change. `call` is None when nobody sent it (tests).

        Raises:
            StoreError: nothing was changed.
        """
        shown: list[R] = []

        def answer() -> Answer | None:
            shown.append(view())
            if call is None or call.request_id is None:
                return None
            return Answer(request_id=call.request_id, method=call.method, body=call.seal(shown[0]))

        self.shell.ledger.commit(*events, answer=answer)
        return shown[0]
