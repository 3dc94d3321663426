"""`lease`: what a person reads about the guard on his machine, and making its lease last longer."""

from collections.abc import Callable
from typing import Any

import pytest

from vastctl.commands import lease as command
from vastd_protocol.methods.lease import LeaseView

NOW = "2026-11-30T12:00:00Z"  # the test clock
ARMED = LeaseView(
    rental_id="r-1", name="lab", phase="busy", armed=True, expires_at="2026-11-30T13:00:00Z",
    then="stop", uncollected=["j-1"], renewed_at="2026-11-30T11:59:00Z", tool="curl",
    deadline_at="2026-11-30T22:00:00Z", budget_usd=2.0, dph_usd=0.312, storage_dph_usd=0.01,
)  # fmt: skip


def changed(**fields: object) -> LeaseView:
    from msgspec import structs

    return structs.replace(ARMED, **fields)


def test_an_armed_lease_says_when_the_machine_ends_itself_and_what_becomes_of_results(
    vastctl: Callable[..., Any], daemon: Any
) -> None:
    daemon.on("lease.get", ARMED)

    ran = vastctl("lease", "r-1")

    assert ran.code == 0
    assert (
        ran.out
        == """\
machine   lab (r-1), running a job
bills     $0.312/h
deadline  in 10h00m
budget    $2.00
lease     armed on the machine, which ends itself in 1h00m unless vastd renews it
then      the job gets TERM, then the machine stops: results of j-1 are not home
renewed   1m00s ago
"""
    )


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (changed(armed=False, expires_at=None, why_not="the guard does not run there"),
         ["not armed: nothing on the machine ends it", "trouble   the guard does not run there"]),
        (changed(armed=False), ["it has run out; the machine is ending itself"]),
        (changed(armed=False, phase="stopped"), ["bills     $0.010/h", "none needed while it"]),
        (changed(then="destroy"), ["destroyed: nothing on it waits to be brought home"]),
        (changed(failing="time-out"), ["trouble   time-out"]),
        (changed(phase="gone", armed=False), ["machine lab is gone: nothing of it bills"]),
    ],
)  # fmt: skip
def test_every_other_state_is_told_in_words(
    vastctl: Callable[..., Any], daemon: Any, view: LeaseView, said: list[str]
) -> None:
    daemon.on("lease.get", view)

    ran = vastctl("lease", "r-1")

    assert ran.code == 0
    for words in said:
        assert words in ran.out


def test_a_renewal_waits_until_the_machine_has_confirmed_it(
    vastctl: Callable[..., Any], daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LOOK_S", 0.0)
    asked = changed(asked_until="2026-11-30T18:00:00Z")
    daemon.on("lease.renew", asked)
    daemon.in_turn("lease.get", asked, changed(
        asked_until="2026-11-30T18:00:00Z", expires_at="2026-11-30T18:00:01Z"
    ))  # fmt: skip

    ran = vastctl("lease", "r-1", "--renew", "6h")

    assert (ran.code, ran.err) == (0, "")
    assert "ends itself in 6h00m" in ran.out
    (wish,) = daemon.asked("lease.renew")
    assert (wish["rental"], wish["for_s"], bool(wish["request_id"])) == ("r-1", 21_600.0, True)


def test_a_machine_that_does_not_confirm_is_said_to_be_unconfirmed(
    vastctl: Callable[..., Any], daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "WAIT_S", 0.0)
    daemon.on("lease.renew", changed(asked_until="2026-11-30T18:00:00Z"))

    ran = vastctl("lease", "r-1", "--renew", "6h")

    assert ran.code == 7
    assert "has not confirmed it" in ran.err
