"""The provider of a daemon without a usable key: refuses everything and says where it looked."""

from typing import NoReturn

from vastd.core.market import Account, Created, CreateSpec, Instance, Offer, OfferQuery, SshKey
from vastd.core.money import Micros
from vastd.errors import AuthRejected


class KeylessProvider:
    """A `Provider` that was never let in. Nothing is asked, so nothing is learnt (I11)."""

    def __init__(self, why: str, hint: str) -> None:
        self._why = why
        self._hint = hint

    def _refuse(self) -> NoReturn:
        raise AuthRejected(self._why, hint=self._hint)

    async def search_offers(self, query: OfferQuery) -> list[Offer]:
        self._refuse()

    async def create_instance(self, spec: CreateSpec) -> Created:
        self._refuse()

    async def list_instances(self) -> list[Instance]:
        self._refuse()

    async def get_instance(self, instance_id: int) -> Instance | None:
        self._refuse()

    async def destroy_instance(self, instance_id: int) -> None:
        self._refuse()

    async def stop_instance(self, instance_id: int) -> None:
        self._refuse()

    async def start_instance(self, instance_id: int) -> None:
        self._refuse()

    async def set_label(self, instance_id: int, label: str) -> None:
        self._refuse()

    async def change_bid(self, instance_id: int, bid: Micros) -> None:
        self._refuse()

    async def list_ssh_keys(self) -> list[SshKey]:
        self._refuse()

    async def add_ssh_key(self, public_key: str) -> None:
        self._refuse()

    async def attach_ssh_key(self, instance_id: int, public_key: str) -> None:
        self._refuse()

    async def get_account(self) -> Account:
        self._refuse()
