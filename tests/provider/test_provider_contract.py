"""The contract of the port, held by each of its implementations."""

from collections.abc import AsyncIterator

import pytest
import trio

from support.provider_contract import ProviderContract, ProviderRig
from support.small_vast import small_vast
from vastd.provider.pacing import Paced
from vastd.provider.retry import ReadRetrying
from vastd.simulator.faults import Faults
from vastd.simulator.market import Market
from vastd.simulator.provider import SimProvider

EPOCH = 1_790_000_000.0


class Middling:
    """A random source without chance."""

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


class TestVastProviderOnASmallVast(ProviderContract):
    """Our client over REST answers in the live form."""

    @pytest.fixture
    async def rig(self) -> AsyncIterator[ProviderRig]:
        async with small_vast() as rig:
            yield rig


class TestVastProviderPacedAndRetrying(ProviderContract):
    """As the daemon uses it."""

    @pytest.fixture
    async def rig(self) -> AsyncIterator[ProviderRig]:
        async with small_vast() as rig:
            yield ProviderRig(
                ReadRetrying(Paced(rig.provider), rng=Middling()),
                ReadRetrying(Paced(rig.stranger), rng=Middling()),
                rig.let_pass,
                rig.boot_s,
                rig.destroy_s,
            )


class TestSimProvider(ProviderContract):
    """The simulated market, in memory, on virtual time."""

    @pytest.fixture
    async def rig(self) -> ProviderRig:
        def clock() -> float:
            return EPOCH + trio.current_time()

        market, faults = Market(7, clock), Faults(clock)
        return ProviderRig(
            SimProvider(market, faults),
            SimProvider(market, faults, token="f" * 64),
            trio.sleep,
            3600.0,
            600.0,
        )
