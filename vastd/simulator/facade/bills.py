"""Routes about money: charges, payments, deposits, announced price rises."""

import math
from typing import Final

from vastd.core.money import to_usd
from vastd.simulator.billing import BillSegment
from vastd.simulator.contracts import Contract
from vastd.simulator.facade.backend import Backend
from vastd.simulator.facade.http import Reply
from vastd.simulator.facade.routes import Call, JsonObject, Route, Scope, answer, done

CHARGES_LIMIT: Final = 500  # VAST_API 7.3
HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0


class BillRoutes:
    """Handlers of bills. A bill is what the contract's meter says, nothing is made up."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._market = backend.market
        self._opened_at = backend.clock()  # when the one payment of this account was made

    def table(self) -> list[Route]:
        """Return the routes."""
        bills, rented = Scope.BILLING_READ, Scope.INSTANCE_READ
        return [
            Route(method="GET", path="/api/v0/charges/", handler=self.charges, scope=bills,
                  threshold_s=1.0),
            Route(method="GET", path="/api/v1/invoices/", handler=self.invoices, scope=bills,
                  threshold_s=3.0),
            Route(method="GET", path="/api/v0/users/me/invoices/", handler=self.old_invoices,
                  scope=bills),
            Route(method="POST", path="/api/v0/contracts/fetch/", handler=self.labelled,
                  scope=rented),
            Route(method="GET", path="/api/v0/instances/balance/{id}/", handler=self.deposit,
                  scope=rented),
            Route(method="GET", path="/api/v0/instances/pending-price-increases/",
                  handler=self.price_rises, scope=rented),
        ]  # fmt: skip

    async def charges(self, call: Call) -> Reply:
        """Return what every instance has cost, newest last."""
        filters = call.query_json("select_filters")
        day = filters.get("day") if isinstance(filters, dict) else None
        if not isinstance(day, dict) or not {"gte", "lte"} <= set(day):
            # This form has no `error` (VAST_API 7.3).
            return answer({"success": False, "msg": "day: both bounds are required"}, 400)
        contracts = [c for c in self._market.all_contracts() if _within(c, day["gte"], day["lte"])]
        shown = [self._charge(contract) for contract in contracts[:CHARGES_LIMIT]]
        return done(count=len(shown), total=len(contracts), next_token=None, results=shown)

    def _charge(self, contract: Contract) -> JsonObject:
        segments = self._market.segments(contract.instance_id)
        source = f"instance-{contract.instance_id}"
        return {
            "start": contract.created_at,
            "end": max((segment.end_at for segment in segments), default=contract.created_at),
            "type": "instance",
            "source": source,
            "description": f"Instance {contract.instance_id}",
            "amount": to_usd(self._market.billed(contract.instance_id)),
            "metadata": {"label": contract.label, "template_id": None},
            "items": [_item(segment, source) for segment in segments],
        }

    async def invoices(self, call: Call) -> Reply:
        """Return the one payment the simulated account was opened with."""
        filters = call.query_json("select_filters")
        if not isinstance(filters, dict) or "when" not in filters:
            return answer({"success": False, "msg": "when: a range is required"})
        payment: JsonObject = {
            "start": self._opened_at,
            "end": self._opened_at,
            "type": "credit",
            "source": "simulated",
            "description": "opening credit",
            "amount": self._market.settings.credit_usd,
            "metadata": {"invoice_id": 1, "service": "simulated"},
            "items": [],
        }
        return done(count=1, total=1, next_token=None, results=[payment])

    async def old_invoices(self, call: Call) -> Reply:
        """Return charges and the payment as the deprecated route words them."""
        first, last = (_epoch(call, name) for name in ("sdate", "edate"))
        rows: list[JsonObject] = []
        if call.request.query.get("inc_charges") == "true":
            for contract in self._market.all_contracts():
                if _within(contract, first, last):
                    segments = self._market.segments(contract.instance_id)
                    rows += [_old_charge(contract, segment) for segment in segments]
        if first <= self._opened_at <= last:
            rows.append(
                {
                    "type": "payment",
                    "timestamp": self._opened_at,
                    "amount": f"{self._market.settings.credit_usd:.2f}",
                    "description": "opening credit",
                }
            )
        charges = sum(float(str(row["amount"])) for row in rows if row["type"] == "charge")
        credit = to_usd(self._market.credit())
        current = {"charges": charges, "service_fee": 0.0, "total": charges, "credit": credit}
        return answer({"invoices": rows, "current": current})

    async def labelled(self, call: Call) -> Reply:
        """Return which of some contracts carry a label; ended ones are found too."""
        body = call.body()
        wanted = body.get("contract_ids")
        ids = set(wanted) if isinstance(wanted, list) else set()
        found = [
            {"id": contract.instance_id}
            for contract in self._market.all_contracts()
            if contract.instance_id in ids and contract.label == body.get("label")
        ]
        return done(contracts=found)

    async def deposit(self, call: Call) -> Reply:
        """Return what was prepaid for an instance: nothing ever is here."""
        self._market.contract(call.instance_id)
        return done(refundable_deposit=0.0, total_discount=0.0, discount_months=0)

    async def price_rises(self, call: Call) -> Reply:
        """List the price rises hosts have announced: hosts of this market announce none."""
        return done(count=0, truncated=False, pending_price_increases=[])


def _item(segment: BillSegment, source: str) -> JsonObject:
    return {
        "start": segment.start_at,
        "end": segment.end_at,
        "type": str(segment.kind),
        "source": source,
        "description": f"{segment.kind} of {source}",
        "amount": to_usd(segment.amount),
        "metadata": {},
        "items": [],
    }


def _old_charge(contract: Contract, segment: BillSegment) -> JsonObject:
    hours = max(segment.end_at - segment.start_at, 0.0) / HOUR_S
    amount = to_usd(segment.amount)
    return {
        "type": "charge",
        "timestamp": segment.end_at,
        "amount": f"{amount:.6f}",
        "quantity": f"{hours:.6f}",
        "rate": f"{amount / hours if hours else 0.0:.6f}",
        "description": f"Instance {contract.instance_id} {segment.kind} charge: hours * $/hr",
        "instance_id": contract.instance_id,
    }


def _within(contract: Contract, first: object, last: object) -> bool:
    if not isinstance(first, int | float) or not isinstance(last, int | float):
        return False
    # Bills are kept by day, so the bounds are of days too.
    ended = contract.gone_at
    return _day(contract.created_at) <= last and (ended is None or _day(ended) >= _day(first))


def _day(epoch_s: float) -> float:
    return epoch_s - epoch_s % DAY_S if math.isfinite(epoch_s) else epoch_s


def _epoch(call: Call, name: str) -> float:
    """Return a bound of the old route; without one there is none."""
    try:
        return float(call.request.query[name])
    except (KeyError, ValueError):
        return float("-inf") if name == "sdate" else float("inf")
