"""What can be read of the simulated market: offers, instances, bills. Changes nothing but time."""

from typing import Final

from msgspec import Struct

from vastd.core.market import Account, Instance, Offer, OfferQuery
from vastd.core.money import Micros, to_usd
from vastd.simulator import refusals, rows, search
from vastd.simulator.accounts import MarketAccount
from vastd.simulator.billing import BillSegment
from vastd.simulator.contracts import Contract
from vastd.simulator.machines import Chunk, Machine
from vastd.simulator.search import Search
from vastd.simulator.world import World

CACHED_ROWS: Final = 4_000  # guess: some ten times a market


class SearchResult(Struct, frozen=True, kw_only=True):
    """What a search found."""

    rows: list[dict[str, object]]  # raw offer rows in the order asked for, at most 64
    unknown_fields: list[str]  # filtered on and not known: they filtered nothing


class MarketView:
    """The reading half of a market. Every look first brings the world up to date."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._standing: dict[int, dict[str, object]] = {}  # by offer id

    @property
    def account(self) -> MarketAccount:
        """The renter's account: identity, keys, secrets."""
        return self.world.account

    @property
    def machines(self) -> dict[int, Machine]:
        """All machines by machine id."""
        return self.world.machines

    @property
    def scale(self) -> float:
        """The factor on boot, pull and destroy latencies."""
        return self.world.scale

    def advance(self) -> float:
        """Bring everything up to the clock; return the time, epoch seconds."""
        return self.world.advance()

    def next_change_at(self) -> float | None:
        """Return when something will change by itself next, epoch seconds, or None."""
        self.world.advance()
        return self.world.next_event_at()

    # -- offers --------------------------------------------------------------------------

    def search(
        self, body: dict[str, object], *, defaults: bool = True, leak: bool = False
    ) -> SearchResult:
        """Evaluate a search request as `POST /bundles/` would.

        `defaults=False` is the behaviour of `PUT /search/asks/`; `leak` ignores numeric bounds.

        Raises:
            MarketRefused: the filters cannot be read.
        """
        wanted = search.parse(body, defaults=defaults, leak=leak)
        now = self.world.advance()
        found: list[dict[str, object]] = []
        for offer_id, chunk in self.world.shelf.offers.items():
            standing = self._standing_row(offer_id, chunk)
            # Most offers fall here already, before prices are worked out.
            if chunk.machine.end_at > now and search.matches(standing, wanted.filters):
                found.append(self._offer_row(standing, chunk, wanted, now))
        return SearchResult(
            rows=search.select(found, wanted), unknown_fields=self._unknown_fields(wanted, now)
        )

    def _standing_row(self, offer_id: int, chunk: Chunk) -> dict[str, object]:
        row = self._standing.get(offer_id)
        if row is None:
            if len(self._standing) > CACHED_ROWS:  # ids of offers long gone pile up
                self._standing.clear()
            row = self._standing[offer_id] = rows.standing_row(offer_id, chunk)
        return row

    def _offer_row(
        self, standing: dict[str, object], chunk: Chunk, wanted: Search, now: float
    ) -> dict[str, object]:
        return rows.offer_row(
            standing,
            chunk,
            now=now,
            disk_gb=wanted.disk_gb,
            interruptible=wanted.interruptible,
            min_bid=self.world.floor_for_new(chunk),
            rented=self.world.shelf.taken(chunk),
        )

    def _unknown_fields(self, wanted: Search, now: float) -> list[str]:
        offers = self.world.shelf.offers
        if not offers:
            return []
        offer_id, chunk = next(iter(offers.items()))
        any_row = self._offer_row(self._standing_row(offer_id, chunk), chunk, wanted, now)
        return search.unknown_fields(wanted, any_row)

    def find_offers(self, query: OfferQuery, *, leak: bool = False) -> list[Offer]:
        """Evaluate our own query.

        Raises:
            MarketRefused: the filters cannot be read.
        """
        body: dict[str, object] = {
            **query.filters,
            "order": [list(pair) for pair in query.order],
            "limit": query.limit,
            "allocated_storage": query.disk_gb,
            "type": "bid" if query.interruptible else "on-demand",
        }
        offers: list[Offer] = []
        for row in self.search(body, leak=leak).rows:
            offer_id = row["ask_contract_id"]
            assert isinstance(offer_id, int)
            offers.append(rows.to_offer(row, self.world.shelf.offers[offer_id]))
        return offers

    def gpu_names(self) -> list[str]:
        """Return the names of all cards on the market, sorted."""
        return sorted({machine.gpu.name for machine in self.machines.values()})

    def offer_ids(self) -> list[int]:
        """Return every known offer id, rented ones too, oldest first."""
        self.world.advance()
        return list(self.world.shelf.offers)

    # -- instances -----------------------------------------------------------------------

    def contract(self, instance_id: int) -> Contract:
        """Return a living contract.

        Raises:
            MarketRefused: there is none of that id (any more).
        """
        self.world.advance()
        contract = self.world.live.get(instance_id)
        if contract is None:
            raise refusals.no_such_instance(instance_id)
        return contract

    def find(self, instance_id: int) -> Contract | None:
        """Return a contract, ended or not, or None when the id was never given."""
        self.world.advance()
        return self.world.contracts.get(instance_id)

    def live_contracts(self) -> list[Contract]:
        """Return everything that may bill, foreign ones too, by ascending id."""
        self.world.advance()
        return list(self.world.live.values())

    def all_contracts(self) -> list[Contract]:
        """Return every contract there ever was, by ascending id."""
        self.world.advance()
        return list(self.world.contracts.values())

    def instance_rows(self) -> list[dict[str, object]]:
        """Return the raw rows of all instances, by ascending id."""
        now = self.world.advance()
        return [self._row(contract, now) for contract in self.world.live.values()]

    def instance_row(self, instance_id: int) -> dict[str, object] | None:
        """Return one raw row, or None when there is no such instance."""
        now = self.world.advance()
        contract = self.world.live.get(instance_id)
        return None if contract is None else self._row(contract, now)

    def instances(self) -> list[Instance]:
        """Return all instances in our own form, by ascending id."""
        return [rows.to_instance(row) for row in self.instance_rows()]

    def instance(self, instance_id: int) -> Instance | None:
        """Return one instance in our own form, or None when there is no such instance."""
        row = self.instance_row(instance_id)
        return None if row is None else rows.to_instance(row)

    def _row(self, contract: Contract, now: float) -> dict[str, object]:
        return rows.instance_row(contract, now=now, min_bid=self.world.floor(contract.chunk))

    # -- money ---------------------------------------------------------------------------

    def billed(self, instance_id: int) -> Micros:
        """Return everything an instance has cost so far; 0 for an unknown id."""
        now = self.world.advance()
        contract = self.world.contracts.get(instance_id)
        return Micros(0) if contract is None else contract.meter.total(now)

    def total_billed(self, *, foreign: bool = True) -> Micros:
        """Return the sum of all bills; `foreign=False` leaves out what we did not rent."""
        now = self.world.advance()
        return Micros(
            sum(
                contract.meter.total(now)
                for contract in self.world.contracts.values()
                if foreign or not contract.foreign
            )
        )

    def segments(self, instance_id: int) -> list[BillSegment]:
        """Return the bill of an instance in segments; their sum is `billed`."""
        now = self.world.advance()
        contract = self.world.contracts.get(instance_id)
        return [] if contract is None else contract.meter.segments(now)

    def credit(self) -> Micros:
        """Return what is left in the account, possibly below zero."""
        return self.world.credit(self.world.advance())

    def renter(self) -> Account:
        """Return the account in our own form."""
        account = self.account
        return Account(user_id=account.user_id, email=account.email, credit=self.credit())

    def user_row(self) -> dict[str, object]:
        """Return the object of `GET /users/current/`; it holds no key."""
        credit = to_usd(self.credit())
        account = self.account
        return {
            "id": account.user_id,
            "email": account.email,
            "username": account.username,
            "fullname": "",
            "credit": credit,
            "balance": 0.0,
            "balance_threshold": 0.0,
            "balance_threshold_enabled": False,
            "can_pay": True,
            "has_billing": True,
            "billed_expected": 0.0,
            "billed_verified": True,
            "paid_expected": 0.0,
            "paid_verified": 0.0,
            "autobill_amount": 0,
            "autobill_threshold": 0,
            "ssh_key": account.ssh_keys[0].public_key if account.ssh_keys else None,
            "host_agreement_accepted": False,
        }
