"""A refusal for money in words and numbers: what is used up, and the three ways on."""

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from vastd.core import billing
from vastd.core.instants import shown
from vastd.core.limits import Limits
from vastd.core.money import (
    MICROS_PER_USD,
    SECONDS_PER_HOUR,
    Micros,
    show,
    show_rate,
    show_two,
    to_usd,
)
from vastd.core.pace import WORDS
from vastd.core.rental import Rental
from vastd.core.spending import Cap, Use, wind_down_s

SHORTEST_S: Final = 300.0  # guess: in less no machine boots and does anything
NAMED: Final = 3  # guess: who reserves most; the rest is counted
BILLING_PAGE: Final = "https://cloud.vast.ai/billing/"


class Cheaper(Struct, frozen=True, kw_only=True):
    """Another offer that fits the task, with what it would reserve."""

    offer_id: int
    gpu_name: str
    num_gpus: int
    needs: Micros


class Refusal(Struct, frozen=True, kw_only=True):
    """Why a machine was not rented, and what would help."""

    planned: Rental  # what was refused
    use: Use
    raise_to: Micros  # the least whole dollar at which it would fit
    budget: Micros | None = None  # a budget with which it would fit; None: none is worth it
    max_runtime_s: float | None = None  # a time with which it would fit; None as above
    cheaper: Cheaper | None = None
    ending: str | None = None  # ending this machine would make room
    most_per_hour: Micros = Micros(0)  # a price at which it would fit as it is

    @property
    def message(self) -> str:
        """What came back, in one sentence."""
        use = self.use
        needs, left = show_two(use.needs, max(0, use.left))
        return (
            f"nothing was rented: it needs up to {needs}, and {WORDS[use.cap]}"
            f"{_key(use)} has {left} left: {_sums(use)}"
        )

    @property
    def hint(self) -> str:
        """The three ways on, and when the window begins anew."""
        ways = [self._raise(), self._shorten(), self._cheaper()]
        lines = ["three ways on:", *(f"{number}. {way}" for number, way in enumerate(ways, 1))]
        if self.use.window.end is not None:
            what = "day" if self.use.cap is Cap.PER_DAY else "month"
            lines.append(f"or wait: a new {what} begins at {shown(self.use.window.end)}")
        return "\n".join(lines)

    def _raise(self) -> str:
        if self.use.cap is Cap.CREDIT:
            return f"add credit at {BILLING_PAGE}"
        return f"raise the cap: `vastctl budget {self.use.cap}={to_usd(self.raise_to):g}`"

    def _shorten(self) -> str:
        if self.budget is None or self.max_runtime_s is None:
            return "shorten it: nothing useful fits into what is left"
        minutes = int(self.max_runtime_s // 60)
        budget = f"`--budget {to_usd(self.budget):.2f}`"
        return f"shorten it: {budget} or `--max-runtime {minutes}m` would fit"

    def _cheaper(self) -> str:
        ways = []
        if self.cheaper is not None:
            many = f"{self.cheaper.num_gpus}x " if self.cheaper.num_gpus > 1 else ""
            ways.append(
                f"`--offer {self.cheaper.offer_id}` ({many}{self.cheaper.gpu_name}) needs "
                f"{show(self.cheaper.needs)}"
            )
        if self.ending is not None:
            ways.append(f"`vastctl destroy {self.ending}` makes room")
        if not ways and self.most_per_hour > 0:
            most = show_rate(self.most_per_hour)
            ways.append(f"below {most} it would fit as it is, and no offer found is")
        return "cheaper: " + (
            " or ".join(ways) or "nothing is left, nor does ending one machine help"
        )


def _key(use: Use) -> str:
    if use.cap is Cap.CREDIT:
        return ""
    if use.window.end is None:
        return f" ({use.cap})"
    began = shown(use.window.start)
    return f" ({use.cap}, {began[:7] if use.cap is Cap.PER_MONTH else began[:10]} UTC)"


def _sums(use: Use) -> str:
    parts = [f"{show(use.limit)} in all"]
    if use.cap is not Cap.CREDIT:
        parts.append(f"{show(use.spent)} spent")
    named = ", ".join(f"{claim.name} {show(claim.amount)}" for claim in use.claims[:NAMED])
    more = f" and {len(use.claims) - NAMED} more" if len(use.claims) > NAMED else ""
    parts.append(f"{show(use.reserved)} reserved" + (f" by {named}{more}" if named else ""))
    return ", ".join(parts)


def refusal(use: Use, planned: Rental, limits: Limits, cheaper: Sequence[Cheaper] = ()) -> Refusal:
    """Return the refusal of `planned`, which needs more than `use` has left. `cheaper`: other
    offers, with what each would need of the same cap."""
    room, rate = use.left, billing.expected_rate(planned)
    whole = -(-(use.spent + use.reserved + use.needs) // MICROS_PER_USD) * MICROS_PER_USD
    cents = Micros(room // 10_000 * 10_000)
    runtime_s = room / rate * SECONDS_PER_HOUR - wind_down_s(planned, limits) if rate > 0 else 0.0
    useful = runtime_s >= SHORTEST_S and cents > 0
    return Refusal(
        planned=planned,
        use=use,
        raise_to=Micros(whole),
        budget=cents if useful else None,
        max_runtime_s=math.floor(runtime_s / 60) * 60 if useful else None,
        most_per_hour=Micros(max(0, room) * rate // use.needs if use.needs > 0 else 0),
        cheaper=next((one for one in cheaper if one.needs <= room), None),
        ending=next(
            (claim.name for claim in use.claims if use.left + claim.amount >= use.needs), None
        ),
    )
