"""Asks the market about one task, and keeps what came back with what speaks against each offer.

Rules
1. At most 3 searches for one question: Vast allows 10 a minute and has a daily quota.
2. Vast returns 64 rows at most, so cheap cards must not hide fast ones (SRC-02): when an answer is
   full, the faster classes of which nothing fitting was seen are asked for by name.
3. Nothing is judged by Vast's filter alone: every row is screened here, and counted when removed.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct, field, structs

from vastd.core import filters, gpus, reasons, screening
from vastd.core.estimate import Candidate, estimate
from vastd.core.filters import Bound, Name
from vastd.core.hosts import Known
from vastd.core.market import Offer, OfferQuery
from vastd.core.ranking import Pick, RankRules, Role
from vastd.core.screening import Limits, Screened
from vastd.core.sizing import ASKED_PRICE, Requirements, SizingDefaults
from vastd.errors import CapLeavesNone, NoOffers

MAX_SEARCHES: Final = 3
ROWS: Final = 64  # VAST_API 2.1: measured cap
# Classes by speed: the A100 and faster, the H100 and faster, and the 4090 class below them.
TOP_SPEED: Final = 2.5
FAST_SPEED: Final = 1.75
QUICK_SPEED: Final = 1.3


class OfferSource(Protocol):
    """Where offers come from; every `Provider` is one."""

    async def search_offers(self, query: OfferQuery) -> list[Offer]:
        """Return the offers that match, at most `query.limit`, in the order asked for."""
        ...


class PlanRules(Struct, frozen=True, kw_only=True):
    """What the configuration says about choosing."""

    sizing: SizingDefaults = field(default_factory=SizingDefaults)
    ranking: RankRules = field(default_factory=RankRules)
    scaling_efficiency: float = gpus.SCALING_EFFICIENCY


class Option(Struct, frozen=True, kw_only=True):
    """An offer with everything said about it."""

    candidate: Candidate
    roles: tuple[Role, ...]  # empty for an offer that is only next in line
    flags: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def offer(self) -> Offer:
        return self.candidate.offer

    @property
    def rationale(self) -> str:
        """One line for the records: cost, speed, and how it compares."""
        return "; ".join(self.reasons)


class Hunt:
    """One question to the market: what was asked, what came back, what speaks against each."""

    def __init__(
        self,
        source: OfferSource,
        req: Requirements,
        rules: PlanRules,
        limits: Limits,
        *,
        bounds: list[Bound] | None = None,
        advice: Sequence[Bound] = (),
        known: Known | None = None,
    ) -> None:
        self.offers: dict[int, Offer] = {}  # by offer id, as first seen
        self.bounds = filters.plan_bounds(req) if bounds is None else bounds
        self.advice = list(advice)  # bounds that only warn
        self.limits = limits
        self.searches = 0
        self._hosts = known.hosts if known else {}
        self._source = source
        self._req = req
        self._rules = rules

    async def ask(self, bounds: Sequence[Bound], order: tuple[str, str] | None = None) -> bool:
        """Search once and keep what is new; return whether the answer was cut at 64 rows."""
        by_price = ("min_bid" if self._req.interruptible else "dph_total", "asc")
        self.searches += 1
        found = await self._source.search_offers(
            OfferQuery(
                filters=filters.wire(bounds),
                order=[order or by_price],
                limit=ROWS,
                disk_gb=self._req.disk_gb.value,
                interruptible=self._req.interruptible,
            )
        )
        for offer in found:
            self.offers.setdefault(offer.offer_id, offer)
        return len(found) >= ROWS

    async def gather(self, warnings: list[str]) -> None:
        """Search for everything that may fit, the fast classes also when cheap ones fill the rows."""
        if not await self.ask(self.bounds) or self._req.gpu_names:
            return
        cut = await self._ask_class(FAST_SPEED)
        below = FAST_SPEED if not cut else float("inf")
        cut = await self._ask_class(TOP_SPEED if cut else QUICK_SPEED, below) or cut
        if cut:
            warnings.append(
                "Vast answers with 64 offers at a time: dearer ones of the fast cards were not"
                " seen; name a GPU (--gpu-name) to see them"
            )

    async def _ask_class(self, at_least: float, below: float = float("inf")) -> bool:
        """Ask for the classes in that range of speed of which nothing that fits was seen."""
        seen = {candidate.offer.gpu_name for candidate in self.fitting()}
        names = tuple(n for n in gpus.names_with_speed(at_least, below) if n not in seen)
        if not names or self.searches >= MAX_SEARCHES:
            return False
        named = Bound(name=Name.GPU_NAME, field="gpu_name", op="in", value=names)
        return await self.ask([*self.bounds, named])

    async def fitting_or_relaxed(self, warnings: list[str]) -> list[Candidate]:
        """Return what fits; if nothing, without insisting on how long the host stays (C-38)."""
        fit = self.fitting()
        if fit or self._req.hours is None:
            return fit
        relaxed = [bound for bound in self.bounds if bound.name != Name.DURATION]
        kept_limits, kept_bounds = self.limits, self.bounds
        self.limits = structs.replace(self.limits, long_contract=False)
        self.bounds = relaxed
        if not self.fitting() and len(relaxed) < len(kept_bounds) and self._may_ask:
            await self.ask(relaxed)
        fit = self.fitting()
        if not fit:
            self.limits, self.bounds = kept_limits, kept_bounds
            return []
        warnings.append(
            "no host promises to stay for twice the job's hours; these may end before it does:"
            " write checkpoints"
        )
        return fit

    async def look_wider(self) -> None:
        """Search without the terms that could be relaxed, to be able to say what they removed."""
        core = [bound for bound in self.bounds if bound.name in filters.CORE]
        if len(core) < len(self.bounds) and self._may_ask:
            await self.ask(core)
        if not self.offers and self._may_ask:
            base = [b for b in self.bounds if b.name in (Name.AVAILABLE, Name.UNVERIFIED)]
            await self.ask(base, ("gpu_ram", "desc"))

    @property
    def _may_ask(self) -> bool:
        return self.searches < MAX_SEARCHES

    def screened(self) -> list[Screened]:
        """Return everything seen, with the reasons against it."""
        efficiency = self._rules.scaling_efficiency
        candidates = [
            self._remembered(estimate(offer, self._req, efficiency=efficiency))
            for offer in self.offers.values()
        ]
        return screening.screen(candidates, self._req, self.bounds, self.limits)

    def _remembered(self, candidate: Candidate) -> Candidate:
        """Return the candidate with what its machine did here before."""
        host = self._hosts.get(candidate.offer.machine_id)
        if host is None or not host.history:
            return candidate
        return structs.replace(candidate, risk=host.risk, history=host.history)

    def fitting(self) -> list[Candidate]:
        """Return what nothing speaks against."""
        return screening.fitting(self.screened())

    def option(
        self, candidate: Candidate, roles: tuple[Role, ...], picks: Sequence[Pick]
    ) -> Option:
        """Return the offer with its words."""
        warn = structs.replace(self.limits, bands=True, long_contract=True)
        against = screening.check(candidate, self._req, self.advice, warn) if self.advice else []
        pick = Pick(roles=roles, candidate=candidate)
        return Option(
            candidate=candidate,
            roles=roles,
            flags=tuple(reasons.flags(candidate, self._req, against)),
            reasons=tuple(reasons.reasons(pick, picks, self._req, self._rules.ranking)),
        )

    def near_miss(self, one: Screened) -> Option:
        """Return an offer that was removed, flagged with what is missing."""
        found = self.option(one.candidate, (), ())
        missing = tuple(rejection.detail for rejection in one.rejections)
        return structs.replace(found, flags=missing + found.flags)

    def no_offers(self) -> NoOffers:
        """Return the error that says what each filter removed, the nearest miss, what to relax."""
        screened = self.screened()
        counts = screening.removed(screened)
        if not counts:
            return NoOffers(
                "no offer fits: Vast listed none at all",
                hint="look at the market with vastctl offers; vastctl doctor checks the account",
            )
        what = ", ".join(f"{name} {count}" for name, count in counts.items())
        message = f"0 of {len(screened)} offers seen fit; removed by: {what}"
        for one in screening.near_misses(screened, 1):
            offer = one.candidate.offer
            message += (
                f"; nearest miss: {offer.gpu_name} (offer {offer.offer_id}),"
                f" {one.rejections[0].detail}"
            )
        advice = [self._relax(Name(name)) for name in counts if name in _RELAX]
        error = CapLeavesNone if self.capped(screened) else NoOffers
        return error(message, hint="; or ".join(advice[:3]))

    def capped(self, screened: Sequence[Screened]) -> bool:
        """Return whether some offers are only too dear, and it was a cap that said so."""
        cap = self._req.max_dph
        return (
            cap is not None
            and ASKED_PRICE not in cap.source
            and any({r.name for r in one.rejections} == {Name.PRICE} for one in screened)
        )

    def relax(self, one: Screened) -> str:
        """Return what would let one offer pass, as far as it is said in a few words."""
        if self.capped([one]):
            return self._relax(Name.PRICE)
        return "change what you ask for"

    def _relax(self, name: Name) -> str:
        cap = self._req.max_dph
        if name is not Name.PRICE or cap is None or ASKED_PRICE in cap.source:
            return _RELAX[name]
        if cap.source.startswith("project"):
            where = cap.source.removeprefix("project (").removesuffix(")")
            return f"your project's {where} caps the price: change it there"
        return "raise the cap (vastctl budget max_dph_usd=N)"


# What a user can do about each filter, in his words (SRC-17).
_RELAX: Final = {
    Name.GPU_NAME: "name another GPU, or none",
    Name.NUM_GPUS: "ask for another number of GPUs (--num-gpus)",
    Name.GPU_RAM: "need less memory per GPU (--gpu-ram): more GPUs, or a quantized model",
    Name.CUDA: "choose an image with an older CUDA (--image)",
    Name.COMPUTE_CAP: "choose an image for these cards (--image, CUDA 12.8 runs on the newest)",
    Name.DISK: "ask for less disk (--disk)",
    # What only a default removed, an offer chosen by its id is allowed to be (`_plan_one`).
    Name.RELIABILITY: "take a less reliable host knowingly (vastctl offers, then --offer ID)",
    Name.INET_DOWN: "take a slower network knowingly (vastctl offers, then --offer ID)",
    Name.BID: "bid more (--spot)",
    Name.PRICE: "raise the price cap (--max-price)",
    Name.BUDGET: "raise the budget (--budget)",
    Name.BLOCKED: "lift a block (vastctl hosts ls tells why, vastctl hosts unblock lifts it)",
    Name.TAKEN: "wait a moment: another of your runs is renting it",
}
