"""The provider port: what vastd asks of a renter of machines, and what may come back.

Rules
1. Every method makes at most one attempt. Retries and pacing are decorators
   (`provider.pacing`), and only reads are ever retried.
2. Every failure is a `ProviderError` whose class answers "may it have happened?".
3. The caller sets the time limit (a trio cancel scope). A cancelled write has an unknown
   outcome, exactly like `OutcomeUnknown`.
"""

from typing import Protocol

from vastd.core.market import Account, Created, CreateSpec, Instance, Offer, OfferQuery, SshKey
from vastd.core.money import Micros


class Provider(Protocol):
    """A renter of machines. Implemented by `provider.vast` and by the simulator's market."""

    async def search_offers(self, query: OfferQuery) -> list[Offer]:
        """Return the offers that match, at most `query.limit`, in the order asked for.

        Numeric filters have been seen to leak: re-check every bound.

        Raises:
            RateLimited, AuthRejected, ContractChanged, OutcomeUnknown: nothing was learnt.
        """
        ...

    async def create_instance(self, spec: CreateSpec) -> Created:
        """Rent `spec.offer_id`. Not idempotent: never send one intention twice (I2).

        Raises:
            Refused: nothing was made (`OfferGone`, `BadSpec`, `NoCredit`, `SpendRateLimit`).
            RateLimited, AuthRejected: nothing was made.
            CreatedButFailed: an instance exists; end it.
            OutcomeUnknown: one may exist; look for the label before anything else.
        """
        ...

    async def list_instances(self) -> list[Instance]:
        """Return every instance of the account: all pages, or raise.

        Raises:
            ProviderError: any page failed or had an unknown shape: the inventory is *unknown*,
                not empty (I11).
        """
        ...

    async def get_instance(self, instance_id: int) -> Instance | None:
        """Return one instance, or None when Vast says that the id does not exist.

        Raises:
            ProviderError: nothing was learnt.
        """
        ...

    async def destroy_instance(self, instance_id: int) -> None:
        """Ask for the end of an instance. Returning means *accepted*, not *gone* (I3).

        Raises:
            NoSuchInstance: it may be gone already; prove it.
            ProviderError: anything else; ask again.
        """
        ...

    async def stop_instance(self, instance_id: int) -> None:
        """Ask for a stop: GPU billing ends, storage billing goes on. Raises as destroy does."""
        ...

    async def start_instance(self, instance_id: int) -> None:
        """Ask for a start of a stopped instance. Raises as destroy does.

        Raises:
            Refused: the GPU is taken. The request may stay queued: stop it to be sure.
        """
        ...

    async def set_label(self, instance_id: int, label: str) -> None:
        """Replace the label."""
        ...

    async def change_bid(self, instance_id: int, bid: Micros) -> None:
        """Change the hourly bid of an interruptible instance."""
        ...

    async def list_ssh_keys(self) -> list[SshKey]:
        """Return the account's public keys; an empty list when there are none."""
        ...

    async def add_ssh_key(self, public_key: str) -> None:
        """Register a public key with the account: instances created later accept it."""
        ...

    async def attach_ssh_key(self, instance_id: int, public_key: str) -> None:
        """Make a running instance accept a public key; takes effect within seconds."""
        ...

    async def get_account(self) -> Account:
        """Return who we are and what credit is left.

        Raises:
            AuthRejected: the key is wrong, missing or expired.
        """
        ...
