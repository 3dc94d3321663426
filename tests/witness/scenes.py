"""How the market stands when a recorded run is replayed: a scene by name, and faults.

A scene is written as words: the first names one of `SCENES`, each further one is a fault in the
form of `parse_fault` (`stop:auth_401`) or one of `TURNS`. The recording's ids are made-up; a scene
says which ids of the market they stand for.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from support.sim_hosts import CONTROL_TOKEN, SetClock
from vastd.core.money import Micros
from vastd.simulator.contracts import Contract, RentOrder
from vastd.simulator.facade.app import Facade
from vastd.simulator.facade.backend import Backend, NoMachines
from vastd.simulator.facade.fault_names import parse_fault
from vastd.simulator.facade.http import Reply, Request
from vastd.simulator.faults import Fault, FaultKind, Faults, Point
from vastd.simulator.market import Market, MarketSettings

KEY: Final = "SECRET"
FLAG_KEY: Final = "flagkey"  # of `--api-key flagkey` in the recording
BOOTED_S: Final = 3600.0  # longer than any boot
PUBLIC_KEY: Final = "ssh-ed25519 AAAAC3Nz demo@host"
DIRECT: Final = "ssh_direc ssh_proxy"
FREE_OFFERS: Final[dict[float, list[int]]] = {}  # by the time a scene begins
MACHINES: Final = 70  # enough for `many`, and half as slow to make as the usual market
GPU: Final = "RTX 4090"
EPOCH: Final = 1_796_072_000.0  # when the runs were recorded
STARTS: Final = {
    "billed": 1_767_900_000.0,  # within the month whose bills the runs ask for
    "idle": EPOCH - 40 * 86_400.0,
}
HASH: Final = "661d064bbda1f2a133816b6d55da07c3"
BIDS: Final = Micros(3_000_000)


class Scene:
    """A façade over a market of its own, and the ids the recording's stand for."""

    def __init__(self, words: str, url: str, *, now: float = EPOCH) -> None:
        """Set the scene; `now` is the end of the time that `billed-late` fills."""
        name, *turns = words.split()
        self.clock = SetClock(STARTS.get(name, now) - BOOTED_S)
        settings = MarketSettings(
            user_id=42, email="a@example.org", credit_usd=12.5, machines=MACHINES
        )
        self.market = Market(7, self.clock, settings=settings)
        self.faults = Faults(self.clock)
        self.backend = Backend(self.market, self.faults, NoMachines(), self.clock)
        self.backend.url = url
        self.facade = Facade(self.backend, control_token=CONTROL_TOKEN, shut_down=lambda: None)
        self.names: dict[str, str] = {}
        account = self.market.account
        account.revoke_api_key(account.owner_key)
        for token in (KEY, FLAG_KEY):
            account.add_api_key(token, token=token)
        start = self.clock.now
        if start not in FREE_OFFERS:  # the same market every time
            FREE_OFFERS[start] = self.free_offers()
        self._free = list(FREE_OFFERS[start])
        self.names["7001"], self.names["7002"] = (str(self._free.pop(0)) for _ in range(2))
        machine_id = self.market.world.shelf.offers[int(self.names["7001"])].machine.machine_id
        self.market.set_min_bid(machine_id, 0.2)  # the recorded offer's
        SCENES[name](self)
        for turn in turns:
            self._turn(turn)

    def _turn(self, turn: str) -> None:
        if turn in TURNS:
            TURNS[turn](self)
            return
        fault = parse_fault(turn).call
        assert fault is not None
        self.faults.add(fault)

    def free_offers(self) -> list[int]:
        """Return offers of one GPU on machines with direct ports, the recording's card first."""
        rows = self.market.search(
            {"num_gpus": {"eq": 1}, "direct_port_count": {"gt": 0}, "disk_space": {"gte": 40}}
        ).rows
        rows.sort(key=lambda row: row["gpu_name"] != GPU)
        return [msgspec.convert(row["ask_contract_id"], int) for row in rows]

    def rent(self, name: str | None = None, *, boot: bool = True, **order: Any) -> Contract:
        """Rent what no run asks for; the recording's `name` stands for it."""
        fields = {"image": "pytorch/pytorch", "label": "demo", "env": {"A": "1"}, "runtype": DIRECT}
        contract = self.market.create(self._free.pop(0), RentOrder(**{**fields, **order}))
        if name is not None:
            self.names[name] = str(contract.instance_id)
        if boot:
            self.clock.now += BOOTED_S
            self.market.advance()
        return contract

    # -- between the recording's names and the market's

    def real(self, value: Any) -> Any:
        """Return a recorded text or JSON value with the market's ids in it."""
        if not isinstance(value, str):
            return None if value is None else json.loads(self.real(json.dumps(value)))
        for name, real in self.names.items():
            value = re.sub(rf"(?<![\w.]){name}(?!\w)", real, value)
        return value

    async def handle(self, request: Request) -> Reply:
        return await self.facade.handle(request)


