"""What the service manager is told: READY in time, a true status, pings only while all moves."""

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from msgspec import structs
from trio.testing import MockClock

from support.daemon_in_memory import EPOCH, Daemon, Lab
from support.lab_stories import first, running
from vastd.core import events as ev
from vastd.core.rental import Phase, Trigger
from vastd.errors import ConfigError
from vastd.pulse import Heart, attend, reload_at_hangup, status_text, stop_text
from vastd.service_manager import ServiceManager

pytestmark = pytest.mark.sim

PERIOD_S = 120.0  # WatchdogSec= of the unit


@pytest.fixture
async def lab(autojump_clock: MockClock) -> AsyncIterator[Lab]:
    made = Lab()
    yield made
    made.close()


class Ear:
    """A service manager's end of the notify socket, and when each message was heard."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self.manager = ServiceManager(str(path), PERIOD_S)

    def heard(self) -> list[str]:
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return messages

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def ear(isolated_home: Path):
    made = Ear(isolated_home / "n")
    yield made
    made.close()


def attending(nursery: trio.Nursery, ear: Ear, daemon: Daemon, **parts: object) -> None:
    actors = {"supervisor": daemon.supervisor, "poller": daemon.poller, **parts}
    nursery.start_soon(attend, ear.manager, daemon.shell, actors["supervisor"], actors["poller"])


async def test_ready_is_said_after_the_first_listing_attempt_and_once(
    autojump_clock: MockClock, lab: Lab, ear: Ear
):
    async with lab.boot() as daemon, trio.open_nursery() as nursery:
        poller = SimpleNamespace(attempted=trio.Event(), steps=0)
        attending(nursery, ear, daemon, poller=poller)
        await trio.sleep(60)
        assert ear.heard() == ["STATUS=asking Vast what exists"]

        poller.attempted.set()
        await trio.sleep(1)

        told = ear.heard()
        assert [text.split("\n")[0] for text in told if "READY" in text] == ["READY=1"]
        await trio.sleep(60)
        assert not [text for text in ear.heard() if "READY" in text]
        nursery.cancel_scope.cancel()


async def test_ready_is_said_again_until_the_manager_has_heard_it(
    autojump_clock: MockClock, lab: Lab, ear: Ear
):
    async with lab.boot() as daemon, trio.open_nursery() as nursery:
        while ear.manager.alive():  # its queue is full
            pass
        attending(nursery, ear, daemon)
        await trio.sleep(5)
        ear.heard()

        await trio.sleep(2)

        assert [text for text in ear.heard() if "READY" in text] == [
            f"READY=1\nSTATUS={status_text(daemon.shell)}"
        ]
        nursery.cancel_scope.cancel()


async def test_pings_go_on_while_nothing_happens(autojump_clock: MockClock, lab: Lab, ear: Ear):
    async with lab.boot() as daemon, trio.open_nursery() as nursery:
        attending(nursery, ear, daemon)
        for _ in range(120):
            await trio.sleep(60)
            assert "WATCHDOG=1" in ear.heard()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("actor", ["supervisor", "poller"])
async def test_pings_stop_when_one_of_the_two_stands_still(
    autojump_clock: MockClock, lab: Lab, ear: Ear, actor: str, caplog: pytest.LogCaptureFixture
):
    """The other one goes on: a loop that merely turns proves nothing."""
    async with lab.boot() as daemon, trio.open_nursery() as nursery:
        frozen = SimpleNamespace(
            looked_at=daemon.supervisor.looked_at, steps=7, attempted=daemon.poller.attempted
        )
        attending(nursery, ear, daemon, **{actor: frozen})
        await trio.sleep(60)
        assert "WATCHDOG=1" in ear.heard()

        await trio.sleep(300)
        ear.heard()
        await trio.sleep(2 * PERIOD_S)

        assert "WATCHDOG=1" not in ear.heard()
        assert f"the {actor} has not" in caplog.text
        frozen.looked_at, frozen.steps = 1.0, 8  # it moves again: no harm was done
        await trio.sleep(PERIOD_S / 3 + 1)
        assert "WATCHDOG=1" in ear.heard()
        nursery.cancel_scope.cancel()


async def test_a_poller_that_hangs_for_ever_is_noticed(autojump_clock: MockClock, lab: Lab):
    async with lab.boot() as daemon:
        heart = Heart(daemon.shell, daemon.supervisor, daemon.poller)
        assert heart.stalled(trio.current_time()) is None
        await daemon.poller._one_at_a_time.acquire()  # no step of it will ever come

        await trio.sleep(60)
        heart.stalled(trio.current_time())  # it saw the last step before the standstill

        await trio.sleep(239)
        assert heart.stalled(trio.current_time()) is None
        await trio.sleep(2)
        why = "the poller has not moved for 241 s (limit 240 s)"
        assert heart.stalled(trio.current_time()) == why


async def test_slow_listings_and_failing_ones_are_movement(autojump_clock: MockClock, lab: Lab):
    async with lab.boot() as daemon:
        heart = Heart(daemon.shell, daemon.supervisor, daemon.poller)
        hanging = trio.Event()

        async def never() -> None:
            await hanging.wait()

        daemon.shell.provider.list_instances = never  # each attempt is given up after 120 s
        seen = []
        for _ in range(240):
            await trio.sleep(15)
            seen.append(heart.stalled(trio.current_time()))

        assert set(seen) == {None}
        assert daemon.shell.observed.world.inventory.error is not None


async def test_a_step_of_the_wall_clock_is_no_standstill(autojump_clock: MockClock, lab: Lab):
    shift = 0.0
    lab.clock = lambda: EPOCH + trio.current_time() + shift
    async with lab.boot() as daemon:
        heart = Heart(daemon.shell, daemon.supervisor, daemon.poller)
        for shift in (0.0, -86_400.0, 86_400.0):  # noqa: B007  the lambda reads it
            for _ in range(10):
                await trio.sleep(30)

                assert heart.stalled(trio.current_time()) is None


async def test_the_status_says_what_costs_money_and_what_is_wrong(
    autojump_clock: MockClock, lab: Lab
):
    async with lab.boot() as daemon:
        assert status_text(daemon.shell) == "0 rentals live, $0.000/h"
        assert stop_text(daemon.shell) == "stopping; no rental is live"
        await running(lab, daemon, "--seconds", "4500")

        assert status_text(daemon.shell).startswith("1 rental live, $0.")
        assert status_text(daemon.shell).endswith("/h, 1 job")
        assert stop_text(daemon.shell) == "stopping; 1 rental on record: jobs and billing go on"
        world = daemon.shell.observed.world
        broken = structs.replace(world.inventory, error="HTTP 500\nfrom Vast " + "x" * 300)
        daemon.shell.observed.world = structs.replace(world, inventory=broken)
        daemon.shell.locked = lambda: "the store was damaged"
        text = status_text(daemon.shell)
        assert "; inventory not confirmed: HTTP 500" in text
        assert "; renting locked: the store was damaged" in text
        assert len(text) < 300


async def test_an_unconfirmed_destroy_is_shouted_after_ten_minutes(
    autojump_clock: MockClock, lab: Lab
):
    """I4, and it stays until the end is proven."""
    async with lab.boot() as daemon:
        await running(lab, daemon, "--seconds", "4500")
        now: Callable[[], float] = daemon.shell.wall_clock
        rental = first(daemon)
        daemon.supervisor._running.clear()
        daemon.ledger.commit(
            ev.EndDecided(rental_id=rental.rental_id, at=now(), trigger=Trigger.USER, why="asked"),
            ev.DestroyDecided(rental_id=rental.rental_id, at=now(), why="asked"),
        )
        assert first(daemon).phase is Phase.DESTROYING
        limits = daemon.shell.limits

        daemon.shell.wall_clock = lambda: first(daemon).phase_since + limits.destroy_shout_s - 1
        assert "UNCONFIRMED" not in status_text(daemon.shell)
        daemon.shell.wall_clock = lambda: first(daemon).phase_since + limits.destroy_shout_s

        assert (
            f"; DESTROY UNCONFIRMED for 10 min: job (instance {rental.instance_id}) may still bill"
        ) in status_text(daemon.shell)


async def test_a_hangup_reloads_between_two_words_and_keeps_what_was_good(
    autojump_clock: MockClock, lab: Lab, ear: Ear, caplog: pytest.LogCaptureFixture
):
    reloaded = trio.Event()
    answers = [ConfigError("line 3: no such key"), ["timing.settle_s"]]

    def reload() -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, ConfigError):
            raise answer
        reloaded.set()
        return answer

    async with lab.boot() as daemon, trio.open_nursery() as nursery:
        nursery.start_soon(reload_at_hangup, ear.manager, daemon.shell, reload)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            await trio.sleep(1)
        await reloaded.wait()

        kinds = [text.split("\n")[0] for text in ear.heard()]
        assert kinds == ["RELOADING=1", "READY=1"] * 2
        assert "the old one stays in force: line 3" in caplog.text
        nursery.cancel_scope.cancel()
