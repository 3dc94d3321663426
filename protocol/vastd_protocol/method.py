"""What a wire method is: its name, and the types both sides decode with."""

from typing import Generic, TypeVar

from msgspec import Struct

P = TypeVar("P")
R = TypeVar("R")


class Method(Struct, Generic[P, R], frozen=True):
    """One row of the method table.

    `mutates` methods take a `request_id`: repeating one returns the first answer.
    """

    name: str
    params: type[P]
    result: type[R]
    summary: str
    mutates: bool = False


class Params(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of all parameters: a misspelt field is an error, never ignored."""


class Mutation(Params, frozen=True, kw_only=True):
    """The base of parameters of a method that changes something."""

    request_id: str | None = None  # idempotency key; vastctl always sends one


class Nothing(Params, frozen=True, kw_only=True):
    """No parameters: `null`, absent, `[]`, `[null]` and `{}` are the same."""


class View(Struct, frozen=True, kw_only=True):
    """The base of results: grows by optional fields only; unknown values are null."""
