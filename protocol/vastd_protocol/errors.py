"""Error codes on the wire, and the exit codes `vastctl` makes of them (CONTRACT 2 and 3)."""

from enum import IntEnum
from typing import Final

from msgspec import UNSET, Struct, UnsetType


class ErrorCode(IntEnum):
    """JSON-RPC's own codes, LSP's cancellation, and ours from 1001."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    CANCELLED = -32800
    VAST_AUTH = 1001
    RATE_LIMITED = 1002
    SEARCH_QUOTA = 1003
    CONTRACT_CHANGED = 1004
    INVENTORY_UNKNOWN = 1005
    NO_OFFERS = 1006
    BUDGET_EXCEEDED = 1007
    POLICY_REFUSED = 1008
    NOT_FOUND = 1009
    AMBIGUOUS_NAME = 1010
    UNCONFIRMED = 1011
    SSH_UNREACHABLE = 1012
    HOST_FAILED = 1013
    JOB_ACTIVE = 1014
    COLLECT_FAILED = 1015
    VERSION_MISMATCH = 1016
    STORE_DAMAGED = 1017
    BUSY = 1018


class ExitCode(IntEnum):
    """What `vastctl` ends with."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    AUTH_OR_CONFIG = 4
    NOT_FOUND = 5
    REFUSED = 6
    UNCONFIRMED = 7
    TIMED_OUT = 8
    NO_OFFER = 9
    PROVISIONING_FAILED = 10
    COLLECTION_FAILED = 11
    JOB_ACTIVE = 12
    TOOL_FAILED = 125


EXIT_OF_ERROR: Final[dict[int, ExitCode]] = {
    ErrorCode.METHOD_NOT_FOUND: ExitCode.USAGE,
    ErrorCode.INVALID_PARAMS: ExitCode.USAGE,
    ErrorCode.VAST_AUTH: ExitCode.AUTH_OR_CONFIG,
    ErrorCode.NO_OFFERS: ExitCode.NO_OFFER,
    ErrorCode.BUDGET_EXCEEDED: ExitCode.REFUSED,
    ErrorCode.POLICY_REFUSED: ExitCode.REFUSED,
    ErrorCode.NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.AMBIGUOUS_NAME: ExitCode.USAGE,
    ErrorCode.UNCONFIRMED: ExitCode.UNCONFIRMED,
    ErrorCode.HOST_FAILED: ExitCode.PROVISIONING_FAILED,
    ErrorCode.JOB_ACTIVE: ExitCode.JOB_ACTIVE,
    ErrorCode.COLLECT_FAILED: ExitCode.COLLECTION_FAILED,
    ErrorCode.VERSION_MISMATCH: ExitCode.UNREACHABLE,
}


def exit_code(code: int) -> ExitCode:
    """Return what `vastctl` exits with after the daemon answered error `code`."""
    return EXIT_OF_ERROR.get(code, ExitCode.FAILED)


class CapRefusal(Struct, frozen=True, kw_only=True):
    """The numbers of a refusal for money: what is used up by whom, and what would fit instead."""

    cap: str  # per_day_usd, per_month_usd, per_project_usd, or credit
    limit_usd: float
    spent_usd: float
    reserved_usd: float
    left_usd: float
    needs_usd: float
    reserved_by: dict[str, float]  # by the machine's name
    resets_at: str | None = None  # null: never by itself
    raise_to_usd: float
    budget_usd: float | None = None  # null: nothing useful fits
    max_runtime_s: float | None = None
    offer_id: int | None = None  # another offer that would fit
    end_rental: str | None = None  # ending it would make room


class ErrorData(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a program may use of an error: its kind as a word, the remedy, whether to retry."""

    kind: str
    hint: str = ""
    retryable: bool = False
    exit_code: int | None = None  # None: derive it from the code (`exit_code`)
    budget: CapRefusal | None = None  # of a cap that machines share


class ErrorObject(Struct, frozen=True, omit_defaults=True):
    """JSON-RPC's error member."""

    code: int
    message: str
    data: ErrorData | UnsetType = UNSET
