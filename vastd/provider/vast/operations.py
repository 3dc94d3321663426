"""What we ask of Vast: one name per kind of call, and what its failure can mean."""

from enum import StrEnum
from typing import Final

from msgspec import Struct


class Operation(StrEnum):
    """One kind of call; the value is how messages name it."""

    SEARCH = "search offers"
    CREATE = "create"
    LIST = "list instances"
    GET = "read instance"
    DESTROY = "destroy instance"
    STOP = "stop instance"
    START = "start instance"
    LABEL = "label instance"
    BID = "change the bid of instance"
    KEYS = "list ssh keys"
    ADD_KEY = "add an ssh key"
    ATTACH_KEY = "attach an ssh key to instance"
    ACCOUNT = "read the account"


READS: Final = frozenset(
    {Operation.SEARCH, Operation.LIST, Operation.GET, Operation.KEYS, Operation.ACCOUNT}
)
"""Calls that change nothing: whatever fails, nothing happened."""

ON_INSTANCE: Final = frozenset(
    {
        Operation.GET,
        Operation.DESTROY,
        Operation.STOP,
        Operation.START,
        Operation.LABEL,
        Operation.BID,
        Operation.ATTACH_KEY,
    }
)
"""Calls whose "not found" speaks of an instance."""


class Call(Struct, frozen=True, kw_only=True):
    """One call, as error messages name it."""

    operation: Operation
    subject: str = ""  # "42", "from offer 7001"; empty when there is only one thing to ask

    @property
    def is_read(self) -> bool:
        return self.operation in READS

    def __str__(self) -> str:
        return f"{self.operation} {self.subject}".rstrip()
