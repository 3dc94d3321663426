"""Whether a boot is lost, whose fault that is, and how we know: messages, statuses, the order.

Rules
1. One message kind, one row of `MESSAGES`; the first row that fits counts.
2. A message counts when two readings in a row show it (WAI-06): Docker repeats what fails once.
3. The host's fault costs the host our custom for a day. The fault of the image or the account
   stops the run: every other host would fail in the same way. For anything else the next offer
   is taken and nobody is blamed.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from vastd.core.bids import against, is_outbid
from vastd.core.limits import READINGS_TO_BELIEVE, READINGS_TO_BELIEVE_BOOT
from vastd.core.market import Instance, InstanceStatus
from vastd.core.observed import Sighting
from vastd.core.rental import Blame, Phase, Rental, Trigger
from vastd.core.statuses import Reading, reading
from vastd.core.stopped import Account, out_of_credit

DISK_SHARE: Final = 0.95  # guess: GB against GiB is 7 %, rounding less
SAID_CHARS: Final = 300  # guess: enough of a Docker error to search the web for


# Shown with each decision: what follows from whose fault it was.
RULES: Final = {
    Blame.HOST: "a boot that the host cannot finish ends, the next offer is taken, and the machine "
    "is not rented again for a day",
    Blame.RUN: "a boot that fails by its image or account ends the run: every other machine would "
    "fail in the same way",
    Blame.NOBODY: "a boot that was taken away or is not what was ordered ends, and the next offer is "
    "taken; nobody is blamed",
}


class Meaning(Struct, frozen=True, kw_only=True):
    """What a fragment of `status_msg` says, in our words, and whose fault it is."""

    fragments: Sequence[str]  # lower case
    blame: Blame
    what: str


class Fault(Struct, frozen=True, kw_only=True):
    """Why a boot is over."""

    trigger: Trigger
    blame: Blame
    why: str


_H, _R = Blame.HOST, Blame.RUN
# Fragments: VAST_API 8.2 (2, 3), CASES 50 and 52, and the words of Docker and containerd for the
# same. Limits and connections come before access: both kinds may name a refused request.
MESSAGES: Final = (
    Meaning(
        fragments=("pull rate limit", "toomanyrequests", "too many requests"),
        blame=_H,
        what="the registry serves this host no more pulls for now",
    ),
    Meaning(
        fragments=(
            "manifest unknown",
            "no matching manifest",
            "repository does not exist",
            "name unknown",
            "invalid reference format",
            "manifest invalid",
        ),
        blame=_R,
        what="there is no such image",
    ),
    Meaning(
        fragments=(
            "pull access denied",
            "requested access to the resource is denied",
            "unauthorized",
            "authentication required",
            "no basic auth credentials",
            "incorrect username or password",
        ),
        blame=_R,
        what="the registry does not give out this image without a login",
    ),
    Meaning(
        fragments=("unsatisfied condition: cuda",),
        blame=_H,
        what="the host's driver is too old for the image",
    ),
    Meaning(
        fragments=("no space left on device", "not enough disk space", "disk quota exceeded"),
        blame=_H,
        what="the host has no room for the image",
    ),
    Meaning(
        fragments=(
            "gpu error",
            "nvidia-container-cli",
            "could not select device driver",
            "unresolvable cdi devices",
            "failed to inject cdi devices",
            "nvml",
        ),
        blame=_H,
        what="the host cannot give its GPU to a container",
    ),
    Meaning(
        fragments=("port is already allocated", "address already in use"),
        blame=_H,
        what="a port of the host is taken",
    ),
    Meaning(
        fragments=(
            "tls handshake timeout",
            "i/o timeout",
            "context deadline exceeded",
            "client.timeout exceeded",
            "connection refused",
            "connection reset by peer",
            "no such host",
            "temporary failure in name resolution",
            "network is unreachable",
            "no route to host",
        ),
        blame=_H,
        what="the host does not reach the registry",
    ),
    Meaning(
        fragments=(
            "oci runtime create failed",
            "failed to create shim task",
            "failed to create task",
            "failed to register layer",
            "error response from daemon",
        ),
        blame=_H,
        what="the host cannot start the container",
    ),
)


def meaning(said: str) -> Meaning | None:
    """Return what a message means if it means that the boot is lost."""
    low = said.lower()
    return next((m for m in MESSAGES if any(part in low for part in m.fragments)), None)


def judge(
    rental: Rental, phase: Phase, seen: Sighting, row: Instance, told: Account | None = None
) -> Fault | None:
    """Return why a machine that shall come up never will, or None while it may.

    `phase` is `BOOTING` or `VERIFYING`; `seen` counts the readings, `row` included.
    """
    if phase is Phase.BOOTING and (wrong := wrong_order(rental, row)) is not None:
        return wrong
    # A container that ran may flicker (VAST_API 8.2); one that never did has nothing to lose.
    enough = READINGS_TO_BELIEVE_BOOT if phase is Phase.BOOTING else READINGS_TO_BELIEVE
    if seen.readings < enough:
        return None
    said = (row.status_msg or "").strip()[:SAID_CHARS]
    # The *message* must have stood in the reading before as well, not only the status.
    stood = seen.status_moved_at != seen.seen_begun_at
    known = meaning(said) if phase is Phase.BOOTING and stood else None
    if known is not None:
        why = f"boot failed, {known.what}: {said}"
        return Fault(trigger=Trigger.BOOT_FAILED, blame=known.blame, why=why)
    fails = reading(phase, row.status, row.intended_status) is Reading.FAILS
    if fails and told is not None and told.credit is not None and told.credit <= 0:
        why = f"it was stopped before it could be used: {out_of_credit(told.credit)}"
        return Fault(trigger=Trigger.BOOT_FAILED, blame=Blame.RUN, why=why)
    if is_outbid(rental, row):
        return Fault(trigger=Trigger.OUTBID, blame=Blame.NOBODY, why=_outbid(rental, row, said))
    if (small := _small_disk(rental, row)) is not None:
        return Fault(trigger=Trigger.HARDWARE_MISMATCH, blame=Blame.HOST, why=small)
    if not fails:
        return None
    if row.status in (InstanceStatus.EXITED, InstanceStatus.OFFLINE, InstanceStatus.UNKNOWN):
        why = f"Vast reports {row.status} during boot: {said or 'no message'}"
        return Fault(trigger=Trigger.BOOT_FAILED, blame=Blame.HOST, why=why)
    # Somebody else, or Vast for want of credit, may have stopped it: that is no host's fault.
    why = f"it was stopped before it could be used: {said or row.status or 'no message'}"
    return Fault(trigger=Trigger.BOOT_FAILED, blame=Blame.NOBODY, why=why)


def _small_disk(rental: Rental, row: Instance) -> str | None:
    have, ordered = row.disk_space_gb, rental.order.disk_gb
    if have is None or have <= 0 or have >= ordered * DISK_SHARE:  # Vast says -1 for unknown
        return None
    return f"ordered {ordered:g} GB of disk, got {have:g} GB"


def _outbid(rental: Rental, row: Instance, said: str) -> str:
    text = f"outbid before it could be used: {against(rental, row)}"
    shown = f"Vast reports {row.status or 'nothing'}, intended {row.intended_status or 'nothing'}"
    return f"{text} ({shown}{f': {said}' if said else ''})"


def wrong_order(rental: Rental, row: Instance) -> Fault | None:
    """Return how the instance differs from the order, or None (CASES 44; C-46)."""
    wants_bid = rental.order.bid is not None
    why = None
    cap = rental.policy.max_dph
    if row.is_bid is not None and row.is_bid is not wants_bid:
        why = f"ordered {_kind(wants_bid)}, got {_kind(row.is_bid)}"
    elif cap is not None and row.dph is not None and row.dph > cap:
        why = f"it bills {row.dph / 1e6:.4f} $/h, over the cap of {cap / 1e6:.4f} $/h"
    if why is None:
        return None
    return Fault(trigger=Trigger.WRONG_ORDER, blame=Blame.NOBODY, why=why)


def _kind(bid: bool) -> str:
    return "interruptible" if bid else "on-demand"
