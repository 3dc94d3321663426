"""What is planned to happen in the simulated world beside the contracts' own steps."""

import heapq
from collections.abc import Callable

Happening = Callable[[float], None]
"""Called with the time for which it was planned, epoch seconds."""


class Agenda:
    """Planned happenings; those of one instant happen in the order in which they were planned."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Happening]] = []
        self._count = 0

    def plan(self, at: float, happening: Happening) -> None:
        """Let something happen at `at`."""
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, happening))

    def next_at(self) -> float | None:
        """Return when the next happening is due, or None."""
        return self._heap[0][0] if self._heap else None

    def run_due(self, now: float) -> None:
        """Let everything happen that was planned for `now` or earlier."""
        while self._heap and self._heap[0][0] <= now:
            at, _, happening = heapq.heappop(self._heap)
            happening(at)
