"""Another key to log in with: machines that run already are given it too.

A machine gets our public key when it is created. After `defaults.ssh_key` was changed, and vastd
started again, those that were rented before know the old key only.

Rules
1. `<state>/ssh/in-use.pub` holds the key that every machine on record has. It is removed before a
   machine may be rented with another, so it may lack, and never claims too much.
2. Without it each machine is given the key once more: to add one that is there changes nothing.
"""

import logging
from pathlib import Path
from typing import Final

import trio

from vastd.core.rental import Phase, Rental
from vastd.errors import ConfigError, NoSuchInstance, ProviderError
from vastd.files import make_private_dir, write_atomic
from vastd.shell import Shell

_log = logging.getLogger(__name__)

NAME: Final = "in-use.pub"
FIRST_RETRY_S: Final = 15.0  # guess: Vast is back soon, or is away for long
LAST_RETRY_S: Final = 600.0  # guess: a machine that stands still may refuse until it is started


async def spread_key(shell: Shell) -> None:
    """Give our key to every machine that may lack it, until all have it; then note that."""
    note = shell.state_dir / "ssh" / NAME
    if not _machines(shell):
        _forget(note)  # what is rented from now on gets the key in force, whichever that is
        return
    try:
        line = shell.boxes.public_key()
    except ConfigError as exc:
        _log.error("machines that run keep the key they know: %s", exc)
        return
    if _noted(note) == line:
        return
    _forget(note)
    pause_s, given = FIRST_RETRY_S, set[str]()
    while missing := [r for r in _machines(shell) if r.rental_id not in given]:
        for rental in missing:
            if await _give(shell, rental, line):
                given.add(rental.rental_id)
        if all(r.rental_id in given for r in missing):
            break  # what was rented meanwhile has it from the start
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, LAST_RETRY_S)
    _write(note, line)


def _machines(shell: Shell) -> list[Rental]:
    return [
        rental
        for rental in shell.ledger.live()
        if rental.instance_id is not None and rental.phase is not Phase.DESTROYING
    ]


async def _give(shell: Shell, rental: Rental, line: str) -> bool:
    """Attach the key to one machine; return whether nothing is left to do about it."""
    assert rental.instance_id is not None
    try:
        await shell.provider.attach_ssh_key(rental.instance_id, line)
    except NoSuchInstance:
        return True  # whether it ended is for the listing to say
    except ProviderError as exc:
        _log.warning("rental=%s has not got our key yet: %s", rental.rental_id, exc)
        return False
    _log.info("rental=%s was given the key in use", rental.rental_id)
    return True


def _noted(note: Path) -> str | None:
    try:
        return note.read_text("utf-8", "replace").strip()
    except OSError:
        return None


def _forget(note: Path) -> None:
    try:
        note.unlink(missing_ok=True)
    except OSError as exc:
        _log.warning("%s stays: %s", note, exc.strerror)


def _write(note: Path, line: str) -> None:
    try:
        make_private_dir(note.parent)
        write_atomic(note, f"{line}\n".encode(), mode=0o600)
    except OSError as exc:
        _log.warning("%s is not written, so the next start gives the key again: %s", note, exc)
