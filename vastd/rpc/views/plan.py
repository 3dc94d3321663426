"""Turns plans and offers into what clients see, and a client's needs into ours."""

from collections.abc import Mapping
from typing import TypeVar

from vastd.core import job
from vastd.core.estimate import Candidate
from vastd.core.money import Micros, from_usd, to_usd
from vastd.core.sizing import MB_PER_GB, Hours, Requirements, Sourced, TaskNeeds
from vastd.planning import Found, Option, Plan
from vastd_protocol.methods.offer import OffersView
from vastd_protocol.methods.task import (
    Fact,
    Needs,
    OptionView,
    PlanView,
    Range,
    RequirementsView,
    TaskView,
)

V = TypeVar("V", int, float, str)


def task_needs(needs: Needs | job.Needs, said_by: Mapping[str, str] | None = None) -> TaskNeeds:
    """Return what a client stated, now or with a job on record, in our units.

    `said_by` tells of each field that somebody else than the user stated who that was.
    """
    return TaskNeeds(
        said_by=said_by or {},
        task=needs.task,
        hours=needs.hours,
        gpu_ram_gb=needs.gpu_ram_gb,
        num_gpus=needs.num_gpus,
        gpu_name=needs.gpu_name,
        disk_gb=needs.disk_gb,
        image=needs.image,
        max_dph=_micros(needs.max_dph_usd),
        min_reliability=needs.min_reliability,
        spot=needs.spot,
        bid=_micros(needs.bid_usd_h),
        offer_id=needs.offer_id,
    )


def plan_view(plan: Plan) -> PlanView:
    """Return a plan as clients see it."""
    return PlanView(
        task=_task_view(plan.needs, plan.requirements),
        requirements=_requirements_view(plan.requirements),
        question=plan.question,
        options=[option_view(option) for option in plan.options],
        considered=plan.considered,
        removed=plan.removed,
        warnings=list(plan.warnings),
    )


def offers_view(found: Found, as_of: str) -> OffersView:
    """Return the answer to a search; `as_of` is when it was asked, RFC 3339 UTC."""
    return OffersView(
        offers=[option_view(option) for option in found.options],
        considered=found.considered,
        removed=found.removed,
        near_misses=[option_view(option) for option in found.near_misses],
        as_of=as_of,
    )


def option_view(option: Option) -> OptionView:
    """Return one offer with its estimate, flags and reasons."""
    candidate, offer = option.candidate, option.offer
    return OptionView(
        roles=[str(role) for role in option.roles],
        offer_id=offer.offer_id,
        machine_id=offer.machine_id,
        gpu_name=offer.gpu_name,
        num_gpus=offer.num_gpus,
        gpu_ram_mb=offer.gpu_ram_mb,
        dph_usd=to_usd(candidate.price),
        hours=None if candidate.hours is None else round(candidate.hours, 4),
        total_usd=None if candidate.total is None else to_usd(candidate.total),
        reliability=offer.reliability,
        interruption_chance=_chance(candidate),
        geolocation=offer.geolocation,
        inet_down_mbps=offer.inet_down_mbps,
        flags=list(option.flags),
        reasons=list(option.reasons),
    )


def _task_view(needs: TaskNeeds, req: Requirements) -> TaskView:
    """Return what is known of the task itself; the rest stays null until something reads it."""
    return TaskView(
        hours=None
        if req.hours is None
        else Fact(
            value=req.hours.plain, source=req.hours.source, confidence=str(req.hours.confidence)
        ),
        gpu_hint=None
        if needs.gpu_name is None
        else Fact(
            value=needs.gpu_name,
            source=needs.said_by.get("gpu_name", "you said so (--gpu-name)"),
        ),
        num_gpus=None if needs.num_gpus is None else _fact(req.num_gpus),
    )


def _requirements_view(req: Requirements) -> RequirementsView:
    vram = None
    least = None
    if req.gpu_ram_mb is not None:
        gb = req.gpu_ram_mb.value / MB_PER_GB
        vram = Range(low=gb, mid=gb, high=gb, source=req.gpu_ram_mb.source)
        least = Fact(
            value=gb, source=req.gpu_ram_mb.source, confidence=str(req.gpu_ram_mb.confidence)
        )
    return RequirementsView(
        vram_gb=vram,
        min_vram_gb=least,
        num_gpus=_fact(req.num_gpus),
        disk_gb=_fact(req.disk_gb),
        cuda=None if req.cuda is None else _fact(req.cuda),
        hours=None if req.hours is None else _hours(req.hours),
        image=_fact(req.image),
    )


def _hours(hours: Hours) -> Range:
    return Range(low=hours.plain, mid=hours.plain, high=hours.buffered, source=hours.source)


def _fact(value: Sourced[V]) -> Fact:
    return Fact(value=value.value, source=value.source, confidence=str(value.confidence))


def _micros(usd: float | None) -> Micros | None:
    return None if usd is None else from_usd(usd)


def _chance(candidate: Candidate) -> float | None:
    chance = candidate.interruption_chance
    return None if chance is None else round(chance, 6)
