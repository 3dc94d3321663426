"""Routes of the account: who we are, SSH keys, secrets, bills."""

from typing import Final

import msgspec

from vastd.core.money import to_usd
from vastd.simulator.contracts import Contract
from vastd.simulator.facade.backend import Backend
from vastd.simulator.facade.http import Reply
from vastd.simulator.facade.routes import Call, JsonObject, Route, Scope, answer, done
from vastd.simulator.faults import Point
from vastd.simulator.refusals import MarketRefused

CHARGES_LIMIT: Final = 500  # VAST_API 7.3
MASK: Final = "********"  # VAST_API 6


class AccountRoutes:
    """Handlers of everything about the renter."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._market = backend.market
        self._account = backend.market.account

    def table(self) -> list[Route]:
        """Return the routes."""
        read, write, key = Scope.USER_READ, Scope.USER_WRITE, "/api/v0/ssh/{key_id}/"
        instance, secrets = "/api/v0/instances/{id}/ssh/", "/api/v0/secrets/"
        rent = Scope.INSTANCE_WRITE
        return [
            Route(method="GET", path="/api/v0/users/current/", handler=self.user, scope=read,
                  point=Point.ACCOUNT),
            Route(method="GET", path="/api/v0/ssh/", handler=self.keys, scope=read,
                  point=Point.KEYS),
            Route(method="POST", path="/api/v0/ssh/", handler=self.add_key, scope=write,
                  point=Point.ADD_KEY, threshold_s=1.0),
            Route(method="PUT", path=key, handler=self.replace_key, scope=write, threshold_s=1.0),
            Route(method="DELETE", path=key, handler=self.remove_key, scope=write),
            Route(method="GET", path=instance, handler=self.instance_keys,
                  scope=Scope.INSTANCE_READ),
            Route(method="POST", path=instance, handler=self.attach_key, scope=rent,
                  point=Point.ATTACH_KEY),
            Route(method="DELETE", path=f"{instance}{{key_id}}/", handler=self.detach_key,
                  scope=rent, threshold_s=2.0),
            Route(method="GET", path=secrets, handler=self.secrets, scope=read, threshold_s=5.0),
            Route(method="POST", path=secrets, handler=self.add_secret, scope=write,
                  threshold_s=3.0),
            Route(method="PUT", path=secrets, handler=self.set_secret, scope=write,
                  threshold_s=3.0),
            Route(method="DELETE", path=secrets, handler=self.delete_secret, scope=write,
                  threshold_s=3.0),
            Route(method="GET", path="/api/v0/charges/", handler=self.charges,
                  scope=Scope.BILLING_READ, threshold_s=1.0),
            Route(method="GET", path="/api/v1/invoices/", handler=self.invoices,
                  scope=Scope.BILLING_READ, threshold_s=3.0),
        ]  # fmt: skip

    async def user(self, call: Call) -> Reply:
        """Say who we are and what credit is left."""
        return answer(self._market.user_row())

    async def keys(self, call: Call) -> Reply:
        """List the account's keys; 404 when there are none (VAST_API 6)."""
        if not self._account.ssh_keys:
            raise MarketRefused(404, "not_found", "No ssh keys found.")
        return answer([self._key_row(k.key_id, k.public_key) for k in self._account.ssh_keys])

    def _key_row(self, key_id: int, public_key: str) -> JsonObject:
        created = next(
            (key.created_at for key in self._account.ssh_keys if key.key_id == key_id), None
        )
        # Both names are in the documents; real rows were seen with either.
        return {
            "id": key_id,
            "user_id": self._account.user_id,
            "key": public_key,
            "public_key": public_key,
            "created_at": created,
            "deleted_at": None,
        }

    async def add_key(self, call: Call) -> Reply:
        """Register a key."""
        text = _key_text(call)
        key_id = self._market.add_ssh_key(text)
        return done(key=self._key_row(key_id, text))

    async def replace_key(self, call: Call) -> Reply:
        """Put another key in the place of one."""
        text = _key_text(call)
        self._account.remove_ssh_key(_number(call, "key_id"))
        key_id = self._market.add_ssh_key(text)
        return done(key=self._key_row(key_id, text))

    async def remove_key(self, call: Call) -> Reply:
        """Forget a key; instances that have it keep it."""
        self._account.remove_ssh_key(_number(call, "key_id"))
        return done()

    async def instance_keys(self, call: Call) -> Reply:
        """List an instance's keys, as JSON text within JSON (VAST_API 6)."""
        rows = [
            self._key_row(self._account.key_id(key), key)
            for key in self._market.contract(call.instance_id).keys
        ]
        return done(ssh_keys=msgspec.json.encode(rows).decode())

    async def attach_key(self, call: Call) -> Reply:
        """Let an instance accept a key."""
        self._market.attach_key(call.instance_id, _key_text(call))
        return done(msg="SSH key added to instance.")

    async def detach_key(self, call: Call) -> Reply:
        """Let an instance accept a key no more."""
        self._market.detach_key(call.instance_id, _number(call, "key_id"))
        return done(msg="SSH key removed from instance.")

    async def secrets(self, call: Call) -> Reply:
        """List the account's variables, masked."""
        return done(secrets=dict.fromkeys(self._account.secrets, MASK))

    async def add_secret(self, call: Call) -> Reply:
        """Store a variable for later instances."""
        body = call.body()
        self._account.set_secret(_string(body, "key"), _string(body, "value"))
        return done(msg="Environment variable added.")

    async def set_secret(self, call: Call) -> Reply:
        """Change a variable."""
        body = call.body()
        self._account.set_secret(_string(body, "key"), _string(body, "value"), replace=True)
        return done(msg="Environment variable updated.")

    async def delete_secret(self, call: Call) -> Reply:
        """Forget a variable."""
        self._account.delete_secret(_string(call.body(), "key"))
        return done(msg="Environment variable deleted.")

    async def charges(self, call: Call) -> Reply:
        """Return what every instance has cost, newest last."""
        filters = call.query_json("select_filters")
        day = filters.get("day") if isinstance(filters, dict) else None
        if not isinstance(day, dict) or not {"gte", "lte"} <= set(day):
            # This form has no `error` (VAST_API 7.3).
            return answer({"success": False, "msg": "day: both bounds are required"}, 400)
        contracts = [c for c in self._market.all_contracts() if _within(c, day)]
        shown = [self._charge(contract) for contract in contracts[:CHARGES_LIMIT]]
        return done(count=len(shown), total=len(contracts), next_token=None, results=shown)

    def _charge(self, contract: Contract) -> JsonObject:
        segments = self._market.segments(contract.instance_id)
        items = [
            {
                "start": segment.start_at,
                "end": segment.end_at,
                "type": str(segment.kind),
                "description": f"{segment.kind} of instance {contract.instance_id}",
                "amount": to_usd(segment.amount),
            }
            for segment in segments
        ]
        return {
            "start": contract.created_at,
            "end": max((segment.end_at for segment in segments), default=contract.created_at),
            "type": "instance",
            "source": f"instance-{contract.instance_id}",
            "description": f"Instance {contract.instance_id}",
            "amount": to_usd(self._market.billed(contract.instance_id)),
            "metadata": {"label": contract.label, "template_id": None},
            "items": items,
        }

    async def invoices(self, call: Call) -> Reply:
        """Return the one payment the simulated account was opened with."""
        filters = call.query_json("select_filters")
        if not isinstance(filters, dict) or "when" not in filters:
            return answer({"success": False, "msg": "when: a range is required"})
        payment: JsonObject = {
            "type": "credit",
            "source": "simulated",
            "description": "opening credit",
            "amount": self._market.settings.credit_usd,
            "metadata": {"invoice_id": 1, "service": "simulated"},
            "items": [],
        }
        return done(count=1, total=1, next_token=None, results=[payment])


def _within(contract: Contract, day: dict[str, object]) -> bool:
    first, last = day["gte"], day["lte"]
    if not isinstance(first, int | float) or not isinstance(last, int | float):
        return False
    ended = contract.gone_at
    return contract.created_at <= last and (ended is None or ended >= first)


def _key_text(call: Call) -> str:
    return _string(call.body(), "ssh_key")


def _string(body: JsonObject, name: str) -> str:
    value = body.get(name)
    return value if isinstance(value, str) else ""


def _number(call: Call, name: str) -> int:
    value = call.ids[name]
    assert isinstance(value, int)
    return value
