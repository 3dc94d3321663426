"""A vastd of another version: told on stderr; looking and ending go on, spending does not."""

from collections.abc import Callable
from typing import Any

import pytest

from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import rental

FRESH = rental.InventoryView(state="fresh")


@pytest.fixture
def listing(daemon: Any) -> Any:
    daemon.on("rental.list", rental.RentalListView(inventory=FRESH))
    return daemon


def test_another_protocol_is_one_warning_with_both_versions_and_the_remedy(
    listing: Any, vastctl: Callable[..., Any], make: Any
) -> None:
    listing.on("initialize", make.hello(2, "0.9.0"))

    ran = vastctl("ls", "--quiet")

    warned = [line for line in ran.err.splitlines() if "protocol" in line]
    assert ran.code == 0
    assert len(warned) == 1
    assert "vastctl 0.1.0 speaks protocol 1, vastd 0.9.0 speaks 2; update vastctl" in warned[0]


def test_a_daemon_that_refuses_us_is_quoted_with_its_remedy(
    listing: Any, vastctl: Callable[..., Any], make: Any
) -> None:
    said = "vastctl 0.1.0 speaks protocol 1, this vastd 0.0.1 speaks 0"
    refusal = make.refuse(ErrorCode.VERSION_MISMATCH, said, hint="restart vastd")
    listing.in_turn("initialize", refusal)

    assert f"{said}; restart vastd" in vastctl("ls").err


def test_what_spends_is_not_sent_to_another_protocol(
    daemon: Any, vastctl: Callable[..., Any], make: Any
) -> None:
    daemon.on("initialize", make.hello(2, "0.9.0"))

    ran = vastctl("run", "-y", "--", "true")

    assert ran.code == 3
    assert "nothing was sent, because it spends money" in ran.err
    assert daemon.asked("job.submit") == []


def test_ending_a_machine_goes_on_with_another_protocol(
    daemon: Any, vastctl: Callable[..., Any], make: Any
) -> None:
    daemon.on("initialize", make.hello(2, "0.9.0"))
    daemon.on("job.get", make.job())
    daemon.on("job.cancel", make.job(state="cancelled"))

    ran = vastctl("job", "cancel", "j-1", "-y")

    assert "speaks protocol" in ran.err
    assert len(daemon.asked("job.cancel")) == 1


def test_an_older_daemon_of_the_same_protocol_is_a_note_only(
    listing: Any, vastctl: Callable[..., Any], make: Any
) -> None:
    listing.on("initialize", make.hello(version="0.0.9"))

    assert "vastd 0.0.9 is running, and this is vastctl 0.1.0: restart it" in vastctl("ls").err
    assert "0.0.9" not in vastctl("ls", "--quiet").err


def test_the_same_version_is_not_worth_a_word(listing: Any, vastctl: Callable[..., Any]) -> None:
    assert "vastctl 0.1.0" not in vastctl("ls").err
