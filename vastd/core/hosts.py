"""What is known of each physical machine, from what happened on it: a record that outlives rentals.

Rules
1. Facts only: how often it was rented, served and failed, how long it booted, how fast it copied,
   which way in worked, how the last rental ended. Each measured number names its source.
2. The host's fault blocks a machine for a day. A block by the user is never shortened by ours,
   and the user may lift any.
3. History that is bad but not blocked makes a machine dearer in the ranking, never invisible.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field, structs

from vastd.core import events as ev
from vastd.core.image_sizes import MBIT_PER_GB, size_of
from vastd.core.instants import shown
from vastd.core.rental import Blame, Ending, Phase, Rental

BLOCK_S: Final = 86_400.0  # CASES 50: block the machine for a day
BY_VASTD: Final = "vastd"
BY_USER: Final = "user"
# Guess: below it latency and listing intervals, not the network, are what is measured.
MEASURED_BYTES: Final = 20_000_000
# Guess: listings come 20 s apart, so the length of a pull is known to a fifth only from here on.
MEASURED_PULL_S: Final = 100.0
# Faster than this share of its own word: layers were there already, nothing was measured.
CACHED_SHARE: Final = 1.5  # guess
SLOW_SHARE: Final = 0.5  # the share the boot limit allows too (`core.boot_watchdogs`)
SLOW_RISK: Final = 0.25  # guess: a slow host costs a quarter of its price in waiting
BYTES_PER_MBIT: Final = 125_000


class Block(Struct, frozen=True, kw_only=True):
    """The machine is not chosen. `until` None: until the user lifts it."""

    since: float
    until: float | None
    why: str
    by: str  # `BY_VASTD` or `BY_USER`

    def holds(self, now: float) -> bool:
        """Whether it still counts."""
        return self.until is None or now < self.until

    @property
    def text(self) -> str:
        """Why, by whom and until when, in words."""
        until = "until it is unblocked" if self.until is None else f"until {shown(self.until)}"
        return f"{self.why} (blocked by {self.by} {until})"


class Speed(Struct, frozen=True, kw_only=True):
    """A bandwidth that was seen. `source` says of what, and what else may have bounded it."""

    mbps: float
    at: float
    source: str


class Death(Struct, frozen=True, kw_only=True):
    """How a rental of it ended."""

    at: float
    rental_id: str
    trigger: str
    why: str


class Host(Struct, frozen=True, kw_only=True):
    """One machine, by Vast's `machine_id`. Changed only by `learn`."""

    machine_id: int
    host_id: int | None = None
    gpu_name: str | None = None
    rented: int = 0  # instances that were made on it
    served: int = 0  # of these, were proven to be what was ordered
    failed: int = 0  # of these, could not serve by the host's own fault
    seen_at: float | None = None  # rented last
    boot_s: float | None = None  # from the newest create to `running`
    route: str | None = None  # which way SSH worked last: direct or proxy
    listed_down_mbps: float | None = None  # the host's own word
    listed_up_mbps: float | None = None
    down: Speed | None = None  # to the machine
    up: Speed | None = None  # from the machine
    failure: Death | None = None  # the newest that was the host's own fault
    death: Death | None = None  # the newest end of any kind
    block: Block | None = None

    @property
    def is_slow(self) -> bool:
        """Whether it pulls or copies at less than half of its word."""
        listed, seen = self.listed_down_mbps, self.down
        return bool(listed and seen and seen.mbps < listed * SLOW_SHARE)

    @property
    def risk(self) -> float:
        """What its history adds to its price in the ranking, as a share of the price."""
        # One failure is no certainty: the division is by one rental more than there were.
        failures = self.failed / (self.rented + 1) if self.failed else 0.0
        return failures + (SLOW_RISK if self.is_slow else 0.0)

    @property
    def history(self) -> str:
        """What speaks against it, in words; empty when nothing does."""
        said = []
        if self.failed:
            why = f": {self.failure.why}" if self.failure else ""
            said.append(f"failed {self.failed} of {self.rented} times here{why}"[:200])
        if self.is_slow and self.down is not None:
            said.append(
                f"{self.down.mbps:.0f} Mb/s seen of {self.listed_down_mbps:.0f} advertised "
                f"({self.down.source})"
            )
        return "; ".join(said)


class Known(Struct, frozen=True, kw_only=True):
    """What is known of machines and offers at the moment one is chosen."""

    blocked: Mapping[int, str] = field(default_factory=dict)  # machine id -> why
    taken: Mapping[int, str] = field(default_factory=dict)  # offer id -> who rents it just now
    hosts: Mapping[int, Host] = field(default_factory=dict)  # by machine id


