"""Scripted faults: what goes wrong, where and when. How it looks is somebody else's business.

Rules
1. A fault is injected by name at a point and consumed by `next`; nothing is patched.
2. The decision (which fault fires now) is made here; its expression is the business of whoever
   asked: the in-memory provider and boxes raise errors, the façade sends bad HTTP.
3. Everything is deterministic: a fault fires by count or by time, never by chance. Chance belongs
   to whoever draws the faults from a seed.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec import Struct


class Point(StrEnum):
    """Where a fault may strike: provider operations, then box operations."""

    SEARCH = "search"
    CREATE = "create"
    LIST = "list"
    GET = "get"
    DESTROY = "destroy"
    STOP = "stop"
    START = "start"
    LABEL = "label"
    BID = "bid"
    ATTACH_KEY = "attach_key"
    KEYS = "keys"
    ADD_KEY = "add_key"
    ACCOUNT = "account"
    BOX_OPEN = "box.open"
    BOX_PROBE = "box.probe"
    BOX_PREPARE = "box.prepare"
    BOX_LEASE = "box.lease"
    BOX_PUSH = "box.push"
    BOX_START_JOB = "box.start_job"
    BOX_SNAPSHOT = "box.snapshot"
    BOX_READ_LOG = "box.read_log"
    BOX_SIGNAL = "box.signal"
    BOX_COLLECT = "box.collect"
    BOX_COPY = "box.copy"
    BOX_RUN = "box.run"

    @property
    def on_box(self) -> bool:
        return self.value.startswith("box.")


class FaultKind(StrEnum):
    """What goes wrong. A box knows the first three, TRUNCATED_PAGE (a file arrives short) and the
    last two; every other kind breaks the connection there."""

    LOSE_REQUEST = "lose_request"  # nothing happens and no answer comes
    LOSE_ANSWER = "lose_answer"  # it happens and no answer comes
    TIMEOUT = "timeout"  # nothing happens; silence for `hang_s`, then an error
    HTTP_429 = "http_429"
    HTTP_500 = "http_500"  # nothing happens
    HTTP_500_AFTER = "http_500_after"  # it happens
    HTTP_410 = "http_410"
    AUTH_404 = "auth_404"  # 404 `auth_error`
    AUTH_401 = "auth_401"
    HTML = "html"  # 502 with a page of HTML; nothing happens
    EMPTY_BODY = "empty_body"  # 200 and nothing; it happens
    NULL = "null"  # 200 and the word null; it happens
    TRUNCATED_PAGE = "truncated_page"  # half of a JSON document
    FLICKER = "flicker"  # one listing lacks a row, or shows it in another state
    LEAK = "leak"  # the search ignores its numeric filters
    OFFER_GONE = "offer_gone"
    NO_CREDIT = "no_credit"
    SPEND_RATE = "spend_rate"
    DISK_FULL = "disk_full"  # on a box: the local disk while collecting
    HOST_KEY = "host_key"  # on a box: another host key than before

    @property
    def takes_effect(self) -> bool:
        """Whether what was asked for happens although the answer is bad."""
        return self in TAKES_EFFECT


TAKES_EFFECT: Final = frozenset(
    {
        FaultKind.LOSE_ANSWER,
        FaultKind.HTTP_500_AFTER,
        FaultKind.EMPTY_BODY,
        FaultKind.NULL,
        FaultKind.TRUNCATED_PAGE,
        FaultKind.FLICKER,
        FaultKind.LEAK,
    }
)
HANG_S: Final = 120.0  # the official client's time-out (VAST_API 1.2)
RETRY_AFTER_S: Final = 5.0  # guess; of the order of Vast's thresholds


class Fault(Struct, frozen=True, kw_only=True):
    """A fault that waits at a point until it was consumed `times` times."""

    point: str  # a `Point`, "provider.*", "box.*" or "*"
    kind: FaultKind
    times: int | None = 1  # None: as long as its window lasts
    skip: int = 0  # calls that pass unharmed first
    from_at: float | None = None  # epoch seconds; None is the beginning of time
    until_at: float | None = None
    instance_id: int | None = None  # only calls about this instance
    hang_s: float = HANG_S
    retry_after_s: float = RETRY_AFTER_S
    status: str | None = None  # FLICKER: the status shown; None hides the row

    def fits(self, point: Point, instance_id: int | None, now: float) -> bool:
        """Return whether the fault may strike a call at `point`, counts aside."""
        wide = "box.*" if point.on_box else "provider.*"
        return (
            self.point in (point, wide, "*")
            and (self.instance_id is None or self.instance_id == instance_id)
            and (self.from_at is None or self.from_at <= now)
            and (self.until_at is None or now < self.until_at)
        )


class Fired(Struct, frozen=True, kw_only=True):
    """One fault that struck."""

    at: float
    point: Point
    kind: FaultKind
    instance_id: int | None = None


class _Armed:
    """A fault and how often it may still pass and strike."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.skip = fault.skip
        self.left = fault.times


