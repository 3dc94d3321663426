"""What a watchdog looks at and what it says: an alarm with its instant and its action."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, field

from vastd.core.credit import CreditLook
from vastd.core.job import Job, JobState
from vastd.core.limits import Limits
from vastd.core.observed import Sighting, World
from vastd.core.pace import Pace
from vastd.core.rental import Rental, Trigger

Scalar = str | int | float | bool | None


class Warn(Struct, frozen=True, kw_only=True):
    """Tell the user once."""

    gravity = 0
    rental_id: str
    watchdog: str
    why: str
    rule: str = ""  # filled in by `watchdogs.check`, as are the facts it looked at
    inputs: dict[str, Scalar] = field(default_factory=dict)


class End(Struct, frozen=True, kw_only=True):
    """Decide the end of a rental; the ending table says how."""

    gravity = 1
    rental_id: str
    trigger: Trigger
    why: str
    rule: str = ""
    inputs: dict[str, Scalar] = field(default_factory=dict)


Action = Warn | End


class Alarm(Struct, frozen=True, kw_only=True):
    """`action` is due at `at` (epoch seconds, wall clock), if it is `proven` by then."""

    at: float
    action: Action
    proven: bool = True


class Shared(Struct, frozen=True, kw_only=True):
    """What all machines spend together, looked at once for all of them."""

    paces: Sequence[Pace] = ()
    credit: CreditLook | None = None


class Watch(Struct, frozen=True, kw_only=True):
    """Everything one watchdog may look at."""

    rental: Rental
    jobs: Sequence[Job]  # those on this rental
    seen: Sighting
    world: World
    limits: Limits
    paces: Sequence[Pace] = ()  # of the caps that several machines share
    credit: CreditLook | None = None  # of the account; None: not known

    @property
    def running_job(self) -> Job | None:
        """The job whose process runs, as far as known."""
        return next((j for j in self.jobs if j.state in _RUNNING), None)


_RUNNING: Final = frozenset({JobState.RUNNING, JobState.UNKNOWN})


def warn(watch: Watch, name: str, at: float, why: str) -> Alarm | None:
    """Return the alarm of a warning that was not given yet; None when it was."""
    if name in watch.rental.warned:
        return None
    return Alarm(at=at, action=Warn(rental_id=watch.rental.rental_id, watchdog=name, why=why))


def end(
    watch: Watch, at: float, trigger: Trigger, why: str, *, proven: bool = True
) -> Alarm | None:
    """Return the alarm that decides the end of the rental; None when an end is under way."""
    ending = watch.rental.ending
    # A limit still counts while "job done" waits for a copy; other ends are under way already.
    if ending is not None and ending.trigger is not Trigger.JOB_DONE:
        return None
    decided = End(rental_id=watch.rental.rental_id, trigger=trigger, why=why)
    return Alarm(at=at, action=decided, proven=proven)


class Watchdog(Struct, frozen=True, kw_only=True):
    """A watchdog with the words `vastctl explain` shows."""

    name: str
    check: Callable[[Watch], Alarm | None]
    watches: str
    limit: Callable[[Watch], str]
    action: str
    silence: bool = False  # it judges somebody's silence: not while our own network is down

    def look(self, watch: Watch) -> Alarm | None:
        """Return its alarm, if silence may be judged at all."""
        frozen = self.silence and watch.world.network_down_since is not None
        return None if frozen else self.check(watch)