def learn(
    hosts: Mapping[int, Host], event: ev.Event, before: Rental | None, after: Rental | None
) -> Host | None:
    """Return the host that `event` tells something about, as it is known now; None: nothing new.

    `before` and `after`: the rental it is about; for a job's event the one it names, twice.
    """
    match event:
        case ev.HostBlocked(machine_id=machine_id, at=at, until=until, why=why):
            held = hosts.get(machine_id) or Host(machine_id=machine_id)
            block = Block(since=at, until=until, why=why, by=BY_USER)
            return structs.replace(held, block=block)
        case ev.HostUnblocked(machine_id=machine_id):
            known = hosts.get(machine_id)
            return None if known is None else structs.replace(known, block=None)
    if before is None or after is None or not after.order.offer.machine_id:
        return None
    machine_id = after.order.offer.machine_id
    held = hosts.get(machine_id) or Host(machine_id=machine_id)
    told = _told(held, event, before, after)
    return None if told == hosts.get(machine_id) or told == Host(machine_id=machine_id) else told


def _told(held: Host, event: ev.Event, before: Rental, after: Rental) -> Host:
    if before.instance_id is None and after.instance_id is not None:
        held = _rented(held, event.at, after)
    ended = after.phase is Phase.GONE and before.phase is not Phase.GONE
    if ended and after.ending is not None and after.instance_id is not None:
        held = structs.replace(held, death=_death(after, after.ending, event.at))
    match event:
        case ev.InstanceRunning(at=at) if before.create_sent_at is not None:
            held = _booted(held, after, at, at - before.create_sent_at)
        case ev.BecameReady(route=route):
            first = before.ready_at is None and after.ready_at is not None
            held = structs.replace(held, route=route, served=held.served + (1 if first else 0))
        case ev.EndDecided(at=at) if before.ending is None and after.ending is not None:
            if before.ready_at is None and after.ending.fault is Blame.HOST:
                held = _failed(held, after, after.ending, at)
        case ev.Synced(bytes=size, seconds=seconds, at=at) if _tells(size, seconds):
            held = structs.replace(held, down=_copied(size, seconds, at, "a project sent to it"))
        case ev.Collected(bytes=size, seconds=seconds, at=at) if _tells(size, seconds):
            held = structs.replace(held, up=_copied(size, seconds, at, "results brought home"))
    return held


def _rented(held: Host, at: float, rental: Rental) -> Host:
    offer = rental.order.offer
    return structs.replace(
        held,
        rented=held.rented + 1,
        seen_at=at,
        host_id=offer.host_id or held.host_id,
        gpu_name=offer.gpu_name,
        listed_down_mbps=offer.inet_down_mbps or held.listed_down_mbps,
        listed_up_mbps=offer.inet_up_mbps or held.listed_up_mbps,
    )


def _booted(held: Host, rental: Rental, at: float, boot_s: float) -> Host:
    held = structs.replace(held, boot_s=boot_s)
    size, listed = size_of(rental.order.image), rental.order.offer.inet_down_mbps
    if size is None or not listed or boot_s < MEASURED_PULL_S:
        return held
    mbps = size.gb * MBIT_PER_GB / boot_s
    if mbps > listed * CACHED_SHARE:
        return held
    source = f"its boot with an image of about {size.gb:g} GB, {size.source}"
    return structs.replace(held, down=Speed(mbps=mbps, at=at, source=source))


def _tells(size: int, seconds: float | None) -> bool:
    return size >= MEASURED_BYTES and seconds is not None and seconds > 0


def _copied(size: int, seconds: float | None, at: float, what: str) -> Speed:
    assert seconds is not None
    source = f"{what}, bounded by your own network too"
    return Speed(mbps=size / BYTES_PER_MBIT / seconds, at=at, source=source)


def _failed(held: Host, rental: Rental, ending: Ending, at: float) -> Host:
    block = Block(since=at, until=at + BLOCK_S, why=ending.why, by=BY_VASTD)
    kept = held.block
    if kept is not None and kept.by == BY_USER and kept.holds(at):
        block = kept
    return structs.replace(
        held, failed=held.failed + 1, failure=_death(rental, ending, at), block=block
    )


def _death(rental: Rental, ending: Ending, at: float) -> Death:
    return Death(at=at, rental_id=rental.rental_id, trigger=ending.trigger, why=ending.why)


def of_records(rentals: Mapping[str, Rental]) -> dict[int, Host]:
    """Return what the records of an older vastd tell, which kept nothing of machines."""
    found: dict[int, Host] = {}
    for rental in rentals.values():
        machine_id = rental.order.offer.machine_id
        if rental.instance_id is None or not machine_id:
            continue
        held = found.get(machine_id) or Host(machine_id=machine_id)
        held = _rented(held, rental.create_sent_at or rental.created_at, rental)
        ending = rental.ending
        if rental.ready_at is not None:
            held = structs.replace(held, served=held.served + 1, route=rental.route or held.route)
        elif ending is not None and ending.fault is Blame.HOST:
            held = _failed(held, rental, ending, ending.at)
        if rental.phase is Phase.GONE and ending is not None:
            death = _death(rental, ending, rental.ended_at or ending.at)
            held = structs.replace(held, death=death)
        found[machine_id] = held
    return found


def blocked(hosts: Mapping[int, Host], now: float) -> dict[int, str]:
    """Return why each machine that is blocked now is, by machine id."""
    return {
        machine_id: host.block.text
        for machine_id, host in hosts.items()
        if host.block is not None and host.block.holds(now)
    }
