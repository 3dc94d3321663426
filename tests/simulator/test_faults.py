"""Which fault strikes which call: by count, by window, by instance; outages first."""

import pytest

from support.sim_market import EPOCH, HandClock
from vastd.simulator.faults import Fault, FaultKind, Faults, Point

pytestmark = pytest.mark.sim


def test_a_fault_strikes_as_often_as_it_says_and_then_no_more():
    faults = Faults(HandClock())
    faults.inject("destroy", FaultKind.LOSE_ANSWER, times=2)

    struck = [faults.next(Point.DESTROY) for _ in range(3)]

    assert [f.kind if f else None for f in struck] == [FaultKind.LOSE_ANSWER] * 2 + [None]
    assert faults.next(Point.CREATE) is None
    assert faults.pending() == []


def test_a_fault_can_let_calls_pass_first():
    faults = Faults(HandClock())
    faults.inject("list", FaultKind.NULL, skip=2)

    assert [bool(faults.next(Point.LIST)) for _ in range(5)] == [False, False, True, False, False]


def test_a_fault_without_a_count_lasts_for_its_window():
    clock = HandClock()
    faults = Faults(clock)
    faults.inject("search", FaultKind.HTTP_429, times=None, from_at=EPOCH + 10, until_at=EPOCH + 20)

    seen = []
    for _ in range(4):
        seen.append(faults.next(Point.SEARCH) is not None)
        clock.tick(7)

    assert seen == [False, False, True, False]


def test_a_fault_may_mean_one_instance_only():
    faults = Faults(HandClock())
    faults.inject("get", FaultKind.HTTP_500, instance_id=7)

    assert faults.next(Point.GET, instance_id=8) is None
    assert faults.next(Point.GET, instance_id=7) is not None


def test_wide_points_mean_vast_or_boxes_or_both():
    faults = Faults(HandClock())
    faults.inject("box.*", FaultKind.TIMEOUT)
    assert faults.next(Point.LIST) is None
    assert faults.next(Point.BOX_OPEN) is not None
    faults.inject("provider.*", FaultKind.TIMEOUT)
    assert faults.next(Point.BOX_RUN) is None
    assert faults.next(Point.ACCOUNT) is not None
    faults.inject("*", FaultKind.TIMEOUT, times=2)
    assert faults.next(Point.BOX_RUN) is not None
    assert faults.next(Point.ACCOUNT) is not None


def test_the_first_injected_strikes_first():
    faults = Faults(HandClock())
    faults.add(Fault(point="create", kind=FaultKind.OFFER_GONE))
    faults.add(Fault(point="*", kind=FaultKind.HTTP_500))

    assert faults.next(Point.CREATE).kind is FaultKind.OFFER_GONE
    assert faults.next(Point.CREATE).kind is FaultKind.HTTP_500


def test_an_outage_loses_every_request_and_uses_no_fault_up():
    clock = HandClock()
    faults = Faults(clock)
    faults.inject("list", FaultKind.NULL)
    faults.cut_network(EPOCH + 100, EPOCH + 200)
    clock.tick(150)

    assert faults.network_is_down()
    assert faults.network_back_at() == EPOCH + 200
    assert faults.next(Point.LIST).kind is FaultKind.LOSE_REQUEST
    assert faults.next(Point.BOX_SNAPSHOT).kind is FaultKind.LOSE_REQUEST
    clock.tick(50)
    assert not faults.network_is_down()
    assert faults.next(Point.LIST).kind is FaultKind.NULL


def test_what_struck_is_recorded():
    clock = HandClock()
    faults = Faults(clock)
    faults.inject("destroy", FaultKind.HTTP_500_AFTER, skip=1)
    for _ in range(3):
        faults.next(Point.DESTROY, instance_id=5)
        clock.tick(1)

    assert [(f.at, f.point, f.kind, f.instance_id) for f in faults.fired] == [
        (EPOCH + 1, Point.DESTROY, FaultKind.HTTP_500_AFTER, 5)
    ]


def test_an_unknown_point_is_a_mistake_of_the_test():
    with pytest.raises(ValueError, match="no point is called 'destory'"):
        Faults(HandClock()).inject("destory", FaultKind.NULL)


def test_clearing_forgets_faults_and_outages():
    faults = Faults(HandClock())
    faults.inject("*", FaultKind.NULL, times=None)
    faults.cut_network(0, EPOCH * 2)

    faults.clear()

    assert faults.next(Point.LIST) is None


def test_every_kind_says_whether_the_call_takes_effect():
    assert FaultKind.LOSE_ANSWER.takes_effect
    assert FaultKind.HTTP_500_AFTER.takes_effect
    assert not FaultKind.LOSE_REQUEST.takes_effect
    assert not FaultKind.HTTP_429.takes_effect
    assert not FaultKind.TIMEOUT.takes_effect
