"""The contract of the port, held by each of its implementations."""

from collections.abc import AsyncIterator, Callable

import httpx2
import pytest
import trio

from support.provider_contract import ProviderContract, ProviderRig
from support.recorded_vast import RecordedVast
from support.scripted_vast import Answer, a_key, respond
from support.small_vast import small_vast
from vastd.provider.pacing import Paced
from vastd.provider.retry import ReadRetrying
from vastd.provider.vast.client import VastProvider
from vastd.provider.vast.http import VastHttp
from vastd.simulator.facade.app import Facade
from vastd.simulator.facade.backend import Backend, NoMachines
from vastd.simulator.facade.http import Request
from vastd.simulator.faults import Fault, FaultKind, Faults, Point
from vastd.simulator.market import Market
from vastd.simulator.provider import SimProvider

EPOCH = 1_790_000_000.0


def wall_clock() -> float:
    return EPOCH + trio.current_time()


def refuser(faults: Faults) -> Callable[[str], None]:
    """What makes the simulated market refuse the next create with one of Vast's codes."""
    kinds = {"insufficient_credit": FaultKind.NO_CREDIT, "spend_rate_limit": FaultKind.SPEND_RATE}
    return lambda code: faults.add(Fault(point=Point.CREATE, kind=kinds[code]))


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
                rig.refuse_create,
            )


class TestVastProviderOnRecordedAnswers(ProviderContract):
    """Our client over the answers the official client was recorded to get."""

    @pytest.fixture
    async def rig(self) -> AsyncIterator[ProviderRig]:
        async with small_vast(RecordedVast()) as rig:
            yield rig


class TestVastProviderOnTheFacade(ProviderContract):
    """Our client against the simulator's reading of the same API, with its rate limits on."""

    @pytest.fixture
    async def rig(self) -> AsyncIterator[ProviderRig]:
        market, faults = Market(7, wall_clock), Faults(wall_clock)
        backend = Backend(market, faults, NoMachines(), wall_clock)
        facade = Facade(backend, control_token="c" * 32, shut_down=lambda: None, rate_limits=True)

        async def ask(request: httpx2.Request) -> httpx2.Response:
            reply = await facade.handle(
                Request(
                    method=request.method,
                    path=request.url.path,
                    query=dict(request.url.params),
                    headers={name.lower(): value for name, value in request.headers.items()},
                    body=await request.aread(),
                )
            )
            return respond(Answer(reply.status, reply.body, reply.headers))

        def connect(key: str) -> VastHttp:
            return VastHttp(
                key=a_key(key),
                base_url="https://vast.example",
                version="1",
                transport=httpx2.MockTransport(ask),
            )

        async with connect(market.account.owner_key) as ours, connect("f" * 64) as theirs:
            yield ProviderRig(
                Paced(VastProvider(ours)),
                Paced(VastProvider(theirs)),
                trio.sleep,
                3600.0,
                600.0,
                refuser(faults),
            )
            refused = [call for call in facade.served if call.status == 429]
            assert refused == []


class TestSimProvider(ProviderContract):
    """The simulated market, in memory, on virtual time."""

    @pytest.fixture
    async def rig(self) -> ProviderRig:
        market, faults = Market(7, wall_clock), Faults(wall_clock)
        return ProviderRig(
            SimProvider(market, faults),
            SimProvider(market, faults, token="f" * 64),
            trio.sleep,
            3600.0,
            600.0,
            refuser(faults),
        )
