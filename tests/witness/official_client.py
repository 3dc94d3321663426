"""The official client, installed in an environment of its own: where it is and how to run it."""

import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio
from msgspec import Struct

from vastd.simulator.facade.http import Reply, Request, serve_connection
from witness.recording import Run
from witness.scenes import KEY, Scene

VERSION: Final = "1.9.1"
DRIVER: Final = Path(__file__).with_name("drive_vastai.py")
REPOSITORY: Final = Path(__file__).parents[2]


def environment_dir() -> Path:
    """Return the virtual environment of the official client.

    Raises:
        AssertionError: there is none, or it holds another version; the message says what to do.
    """
    named = os.environ.get("OFFICIAL_CLIENT_VENV")
    path = Path(named) if named else REPOSITORY / ".venv-vastai"
    program = path / "bin" / "vastai"
    assert program.exists(), (
        f"the official client is not installed at {program}: run `make official-client`,"
        " or name its virtual environment in OFFICIAL_CLIENT_VENV"
    )
    found = [entry.name for entry in path.glob("lib/python3*/site-packages/vastai-*.dist-info")]
    assert found == [f"vastai-{VERSION}.dist-info"], (
        f"{path} holds {found} instead of vastai {VERSION}: remove it, `make official-client`"
    )
    return path


def environment(home: Path, url: str) -> dict[str, str]:
    """Return the environment in which the client sees nothing of this user."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_DATA_HOME": str(home / "data"),
        "VAST_URL": url,
        "VASTAI_NO_UPDATE_CHECK": "1",
        "COLUMNS": "250",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "NO_PROXY": "*",
    }


class Said(Struct, frozen=True, kw_only=True):
    """What one run of the client printed, and its exit code."""

    exit: int
    stdout: str
    stderr: str


class Driver:
    """The client's own `main`, run again and again: starting Python anew would take seconds."""

    def __init__(self, home: Path, url: str, cards: list[str]) -> None:
        home.mkdir(exist_ok=True)
        python = environment_dir() / "bin" / "python"
        self._process = subprocess.Popen(
            [python, "-I", DRIVER, home, json.dumps(cards)], env=environment(home, url),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(
        self, words: list[str], *, key: str, home: str = "new", answers: str = "y\n" * 4
    ) -> Said:
        """Run one command line; `home` is a "new" one, a "fresh" one without caches, or "keep"."""
        order = {"argv": words, "key": key, "home": home, "answers": answers}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the client's process ended"
        return msgspec.json.decode(line, type=Said)

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


class Client:
    """The client and the façade it is pointed at, which changes with every run."""

    def __init__(self, driver: Driver, url: str, home: Path) -> None:
        self.url = url
        self.home = home
        self._driver = driver
        self._scene: Scene | None = None
        self._exchanges: list[tuple[Request, Reply]] = []

    async def answer(self, request: Request) -> Reply:
        """Answer one request with the scene of this run."""
        assert self._scene is not None
        reply = await self._scene.handle(request)
        self._exchanges.append((request, reply))
        return reply

    async def run(self, run: Run, scene: Scene) -> tuple[Said, list[tuple[Request, Reply]]]:
        """Run a recorded command line against a scene; return also what was sent and answered."""
        self._scene, self._exchanges = scene, []
        words = [self._word(word, scene) for word in run.argv]
        home = "fresh" if run.looks_up_role else "new"
        said = await trio.to_thread.run_sync(partial(self._driver.run, words, key=KEY, home=home))
        return said, self._exchanges

    def _word(self, word: str, scene: Scene) -> str:
        real = str(scene.real(word))
        return real.replace("$HOME", str(self.home)).replace("$BASE", self.url)


@asynccontextmanager
async def official_client(home: Path) -> AsyncIterator[Client]:
    """Yield the client, with a server for it to talk to."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        driver = Driver(home, url, Scene("bare", url).market.gpu_names())
        try:
            client = Client(driver, url, home)
            serve = partial(serve_connection, handler=client.answer)
            nursery.start_soon(partial(trio.serve_listeners, serve, listeners))
            yield client
        finally:
            driver.end()
            nursery.cancel_scope.cancel()
