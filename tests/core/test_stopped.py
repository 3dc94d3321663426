"""Why a machine stands still: only by evidence, and credit before anything else."""

import pytest
from msgspec import structs

from support.builders import T0, a_rental, a_row, an_ending
from vastd.core.market import Instance
from vastd.core.money import Micros, from_usd
from vastd.core.rental import Pause, Phase, Rental, StopCause
from vastd.core.stopped import Account, together, unasked, why_stopped

BID = from_usd(0.2)
ALL_STOPPED = {"cur_state": "stopped", "next_state": "stopped", "intended_status": "stopped"}
NOTHING_KNOWN = Account()


def bidder(phase: Phase = Phase.BUSY, **changes: object) -> Rental:
    rental = a_rental(phase, **changes)
    return structs.replace(rental, order=structs.replace(rental.order, bid=BID))


PATTERNS = [
    a_row("exited", is_bid=True, **ALL_STOPPED),  # VAST_API 8.2 (7) a
    a_row("stopped", is_bid=True),  # b, d
    a_row("exited", is_bid=True),
    a_row("offline", is_bid=True, intended_status="stopped", min_bid=Micros(BID + 1)),  # c
]


@pytest.mark.req("FAI-09")
@pytest.mark.parametrize("row", PATTERNS)
def test_every_known_pattern_of_being_outbid_is_recognised_with_both_bids(row: Instance) -> None:
    row = structs.replace(row, min_bid=from_usd(0.25))

    found = why_stopped(bidder(), row, NOTHING_KNOWN, T0)

    assert found.cause is StopCause.OUTBID
    assert found.why == (
        "outbid: our bid is $0.200/h, the lowest that wins is $0.250/h; "
        "its disk still exists and bills"
    )


@pytest.mark.parametrize("row", PATTERNS)
def test_a_machine_on_demand_is_never_outbid(row: Instance) -> None:
    row = structs.replace(row, is_bid=False)

    assert why_stopped(a_rental(Phase.BUSY), row, NOTHING_KNOWN, T0).cause is not StopCause.OUTBID


@pytest.mark.req("BUD-13")
@pytest.mark.parametrize("credit", [Micros(0), Micros(-1), from_usd(-3.5)])
@pytest.mark.parametrize("row", PATTERNS)
def test_without_credit_it_is_never_called_outbid(row: Instance, credit: Micros) -> None:
    found = why_stopped(bidder(), row, Account(credit=credit), T0)

    assert found.cause is StopCause.CREDIT
    assert found.why.startswith("the account is out of credit (")


@pytest.mark.parametrize("credit", [None, Micros(1)])
def test_credit_that_is_left_or_not_known_explains_nothing(credit: Micros | None) -> None:
    found = why_stopped(bidder(), PATTERNS[0], Account(credit=credit), T0)

    assert found.cause is StopCause.OUTBID


def test_what_was_asked_for_is_nobodys_doing() -> None:
    paused = bidder(pause=Pause(at=T0, why="lunch"))
    ended = bidder(ending=an_ending(), stop_accepted=True)

    for rental in (paused, ended):
        found = why_stopped(rental, PATTERNS[0], Account(credit=Micros(0)), T0)
        assert found.cause is StopCause.ASKED


def test_the_end_of_the_hosts_contract_and_of_the_main_process_are_told_apart() -> None:
    rental = a_rental(Phase.BUSY)

    over = why_stopped(rental, a_row("exited", end_at=T0), NOTHING_KNOWN, T0)
    exited = why_stopped(rental, a_row("exited", end_at=T0 + 1), NOTHING_KNOWN, T0)
    unknown = why_stopped(rental, a_row("exited", **ALL_STOPPED), NOTHING_KNOWN, T0)

    assert [one.cause for one in (over, exited, unknown)] == [
        StopCause.CONTRACT, StopCause.EXITED, StopCause.UNKNOWN,
    ]  # fmt: skip
    assert unknown.why == "Vast reports exited; its disk still exists and bills"


def test_when_all_stop_at_once_and_credit_cannot_be_read_that_is_said() -> None:
    rental, row = a_rental(Phase.BUSY), a_row("exited", **ALL_STOPPED)

    def told(stopped: int, of: int) -> str:
        return why_stopped(rental, row, Account(stopped_together=stopped, of=of), T0).why

    assert "all 3 machines stopped at once, so the account may be out of credit" in told(3, 3)
    assert "at once" not in told(2, 3)
    assert "at once" not in told(1, 1)


def test_only_machines_that_nobody_wants_to_stand_still_count() -> None:
    row = a_row("stopped")
    others = [
        a_rental(Phase.READY, rental_id="r2", instance_id=43, pause=Pause(at=T0, why="lunch")),
        a_rental(Phase.READY, rental_id="r3", instance_id=44, ending=an_ending()),
        a_rental(Phase.DESTROYING, rental_id="r4", instance_id=45),
    ]
    mine = {r.rental_id: structs.replace(row, instance_id=r.instance_id or 0) for r in others}

    assert not unasked(others, mine.values())
    assert together(others, mine, None) == Account()
    one = a_rental(Phase.BUSY)
    assert unasked([one, *others], [row, *mine.values()])
    assert together([one, *others], {"r1": row, **mine}, None) == Account(stopped_together=1, of=1)
