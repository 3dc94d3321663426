"""What one simulated contract owes: gap-free segments of constant rate, in exact micro-dollars.

Rules
1. A segment is priced once, as a whole. Looking at a running meter never cuts a segment, so that
   rounding does not depend on how often somebody looked.
2. The total is the sum of the segments, always.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from vastd.core.money import Micros, for_seconds

BYTES_PER_GB: Final = 1_000_000_000  # VAST_API 7.1 prices traffic per decimal GB


class BillKind(StrEnum):
    """What is paid for; the words of Vast's charges (VAST_API 7.3)."""

    GPU = "gpu"
    DISK = "disk"
    DOWNLOAD = "bwd"
    UPLOAD = "bwu"


class BillSegment(Struct, frozen=True, kw_only=True):
    """A stretch of one kind at one rate. Traffic has `start_at == end_at` and no rate."""

    kind: BillKind
    start_at: float  # epoch seconds
    end_at: float
    micros_per_hour: Micros  # 0 for traffic
    amount: Micros


class Meter:
    """The bill of one contract. Times must not go backwards."""

    def __init__(self) -> None:
        self._closed: list[BillSegment] = []
        self._closed_sum = 0
        self._open: dict[BillKind, tuple[float, Micros]] = {}  # kind -> (since, rate)

    def set_rate(self, kind: BillKind, micros_per_hour: Micros, at: float) -> None:
        """Charge `micros_per_hour` from `at` on; 0 ends the charge. Same rate: nothing changes."""
        since, rate = self._open.get(kind, (at, Micros(0)))
        if rate == micros_per_hour:
            return
        if rate:
            self._close(_priced(kind, since, at, rate))
        if micros_per_hour:
            self._open[kind] = (at, micros_per_hour)
        else:
            self._open.pop(kind, None)

    def charge_traffic(self, kind: BillKind, n_bytes: int, usd_per_gb: float, at: float) -> None:
        """Charge `n_bytes` at once, rounded up to a micro-dollar."""
        amount = -(-n_bytes * round(usd_per_gb * 1_000_000) // BYTES_PER_GB)
        if amount > 0:
            self._close(
                BillSegment(
                    kind=kind,
                    start_at=at,
                    end_at=at,
                    micros_per_hour=Micros(0),
                    amount=Micros(amount),
                )
            )

    def _close(self, segment: BillSegment) -> None:
        self._closed.append(segment)
        self._closed_sum += segment.amount

    def rate(self) -> Micros:
        """Return what an hour costs right now, traffic aside."""
        return Micros(sum(rate for _, rate in self._open.values()))

    def total(self, now: float) -> Micros:
        """Return everything owed up to `now`."""
        running = sum(for_seconds(rate, now - since) for since, rate in self._open.values())
        return Micros(self._closed_sum + running)

    def segments(self, now: float) -> list[BillSegment]:
        """Return all segments, closed ones in order of closing, then the open ones up to `now`."""
        running = [_priced(kind, since, now, rate) for kind, (since, rate) in self._open.items()]
        return [*self._closed, *running]


def _priced(kind: BillKind, since: float, until: float, rate: Micros) -> BillSegment:
    return BillSegment(
        kind=kind,
        start_at=since,
        end_at=until,
        micros_per_hour=rate,
        amount=for_seconds(rate, until - since),
    )
