"""Ask for the stop or the start of an instance. What became of it is the listing's matter."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from vastd.core import events as ev
from vastd.errors import ProviderError
from vastd.shell import Shell

_log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 60.0  # guess; a request without an answer is simply repeated


async def stop(shell: Shell, rental_id: str) -> None:
    """Send one stop: GPU billing ends, the disk and its storage price stay."""
    error = await _ask(shell, rental_id, "stop", shell.provider.stop_instance)
    shell.ledger.commit(
        ev.StopTried(
            rental_id=rental_id, at=shell.wall_clock(), accepted=error is None, error=error
        )
    )


async def start(shell: Shell, rental_id: str) -> None:
    """Send one start: the GPU bills again as soon as Vast gives it back."""
    error = await _ask(shell, rental_id, "start", shell.provider.start_instance)
    shell.ledger.commit(
        ev.StartTried(
            rental_id=rental_id, at=shell.wall_clock(), accepted=error is None, error=error
        )
    )


async def _ask(
    shell: Shell, rental_id: str, what: str, request: Callable[[int], Awaitable[None]]
) -> str | None:
    """Return why the request was not accepted; None when it was."""
    instance_id = shell.ledger.rental(rental_id).instance_id
    assert instance_id is not None
    error: str | None = "no answer"
    with trio.move_on_after(REQUEST_TIMEOUT_S):
        try:
            await request(instance_id)
            error = None
        except ProviderError as exc:
            error = str(exc)
    if error is not None:
        _log.warning("rental=%s instance=%s %s: %s", rental_id, instance_id, what, error)
    return error
