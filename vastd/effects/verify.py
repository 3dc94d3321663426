"""Prove that a running container is what was ordered: SSH answers, the GPUs are there."""

import logging
from typing import Final

import trio

from vastd.core import events as ev
from vastd.core.rental import Phase, Rental, Trigger
from vastd.effects.lease import hold
from vastd.errors import (
    GuardNotArmed,
    HardwareMismatch,
    ProviderError,
    SshAuthRejected,
    SshError,
)
from vastd.jobs.port import BoxFacts, BoxTarget
from vastd.shell import Shell

_log = logging.getLogger(__name__)

# A card reports slightly less than its nominal size: 24,564 MiB is a "24 GB" card, and Vast
# counts MB of 1000 (REQUIREMENTS SRC-10). Anything above this share is the same card.
_VRAM_SHARE: Final = 0.94  # guess, from published nvidia-smi totals of 23,028 to 24,576 MiB


# sshd comes up seconds after Vast says "running", while the machine bills: a refusal costs nobody
# anything, so the first tries follow quickly, each after twice as long as the one before.
FIRST_RETRY_S: Final = 0.25  # guess
ATTACH_S: Final = 5.0  # REQUIREMENTS SSH-07: "wait a few seconds" after attaching a key


async def verify(shell: Shell, rental_id: str) -> None:
    """Try until SSH and GPU are proven, or decide the end of the rental.

    The time budget counts from the phase's persisted start, so a restart does not renew it.
    """
    spacing_s = FIRST_RETRY_S
    while True:
        rental = shell.ledger.rental(rental_id)
        try:
            facts = await look(shell, rental, armed=shell.limits.lease.required)
        except SshAuthRejected as exc:
            if not await _attach_key(shell, rental, exc):
                return
            await trio.sleep(min(ATTACH_S, shell.limits.ssh_spacing_s))
            continue
        except HardwareMismatch as exc:
            _end(shell, rental_id, Trigger.HARDWARE_MISMATCH, str(exc))
            return
        except SshError as exc:
            _log.info("rental=%s not reachable yet: %s", rental_id, exc)
            if _over(shell, rental):
                _end(shell, rental_id, Trigger.SSH_FAILED, str(exc))
                return
        else:
            became_ready(shell, rental_id, facts)
            return
        await trio.sleep(min(spacing_s, shell.limits.ssh_spacing_s))
        spacing_s *= 2


async def look(shell: Shell, rental: Rental, *, armed: bool) -> BoxFacts:
    """Return what the machine is, proven to be what was ordered, ready for work, and `armed`:
    bounded in what it costs by its own guard.

    Raises:
        SshError, HardwareMismatch: it cannot be asked or armed, or is another one.
    """
    async with shell.boxes.open(target(shell, rental)) as box:
        facts = await box.probe()
        _check(rental, facts)
        await box.prepare()
        try:
            await hold(shell, rental, box)
        except GuardNotArmed as exc:
            if armed:
                raise
            _log.error("rental=%s goes on without a guard: %s", rental.rental_id, exc)
    return facts


def target(shell: Shell, rental: Rental) -> BoxTarget:
    """Return where `rental` may be reached, from the newest row.

    Raises:
        SshError: no listing has shown the row since the daemon started.
    """
    row = shell.observed.world.of(rental.rental_id).instance
    if row is None or rental.instance_id is None:
        raise SshError(f"rental {rental.rental_id!r} has not been seen in a listing yet")
    return BoxTarget(rental_id=rental.rental_id, instance_id=rental.instance_id, instance=row)


