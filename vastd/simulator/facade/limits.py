"""Vast's rate limits: a least time between calls, per route and identity (VAST_API 1.2)."""

from collections import deque
from collections.abc import Callable

from vastd.simulator.facade.routes import Route


class RateLimits:
    """Remembers who called what when. Off means that nobody ever waits."""

    def __init__(self, clock: Callable[[], float], *, enabled: bool) -> None:
        self._clock = clock
        self.enabled = enabled
        self._calls: dict[tuple[str, str, str], deque[float]] = {}
        self._blocked_until: dict[tuple[str, str, str], float] = {}

    def wait_s(self, route: Route, identity: str) -> float:
        """Count a call; return 0 when it may pass, else how long it should have waited."""
        if not self.enabled or route.threshold_s <= 0:
            return 0.0
        now = self._clock()
        key = (route.method, route.path, identity)
        calls = self._calls.setdefault(key, deque(maxlen=route.burst))
        free_at = calls[0] + route.threshold_s if len(calls) == route.burst else now
        free_at = max(free_at, self._blocked_until.get(key, now))
        if free_at > now:
            # A violation does not count as a call, but it may cost a penalty.
            self._blocked_until[key] = max(free_at, now + route.penalty_s)
            return self._blocked_until[key] - now
        calls.append(now)
        return 0.0
