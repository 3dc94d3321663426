"""Routes of the account: who we are, SSH keys, secrets."""

from datetime import UTC, datetime
from typing import Final

import msgspec

from vastd.simulator.facade.backend import Backend
from vastd.simulator.facade.http import Reply
from vastd.simulator.facade.routes import Call, JsonObject, Route, Scope, answer, done
from vastd.simulator.faults import Point
from vastd.simulator.refusals import MarketRefused

NO_ADDRESS: Final = dict.fromkeys(
    (f"billaddress_{part}" for part in ("line1", "city", "zip", "country", "taxinfo")), ""
)
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
        ]  # fmt: skip

    async def user(self, call: Call) -> Reply:
        """Say who we are and what credit is left."""
        assert call.key is not None
        # The live object holds the key it was asked with, and addresses nobody gave here.
        return answer({**self._market.user_row(), **NO_ADDRESS, "api_key": call.key.token})

    async def keys(self, call: Call) -> Reply:
        """List the account's keys; 404 when there are none (VAST_API 6)."""
        if not self._account.ssh_keys:
            raise MarketRefused(404, "not_found", "No ssh keys found.")
        return answer([self._key_row(k.key_id, k.public_key) for k in self._account.ssh_keys])

    def _key_row(self, key_id: int, public_key: str) -> JsonObject:
        created = next(
            (_date(key.created_at) for key in self._account.ssh_keys if key.key_id == key_id), None
        )
        # Both names are in the documents; real rows were seen with either.
        return {
            "id": key_id,
            "user_id": self._account.user_id,
            "key": public_key,
            "public_key": public_key,
            "created_at": created,
            "deleted_at": None,
            "machine_id": None,
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
        return done(msg="Environment variable created successfully")

    async def set_secret(self, call: Call) -> Reply:
        """Change a variable."""
        body = call.body()
        self._account.set_secret(_string(body, "key"), _string(body, "value"), replace=True)
        return done(msg="Environment variable updated successfully")

    async def delete_secret(self, call: Call) -> Reply:
        """Forget a variable."""
        self._account.delete_secret(_string(call.body(), "key"))
        return done(msg="Environment variable deleted successfully")


def _date(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).replace(tzinfo=None).isoformat(timespec="seconds")


def _key_text(call: Call) -> str:
    return _string(call.body(), "ssh_key")


def _string(body: JsonObject, name: str) -> str:
    value = body.get(name)
    return value if isinstance(value, str) else ""


def _number(call: Call, name: str) -> int:
    value = call.ids[name]
    assert isinstance(value, int)
    return value
