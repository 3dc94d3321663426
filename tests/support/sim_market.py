"""Builders for tests of the simulated market: a clock set by hand, a market, a usual order."""

from vastd.core.market import CreateSpec, OfferQuery
from vastd.core.money import Micros
from vastd.simulator.contracts import Contract, RentOrder
from vastd.simulator.market import Market, MarketSettings

EPOCH = 1_800_000_000.0
BOOTED_S = 600.0  # longer than any boot of any machine


class HandClock:
    """Wall time that moves only when told."""

    def __init__(self, now: float = EPOCH) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def tick(self, seconds: float) -> float:
        self.now += seconds
        return self.now


def a_market(
    clock: HandClock, seed: int = 7, *, credit_usd: float = 100.0, scale: float = 1.0
) -> Market:
    return Market(seed, clock, scale=scale, settings=MarketSettings(credit_usd=credit_usd))


def an_order(**changes: object) -> RentOrder:
    fields: dict[str, object] = {"image": "pytorch/pytorch:2.7", "disk_gb": 40.0, "label": "r-1"}
    return RentOrder(**{**fields, **changes})  # type: ignore[arg-type]


def a_spec(offer_id: int, label: str = "r-1", bid: Micros | None = None) -> CreateSpec:
    return CreateSpec(
        offer_id=offer_id, image="pytorch/pytorch:2.7", disk_gb=40.0, label=label, bid=bid
    )


def an_offer_id(market: Market, gpu: str = "RTX 4090", num_gpus: int = 1) -> int:
    """The cheapest offer of that shape on a machine with direct ports."""
    query = OfferQuery(
        filters={
            "gpu_name": {"eq": gpu},
            "num_gpus": {"eq": num_gpus},
            "direct_port_count": {"gte": 1},
        }
    )
    return market.find_offers(query)[0].offer_id


def a_running_contract(market: Market, clock: HandClock, **changes: object) -> Contract:
    contract = market.create(an_offer_id(market), an_order(**changes))
    clock.tick(BOOTED_S)
    market.advance()
    assert contract.is_up
    return contract
