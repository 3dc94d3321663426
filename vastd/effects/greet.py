"""Wait until a machine that was started again can be used."""

import logging
from typing import Final

import trio

from vastd.effects.launch import unreached
from vastd.effects.verify import became_ready, look
from vastd.errors import HardwareMismatch, SshError
from vastd.shell import Shell

_log = logging.getLogger(__name__)

FIRST_RETRY_S: Final = 1.0  # guess: sshd comes up seconds after Vast says "running"


async def greet(shell: Shell, rental_id: str) -> None:
    """Try until SSH answers and the GPUs are there, then record that the machine is ready.

    It is never ended for its silence or for want of a guard, as a new one would be: its disk may hold the only copy of
    something. That it is silent is told like that of any machine.
    """
    spacing_s = FIRST_RETRY_S
    while True:
        try:
            facts = await look(shell, shell.ledger.rental(rental_id), armed=False)
        except SshError as exc:
            unreached(shell, rental_id, exc)
        except HardwareMismatch as exc:
            unreached(shell, rental_id, SshError(str(exc)))
        else:
            became_ready(shell, rental_id, facts)
            return
        _log.info("rental=%s was started again and does not answer yet", rental_id)
        await trio.sleep(min(spacing_s, shell.limits.ssh_spacing_s))
        spacing_s *= 2
