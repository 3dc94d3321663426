"""Keeps `vast-instances.json` in step with the ledger (DESIGN D4): a view, never a second truth."""

import logging
from pathlib import Path

from vastd.core import billing
from vastd.core.money import to_usd
from vastd.core.rental import Phase, Rental
from vastd.effects.collect import outputs_of
from vastd.projects.entry import StateEntry, expired
from vastd.projects.hints import MAX_OUTPUTS, Hint, as_json
from vastd.projects.state_file import StateFiles
from vastd.shell import Shell
from vastd.ssh.endpoints import endpoints

_log = logging.getLogger(__name__)


class Projection:
    """Writes the state files at every change. Run it in a nursery."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._files = StateFiles(shell.state_dir)
        self._warned: dict[Path, str] = {}
        self._dropped: set[str] = set()  # rentals that ended long ago and left every file

    async def run(self) -> None:
        """Write now, then after every change of the ledger or of what a listing shows."""
        while True:
            self.write()
            await self._shell.ledger.wait_changed()

    def write(self) -> None:
        """Bring the files up to date; a file that cannot be written is logged once."""
        now = self._shell.wall_clock()
        entries = {
            rental.rental_id: self._entry(rental)
            for rental in self._shell.ledger.rentals.values()
            if rental.instance_id is not None
            and (rental.phase is not Phase.GONE or rental.rental_id not in self._dropped)
        }
        found = self._files.write(list(entries.values()), now)
        if not found:
            self._dropped |= {name for name, entry in entries.items() if expired(entry, now)}
        for warned in found:
            if self._warned.get(warned.path) != warned.message:
                _log.warning("%s: %s", warned.path, warned.message)
        self._warned = {warned.path: warned.message for warned in found}

    def _entry(self, rental: Rental) -> StateEntry:
        assert rental.instance_id is not None
        offer = rental.order.offer
        row = self._shell.observed.world.of(rental.rental_id).instance
        ways = endpoints(row) if row is not None else []
        proxy = next((way for way in ways if way.route == "proxy"), None)
        gone = rental.phase is Phase.GONE
        now = self._shell.wall_clock()
        return StateEntry(
            instance_id=rental.instance_id,
            offer_id=offer.offer_id,
            gpu_name=offer.gpu_name,
            num_gpus=offer.num_gpus,
            dph=billing.expected_rate(rental),
            created_at=rental.create_sent_at or rental.created_at,
            phase=rental.phase if rental.released is None else "released",
            provider_status=row.status if row else None,
            project=Path(rental.project) if rental.project else None,
            ssh_host=ways[0].host if ways else None,
            ssh_port=ways[0].port if ways else None,
            ssh_user=ways[0].user if ways else "root",
            proxy_url=f"ssh://{proxy.user}@{proxy.host}:{proxy.port}" if proxy else None,
            experiments=tuple(
                job.name
                for job in self._shell.ledger.jobs_of(rental.rental_id)
                if job.started_at is not None and job.setup is None
            ),
            estimated_hours=rental.estimated_hours or 0.0,
            image=rental.order.image,
            label=rental.label,
            ended_at=rental.ended_at if gone else None,
            actual_cost=billing.cost(rental, now) if gone else None,
            hint=None if gone else as_json(self._hint(rental)),
        )

    def _hint(self, rental: Rental) -> Hint:
        policy, jobs = rental.policy, self._shell.ledger.jobs_of(rental.rental_id)
        outputs = [path for job in jobs if job.collected is not True for path in outputs_of(job)]
        return Hint(
            name=rental.name,
            project=rental.project,
            profile=rental.profile,
            max_runtime_s=policy.max_runtime_s,
            budget_usd=None if policy.budget is None else to_usd(policy.budget),
            idle_s=policy.idle_s,
            outputs=tuple(dict.fromkeys([*rental.hinted_outputs, *outputs]))[:MAX_OUTPUTS],
        )
