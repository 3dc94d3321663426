"""Prove that a running container is what was ordered: SSH answers, the GPUs are there."""

import logging
from typing import Final

import trio

from vastd.core import events as ev
from vastd.core.refused_doors import whose_fault
from vastd.core.rental import Blame, Phase, Rental, Trigger, blame_of
from vastd.effects.hardware import check_gpus, check_new
from vastd.effects.lease import hold
from vastd.errors import (
    GuardNotArmed,
    HardwareMismatch,
    ProviderError,
    SshAuthRejected,
    SshClosed,
    SshError,
    SshRefused,
)
from vastd.jobs.port import BoxFacts, BoxTarget, Route
from vastd.shell import Shell

_log = logging.getLogger(__name__)

# sshd comes up seconds after Vast says "running", while the machine bills: a refusal costs nobody
# anything, so the first tries follow quickly, each after twice as long as the one before.
FIRST_RETRY_S: Final = 0.25  # guess
ATTACH_S: Final = 5.0  # REQUIREMENTS SSH-07: "wait a few seconds" after attaching a key
KEY_S: Final = 60.0  # guess: a key that is not accepted a minute later never will be


async def verify(shell: Shell, rental_id: str) -> None:
    """Try until SSH and GPU are proven, or decide the end of the rental.

    The time budget counts from the phase's persisted start, so a restart does not renew it.
    """
    spacing_s = FIRST_RETRY_S
    while True:
        rental = shell.ledger.rental(rental_id)
        try:
            facts = await look(shell, rental, armed=shell.limits.lease.required, new=True)
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
                fault, more = _judge(shell, rental, exc)
                _end(shell, rental_id, Trigger.SSH_FAILED, f"{exc}{more}", fault)
                return
        else:
            became_ready(shell, rental_id, facts)
            return
        await trio.sleep(min(spacing_s, shell.limits.ssh_spacing_s))
        spacing_s *= 2


def _judge(shell: Shell, rental: Rental, exc: SshError) -> tuple[Blame | None, str]:
    """Return whose fault it is that a machine cannot be used, and what is to be added."""
    if isinstance(exc, (SshRefused, SshClosed)):
        return whose_fault(rental, shell.ledger.rentals.values())
    # Where no key of its own is given to an instance, no host is to blame.
    return (Blame.NOBODY if isinstance(exc, GuardNotArmed) else None), ""


async def look(shell: Shell, rental: Rental, *, armed: bool, new: bool = False) -> BoxFacts:
    """Return what the machine is, proven to be what was ordered, ready for work, and `armed`:
    bounded in what it costs by its own guard. On a `new` one nothing ran yet.

    Raises:
        SshError, HardwareMismatch: it cannot be asked or armed, or is another one.
    """
    async with shell.boxes.open(target(shell, rental)) as box:
        facts = await box.probe()
        check_gpus(rental, facts)
        if new:
            check_new(rental, facts)
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
    host = shell.ledger.hosts.get(rental.order.offer.machine_id)
    known = host.route if host is not None else None
    return BoxTarget(
        rental_id=rental.rental_id,
        instance_id=rental.instance_id,
        instance=row,
        first=Route(known) if known in set(Route) else None,
    )


async def _attach_key(shell: Shell, rental: Rental, exc: SshAuthRejected) -> bool:
    """Attach our key once (SSH-07); return whether it is worth trying again.

    A key that is not accepted is nobody's fault that a day would heal: the machine is not blocked,
    the next one is made with the key again.
    """
    why = f"{exc}; our key was attached"
    if not rental.key_attached:
        assert rental.instance_id is not None
        try:
            await shell.provider.attach_ssh_key(rental.instance_id, shell.boxes.public_key())
        except ProviderError as failure:
            _log.warning("rental=%s attaching our key: %s", rental.rental_id, failure)
            why = f"{exc}; attaching our key: {failure}"
        else:
            at = shell.wall_clock()
            shell.ledger.commit(ev.KeyAttached(rental_id=rental.rental_id, at=at))
            return True
    attached = rental.key_attached_at
    enough = attached is not None and shell.wall_clock() >= attached + KEY_S
    if _over(shell, rental) or (enough and _is_fresh(shell)):
        _end(shell, rental.rental_id, Trigger.SSH_FAILED, why, Blame.NOBODY)
        return False
    return True


def _over(shell: Shell, rental: Rental) -> bool:
    """Return whether its time is over, and it is the machine that does not answer.

    While listings fail or are as old as a suspend, it may be our own network (I7): nothing is
    judged before one that is fresh, nor in the first cycle after a start or a suspend.
    """
    over_at = rental.phase_since + shell.limits.ssh_budget_s
    return shell.wall_clock() >= over_at and _is_fresh(shell)


def _is_fresh(shell: Shell) -> bool:
    now, world = shell.wall_clock(), shell.observed.world
    cycle_s = 2 * shell.limits.list_interval_busy_s
    if now < world.watching_since + cycle_s:
        return False
    return world.inventory.state(now, cycle_s) == "fresh"


def _end(
    shell: Shell, rental_id: str, trigger: Trigger, why: str, blame: Blame | None = None
) -> None:
    now = shell.wall_clock()
    shell.ledger.commit(
        ev.EndDecided(
            rental_id=rental_id,
            at=now,
            trigger=trigger,
            why=why,
            blame=blame,
            inputs={"fault of": str(blame or blame_of(trigger))},
        )
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
