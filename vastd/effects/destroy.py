"""Ask for the end of an instance. Proof is the listing's matter (I3, I4)."""

import contextlib
import logging
from typing import Final

import trio

from vastd.core import events as ev
from vastd.errors import NoSuchInstance, ProviderError, VastdError
from vastd.shell import Shell

_log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 60.0  # guess; a write without an answer is simply repeated


async def destroy(shell: Shell, rental_id: str) -> None:
    """Send one destroy and record the answer; the next step repeats it as long as needed."""
    rental = shell.ledger.rental(rental_id)
    assert rental.instance_id is not None
    with contextlib.suppress(VastdError):
        await shell.boxes.forget(rental.instance_id)
    error: str | None = "no answer"
    accepted = False
    with trio.move_on_after(REQUEST_TIMEOUT_S):
        try:
            await shell.provider.destroy_instance(rental.instance_id)
        except NoSuchInstance:
            accepted, error = True, None  # a hint only: absence is still to be proven
        except ProviderError as exc:
            error = str(exc)
        else:
            accepted, error = True, None
    if error is not None:
        _log.warning("rental=%s instance=%s destroy: %s", rental_id, rental.instance_id, error)
    shell.ledger.commit(
        ev.DestroyTried(rental_id=rental_id, at=shell.wall_clock(), accepted=accepted, error=error)
    )


async def end_surplus(shell: Shell, instance_id: int) -> None:
    """End an instance that carries the claim of a rental which holds another one (I2)."""
    with trio.move_on_after(REQUEST_TIMEOUT_S):
        try:
            await shell.provider.destroy_instance(instance_id)
        except ProviderError as exc:
            _log.error("instance=%s (surplus) destroy: %s", instance_id, exc)
        else:
            _log.error("instance=%s carried the claim of another rental: destroyed", instance_id)
