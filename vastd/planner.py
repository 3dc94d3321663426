"""Sizing, searching and choosing as handlers and effects need them: `planning`, with the settings."""

from msgspec import structs

from vastd import planning
from vastd.configuration import ConfigurationHolder
from vastd.core.instants import rfc3339
from vastd.core.job import Needs
from vastd.core.money import Micros, from_usd
from vastd.core.sizing import SizingDefaults
from vastd.errors import NoOffers
from vastd.hunt import PlanRules
from vastd.rpc.views.plan import offers_view, option_view, plan_view, task_needs
from vastd.shell import Choice, Shell
from vastd_protocol.methods.offer import OfferSearchParams, OffersView
from vastd_protocol.methods.task import OptionView, PlanParams, PlanView


class MarketPlanner:
    """Chooses with the settings in force now."""

    def __init__(self, shell: Shell, config: ConfigurationHolder) -> None:
        self._shell = shell
        self._config = config

    def _rules(self) -> PlanRules:
        _, per_hour = self._config.caps()
        return PlanRules(
            sizing=SizingDefaults(
                image=self._config.image(), disk_gb=self._config.disk_gb(), max_dph=per_hour
            )
        )

    async def plan(self, params: PlanParams) -> PlanView:
        """Return what a task needs and up to three options; asks nobody without `offers`."""
        found = await planning.plan(
            self._shell.provider if params.offers else None,
            task_needs(params.needs),
            self._rules(),
            budget=None if params.budget_usd is None else from_usd(params.budget_usd),
        )
        return plan_view(found)

    async def search(self, params: OfferSearchParams) -> OffersView:
        """Return ranked offers."""
        asked_at = rfc3339(self._shell.wall_clock())
        found = await planning.search(
            self._shell.provider,
            params.query,
            task_needs(params.needs),
            self._rules(),
            limit=params.limit,
        )
        return offers_view(found, asked_at)

    async def choose(
        self, needs: Needs, avoid: frozenset[int], budget: Micros | None
    ) -> tuple[Choice, OptionView]:
        """Return the best value, as a choice and as it is shown.

        Raises:
            NoOffers: nothing fits; the message says what each filter removed.
        """
        rules = self._rules()
        wanted = task_needs(needs)
        found = await planning.plan(
            self._shell.provider, wanted, rules, budget=budget, blocked=avoid
        )
        if not found.ranked:
            raise NoOffers("no offer fits")
        best = found.ranked[0]
        choice = Choice(
            offer=best.offer,
            image=found.requirements.image.value,
            disk_gb=found.requirements.disk_gb.value,
            hours=best.candidate.hours,
            bid=best.candidate.bid,
            why=best.rationale,
        )
        return choice, option_view(best)

    async def choose_again(
        self, needs: Needs, avoid: frozenset[int], budget: Micros | None
    ) -> Choice:
        """Return the next best choice for a job whose machine failed. The offer it once named is
        used up, so any that fits is taken."""
        choice, _ = await self.choose(_without_offer(needs), avoid, budget)
        return choice


def _without_offer(needs: Needs) -> Needs:
    return structs.replace(needs, offer_id=None)
