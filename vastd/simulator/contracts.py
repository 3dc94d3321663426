"""One simulated contract (Vast: instance): its stages over time, its GPUs, its bill.

Rules
1. Nothing runs in the background. Planned steps wait in a list and are carried out, each at its
   own time, when somebody calls `advance`; so a contract looked at once a day bills the same as
   one looked at every second.
2. Every change goes through `_enter`, which also sets the rates of the bill (VAST_API 7.1).
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct, field

from vastd.core.money import Micros
from vastd.simulator.billing import BillKind, Meter
from vastd.simulator.guards import SimGuard
from vastd.simulator.machines import Chunk, Machine, disk_micros_h
from vastd.simulator.stages import BILLS_GPU, BILLS_NO_DISK, HOLDS_GPUS, UP, Stage, Trouble

__all__ = ["Access", "Contract", "RentOrder", "Run", "Stage", "Trouble"]

BOOT_ERROR_GIVE_UP_S: Final = 420.0  # VAST_API 8.2 no. 2: intended flips after about 7 min
ODD_STATUS: Final = "hibernating"  # no word of Vast's as far as known
EXITED_BEFORE_LOADING_S: Final = 3.0  # VAST_API 8.2 no. 5: "stays exited for a while"; guess


class RentOrder(Struct, frozen=True, kw_only=True):
    """What a create asked for, in Vast's terms."""

    image: str = ""
    disk_gb: float = 10.0
    label: str | None = None
    onstart: str = ""
    env: dict[str, str] = field(default_factory=dict)
    bid: Micros | None = None  # per hour for all GPUs; None is on demand
    runtype: str = "ssh_direc ssh_proxy"
    args: list[str] = field(default_factory=list)
    target_state: str = "running"
    cancel_unavail: bool = True
    template_hash_id: str | None = None


class Run(Struct, frozen=True, kw_only=True):
    """A stretch of time in which the container was up without interruption."""

    boot_id: int  # 1, 2, …
    start_at: float
    end_at: float | None = None  # None while it is up


class Step(Struct, frozen=True, kw_only=True):
    """A planned change."""

    at: float
    stage: Stage
    message: str | None = None  # None keeps the text
    gives_up: bool = False  # from here on the platform no longer wants it to run