def _stopped(scene: Scene) -> Contract:
    contract = scene.rent("1001")
    scene.market.stop(contract.instance_id)
    scene.clock.now += BOOTED_S
    scene.market.advance()
    return contract


def _busy(scene: Scene) -> None:
    scene.market.occupy(_stopped(scene).machine.machine_id)


def _two(scene: Scene) -> None:
    scene.rent("1001")
    scene.rent("1002")


def _many(scene: Scene) -> None:
    for _ in range(26):  # one more than a page
        scene.rent(boot=False)
    scene.clock.now += BOOTED_S


def _gone(scene: Scene) -> None:
    scene.market.withdraw(int(scene.names["7001"]))


def _ssh_key(scene: Scene) -> None:
    scene.names["71"] = str(scene.market.add_ssh_key(PUBLIC_KEY))


def _attached(scene: Scene) -> None:
    contract = scene.rent("1001")
    _ssh_key(scene)
    scene.market.attach_key(contract.instance_id, PUBLIC_KEY)


def _api_key(scene: Scene) -> None:
    scene.names["5"] = str(scene.market.account.add_api_key("k").key_id)


def _template(scene: Scene) -> None:
    row = scene.backend.templates.create(
        {"name": "PyTorch", "image": "pytorch/pytorch", "ssh_direct": True, "runtype": "ssh"}
    )
    scene.names[HASH] = str(row["hash_id"])
    scene.names["1"] = str(row["id"])


def _reader(scene: Scene) -> None:
    scene.market.account.add_api_key("r", token=KEY, permissions=frozenset({"instance_read"}))


def _wait_long(scene: Scene) -> None:
    late = Fault(point=Point.ACCOUNT, kind=FaultKind.HTTP_429, retry_after_s=120.0)
    scene.faults.add(late)


def _idle(scene: Scene) -> None:
    scene.clock.now += 40 * 86_400.0  # longer than any span that is asked for by default


SCENES: Final[dict[str, Callable[[Scene], object]]] = {
    "bare": lambda _: None,
    "idle": _idle,
    "rented": lambda scene: scene.rent("1001"),
    "two": _two,
    "many": _many,
    "stopped": _stopped,
    "busy": _busy,
    "bid": lambda scene: scene.rent("1001", bid=BIDS),
    "proxy": lambda scene: scene.rent("1001", runtype="ssh_proxy"),
    "jupyter": lambda scene: scene.rent("1001", runtype="jupyter_proxy ssh_proxy"),
    "created": lambda scene: scene.rent("1001", boot=False),
    "no-env": lambda scene: scene.rent("1001", env={}),
    "one": lambda scene: scene.rent("1", env={}),
    "gone": _gone,
    "ssh-key": _ssh_key,
    "attached": _attached,
    "api-key": _api_key,
    "secret": lambda scene: scene.market.account.set_secret("HF_TOKEN", "x"),
    "template": _template,
    "billed": lambda scene: scene.rent("1001"),
    "billed-late": lambda scene: scene.rent("1001"),
}
TURNS: Final[dict[str, Callable[[Scene], object]]] = {
    "reader": _reader,  # the key may read only
    "stranger": lambda scene: scene.market.account.revoke_api_key(KEY),
    "wait-long": _wait_long,  # a 429 that says to wait longer than the client does
}
