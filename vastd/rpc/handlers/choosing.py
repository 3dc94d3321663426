"""`task.plan`, `offer.search`."""

from vastd.rpc.context import Context
from vastd.rpc.dispatch import handles
from vastd.rpc.handlers.asked import needs_of
from vastd_protocol.methods import offer as offer_wire
from vastd_protocol.methods import task as wire


@handles(wire.PLAN)
async def plan(ctx: Context, params: wire.PlanParams) -> wire.PlanView:
    """Size a task and propose up to three offers."""
    needs_of(params.needs, ctx.config.of_project(params.project))
    return await ctx.planner.plan(params)


@handles(offer_wire.SEARCH)
async def search(ctx: Context, params: offer_wire.OfferSearchParams) -> offer_wire.OffersView:
    """Search and rank offers."""
    needs_of(params.needs, ctx.config.of_project(params.project))
    return await ctx.planner.search(params)