def _check(rental: Rental, facts: BoxFacts) -> None:
    offer = rental.order.offer
    if len(facts.gpus) < offer.num_gpus:
        raise HardwareMismatch(
            f"rental {rental.rental_id!r} ordered {offer.num_gpus} GPUs, nvidia-smi shows "
            f"{len(facts.gpus)}"
        )
    least = min(gpu.memory_mib for gpu in facts.gpus)
    # The offer counts MB of 1000 for some hosts and MiB for others: compare with the smaller.
    if least < offer.gpu_ram_mb * 1000 * 1000 / (1024 * 1024) * _VRAM_SHARE:
        raise HardwareMismatch(
            f"rental {rental.rental_id!r} ordered {offer.gpu_ram_mb} MB per GPU, "
            f"nvidia-smi shows {least} MiB"
        )
    wanted = _letters(offer.gpu_name)
    if not any(_same_model(wanted, _letters(gpu.name)) for gpu in facts.gpus):
        raise HardwareMismatch(
            f"rental {rental.rental_id!r} ordered {offer.gpu_name!r}, nvidia-smi shows "
            f"{facts.gpus[0].name!r}"
        )


def _letters(name: str) -> list[str]:
    return name.lower().replace("-", " ").replace("_", " ").replace("nvidia", "").split()


def _same_model(wanted: list[str], shown: list[str]) -> bool:
    """Compare by the word with the model number: Vast's "A100 SXM4" is nvidia-smi's
    "A100-SXM4-80GB", its "RTX 4070S Ti" is "GeForce RTX 4070 Ti SUPER"."""
    numbers = [word.rstrip("s") for word in wanted if any(c.isdigit() for c in word)]
    text = "".join(shown)
    return not numbers or numbers[0] in text


async def _attach_key(shell: Shell, rental: Rental, exc: SshAuthRejected) -> bool:
    """Attach our key once (SSH-07); return whether it is worth trying again."""
    if rental.key_attached:
        if _over(shell, rental):
            _end(shell, rental.rental_id, Trigger.SSH_FAILED, str(exc))
            return False
        return True
    assert rental.instance_id is not None
    try:
        await shell.provider.attach_ssh_key(rental.instance_id, shell.boxes.public_key())
    except ProviderError as failure:
        _log.warning("rental=%s attaching our key: %s", rental.rental_id, failure)
        if _over(shell, rental):
            _end(shell, rental.rental_id, Trigger.SSH_FAILED, f"{exc}; attaching: {failure}")
            return False
        return True
    shell.ledger.commit(ev.KeyAttached(rental_id=rental.rental_id, at=shell.wall_clock()))
    return True


def _over(shell: Shell, rental: Rental) -> bool:
    """Return whether its time is over, and it is the machine that does not answer.

    While listings fail or are as old as a suspend, it may be our own network (I7): nothing is
    judged before one that is fresh, nor in the first cycle after a start or a suspend.
    """
    now, world = shell.wall_clock(), shell.observed.world
    cycle_s = 2 * shell.limits.list_interval_busy_s
    if now < max(rental.phase_since + shell.limits.ssh_budget_s, world.watching_since + cycle_s):
        return False
    return world.inventory.state(now, cycle_s) == "fresh"


def _end(shell: Shell, rental_id: str, trigger: Trigger, why: str) -> None:
    shell.ledger.commit(
        ev.EndDecided(rental_id=rental_id, at=shell.wall_clock(), trigger=trigger, why=why)
    )


def became_ready(shell: Shell, rental_id: str, facts: BoxFacts) -> None:
    """Record that the machine can be used, unless something else was decided meanwhile."""
    now = shell.wall_clock()
    shell.observed.note(
        rental_id,
        reached_at=now,
        unreachable_since=None,
        disk_free_bytes=facts.disk_free_bytes,
    )
    rental = shell.ledger.rental(rental_id)
    back = rental.phase is Phase.READY and rental.start_asked_at is not None
    if rental.phase is not Phase.VERIFYING and not back:
        return
    first = facts.gpus[0]
    shell.ledger.commit(
        ev.BecameReady(
            rental_id=rental_id,
            at=now,
            host=facts.endpoint.host,
            port=facts.endpoint.port,
            route=facts.route,
            gpu=f"{len(facts.gpus)}x {first.name}",
            disk_free_bytes=facts.disk_free_bytes,
            cuda_version=facts.cuda_version,
            driver_version=first.driver_version,
        )
    )
