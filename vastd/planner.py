"""Sizing, searching and choosing as handlers and effects need them: `planning`, with the settings."""

from typing import Final

from msgspec import structs

from vastd import planning
from vastd.configuration import ConfigurationHolder
from vastd.core import query
from vastd.core.hosts import Known
from vastd.core.instants import rfc3339
from vastd.core.job import Needs
from vastd.core.money import Micros, from_usd
from vastd.core.sizing import Requirements, SizingDefaults
from vastd.defaults import fill_needs, limit_facts
from vastd.errors import NoOffers
from vastd.hunt import Option, PlanRules
from vastd.renting import known_now
from vastd.rpc.views.plan import offers_view, option_view, plan_view, task_needs
from vastd.shell import Choice, Shell
from vastd_protocol.methods.offer import OfferSearchParams, OffersView
from vastd_protocol.methods.task import Fact, OptionView, PlanParams, PlanView
from vastd_protocol.methods.task import Needs as WireNeeds

# Defaults that stand back when a query speaks of the same, by its name there. Prices are not among
# them: those are caps, and of caps the lowest counts.
_QUERIED: Final = {
    "gpu_name": "gpu_name", "num_gpus": "num_gpus", "gpu_ram": "gpu_ram_gb", "disk_space": "disk_gb",
}  # fmt: skip


class MarketPlanner:
    """Chooses with the settings in force now."""

    def __init__(self, shell: Shell, config: ConfigurationHolder) -> None:
        self._shell = shell
        self._config = config

    def _rules(
        self, profile: str | None = None, config: ConfigurationHolder | None = None
    ) -> PlanRules:
        config = config or self._config
        _, per_hour = config.caps()
        return PlanRules(
            sizing=SizingDefaults(
                image=config.image(profile),
                disk_gb=config.disk_gb(),
                max_dph=per_hour,
                image_source=config.image_source(profile),
                disk_source=config.source("defaults.disk_gb"),
            )
        )

    async def plan(self, params: PlanParams) -> PlanView:
        """Return what a task needs and up to three options; asks nobody without `offers`."""
        config = self._config.of_project(params.project)
        needs, said_by = fill_needs(params.needs, config)
        stated = config.profile(params.needs.profile)
        found = await planning.plan(
            self._shell.provider if params.offers else None,
            task_needs(needs, said_by),
            self._rules(params.needs.profile, config),
            budget=None if params.budget_usd is None else from_usd(params.budget_usd),
            known=known_now(self._shell),
        )
        view = plan_view(found)
        return structs.replace(
            view,
            profile=Fact(value=stated.profile, source=stated.source),
            limits=limit_facts(config, params.budget_usd),
            warnings=[*config.warnings, *view.warnings],
        )

    async def search(self, params: OfferSearchParams) -> OffersView:
        """Return ranked offers, for the needs as the project completes them."""
        config = self._config.of_project(params.project)
        needs, said_by = fill_needs(params.needs, config)
        needs, said_by = _behind_query(needs, said_by, params.query)
        asked_at = rfc3339(self._shell.wall_clock())
        found = await planning.search(
            self._shell.provider,
            params.query,
            task_needs(needs, said_by),
            self._rules(params.needs.profile, config),
            limit=params.limit,
            known=known_now(self._shell),
        )
        return structs.replace(offers_view(found, asked_at), defaults=said_by)

    async def choose(
        self, needs: Needs, known: Known, budget: Micros | None, project: str | None = None
    ) -> tuple[Choice, OptionView]:
        """Return the best value, as a choice and as it is shown. `project` filled the needs.

        Raises:
            NoOffers: nothing fits; the message says what each filter removed.
        """
        # Read here because every way to a machine passes here, before the gate, which may not wait.
        await self._shell.credit.look(self._shell.provider, self._shell.wall_clock)
        rules = self._rules(needs.profile)
        wanted = task_needs(needs, self._capped_by(needs, project))
        found = await planning.plan(self._shell.provider, wanted, rules, budget=budget, known=known)
        if not found.ranked:
            raise NoOffers("no offer fits")
        best, *rest = found.ranked
        others = tuple(_choice(option, found.requirements) for option in rest)
        choice = structs.replace(_choice(best, found.requirements), others=others)
        return choice, option_view(best)

    def _capped_by(self, needs: Needs, project: str | None) -> dict[str, str]:
        """Return who set the price cap in `needs` if it was the project: a hint must name it."""
        cap = "budget.max_dph_usd"
        config = self._config.of_project(project)
        same = config.settings.budget.max_dph_usd == needs.max_dph_usd
        return {"max_dph": config.source(cap)} if config.by_project(cap) and same else {}

    async def choose_again(self, needs: Needs, known: Known, budget: Micros | None) -> Choice:
        """Return the next best choice for a job whose machine failed. The offer it once named is
        used up, so any that fits is taken."""
        choice, _ = await self.choose(_without_offer(needs), known, budget)
        return choice


def _behind_query(
    needs: WireNeeds, said_by: dict[str, str], text: str | None
) -> tuple[WireNeeds, dict[str, str]]:
    """Return the needs, and who set them, without the defaults of which the query itself speaks."""
    named = query.parse(text or "").named
    dropped = {need for name, need in _QUERIED.items() if name in named and need in said_by}
    kept = {need: source for need, source in said_by.items() if need not in dropped}
    return structs.replace(needs, **dict.fromkeys(dropped)), kept


def _choice(option: Option, requirements: Requirements) -> Choice:
    return Choice(
        offer=option.offer,
        image=requirements.image.value,
        disk_gb=requirements.disk_gb.value,
        hours=option.candidate.hours,
        bid=option.candidate.bid,
        why=option.rationale,
    )


def _without_offer(needs: Needs) -> Needs:
    return structs.replace(needs, offer_id=None)
