"""How fast we call: exact times, on a clock that jumps."""

from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from support.recording_provider import RecordingProvider
from vastd.core.market import CreateSpec, OfferQuery
from vastd.core.money import Micros
from vastd.errors import ConfigError, OfferGone, OutcomeUnknown, RateLimited, Unreachable
from vastd.provider.pacing import DEFAULT_RATES, Group, Paced, Rate, rates_from
from vastd.provider.port import Provider

SPEC = CreateSpec(offer_id=1, image="a", disk_gb=8, label="l")
TOO_OFTEN = "too often"

CALLS: dict[str, tuple[Callable[[Provider], Awaitable[object]], float]] = {
    "create": (lambda provider: provider.create_instance(SPEC), 4.5),
    "list": (lambda provider: provider.list_instances(), 1.0),
    "get": (lambda provider: provider.get_instance(42), 2.0),
    "destroy": (lambda provider: provider.destroy_instance(42), 3.0),
    "stop": (lambda provider: provider.stop_instance(42), 1.0),
    "start": (lambda provider: provider.start_instance(42), 1.0),
    "label": (lambda provider: provider.set_label(42, "l"), 1.0),
    "bid": (lambda provider: provider.change_bid(42, Micros(1)), 5.5),
    "keys": (lambda provider: provider.list_ssh_keys(), 1.0),
    "add_key": (lambda provider: provider.add_ssh_key("k"), 1.0),
    "attach_key": (lambda provider: provider.attach_ssh_key(42, "k"), 2.0),
    "account": (lambda provider: provider.get_account(), 1.0),
}


async def all_at_once(*calls: Callable[[], Awaitable[object]]) -> None:
    async def one(call: Callable[[], Awaitable[object]]) -> None:
        await call()

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(one, call)


async def refused(call: Awaitable[object]) -> RateLimited:
    with pytest.raises(RateLimited) as caught:
        await call
    return caught.value


@pytest.mark.req("SRC-16")
@pytest.mark.parametrize(("name", "call", "interval_s"), [(n, *c) for n, c in CALLS.items()])
async def test_calls_keep_the_interval_vast_documents(
    name: str,
    call: Callable[[Provider], Awaitable[object]],
    interval_s: float,
    autojump_clock: MockClock,
):
    recorder = RecordingProvider()
    paced = Paced(recorder)

    await all_at_once(*[lambda: call(paced)] * 4)

    assert recorder.times == {name: [0, interval_s, 2 * interval_s, 3 * interval_s]}


async def test_thirty_creates_at_once_all_get_their_turn(autojump_clock: MockClock):
    recorder = RecordingProvider(takes_s=2.0)
    paced = Paced(recorder)

    await all_at_once(*[lambda: paced.create_instance(SPEC)] * 30)

    # From the end of one to the start of the next, so that jitter cannot push them together.
    assert recorder.times["create"] == [6.5 * number for number in range(30)]
    assert recorder.most_at_once == 1


async def test_endpoints_do_not_wait_for_each_other(autojump_clock: MockClock):
    recorder = RecordingProvider(takes_s=30.0)
    paced = Paced(recorder)

    await all_at_once(*[lambda call=call: call(paced) for call, _ in CALLS.values()])

    # Stop, start and label are one route; everything else goes at once.
    assert sorted(times[0] for times in recorder.times.values()) == [0] * 10 + [31, 62]
    assert sorted(recorder.times[name][0] for name in ("stop", "start", "label")) == [0, 31, 62]


async def test_ten_searches_go_at_once_and_the_eleventh_waits_for_the_minute(
    autojump_clock: MockClock,
):
    recorder = RecordingProvider()
    paced = Paced(recorder)

    for _ in range(21):
        await paced.search_offers(OfferQuery())

    assert recorder.times["search"] == [0] * 10 + [60] * 10 + [120]


async def test_a_single_call_after_a_pause_does_not_wait(autojump_clock: MockClock):
    recorder = RecordingProvider()
    paced = Paced(recorder)

    await paced.destroy_instance(1)
    await trio.sleep(10)
    await paced.destroy_instance(2)

    assert recorder.times["destroy"] == [0, 10]


@pytest.mark.parametrize("error", [OutcomeUnknown("x"), OfferGone("x")])
async def test_a_failed_call_counts_like_any_other(error: Exception, autojump_clock: MockClock):
    recorder = RecordingProvider({"create": [error]})
    paced = Paced(recorder)

    with pytest.raises(type(error)):
        await paced.create_instance(SPEC)
    await paced.create_instance(SPEC)

    assert recorder.times["create"] == [0, 4.5]


async def test_a_call_that_never_left_costs_no_interval(autojump_clock: MockClock):
    recorder = RecordingProvider({"create": [Unreachable("x")]})
    paced = Paced(recorder)

    with pytest.raises(Unreachable):
        await paced.create_instance(SPEC)
    await paced.create_instance(SPEC)

    assert recorder.times["create"] == [0, 0]


