"""Routes about API keys: list, make, show, delete, replace one's own."""

from typing import Final

from vastd.simulator.accounts import ApiKey
from vastd.simulator.facade.backend import Backend
from vastd.simulator.facade.http import Reply
from vastd.simulator.facade.routes import Call, JsonObject, Route, Scope, answer, done
from vastd.simulator.refusals import MarketRefused, invalid_args

NAME_CHARS: Final = 256  # guess


class ApiKeyRoutes:
    """Handlers of API keys. Instance keys belong to their instances and are not shown."""

    def __init__(self, backend: Backend) -> None:
        self._account = backend.market.account

    def table(self) -> list[Route]:
        """Return the routes."""
        read, write = Scope.USER_READ, Scope.USER_WRITE
        every, one = "/api/v0/auth/apikeys/", "/api/v0/auth/apikeys/{key_id}/"
        return [
            Route(method="GET", path=every, handler=self.keys, scope=read, threshold_s=1.0),
            Route(method="POST", path=every, handler=self.create, scope=write, threshold_s=2.0),
            Route(method="GET", path=one, handler=self.show, scope=read),
            Route(method="DELETE", path=one, handler=self.delete, scope=write, threshold_s=2.0),
            Route(method="PUT", path="/api/v0/commands/reset_apikey/", handler=self.reset,
                  scope=write),
        ]  # fmt: skip

    def _mine(self) -> list[ApiKey]:
        return [key for key in self._account.api_keys.values() if key.instance_id is None]

    def _find(self, call: Call) -> ApiKey:
        for key in self._mine():
            if key.key_id == call.ids["key_id"]:
                return key
        raise MarketRefused(404, "not_found", f"No such api key: {call.ids['key_id']}.")

    async def keys(self, call: Call) -> Reply:
        """List names and permissions; a key itself is shown once, when it is made."""
        rows = [
            {"id": key.key_id, "name": key.name, "permissions": _permissions(key)}
            for key in self._mine()
        ]
        return done(apikeys=rows)

    async def create(self, call: Call) -> Reply:
        """Make a key that may do what its categories say."""
        body = call.body()
        name = body.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS:
            raise invalid_args("name: Input should be a valid string")
        key = self._account.add_api_key(name, permissions=_categories(body.get("permissions")))
        return done(id=key.key_id, key=key.token, permissions=_permissions(key))

    async def show(self, call: Call) -> Reply:
        """Show one key, blotted out."""
        key = self._find(call)
        return answer(
            {
                "id": key.key_id,
                "user_id": self._account.user_id,
                "key": f"{key.token[:4]}{'*' * 8}",
                "rights": _permissions(key),
                "session": None,
            }
        )

    async def delete(self, call: Call) -> Reply:
        """Accept a key no more; the answer is a bare string (VAST_API 1.1)."""
        self._account.revoke_api_key(self._find(call).token)
        return answer("ok")

    async def reset(self, call: Call) -> Reply:
        """Replace the key this request came with."""
        assert call.key is not None
        self._account.revoke_api_key(call.key.token)
        key = self._account.add_api_key(call.key.name, permissions=call.key.permissions)
        return done(new_api_key=key.token)


def _permissions(key: ApiKey) -> JsonObject:
    return (
        {} if key.permissions is None else {"api": {name: {} for name in sorted(key.permissions)}}
    )


def _categories(value: object) -> frozenset[str] | None:
    """Return the categories of a permission object; without one a key may do everything.

    Raises:
        MarketRefused: it is no such object, or narrows a category, which is not modelled.
    """
    if not value:
        return None
    categories = value.get("api") if isinstance(value, dict) else None
    if not isinstance(categories, dict) or set(categories) - {*Scope}:
        raise invalid_args("permissions: unknown category")
    if any(categories.values()):
        raise invalid_args("permissions: constraints are not supported here")
    return frozenset(categories)
