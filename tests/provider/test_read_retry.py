"""Which calls are repeated, how often, and after how long."""

from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from support.recording_provider import RecordingProvider
from vastd.core.market import CreateSpec, OfferQuery
from vastd.core.money import Micros
from vastd.errors import (
    AuthRejected,
    BadSpec,
    ContractChanged,
    NotPermitted,
    OutcomeUnknown,
    RateLimited,
    Unreachable,
)
from vastd.provider.pacing import Paced
from vastd.provider.port import Provider
from vastd.provider.retry import ReadRetrying

SPEC = CreateSpec(offer_id=1, image="a", disk_gb=8, label="l")
READS: dict[str, Callable[[Provider], Awaitable[object]]] = {
    "search": lambda provider: provider.search_offers(OfferQuery()),
    "list": lambda provider: provider.list_instances(),
    "get": lambda provider: provider.get_instance(42),
    "keys": lambda provider: provider.list_ssh_keys(),
    "account": lambda provider: provider.get_account(),
}
WRITES: dict[str, Callable[[Provider], Awaitable[object]]] = {
    "create": lambda provider: provider.create_instance(SPEC),
    "destroy": lambda provider: provider.destroy_instance(42),
    "stop": lambda provider: provider.stop_instance(42),
    "start": lambda provider: provider.start_instance(42),
    "label": lambda provider: provider.set_label(42, "l"),
    "bid": lambda provider: provider.change_bid(42, Micros(1)),
    "add_key": lambda provider: provider.add_ssh_key("k"),
    "attach_key": lambda provider: provider.attach_ssh_key(42, "k"),
}


class Longest:
    """A random source that always takes the upper end."""

    def uniform(self, low: float, high: float) -> float:
        return high


def retrying(provider: Provider, attempts: int = 3) -> ReadRetrying:
    return ReadRetrying(provider, rng=Longest(), attempts=attempts)


@pytest.mark.parametrize("error", [OutcomeUnknown("x"), Unreachable("x")])
@pytest.mark.parametrize(("name", "call"), READS.items())
async def test_a_read_that_taught_nothing_is_tried_three_times(
    name: str,
    call: Callable[[Provider], Awaitable[object]],
    error: Exception,
    autojump_clock: MockClock,
):
    recorder = RecordingProvider({name: [error] * 5})

    with pytest.raises(type(error)):
        await call(retrying(recorder))

    assert recorder.times[name] == [0, 0.5, 2.0]


@pytest.mark.parametrize(("name", "call"), READS.items())
async def test_a_read_that_succeeds_later_is_a_success(
    name: str, call: Callable[[Provider], Awaitable[object]], autojump_clock: MockClock
):
    recorder = RecordingProvider({name: [OutcomeUnknown("x"), None]})

    await call(retrying(recorder))

    assert recorder.times[name] == [0, 0.5]


@pytest.mark.req("CRE-09")
@pytest.mark.parametrize(
    "error", [OutcomeUnknown("x"), Unreachable("x"), RateLimited("x", retry_after_s=1.0)]
)
@pytest.mark.parametrize(("name", "call"), WRITES.items())
async def test_a_write_is_sent_once_whatever_happens(
    name: str,
    call: Callable[[Provider], Awaitable[object]],
    error: Exception,
    autojump_clock: MockClock,
):
    recorder = RecordingProvider({name: [error]})

    with pytest.raises(type(error)):
        await call(retrying(recorder))

    assert recorder.times[name] == [0]


@pytest.mark.parametrize(
    "error",
    [
        AuthRejected("x"),
        ContractChanged("x"),
        BadSpec("x"),
        NotPermitted("x"),
        RateLimited("x", retry_after_s=5.0, quota=True),
        RateLimited("x", retry_after_s=31.0),
    ],
)
async def test_what_repeating_cannot_heal_is_raised_at_once(
    error: Exception, autojump_clock: MockClock
):
    recorder = RecordingProvider({"search": [error]})

    with pytest.raises(type(error)):
        await retrying(recorder).search_offers(OfferQuery())

    assert recorder.times["search"] == [0]


async def test_a_429_is_repeated_after_what_vast_asked_for(autojump_clock: MockClock):
    recorder = RecordingProvider({"list": [RateLimited("x", retry_after_s=7.0), None]})

    await retrying(recorder).list_instances()

    assert recorder.times["list"] == [0, 7]


async def test_delays_grow_to_a_limit(autojump_clock: MockClock):
    recorder = RecordingProvider({"list": [OutcomeUnknown("x")] * 9})

    with pytest.raises(OutcomeUnknown):
        await retrying(recorder, attempts=6).list_instances()

    starts = recorder.times["list"]
    gaps = [after - before for before, after in pairwise(starts)]
    assert gaps == [0.5, 1.5, 4.5, 8.0, 8.0]


async def test_over_a_paced_provider_every_attempt_waits_its_turn(autojump_clock: MockClock):
    recorder = RecordingProvider({"get": [OutcomeUnknown("x")] * 2 + [None]})

    await retrying(Paced(recorder)).get_instance(42)

    assert recorder.times["get"] == [0, 2, 4]


async def test_cancelling_stops_the_repeating(autojump_clock: MockClock):
    recorder = RecordingProvider({"list": [OutcomeUnknown("x")] * 9})

    with trio.move_on_after(1.0) as scope:
        await retrying(recorder).list_instances()

    assert scope.cancelled_caught
    assert recorder.times["list"] == [0, 0.5]