async def test_a_cancelled_call_may_have_been_sent_and_counts(autojump_clock: MockClock):
    recorder = RecordingProvider(takes_s=100.0)
    paced = Paced(recorder)

    with trio.move_on_after(10):
        await paced.create_instance(SPEC)
    with trio.move_on_after(10):
        await paced.create_instance(SPEC)

    assert recorder.times["create"] == [0, 14.5]


async def test_a_call_cancelled_in_the_queue_leaves_it_to_the_next(autojump_clock: MockClock):
    recorder = RecordingProvider()
    paced = Paced(recorder)

    await paced.create_instance(SPEC)
    with trio.move_on_after(1) as gave_up:
        await paced.create_instance(SPEC)
    await paced.create_instance(SPEC)

    assert gave_up.cancelled_caught
    assert recorder.times["create"] == [0, 4.5]


@pytest.mark.req("SRC-16")
async def test_a_429_on_create_rests_the_penalty(autojump_clock: MockClock):
    recorder = RecordingProvider({"create": [RateLimited(TOO_OFTEN, retry_after_s=4.5)]})
    paced = Paced(recorder)

    await refused(paced.create_instance(SPEC))
    await paced.create_instance(SPEC)
    await paced.create_instance(SPEC)

    assert recorder.times["create"] == [0, 12, 16.5]


async def test_a_429_rests_as_long_as_vast_asks_and_only_that_endpoint(autojump_clock: MockClock):
    recorder = RecordingProvider({"destroy": [RateLimited(TOO_OFTEN, retry_after_s=40.0)]})
    paced = Paced(recorder)

    await refused(paced.destroy_instance(1))
    await paced.list_instances()
    await paced.destroy_instance(1)

    assert recorder.times == {"destroy": [0, 40], "list": [0]}


async def test_429s_in_a_row_double_the_rest_up_to_a_minute(autojump_clock: MockClock):
    again = RateLimited(TOO_OFTEN, retry_after_s=1.0)
    recorder = RecordingProvider({"destroy": [again] * 7 + [None, again]})
    paced = Paced(recorder)

    for _ in range(7):
        await refused(paced.destroy_instance(1))
    await paced.destroy_instance(1)
    await refused(paced.destroy_instance(1))
    await paced.destroy_instance(1)

    starts = recorder.times["destroy"]
    gaps = [after - before for before, after in pairwise(starts)]
    # A success forgives the past: the last rest is short again.
    assert gaps == [3, 6, 12, 24, 48, 60, 60, 3, 3]


@pytest.mark.req("SRC-16")
async def test_the_search_quota_refuses_further_searches_unsent_until_its_reset(
    autojump_clock: MockClock,
):
    spent = RateLimited("quota", retry_after_s=7200.0, quota=True)
    recorder = RecordingProvider({"search": [spent]})
    paced = Paced(recorder)

    await refused(paced.search_offers(OfferQuery()))
    await trio.sleep(200)
    error = await refused(paced.search_offers(OfferQuery()))
    await trio.sleep(7000)
    await paced.search_offers(OfferQuery())

    assert error.quota
    assert error.retry_after_s == 7000
    assert "not sent" in str(error)
    assert recorder.times["search"] == [0, 7200]


async def test_a_long_rest_refuses_at_once_instead_of_hanging(autojump_clock: MockClock):
    recorder = RecordingProvider({"destroy": [RateLimited(TOO_OFTEN, retry_after_s=120.0)]})
    paced = Paced(recorder)

    await refused(paced.destroy_instance(1))
    error = await refused(paced.destroy_instance(1))

    assert (error.retry_after_s, error.quota) == (120, False)
    assert trio.current_time() == 0


def test_the_configuration_replaces_single_intervals():
    rates = rates_from({"create": 10, "list": 0})

    assert rates[Group.CREATE] == Rate(interval_s=10.0, penalty_s=12.0)
    assert rates[Group.LIST] == Rate(interval_s=0.0)
    assert rates[Group.GET] == DEFAULT_RATES[Group.GET]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"creat": 1.0}, "no such endpoint"),
        ({"create": -1.0}, "not a number"),
        ({"create": float("nan")}, "not a number"),
        ({"create": 1e9}, "not a number"),
    ],
)
def test_a_rate_that_makes_no_sense_is_refused(overrides: dict[str, float], words: str):
    with pytest.raises(ConfigError, match=words):
        rates_from(overrides)


async def test_an_interval_of_zero_switches_the_pace_off(autojump_clock: MockClock):
    recorder = RecordingProvider()
    paced = Paced(recorder, rates_from({"list": 0.0}))

    for _ in range(3):
        await paced.list_instances()

    assert recorder.times["list"] == [0, 0, 0]
