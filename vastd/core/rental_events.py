"""What can happen to a rental, as stored facts in the past tense. The rules are in `core/events.py`."""

from msgspec import Struct, field

from vastd.core.money import Micros
from vastd.core.rental import Blame, Policy, Rental, StopCause, Trigger
from vastd.core.spending import Admission


class RentalEvent(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Something that happened to a rental. `at` is epoch seconds, wall clock."""

    rental_id: str
    at: float


class RentalPlanned(RentalEvent, frozen=True, kw_only=True, tag="rental_planned"):
    """The intention is on record; nothing was sent yet. `why` explains the choice, `gate` what
    was spent and reserved of each cap when it was let through."""

    rental: Rental
    why: str = ""
    gate: tuple[Admission, ...] = ()


class RentalAdopted(RentalEvent, frozen=True, kw_only=True, tag="rental_adopted"):
    """An instance with our claim was found that the store did not know (I8)."""

    rental: Rental


class Released(RentalEvent, frozen=True, kw_only=True, tag="released"):
    """The user took the machine out of our hands: it may exist, and nothing of it is watched."""

    why: str


class CreateSent(RentalEvent, frozen=True, kw_only=True, tag="create_sent"):
    """A create request is about to leave: from now on an instance may exist (I1)."""

    deadline_at: float


class CreateConfirmed(RentalEvent, frozen=True, kw_only=True, tag="create_confirmed"):
    """Vast answered with an instance id."""

    instance_id: int


class CreateUnresolved(RentalEvent, frozen=True, kw_only=True, tag="create_unresolved"):
    """The create has no trustworthy answer: its label is looked for, it is never sent again."""

    why: str


class CreateRefused(RentalEvent, frozen=True, kw_only=True, tag="create_refused"):
    """Vast refused: nothing was made, nothing bills."""

    why: str
    stop_all: bool = False  # every other offer would be refused too
    offer_gone: bool = False  # somebody else was faster: no machine failed


class InstanceFound(RentalEvent, frozen=True, kw_only=True, tag="instance_found"):
    """A listing shows an instance with our claim whose id we did not know."""

    instance_id: int


class InstanceRunning(RentalEvent, frozen=True, kw_only=True, tag="instance_running"):
    """Vast reports the container as running; SSH and GPU are not proven yet."""


class KeyAttached(RentalEvent, frozen=True, kw_only=True, tag="key_attached"):
    """Our public key was attached to the instance after a refused login."""


class BecameReady(RentalEvent, frozen=True, kw_only=True, tag="became_ready"):
    """SSH works and the GPUs are what was ordered."""

    host: str
    port: int
    route: str
    gpu: str
    disk_free_bytes: int = 0
    cuda_version: str | None = None
    driver_version: str | None = None


class LeaseRenewed(RentalEvent, frozen=True, kw_only=True, tag="lease_renewed"):
    """The machine's guard was told to let it be until `until` (our clock), and that was read back."""

    until: float


class LeaseAsked(RentalEvent, frozen=True, kw_only=True, tag="lease_asked"):
    """The user wants the lease to reach at least to `until`, whether vastd runs or not."""

    until: float


class JobBegan(RentalEvent, frozen=True, kw_only=True, tag="job_began"):
    """A job occupies the machine."""

    job_id: str


class JobLeft(RentalEvent, frozen=True, kw_only=True, tag="job_left"):
    """The machine's job ended; its results are to be collected."""

    job_id: str


class CollectVerified(RentalEvent, frozen=True, kw_only=True, tag="collect_verified"):
    """Everything declared is home and verified, or known not to exist."""


class CollectFailed(RentalEvent, frozen=True, kw_only=True, tag="collect_failed"):
    """The copy failed: the machine is held."""

    why: str


class InstanceStopped(RentalEvent, frozen=True, kw_only=True, tag="instance_stopped"):
    """The container does not run any more, but its disk exists and bills."""

    why: str
    asked: bool = False  # as the user wanted
    cause: StopCause = StopCause.UNKNOWN


class JobWentOn(RentalEvent, frozen=True, kw_only=True, tag="job_went_on"):
    """A job of this machine goes on on another; what it left here is kept until it succeeded."""

    job_id: str


class LeftOver(RentalEvent, frozen=True, kw_only=True, tag="left_over"):
    """What a job left here is not needed any more: its results came home from another machine."""

    job_id: str


class BidChanged(RentalEvent, frozen=True, kw_only=True, tag="bid_changed"):
    """Vast took another bid for the machine. `lowest`: what won then, if known."""

    bid: Micros
    before: Micros
    lowest: Micros | None = None


class InstanceResumed(RentalEvent, frozen=True, kw_only=True, tag="instance_resumed"):
    """A stopped instance runs again."""


class StopAsked(RentalEvent, frozen=True, kw_only=True, tag="stop_asked"):
    """The user wants the GPU given back and the disk kept."""

    why: str
    collect: bool = True


class StartAsked(RentalEvent, frozen=True, kw_only=True, tag="start_asked"):
    """The user wants a stopped machine back."""


class StartTried(RentalEvent, frozen=True, kw_only=True, tag="start_tried"):
    """A start request got an answer, or none."""

    accepted: bool
    error: str | None = None


class PolicyChanged(RentalEvent, frozen=True, kw_only=True, tag="policy_changed"):
    """The user changed what the rental is allowed. `changes`: by setting its value before and
    after, as text."""

    policy: Policy
    deadline_at: float | None
    changes: dict[str, tuple[str, str]]


class EndDecided(RentalEvent, frozen=True, kw_only=True, tag="end_decided"):
    """The rental shall end: what is to be collected first is settled by the ending table."""

    trigger: Trigger
    why: str
    force: bool = False
    collect: bool = True
    blame: Blame | None = None  # None: what follows from the trigger
    rule: str = ""  # of the watchdog that decided, and the facts it looked at
    inputs: dict[str, str | int | float | bool | None] = field(default_factory=dict)


class DestroyDecided(RentalEvent, frozen=True, kw_only=True, tag="destroy_decided"):
    """Nothing holds the machine any more: destroy it. `why` names what was settled first."""

    why: str


class DestroyTried(RentalEvent, frozen=True, kw_only=True, tag="destroy_tried"):
    """A destroy request got an answer, or none. `accepted` is not a proof."""

    accepted: bool
    error: str | None = None


class StopTried(RentalEvent, frozen=True, kw_only=True, tag="stop_tried"):
    """A stop request got an answer, or none."""

    accepted: bool
    error: str | None = None


class FoundAbsent(RentalEvent, frozen=True, kw_only=True, tag="found_absent"):
    """Complete listings prove that no such instance exists (I3)."""

    proof: str
    billed_until: float | None = None  # it had ended by then; None: that is known since `at`


class Resurfaced(RentalEvent, frozen=True, kw_only=True, tag="resurfaced"):
    """An instance with the claim of an ended rental exists: it is ended again (I2)."""

    instance_id: int


class BillingChanged(RentalEvent, frozen=True, kw_only=True, tag="billing_changed"):
    """From `since` on the instance costs `rate` per hour. Never earlier than the truth."""

    since: float
    rate: Micros
    status: str | None = None


class Warned(RentalEvent, frozen=True, kw_only=True, tag="warned"):
    """A watchdog warned once."""

    watchdog: str
    why: str
    rule: str = ""
    inputs: dict[str, str | int | float | bool | None] = field(default_factory=dict)


class Quarantined(RentalEvent, frozen=True, kw_only=True, tag="quarantined"):
    """A bug met this rental: only ending it is allowed from now on."""

    why: str
