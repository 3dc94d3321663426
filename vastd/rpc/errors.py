"""What an exception becomes on the wire: one table from our error classes to codes.

Rules
1. The nearest class in the exception's line of ancestors decides.
2. An exception that is not ours, and one that says "bug", tells the client nothing but that.
"""

from typing import Final

from msgspec import Struct

from vastd import errors
from vastd.core.refusal import Refusal
from vastd.errors import VastdError
from vastd.rpc.views.money import refusal_view
from vastd_protocol.errors import CapRefusal, ErrorCode, ErrorData, ErrorObject, ExitCode


class RpcError(VastdError):
    """An error that already knows its code: raised by the transport and by handlers."""

    def __init__(
        self, code: ErrorCode, message: str, *, hint: str = "", retryable: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.retryable = retryable


class Row(Struct, frozen=True):
    """How one class of errors is told."""

    code: ErrorCode
    kind: str = ""  # empty: the code's own name
    retryable: bool = False
    exit_code: ExitCode | None = None  # None: what the code gives


TABLE: Final[dict[type[VastdError], Row]] = {
    errors.Refused: Row(ErrorCode.POLICY_REFUSED, "vast_refused"),
    errors.OfferGone: Row(ErrorCode.NO_OFFERS, "offer_gone", retryable=True),
    errors.BadSpec: Row(ErrorCode.INVALID_PARAMS, "bad_spec"),
    errors.NoCredit: Row(ErrorCode.BUDGET_EXCEEDED, "no_credit"),
    errors.SpendRateLimit: Row(ErrorCode.RATE_LIMITED, "spend_rate_limit", retryable=True),
    errors.NotPermitted: Row(ErrorCode.VAST_AUTH, "not_permitted"),
    errors.NoSuchInstance: Row(ErrorCode.NOT_FOUND, "no_such_instance"),
    errors.AuthRejected: Row(ErrorCode.VAST_AUTH),
    errors.RateLimited: Row(ErrorCode.RATE_LIMITED, retryable=True),
    errors.OutcomeUnknown: Row(ErrorCode.UNCONFIRMED),
    errors.NoAnswer: Row(ErrorCode.UNCONFIRMED, "outcome_unknown"),
    errors.Unreachable: Row(ErrorCode.INVENTORY_UNKNOWN, "vast_unreachable", retryable=True),
    errors.CreatedButFailed: Row(ErrorCode.UNCONFIRMED, "created_but_failed"),
    errors.ContractChanged: Row(ErrorCode.CONTRACT_CHANGED),
    errors.SshError: Row(ErrorCode.SSH_UNREACHABLE),
    errors.SshRefused: Row(ErrorCode.SSH_UNREACHABLE, retryable=True),
    errors.SshTimeout: Row(ErrorCode.SSH_UNREACHABLE, retryable=True),
    errors.SshClosed: Row(ErrorCode.SSH_UNREACHABLE, retryable=True),
    errors.SshAuthRejected: Row(ErrorCode.SSH_UNREACHABLE, "ssh_auth_rejected"),
    errors.SshHostKeyChanged: Row(ErrorCode.SSH_UNREACHABLE, "ssh_host_key_changed"),
    # The machine answered and the command failed there: not a host that must be replaced.
    errors.RemoteCommandFailed: Row(
        ErrorCode.HOST_FAILED, "remote_command_failed", exit_code=ExitCode.FAILED
    ),
    errors.GuardNotArmed: Row(ErrorCode.HOST_FAILED, "guard_not_armed"),
    errors.HardwareMismatch: Row(ErrorCode.HOST_FAILED, "hardware_mismatch"),
    errors.TransferFailed: Row(ErrorCode.COLLECT_FAILED, "transfer_failed", retryable=True),
    errors.UnsafePath: Row(ErrorCode.POLICY_REFUSED, "unsafe_path"),
    errors.NotFound: Row(ErrorCode.NOT_FOUND),
    errors.AmbiguousName: Row(ErrorCode.AMBIGUOUS_NAME),
    errors.InvalidRequest: Row(ErrorCode.INVALID_PARAMS),
    errors.PolicyRefused: Row(ErrorCode.POLICY_REFUSED),
    errors.BudgetExceeded: Row(ErrorCode.BUDGET_EXCEEDED),
    errors.CapReached: Row(ErrorCode.BUDGET_EXCEEDED),
    errors.JobActive: Row(ErrorCode.JOB_ACTIVE),
    errors.InventoryUnknown: Row(ErrorCode.INVENTORY_UNKNOWN, retryable=True),
    errors.NoOffers: Row(ErrorCode.NO_OFFERS),
    errors.CapLeavesNone: Row(ErrorCode.BUDGET_EXCEEDED),
    errors.ConfigError: Row(ErrorCode.INVALID_REQUEST, "config", exit_code=ExitCode.AUTH_OR_CONFIG),
    errors.StoreError: Row(ErrorCode.INTERNAL_ERROR, "store", retryable=True),
    errors.StateUnusable: Row(
        ErrorCode.INTERNAL_ERROR, "state_unusable", exit_code=ExitCode.AUTH_OR_CONFIG
    ),
    errors.StoreLocked: Row(ErrorCode.BUSY, "store_locked"),
    errors.StoreDamaged: Row(ErrorCode.STORE_DAMAGED),
    errors.StoreTooNew: Row(ErrorCode.VERSION_MISMATCH, "store_too_new"),
    VastdError: Row(ErrorCode.INTERNAL_ERROR, "failed"),
}

_SEARCH_QUOTA: Final = Row(ErrorCode.SEARCH_QUOTA)
# A read that got no answer left nothing behind: "may still bill" would frighten for nothing.
_READ_UNANSWERED: Final = TABLE[errors.Unreachable]

INTERNAL: Final = ErrorObject(
    ErrorCode.INTERNAL_ERROR,
    "vastd failed inside; its log has the details",
    ErrorData(kind="internal_error", hint="vastctl daemon logs"),
)


def describe(exc: Exception, *, mutates: bool) -> ErrorObject | None:
    """Return `exc` as a client sees it, or None when it is a bug and must be logged."""
    exc = _alone(exc)
    if not isinstance(exc, VastdError) or isinstance(exc, errors.IllegalTransition):
        return None
    if isinstance(exc, RpcError):
        return error(exc.code, str(exc), hint=exc.hint, retryable=exc.retryable)
    row = _row(exc, mutates=mutates)
    data = ErrorData(
        kind=row.kind or row.code.name.lower(),
        hint=exc.hint,
        retryable=row.retryable,
        exit_code=row.exit_code,
        budget=_numbers(exc),
    )
    return ErrorObject(row.code, str(exc), data)


def _numbers(exc: VastdError) -> CapRefusal | None:
    told = exc.refusal if isinstance(exc, errors.CapReached) else None
    return refusal_view(told) if isinstance(told, Refusal) else None


def error(code: ErrorCode, message: str, *, hint: str = "", retryable: bool = False) -> ErrorObject:
    """Return a wire error whose kind is the code's name."""
    data = ErrorData(kind=code.name.lower(), hint=hint, retryable=retryable)
    return ErrorObject(code, message, data)


def split_ends(
    group: BaseExceptionGroup[BaseException],
) -> tuple[BaseExceptionGroup[BaseException], Exception | None]:
    """Part a group that is no `ExceptionGroup` into what must go on up, and the errors beside it.

    A nursery that is cancelled and fails at once raises both. At an edge the errors are told or
    logged there, and the rest (cancellation, Ctrl-C) is raised again.
    """
    ends, rest = group.split(lambda exc: not isinstance(exc, Exception | BaseExceptionGroup))
    assert ends is not None
    assert rest is None or isinstance(rest, Exception)
    return ends, rest


def _alone(exc: Exception) -> Exception:
    # A handler with a nursery of its own raises its one error inside a group.
    while isinstance(exc, ExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def _row(exc: VastdError, *, mutates: bool) -> Row:
    if isinstance(exc, errors.RateLimited) and exc.quota:
        return _SEARCH_QUOTA
    if isinstance(exc, errors.OutcomeUnknown) and not mutates:
        return _READ_UNANSWERED
    return next(TABLE[kind] for kind in type(exc).__mro__ if kind in TABLE)
