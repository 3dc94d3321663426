"""The words that explain an offer: why it was chosen, what it costs against the others, what to mind."""

from collections.abc import Iterable, Sequence
from typing import Final

from vastd.core.estimate import Candidate
from vastd.core.filters import contract_s
from vastd.core.gpus import REFERENCE_GPU
from vastd.core.money import SECONDS_PER_HOUR, show
from vastd.core.ranking import Pick, RankRules, Role
from vastd.core.screening import Rejection
from vastd.core.sizing import Requirements

BUDGET_PICK: Final = 0.97  # SEL-12: below it the offer is flagged
DEAR_TRAFFIC_USD_GB: Final = 0.01  # guess: 100 GB then cost a dollar


def flags(c: Candidate, req: Requirements, against: Iterable[Rejection] = ()) -> list[str]:
    """Return what the user should mind; `against` are rules the offer breaks that only warn."""
    found = [rejection.detail for rejection in against]
    if c.history:
        found.append(f"machine {c.offer.machine_id}: {c.history}")
    reliability = c.offer.reliability
    if reliability is None:
        found.append("reliability is not reported")
    elif reliability < BUDGET_PICK:
        odds = c.interruption_chance
        chance = "" if odds is None else f", {_percent(odds)} chance that the host fails meanwhile"
        found.append(f"budget pick: reliability {reliability:.3f}{chance}")
    if c.bid is not None:
        found.append(f"interruptible: any higher bid stops it (bid {show(c.bid)}/h)")
    if c.speed.per_gpu is None:
        found.append(f"speed unknown: {c.speed.source}")
    elif c.speed.estimated:
        found.append(f"speed is an estimate, from {c.speed.source}")
    if c.offer.direct_port_count == 0:
        found.append("no direct port: SSH goes through Vast's proxy")
    if req.cuda is not None and c.offer.cuda_max_good is None:
        found.append(f"the driver's CUDA is not reported; the image needs {req.cuda.value:g}")
    found += _contract(c) + _traffic(c)
    return list(dict.fromkeys(found))


def reasons(pick: Pick, picks: Sequence[Pick], req: Requirements, rules: RankRules) -> list[str]:
    """Return why this offer is shown: its cost, its speed, and how it compares (SEL-16)."""
    found = [_cost(pick.candidate), _speed(pick.candidate, req)]
    found += [
        _against(pick.candidate, other)
        for other in picks
        if other.candidate.offer.offer_id != pick.candidate.offer.offer_id
    ]
    if Role.BEST_VALUE in pick.roles and pick.candidate.total is not None:
        found.append(
            f"a wait counts as ${rules.wait_usd_h:g}/h once it exceeds {rules.free_wait_h * 60:g} min;"
            f" times within {rules.equal_speed:.0%} count as equal"
        )
    return found


def rationale(c: Candidate, picks: Sequence[Pick], req: Requirements, rules: RankRules) -> str:
    """Return one line that says why `c` and not the others, for the records."""
    own = next((p for p in picks if p.candidate.offer.offer_id == c.offer.offer_id), None)
    return "; ".join(reasons(own or Pick(roles=(), candidate=c), picks, req, rules))


def _cost(c: Candidate) -> str:
    if c.hours is None or c.total is None:
        return f"{show(c.price)}/h, disk included"
    return f"{c.hours:.1f} h at {show(c.price)}/h: {show(c.total)} in all"


def _speed(c: Candidate, req: Requirements) -> str:
    if c.speed.per_gpu is None:
        return f"nothing is known of the speed of {c.offer.gpu_name}"
    many = f", {c.offer.num_gpus} of them" if c.offer.num_gpus > 1 else ""
    told = f"{c.offer.gpu_name} runs at {c.speed.per_gpu:g} x {REFERENCE_GPU}{many}"
    stated = ""
    if req.hours is not None:
        count = req.num_gpus.value
        machine = req.hours.reference_gpu if count == 1 else f"{count} x {req.hours.reference_gpu}"
        stated = f"; {req.hours.plain:g} h on {machine}"
    return f"{told} ({c.speed.source}){stated}"


def _against(mine: Candidate, other: Pick) -> str:
    theirs = other.candidate
    role = " and ".join(r.replace("_", " ") for r in other.roles)
    name = f"the {role}, {theirs.offer.gpu_name} (offer {theirs.offer.offer_id})"
    if mine.total is None or theirs.total is None or mine.hours is None or theirs.hours is None:
        delta = theirs.price - mine.price
        return f"{name}, costs {_more(delta)} per hour"
    gain = mine.hours - theirs.hours
    when = "sooner" if gain > 0 else "later"
    return f"{name}, is done {abs(gain):.1f} h {when} and costs {_more(theirs.total - mine.total)}"


def _more(delta: int) -> str:
    return f"{show(abs(delta))} {'more' if delta >= 0 else 'less'}"


def _contract(c: Candidate) -> list[str]:
    if c.buffered_hours is None or c.offer.duration_s is None:
        return []
    wanted = contract_s(c.buffered_hours) or c.buffered_hours * SECONDS_PER_HOUR
    if c.offer.duration_s >= wanted:
        return []
    return [f"the host's contract ends in {c.offer.duration_s / SECONDS_PER_HOUR:.1f} h"]


def _traffic(c: Candidate) -> list[str]:
    found = []
    for way, usd_gb in (("down", c.offer.inet_down_usd_gb), ("up", c.offer.inet_up_usd_gb)):
        if usd_gb is not None and usd_gb > DEAR_TRAFFIC_USD_GB:
            found.append(f"traffic {way} costs ${usd_gb:g} per GB")
    return found


def _percent(part: float) -> str:
    return f"{part * 100:.1f} %" if part < 0.1 else f"{part * 100:.0f} %"
