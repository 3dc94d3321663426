"""Builders for choosing offers: an offer nobody objects to, and a market that is a list."""

from vastd.core.market import Offer, OfferQuery
from vastd.core.money import from_usd
from vastd.core.offer_fields import holds, read

DAY_S = 86_400.0


def an_offer(offer_id: int = 1, usd_h: float = 0.20, **changes: object) -> Offer:
    """A single RTX 3090 that satisfies every default; `machine_id` follows `offer_id`."""
    fields: dict[str, object] = {
        "offer_id": offer_id,
        "machine_id": 1000 + offer_id,
        "gpu_name": "RTX 3090",
        "num_gpus": 1,
        "gpu_ram_mb": 24_576,
        "disk_space_gb": 200.0,
        "dph": from_usd(usd_h),
        "inet_down_mbps": 800.0,
        "reliability": 0.9995,
        "compute_cap": 860,
        "cuda_max_good": 12.8,
        "geolocation": "Sweden, SE",
        "verified": True,
        "direct_port_count": 10,
        "duration_s": 90 * DAY_S,
    }
    return Offer(**{**fields, **changes})  # type: ignore[arg-type]


def a_4090(offer_id: int, usd_h: float = 0.30, **changes: object) -> Offer:
    return an_offer(offer_id, usd_h, **{"gpu_name": "RTX 4090", "compute_cap": 890, **changes})


def an_h100(offer_id: int, usd_h: float = 1.90, **changes: object) -> Offer:
    facts = {"gpu_name": "H100 SXM", "gpu_ram_mb": 81_559, "compute_cap": 900}
    return an_offer(offer_id, usd_h, **{**facts, **changes})


class ListedOffers:
    """A market that is a list: filters, orders by price and cuts at 64 rows, as Vast does.

    `leaky` forgets numeric bounds, as Vast has been seen to.
    """

    def __init__(self, *offers: Offer, leaky: bool = False) -> None:
        self.offers = list(offers)
        self.queries: list[OfferQuery] = []
        self._leaky = leaky

    async def search_offers(self, query: OfferQuery) -> list[Offer]:
        self.queries.append(query)
        found = [offer for offer in self.offers if self._fits(offer, query)]
        return sorted(found, key=lambda offer: offer.dph)[: min(query.limit, 64)]

    def _fits(self, offer: Offer, query: OfferQuery) -> bool:
        for field, tests in query.filters.items():
            for op, wanted in tests.items():
                if self._leaky and op in ("gt", "gte", "lt", "lte"):
                    continue
                value = tuple(wanted) if isinstance(wanted, list) else wanted
                if holds(read(offer, field), op, value) is False:  # type: ignore[arg-type]
                    return False
        return True