class Faults:
    """All faults of one world, in the order in which they were injected."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._armed: list[_Armed] = []
        self._outages: list[tuple[float, float]] = []
        self.fired: list[Fired] = []  # in order of time

    def inject(
        self,
        point: str,
        kind: FaultKind,
        *,
        times: int | None = 1,
        skip: int = 0,
        from_at: float | None = None,
        until_at: float | None = None,
        instance_id: int | None = None,
        hang_s: float = HANG_S,
        retry_after_s: float = RETRY_AFTER_S,
        status: str | None = None,
    ) -> None:
        """Add one fault; see `Fault`."""
        self.add(
            Fault(
                point=point,
                kind=kind,
                times=times,
                skip=skip,
                from_at=from_at,
                until_at=until_at,
                instance_id=instance_id,
                hang_s=hang_s,
                retry_after_s=retry_after_s,
                status=status,
            )
        )

    def add(self, fault: Fault) -> None:
        """Add one fault.

        Raises:
            ValueError: there is no such point.
        """
        if fault.point not in {*Point, "provider.*", "box.*", "*"}:
            raise ValueError(f"no point is called {fault.point!r}")
        self._armed.append(_Armed(fault))

    def cut_network(self, from_at: float, until_at: float) -> None:
        """Let every call, to Vast and to boxes, go unanswered within a window."""
        self._outages.append((from_at, until_at))

    def network_is_down(self) -> bool:
        """Return whether our own network is down right now."""
        now = self._clock()
        return any(start <= now < end for start, end in self._outages)

    def network_back_at(self) -> float | None:
        """Return when the present outage ends, or None when there is none."""
        now = self._clock()
        return max((end for start, end in self._outages if start <= now < end), default=None)

    def next(self, point: Point, *, instance_id: int | None = None) -> Fault | None:
        """Return the fault that strikes this call, consuming it, or None.

        An outage comes first and shows as a lost request. Every fault that fits and still lets
        calls pass counts this one.
        """
        now = self._clock()
        if self.network_is_down():
            return self._fire(
                Fault(point=point, kind=FaultKind.LOSE_REQUEST), point, instance_id, now
            )
        for armed in self._armed:
            if not armed.fault.fits(point, instance_id, now):
                continue
            if armed.skip > 0:
                armed.skip -= 1
                continue
            if armed.left is not None:
                armed.left -= 1
                if armed.left <= 0:
                    self._armed.remove(armed)
            return self._fire(armed.fault, point, instance_id, now)
        return None

    def pending(self) -> list[Fault]:
        """Return the faults that have not been used up."""
        return [armed.fault for armed in self._armed]

    def clear(self) -> None:
        """Forget all faults and outages."""
        self._armed.clear()
        self._outages.clear()

    def _fire(self, fault: Fault, point: Point, instance_id: int | None, now: float) -> Fault:
        self.fired.append(Fired(at=now, point=point, kind=fault.kind, instance_id=instance_id))
        return fault


class MachineFaultKind(StrEnum):
    """What goes wrong with a machine rather than with a call."""

    BOOT_STUCK = "boot_stuck"
    BOOT_ERROR = "boot_error"
    SLOW_BOOT = "slow_boot"
    HOST_LOSS = "host_loss"
    OUTBID = "outbid"
    VANISH = "vanish"
    WRONG_GPU = "wrong_gpu"
    SSH_REFUSED = "ssh_refused"
    SSH_AUTH = "ssh_auth"
    DISK_FULL = "disk_full"
    BROKEN_GPU = "broken_gpu"  # nvidia-smi does not work
    LOW_VRAM = "low_vram"
    OLD_DRIVER = "old_driver"  # nvidia-smi shows a lower CUDA than the offer
    SMALL_DISK = "small_disk"  # half of the disk that was ordered
    DIRECT_REFUSED = "direct_refused"  # SSH answers through the proxy only
    ODD_STATUS = "odd_status"  # it boots under a word nobody has seen
    OUTBID_BOOT = "outbid_boot"  # outbid while it boots
    VANISH_BOOT = "vanish_boot"  # it disappears while it boots

    CREDIT_ZERO = "credit_zero"  # the account's credit is used up: everything stops
    PRICE_DRIFT = "price_drift"  # its GPUs cost `factor` times as much from then on


# What `status_msg` says when a boot fails for good, by the name one types as `boot_NAME`.
BOOT_SAYS: Final = {
    "gpu_error": "Error: GPU error, unable to start instance.",  # VAST_API 8.2 no. 3
    "oci_failed": "Error response from daemon: failed to create task for container: OCI runtime "
    "create failed: runc create failed: unable to start container process",
    "cuda_too_old": "Error response from daemon: nvidia-container-cli: requirement error: "
    "unsatisfied condition: cuda>=12.8, please update your driver to a newer version",
    "no_space": "failed to register layer: write /usr/lib/libtorch.so: no space left on device",
    "rate_limit": "Error response from daemon: toomanyrequests: You have reached your pull rate "
    "limit. You may increase the limit by authenticating and upgrading",
    "no_network": 'Error response from daemon: Get "https://registry-1.docker.io/v2/": net/http: '
    "request canceled while waiting for connection (Client.Timeout exceeded)",
    "no_image": "Error response from daemon: manifest for lab/train:1 not found: manifest unknown",
    "no_access": "Error response from daemon: pull access denied for lab/train, repository does "
    "not exist or may require 'docker login'",
    "unauthorized": "Error response from daemon: Head: unauthorized: incorrect username or password",
}


class MachineFault(Struct, frozen=True, kw_only=True):
    """A fault of a machine. It begins `after_s` after its trigger and lasts `for_s`.

    The trigger is the call of `Market.afflict` when the instance exists, else its creation for
    the boot faults and its first `running` for all others.
    """

    kind: MachineFaultKind
    after_s: float = 0.0
    for_s: float | None = None  # None: for ever
    message: str = ""  # BOOT_ERROR: what `status_msg` says
    factor: float = 10.0  # SLOW_BOOT: how many times slower; PRICE_DRIFT: how many times dearer
    keeps_intent: bool | None = None  # OUTBID: still meant to run; None: as that machine does it
    gpu: str = "NVIDIA GeForce RTX 3060"  # WRONG_GPU: what nvidia-smi says
    stuck_in: str = "loading"  # BOOT_STUCK: or "created"
    healed_by_attach: bool = False  # SSH_AUTH: attaching the key to the instance helps
