"""The exit code of a daemon that cannot start: what no restart heals, and what may pass."""

import pytest

from vastd.__main__ import _fail
from vastd.errors import ConfigError, StateUnusable, StoreError, StoreLocked, VastdError
from vastd.service_manager import ServiceManager


@pytest.mark.parametrize(
    ("error", "alone", "under_systemd"),
    [
        (ConfigError("x"), 4, 4),
        (StateUnusable("x"), 4, 1),  # tried again: a disk may come back, and machines bill
        (StoreLocked("x"), 6, 6),
        (StoreError("x"), 1, 1),
    ],
)
def test_the_code_says_whether_a_restart_may_help(
    error: VastdError, alone: int, under_systemd: int
) -> None:
    assert _fail(error, ServiceManager()) == alone
    assert _fail(error, ServiceManager("/nowhere")) == under_systemd
