"""The renter's account at the simulated Vast: identity, keys, secrets. Money is the market's."""

import hashlib
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from vastd.simulator.refusals import MarketRefused

# VAST_API 6: the codes of refused secrets; the lengths are those of create's env.
SECRET_VALUE_CHARS: Final = 256
SECRETS_COUNT: Final = 100  # guess


class ApiKey(Struct, frozen=True, kw_only=True):
    """One accepted API key."""

    token: str
    key_id: int
    name: str
    permissions: frozenset[str] | None = None  # scope names; None is everything
    instance_id: int | None = None  # set: an instance key, good for that instance alone


class AccountKey(Struct, frozen=True, kw_only=True):
    """A public SSH key of the account."""

    key_id: int
    public_key: str
    created_at: float


class MarketAccount:
    """Everything about the renter but money."""

    def __init__(self, *, seed: int, user_id: int, email: str, clock: Callable[[], float]) -> None:
        self.user_id = user_id
        self.email = email
        self.username = email.partition("@")[0]
        self.ssh_keys: list[AccountKey] = []
        self.secrets: dict[str, str] = {}
        self.api_keys: dict[str, ApiKey] = {}
        self._seed = seed
        self._clock = clock
        self._key_ids: dict[str, int] = {}  # type and base64 of a public key -> its id
        self._next_id = 1
        self.owner_key = self.add_api_key("owner").token

    def _new_id(self) -> int:
        self._next_id += 1
        return 7_000 + self._next_id

    def _new_token(self, key_id: int) -> str:
        return hashlib.sha256(f"simulated-key:{self._seed}:{key_id}".encode()).hexdigest()

    def add_api_key(
        self,
        name: str,
        *,
        token: str | None = None,
        permissions: frozenset[str] | None = None,
        instance_id: int | None = None,
    ) -> ApiKey:
        """Make a key, or accept a given `token` from now on."""
        key_id = self._new_id()
        key = ApiKey(
            token=token or self._new_token(key_id),
            key_id=key_id,
            name=name,
            permissions=permissions,
            instance_id=instance_id,
        )
        self.api_keys[key.token] = key
        return key

    def revoke_api_key(self, token: str) -> None:
        """Accept the key no more; nothing happens when it is unknown."""
        self.api_keys.pop(token, None)

    def authenticate(self, token: str | None) -> ApiKey | None:
        """Return the key behind a token, or None when it is not accepted."""
        return None if token is None else self.api_keys.get(token)

    def add_ssh_key(self, public_key: str) -> AccountKey:
        """Register a public key; the same key again returns the first registration.

        Raises:
            MarketRefused: it does not look like a public key.
        """
        text = public_key.strip()
        parts = text.split()
        if len(parts) < 2 or not parts[0].startswith(("ssh-", "ecdsa-", "sk-")):
            raise MarketRefused(400, "no_ssh_key", "No valid ssh key was given.")
        for known in self.ssh_keys:
            if known.public_key.split()[:2] == parts[:2]:
                return known
        key = AccountKey(key_id=self.key_id(text), public_key=text, created_at=self._clock())
        self.ssh_keys.append(key)
        return key

    def key_id(self, public_key: str) -> int:
        """Return the id of a public key, the same whether or not the account has it."""
        body = " ".join(public_key.split()[:2])
        if body not in self._key_ids:
            self._key_ids[body] = self._new_id()
        return self._key_ids[body]

    def remove_ssh_key(self, key_id: int) -> None:
        """Forget a public key of the account; instances that have it keep it.

        Raises:
            MarketRefused: there is none of that id.
        """
        kept = [key for key in self.ssh_keys if key.key_id != key_id]
        if len(kept) == len(self.ssh_keys):
            raise MarketRefused(404, "no_such_ssh_key", f"No such ssh key: {key_id}.")
        self.ssh_keys = kept

    def set_secret(self, name: str, value: str, *, replace: bool = False) -> None:
        """Store an environment variable for every later instance; the name is upper-cased.

        Raises:
            MarketRefused: the name or the value is not acceptable, or it exists (or does not).
        """
        key = name.upper()
        if not name or not value:
            raise MarketRefused(400, "missing_input", "Key and value are needed.")
        if not key.isidentifier():
            raise MarketRefused(400, "invalid_characters", "Invalid characters in key.")
        if len(value) > SECRET_VALUE_CHARS:
            raise MarketRefused(400, "input_too_long", "The value is too long.")
        if replace and key not in self.secrets:
            raise MarketRefused(400, "nonexistent_key", f"No such key: {key}.")
        if not replace and key in self.secrets:
            raise MarketRefused(400, "existing_key", f"Key exists: {key}.")
        if not replace and len(self.secrets) >= SECRETS_COUNT:
            raise MarketRefused(400, "max_secrets", "Too many keys.")
        self.secrets[key] = value

    def delete_secret(self, name: str) -> None:
        """Forget an environment variable.

        Raises:
            MarketRefused: there is none of that name.
        """
        if self.secrets.pop(name.upper(), None) is None:
            raise MarketRefused(400, "nonexistent_key", f"No such key: {name.upper()}.")
