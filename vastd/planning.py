"""Chooses an offer: sizes the task, searches, ranks and explains. Spends nothing."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field, structs

from vastd.core import filters, query, ranking, screening, sizing
from vastd.core.estimate import Candidate
from vastd.core.filters import Bound, Name
from vastd.core.hosts import Known
from vastd.core.money import Micros
from vastd.core.ranking import Pick, Role
from vastd.core.screening import Limits, Screened
from vastd.core.sizing import Confidence, Requirements, TaskNeeds
from vastd.errors import CapLeavesNone, InvalidRequest, NoOffers
from vastd.hunt import Hunt, OfferSource, Option, PlanRules

__all__ = ["Found", "OfferSource", "Option", "Plan", "PlanRules", "plan", "search"]

MAX_RANKED: Final = 20  # guess: 3 attempts are made, and offers may be gone
MAX_NEAR_MISSES: Final = 3


class Plan(Struct, frozen=True, kw_only=True):
    """What a task needs and what fits it. `ranked` is the order in which to try to rent."""

    needs: TaskNeeds
    requirements: Requirements
    question: str | None
    options: tuple[Option, ...] = ()  # up to 3, cheapest first
    ranked: tuple[Option, ...] = ()  # best value first, one per machine, at most `MAX_RANKED`
    considered: int = 0
    removed: dict[str, int] = field(default_factory=dict)  # filter -> offers it removed
    warnings: tuple[str, ...] = ()


class Found(Struct, frozen=True, kw_only=True):
    """The answer to a search: what fits, cheapest first, and what was removed by what."""

    options: tuple[Option, ...]
    considered: int
    removed: dict[str, int]
    near_misses: tuple[Option, ...]  # the flag says what is missing
    warnings: tuple[str, ...]


async def plan(
    source: OfferSource | None,
    needs: TaskNeeds,
    rules: PlanRules,
    *,
    budget: Micros | None = None,
    known: Known | None = None,
) -> Plan:
    """Size the task and propose offers; without a `source` only size it.

    `budget` is for the whole job; `known` is what not to take, and what speaks against machines.

    Raises:
        InvalidRequest: the needs make no sense.
        NoOffers: nothing fits, and what each filter removed; or the offer named is not there.
        ProviderError: a search failed.
    """
    req = sizing.size(needs, rules.sizing)
    if budget is not None and budget <= 0:
        raise InvalidRequest("the budget must be above $0")
    base = Plan(needs=needs, requirements=req, question=sizing.question(req), warnings=req.warnings)
    if source is None:
        return base
    hunt = Hunt(source, req, rules, _limits(req, budget, known), known=known)
    warnings = list(req.warnings)
    if budget is not None and req.hours is None:
        warnings.append("without hours the budget cannot be compared with a total")
    if req.offer_id is not None:
        return await _plan_one(hunt, base, req.offer_id, warnings)
    await hunt.gather(warnings)
    fit = await hunt.fitting_or_relaxed(warnings)
    if not fit:
        await hunt.look_wider()
        raise hunt.no_offers()
    best_first = ranking.rank(fit, rules.ranking)
    # Of one machine only the best chunk: renting it makes its siblings vanish.
    ranked = ranking.one_per_machine(best_first)
    picks = ranking.picks(ranked, rules.ranking)
    return structs.replace(
        base,
        options=tuple(hunt.option(p.candidate, p.roles, picks) for p in picks),
        ranked=tuple(hunt.option(c, _roles(c, picks), picks) for c in ranked[:MAX_RANKED]),
        considered=len(hunt.offers),
        removed=screening.removed(hunt.screened()),
        warnings=tuple(warnings),
    )


async def search(
    source: OfferSource,
    text: str | None,
    needs: TaskNeeds,
    rules: PlanRules,
    *,
    limit: int = 20,
    known: Known | None = None,
) -> Found:
    """Answer a query in Vast's language, narrowed by what `needs` states.

    Defaults of a task (image, network, reliability by hours) remove nothing here: they show as
    flags, because who asks for cards by name wants to see them. Only the number of GPUs counts as
    soon as totals are compared, that is, when hours are stated.

    Raises:
        InvalidRequest: the query or the needs cannot be read.
        ProviderError: a search failed.
    """
    if limit < 1:
        raise InvalidRequest(f"the limit must be at least 1, not {limit}")
    parsed = query.parse(text or "")
    req = sizing.size(needs, rules.sizing)
    bounds = filters.plan_bounds(req)
    asked, advice = _split(bounds, parsed.named)
    if req.hours is not None and Name.NUM_GPUS not in parsed.named:
        # Hours are those of one script: on a machine with more GPUs than it was said to use they
        # would look shorter than they will be.
        asked += [b for b in bounds if b.name == Name.NUM_GPUS and b not in asked]
    asked += filters.query_bounds(parsed)
    stated = req.max_dph is not None and req.max_dph.confidence is Confidence.STATED
    limits = structs.replace(_limits(req, None, known), bands=False, long_contract=False)
    if not stated:
        limits = structs.replace(limits, max_price=None)
    hunt = Hunt(source, req, rules, limits, bounds=asked, advice=advice, known=known)
    await hunt.ask(asked)
    await hunt.look_wider()
    fit = ranking.one_per_machine(ranking.by_total(hunt.fitting()))
    picks = ranking.picks(ranking.rank(fit, rules.ranking), rules.ranking)
    screened = hunt.screened()
    return Found(
        options=tuple(hunt.option(c, _roles(c, picks), picks) for c in fit[:limit]),
        considered=len(hunt.offers),
        removed=screening.removed(screened),
        near_misses=tuple(
            hunt.near_miss(one) for one in screening.near_misses(screened, MAX_NEAR_MISSES)
        ),
        warnings=req.warnings,
    )


async def _plan_one(hunt: Hunt, base: Plan, offer_id: int, warnings: list[str]) -> Plan:
    """Plan for the offer the user chose: what he stated must hold, the rest only warns (C-46)."""
    asked, advice = _split(hunt.bounds, frozenset())
    hunt.bounds, hunt.advice = asked, advice
    hunt.limits = structs.replace(hunt.limits, bands=False, long_contract=False)
    await hunt.ask(filters.offer_bounds(offer_id))
    if offer_id not in hunt.offers:
        # No misspelt name: an offer that another took a moment ago, which is what `OfferGone` tells.
        raise NoOffers(
            f"offer {offer_id} is not on the market: it was rented or withdrawn",
            hint="offers live for minutes; choose another with vastctl offers",
        )
    (one,) = (s for s in hunt.screened() if s.candidate.offer.offer_id == offer_id)
    if one.rejections:
        why = "; ".join(rejection.detail for rejection in one.rejections)
        error = CapLeavesNone if hunt.capped([one]) else NoOffers
        raise error(
            f"offer {offer_id} ({one.candidate.offer.gpu_name}) does not fit: {why}",
            hint=_ways_on(hunt, one),
        )
    pick = Pick(roles=tuple(Role), candidate=one.candidate)
    option = hunt.option(one.candidate, pick.roles, [pick])
    return structs.replace(
        base, options=(option,), ranked=(option,), considered=1, warnings=tuple(warnings)
    )


def _ways_on(hunt: Hunt, one: Screened) -> str:
    names = {rejection.name for rejection in one.rejections}
    lifted = "lift the block with vastctl hosts unblock, or " if Name.BLOCKED in names else ""
    return f"{lifted}{hunt.relax(one)}, or leave --offer out to let vastd choose"


def _limits(req: Requirements, budget: Micros | None, known: Known | None) -> Limits:
    known = known or Known()
    return Limits(
        max_price=None if req.max_dph is None else req.max_dph.value,
        budget=budget,
        min_reliability=None if req.min_reliability is None else req.min_reliability.value,
        blocked=known.blocked,
        taken=known.taken,
    )


def _split(bounds: Sequence[Bound], named: frozenset[str]) -> tuple[list[Bound], list[Bound]]:
    """Return the bounds that count and those that only warn: defaults, unless they are Vast's own.

    `named` are fields the user's query decides: no default speaks about them.
    """
    asked, advice = [], []
    own = {bound.field for bound in filters.base_bounds()}
    for bound in bounds:
        if bound.confidence is not Confidence.DEFAULT:
            asked.append(bound)
        elif bound.field in named or bound.name == Name.NUM_GPUS:
            continue
        elif bound.field in own:
            asked.append(bound)
        else:
            advice.append(bound)
    return asked, advice


def _roles(candidate: Candidate, picks: Sequence[Pick]) -> tuple[Role, ...]:
    for pick in picks:
        if pick.candidate.offer.offer_id == candidate.offer.offer_id:
            return pick.roles
    return ()