class Contract:
    """One instance. Only the market calls what changes it."""

    def __init__(
        self,
        *,
        instance_id: int,
        offer_id: int,
        chunk: Chunk,
        order: RentOrder,
        api_key: str,
        created_at: float,
        scale: float,
        keys: list[str],
        foreign: bool = False,
    ) -> None:
        self.instance_id = instance_id
        self.offer_id = offer_id
        self.chunk = chunk
        self.order = order
        self.api_key = api_key
        self.created_at = created_at
        self.foreign = foreign
        self.label = order.label
        self.bid = order.bid
        self.keys = keys  # public keys the instance accepts, oldest first
        self.attached: set[str] = set()  # bodies of keys attached after creation
        self.on_first_run: list[Callable[[float], None]] = []  # called with the time
        self.stage = Stage.ACCEPTED
        self.stage_since = created_at
        self.intended = "running"
        self.cur_state = "running"
        self.next_state = "running"
        self.message: str | None = None
        self.queued = False  # a start waits for free GPUs
        self.outbid = False
        self.ended = False  # the host's contract is over
        self.busy_until = 0.0  # a job keeps the GPUs busy until then; set by the boxes
        self.trouble = Trouble()
        self.disk_id = 1  # a new one after each recycle
        self.start_at: float | None = None  # first time up
        self.gone_at: float | None = None
        self.runs: list[Run] = []
        self.direct_port: int | None = None  # host port of 22/tcp while up
        self.access: Access | None = None  # where the service really listens
        self.guard: SimGuard | None = None  # in memory only; real machines run the scripts
        self.meter = Meter()
        self._scale = scale
        self._price_factor = 1.0
        self._plan: list[Step] = []
        self._cached = False  # the image was pulled
        self._held_when_lost = False  # it had its GPUs when the machine fell out of contact
        self._rebill(created_at)

    # -- what others read ----------------------------------------------------------------

    @property
    def machine(self) -> Machine:
        return self.chunk.machine

    @property
    def is_up(self) -> bool:
        """Whether the container runs."""
        return self.stage in UP

    @property
    def alive(self) -> bool:
        """Whether the contract exists at all, that is, may bill."""
        return self.stage is not Stage.GONE

    @property
    def holds_gpus(self) -> bool:
        match self.stage:
            case Stage.EXITED | Stage.STOPPED:
                return bool(self._plan)  # about to start again
            case Stage.OFFLINE:
                return self._held_when_lost
            case _:
                return self.stage in HOLDS_GPUS

    @property
    def boot_id(self) -> int:
        """The number of the current or last run; 0 before the first."""
        return self.runs[-1].boot_id if self.runs else 0

    @property
    def gpu_micros_h(self) -> Micros:
        """The hourly rate of the GPUs while running: the bid, or the price on demand."""
        if self.bid is not None:
            return self.bid
        return Micros(round(self.chunk.gpu_micros_h * self._price_factor))

    @property
    def disk_micros_h(self) -> Micros:
        return disk_micros_h(self.machine.storage_usd_gb_month, self.order.disk_gb)

    @property
    def actual_status(self) -> str | None:
        """Vast's word for the stage, or None before the first report."""
        match self.stage:
            case Stage.ACCEPTED:
                return None
            case Stage.STOPPING:
                return "running"
            case Stage.DESTROYING:
                return "exited" if self.runs else None
            case Stage.CREATED | Stage.LOADING if self.trouble.odd_status:
                return ODD_STATUS
            case _:
                return str(self.stage)

    @property
    def has_direct_port(self) -> bool:
        return self.machine.direct_port_count > 0 and "direc" in self.order.runtype

    def sshd_at(self) -> float | None:
        """Return when sshd of the current run answers, or None while the container is down."""
        if not self.is_up:
            return None
        lag = self.machine.sshd_lag_s * self._scale
        return max(self.runs[-1].start_at + lag, self.trouble.ssh_refused_until)

    def accepts(self, public_key: str) -> bool:
        """Return whether sshd lets that key in; comments do not matter."""
        known = {_key_body(key) for key in self.keys}
        if self.trouble.ssh_rejects_keys:
            return self.trouble.attach_heals and _key_body(public_key) in self.attached
        return _key_body(public_key) in known

    def run_of(self, boot_id: int) -> Run:
        """Return the run of that number."""
        return self.runs[boot_id - 1]

    def next_at(self) -> float | None:
        """Return when the next planned step is due."""
        return self._plan[0].at if self._plan else None

    def pull_progress(self, now: float) -> float:
        """Return how much of the image pull is done, 0 to 1."""
        if self.stage is not Stage.LOADING:
            return 0.0 if self.stage in (Stage.ACCEPTED, Stage.CREATED) else 1.0
        end = self.next_at()
        if end is None or end <= self.stage_since:
            return 0.4  # stuck half-way
        return min(1.0, (now - self.stage_since) / (end - self.stage_since))

    # -- what the market does ------------------------------------------------------------

    def step_due(self, now: float) -> bool:
        """Carry out the one step that is due first; return whether there was one."""
        if not self._plan or self._plan[0].at > now:
            return False
        step = self._plan.pop(0)
        if step.gives_up:
            self.intended = self.next_state = self.cur_state = "stopped"
        self._enter(step.stage, step.at, step.message)
        return True

    def plan_boot(self, at: float, first: Stage) -> None:
        """Plan the way from `first` to running. The pull is skipped when the image is there."""
        trouble, machine, scale = self.trouble, self.machine, self._scale * self.trouble.slow_boot
        accepted = at + machine.accept_s * scale
        pulled = accepted + (0.0 if self._cached else machine.pull_s * scale)
        up = pulled + machine.start_s * scale
        plan = [
            Step(at=accepted, stage=Stage.LOADING, message=""),
            Step(at=up, stage=Stage.RUNNING, message=f"success, running {self._image_words()}/ssh"),
        ]
        if first is Stage.ACCEPTED:
            plan.insert(0, Step(at=at + machine.accept_s * scale / 2, stage=Stage.CREATED))
        if trouble.boot_error is not None:
            plan = [
                Step(at=accepted, stage=Stage.CREATED, message=trouble.boot_error),
                Step(at=accepted + BOOT_ERROR_GIVE_UP_S, stage=Stage.CREATED, gives_up=True),
            ]
        elif trouble.boot_stuck is not None:
            plan = [step for step in plan if step.stage is not Stage.RUNNING]
            if trouble.boot_stuck is Stage.CREATED:
                plan = [Step(at=accepted, stage=Stage.CREATED)]
        self._plan = plan

    def stop(self, at: float, *, message: str | None = None) -> None:
        """Let the container end; the GPUs are free once it has."""
        if self.stage in (Stage.DESTROYING, Stage.GONE):
            return
        self.intended = self.next_state = "stopped"
        self.queued = self.outbid = False
        self._plan = []
        if self.stage in (Stage.EXITED, Stage.STOPPED):
            self.cur_state = "stopped"
        elif self.stage is not Stage.OFFLINE:
            if self.stage is Stage.RUNNING:
                self._enter(Stage.STOPPING, at, message)
            end = Stage.EXITED if self.runs else Stage.STOPPED
            self._plan = [Step(at=at + self.machine.stop_s, stage=end, message=message)]

    def halt(self, at: float, *, keep_intent: bool = False, message: str | None = None) -> None:
        """Take the GPUs away at once: outbid, out of credit, end of the host's contract."""
        if self.stage in (Stage.DESTROYING, Stage.GONE):
            return
        if not keep_intent:
            self.intended = self.next_state = "stopped"
        self.queued = self._held_when_lost = False
        self._plan = []
        if self.stage is not Stage.OFFLINE:
            self._enter(Stage.EXITED if self.runs else Stage.STOPPED, at, message)
        self.cur_state = "stopped"

    def start(self, at: float) -> None:
        """Begin to boot a stopped container."""
        self.intended = self.next_state = self.cur_state = "running"
        self.queued = self.outbid = False
        # GPUs are held from now on although the status still says `exited` for a moment.
        first = Stage.ACCEPTED if self.stage is Stage.STOPPED else Stage.EXITED
        if first is Stage.ACCEPTED:
            self._enter(Stage.ACCEPTED, at, None)
        self.plan_boot(at + EXITED_BEFORE_LOADING_S * self._scale, first)

    def reboot(self, at: float, *, recycle: bool = False) -> None:
        """Restart the container; `recycle` also replaces its file system."""
        self.intended = self.next_state = self.cur_state = "running"
        if recycle:
            self.disk_id += 1
            self._cached = False
        self._enter(Stage.RECYCLING if recycle else Stage.REBOOTING, at, None)
        self.plan_boot(at, self.stage)

    def lose_host(self, at: float) -> None:
        """Let the machine fall out of contact; what runs on it is lost."""
        if self.stage in (Stage.DESTROYING, Stage.GONE, Stage.OFFLINE):
            return
        self._held_when_lost = self.holds_gpus
        self._plan = []
        self._enter(Stage.OFFLINE, at, None)

    def regain_host(self, at: float) -> None:
        """Let the machine come back: it boots again if that is still wanted."""
        if self.stage is Stage.OFFLINE:
            self._enter(Stage.EXITED if self.runs else Stage.STOPPED, at, None)
            if self.intended == "running" and self._held_when_lost:
                self.start(at)

    def destroy(self, at: float) -> None:
        """Begin the end: the container dies at once, the row stays for a while."""
        self.queued = False
        self.intended, self.next_state = "stopped", "unloaded"
        self._enter(Stage.DESTROYING, at, None)
        self._plan = [Step(at=at + self.machine.destroy_s * self._scale, stage=Stage.GONE)]

    def vanish(self, at: float) -> None:
        """End without notice."""
        self._plan = []
        self._enter(Stage.GONE, at, None)

    def attach(self, public_key: str) -> None:
        """Accept a public key from now on."""
        body = _key_body(public_key)
        self.attached.add(body)
        if body not in {_key_body(key) for key in self.keys}:
            self.keys.append(public_key.strip())

    def replan_boot(self, at: float) -> None:
        """Plan a boot under way anew, after what hinders or delays it has changed."""
        if self.stage in (Stage.ACCEPTED, Stage.CREATED, Stage.LOADING) and (
            self.intended == "running"
        ):
            self.plan_boot(at, self.stage)

    # -- inside --------------------------------------------------------------------------

    def _enter(self, stage: Stage, at: float, message: str | None) -> None:
        was_up = self.is_up
        self.stage, self.stage_since = stage, at
        if message is not None:
            self.message = message
        if was_up and not self.is_up:
            self.runs[-1] = Run(boot_id=self.boot_id, start_at=self.runs[-1].start_at, end_at=at)
            self.direct_port = None
            self.busy_until = min(self.busy_until, at)
        if stage is Stage.RUNNING and not was_up:
            self.runs.append(Run(boot_id=self.boot_id + 1, start_at=at))
            self._cached = True
            self.start_at = at if self.start_at is None else self.start_at
            for call in self.on_first_run:
                call(at)
            self.on_first_run.clear()
            if self.guard is not None:
                self.guard.came_up(at)
            if self.has_direct_port:
                self.direct_port = _port(self.instance_id, self.boot_id)
        if stage in (Stage.EXITED, Stage.STOPPED) and self.intended == "stopped":
            self.cur_state = "stopped"
        if stage is Stage.GONE:
            self.gone_at = at
        self._rebill(at)

    def _rebill(self, at: float) -> None:
        gpu = self.gpu_micros_h if self.stage in BILLS_GPU else Micros(0)
        disk = Micros(0) if self.stage in BILLS_NO_DISK else self.disk_micros_h
        self.meter.set_rate(BillKind.GPU, gpu, at)
        self.meter.set_rate(BillKind.DISK, disk, at)

    def change_bid(self, bid: Micros, at: float) -> None:
        """Pay `bid` per hour from now on."""
        self.bid = bid
        self._rebill(at)

    def change_price(self, factor: float, at: float) -> None:
        """Cost `factor` times the price of the offer from now on; a bid stays what it is."""
        self._price_factor = factor
        self._rebill(at)

    def _image_words(self) -> str:
        return self.order.image.replace(":", "_")  # VAST_API 8.1: `:` comes back as `_`


class Access(Struct, frozen=True, kw_only=True):
    """Where a real sshd of the instance listens; set by the service, absent in memory."""

    public_ip: str
    direct_port: int | None  # None: only through the proxy
    ssh_host: str
    ssh_port: int  # before the jupyter shift


def _key_body(public_key: str) -> str:
    return " ".join(public_key.split()[:2])


def _port(instance_id: int, boot_id: int) -> int:
    # Another port at every start, as on real machines; 40000 to 65000 is where Vast maps.
    return 40_000 + (instance_id * 37 + boot_id * 1_009) % 25_000
