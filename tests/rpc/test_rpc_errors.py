"""From our error classes to codes on the wire."""

import pytest

from vastd import errors
from vastd.rpc.errors import TABLE, RpcError, describe
from vastd_protocol.errors import ErrorCode, exit_code


def every_error(root=errors.VastdError):
    return [root, *(found for sub in root.__subclasses__() for found in every_error(sub))]


def test_every_error_class_of_ours_has_a_row_or_a_parent_that_speaks_for_it():
    ours = {kind for kind in every_error() if kind.__module__ == "vastd.errors"}
    unspoken = {errors.ProviderError, errors.IllegalTransition}

    assert ours - TABLE.keys() <= unspoken


@pytest.mark.parametrize(
    ("exc", "mutates", "code", "kind", "retryable", "exits"),
    [
        (errors.AuthRejected("x"), False, 1001, "vast_auth", False, 4),
        (errors.RateLimited("x", retry_after_s=3), False, 1002, "rate_limited", True, 1),
        (
            errors.RateLimited("x", retry_after_s=3, quota=True),
            False,
            1003,
            "search_quota",
            False,
            1,
        ),
        (errors.OutcomeUnknown("x"), True, 1011, "unconfirmed", False, 7),
        (errors.OutcomeUnknown("x"), False, 1005, "vast_unreachable", True, 1),
        (errors.Unreachable("x"), True, 1005, "vast_unreachable", True, 1),
        (errors.CreatedButFailed("x", instance_id=1), True, 1011, "created_but_failed", False, 7),
        (errors.NoCredit("x"), True, 1007, "no_credit", False, 6),
        (errors.OfferGone("x"), True, 1006, "offer_gone", True, 9),
        (errors.BadSpec("x"), True, -32602, "bad_spec", False, 2),
        (errors.UnsafePath("x"), True, 1008, "unsafe_path", False, 6),
        (errors.NotFound("x"), False, 1009, "not_found", False, 5),
        (errors.AmbiguousName("x"), False, 1010, "ambiguous_name", False, 2),
        (errors.PolicyRefused("x"), True, 1008, "policy_refused", False, 6),
        (errors.BudgetExceeded("x"), True, 1007, "budget_exceeded", False, 6),
        (errors.JobActive("x"), True, 1014, "job_active", False, 12),
        (errors.SshTimeout("x"), True, 1012, "ssh_unreachable", True, 1),
        (errors.SshHostKeyChanged("x"), True, 1012, "ssh_host_key_changed", False, 1),
        (errors.TransferFailed("x"), True, 1015, "transfer_failed", True, 11),
        (errors.HardwareMismatch("x"), True, 1013, "hardware_mismatch", False, 10),
        (errors.ConfigError("x"), False, -32600, "config", False, 4),
        (errors.StoreDamaged("x"), False, 1017, "store_damaged", False, 1),
        (RpcError(ErrorCode.VERSION_MISMATCH, "x"), False, 1016, "version_mismatch", False, 3),
        (ExceptionGroup("", [errors.NotFound("x")]), False, 1009, "not_found", False, 5),
    ],
)
def test_an_error_tells_code_kind_retryable_and_exit_code(
    exc, mutates, code, kind, retryable, exits
):
    told = describe(exc, mutates=mutates)

    assert (told.code, told.data.kind, told.data.retryable) == (code, kind, retryable)
    assert (told.data.exit_code or exit_code(told.code)) == exits
    assert told.message == "x"


@pytest.mark.parametrize("exc", [errors.IllegalTransition("x"), KeyError("x"), OSError("x")])
def test_a_bug_has_no_words_for_the_client(exc):
    assert describe(exc, mutates=False) is None
