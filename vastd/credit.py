"""What the account's credit was when it was read last: asked for now and then, never on the fast path."""

import logging
from collections.abc import Callable
from typing import Final

import trio
from msgspec import Struct

from vastd.core.money import Micros
from vastd.errors import ProviderError
from vastd.provider.port import Provider

_log = logging.getLogger(__name__)

FRESH_S: Final = 60.0  # guess: two runs started together ask once
READ_TIMEOUT_S: Final = 10.0  # guess: unknown credit is no reason to wait longer


class Reading(Struct, frozen=True, kw_only=True):
    """One answer, or why there was none."""

    at: float  # epoch s
    credit: Micros | None = None  # None: not told
    error: str | None = None


class Credit:
    """The newest reading. One per daemon; `reading` is None before the first."""

    def __init__(self) -> None:
        self.reading: Reading | None = None
        self._one_at_a_time = trio.Lock()

    async def look(
        self, provider: Provider, wall_clock: Callable[[], float], *, fresh_s: float = FRESH_S
    ) -> Reading:
        """Return a reading at most `fresh_s` old; a failure to read is a reading, too."""
        async with self._one_at_a_time:
            held, now = self.reading, wall_clock()
            if held is not None and 0 <= now - held.at < fresh_s:
                return held
            self.reading = read = await _read(provider, now)
            return read


async def _read(provider: Provider, now: float) -> Reading:
    try:
        with trio.fail_after(READ_TIMEOUT_S):
            account = await provider.get_account()
    except (ProviderError, trio.TooSlowError) as exc:
        why = str(exc) or f"no answer within {READ_TIMEOUT_S:.0f} s"
        _log.info("credit not read: %s", why)
        return Reading(at=now, error=why)
    return Reading(
        at=now,
        credit=account.credit,
        error=None if account.credit is not None else "Vast's answer does not tell it",
    )
