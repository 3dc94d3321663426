"""The watchdogs of a boot: how long it may last, when to warn, and words nobody has seen before.

Rules
1. Without a known image size a boot may last `boot_timeout_s`. With one it may last twice the
   time its pull takes at the bandwidth the host advertises, within that limit and three times it:
   a host slower than half of its word is left for another.
2. While Vast's status or message moves, the boot goes on: loading bills no GPU. It must move at
   least every half limit, and six limits end it all the same.
"""

from typing import Final

from msgspec import Struct

from vastd.core.alarms import Alarm, Watch, Watchdog, end, warn
from vastd.core.image_sizes import MBIT_PER_GB, size_of
from vastd.core.instants import shown
from vastd.core.limits import Limits
from vastd.core.observed import Sighting
from vastd.core.rental import Phase, Rental, Trigger
from vastd.core.statuses import is_known

PULL_FACTOR: Final = 2.0  # CONTRACT 5: pull time x 2
MAX_FACTOR: Final = 3.0  # CONTRACT 5: 600 to 1,800 s
STALL_FACTOR: Final = 0.5  # guess: one layer of some GB takes minutes without a word
EXTENDED_FACTOR: Final = 6.0  # guess: an hour; pulls that take hours are not waited for
SAID_CHARS: Final = 200  # guess: of the message in an alarm


class BootLimit(Struct, frozen=True, kw_only=True):
    """How long a boot may last without a word from Vast, and how that came about."""

    seconds: float
    why: str


def boot_limit(rental: Rental, limits: Limits) -> BootLimit:
    """Return the limit for this image on this machine."""
    least = limits.boot_timeout_s
    image, down = rental.order.image, rental.order.offer.inet_down_mbps
    size = size_of(image)
    if size is None:
        return BootLimit(seconds=least, why=f"the size of {image} is not known")
    if not down or down <= 0:
        return BootLimit(seconds=least, why="the host's bandwidth is not known")
    pull_s = size.gb * MBIT_PER_GB / down
    wanted = pull_s * PULL_FACTOR
    seconds = min(max(wanted, least), least * MAX_FACTOR)
    why = (
        f"{image} is about {size.gb:g} GB ({size.source}), {pull_s:.0f} s at the host's {down:.0f} "
        f"Mb/s; twice that, within {least:.0f} and {least * MAX_FACTOR:.0f} s"
    )
    return BootLimit(seconds=seconds, why=why)


def boot_ends_at(rental: Rental, seen: Sighting, limits: Limits) -> float:
    """Return when the boot is overdue as far as known now (epoch s): progress moves it."""
    began, least = rental.phase_since, limits.boot_timeout_s
    ends = began + boot_limit(rental, limits).seconds
    moved = seen.status_moved_at
    if moved is None or moved <= began:
        return ends
    return max(ends, min(moved + least * STALL_FACTOR, began + least * EXTENDED_FACTOR))


ROUNDING_S: Final = 0.001  # of seconds since 1970 as a float: below a microsecond; guess


def boot_warn(watch: Watch) -> Alarm | None:
    """Warn about a slow host or a large image; loading bills no GPU."""
    if watch.rental.phase is not Phase.BOOTING:
        return None
    at = watch.rental.phase_since + watch.limits.boot_warn_s
    limit = boot_limit(watch.rental, watch.limits)
    why = (
        f"still booting: {status_text(watch.seen)}; it may take {limit.seconds:.0f} s: {limit.why}"
    )
    return warn(watch, "boot_warn", at, why)


def boot_overdue(watch: Watch) -> Alarm | None:
    """End a machine that does not come up, so that the next offer can be tried."""
    if watch.rental.phase is not Phase.BOOTING:
        return None
    at = boot_ends_at(watch.rental, watch.seen, watch.limits)
    lasted = at - watch.rental.phase_since
    why = f"not running after {lasted:.0f} s: {status_text(watch.seen)} ({_how(watch, lasted)})"
    # It may have come up while the lid was closed or Vast did not answer: ask first (I7, I11).
    listed = watch.seen.observed_at
    proven = listed is not None and listed >= at
    return end(watch, at, Trigger.BOOT_OVERDUE, why, proven=proven)


def _how(watch: Watch, lasted: float) -> str:
    limit = boot_limit(watch.rental, watch.limits)
    moved = watch.seen.status_moved_at
    # `lasted` is a difference of large numbers: rounding alone makes it no longer time.
    if moved is None or lasted <= limit.seconds + ROUNDING_S:
        return limit.why
    return f"{limit.seconds:.0f} s, {limit.why}; longer because it moved until {shown(moved)}"


def unknown_status(watch: Watch) -> Alarm | None:
    """Warn about a word of Vast's that we have never seen: it counts as pending."""
    row = watch.seen.instance
    if row is None or is_known(row.status) or watch.rental.phase is Phase.GONE:
        return None
    at = watch.seen.status_moved_at or watch.rental.phase_since
    why = f"Vast reports the status {row.status!r}, which vastd does not know: it counts as pending"
    return warn(watch, "unknown_status", at, why)


def status_text(seen: Sighting) -> str:
    """Return what Vast said last of a machine that is coming up."""
    if seen.instance is None:
        return "Vast shows no row yet"
    said = seen.instance.status_msg or ""
    return f"{seen.instance.status or 'accepted'} {said}".strip()[:SAID_CHARS]


def _limit_text(watch: Watch) -> str:
    limit = boot_limit(watch.rental, watch.limits)
    return f"{limit.seconds:.0f} s ({limit.why}); longer while Vast's message moves"


BOOT_DOGS: Final = (
    Watchdog(
        name="boot_overdue",
        check=boot_overdue,
        watches="seconds since the create without a running container",
        limit=_limit_text,
        action="destroy, try the next offer",
        silence=True,
    ),
    Watchdog(
        name="boot_warn",
        check=boot_warn,
        watches="seconds since the create without a running container",
        limit=lambda w: f"{w.limits.boot_warn_s:.0f} s",
        action="warn",
    ),
    Watchdog(
        name="unknown_status",
        check=unknown_status,
        watches="words in Vast's listing that vastd does not know",
        limit=lambda _: "the first",
        action="warn; the machine counts as pending",
    ),
)
