"""The way to Vast with the key in force: found, wrapped in pacing and retries, renewed on reload."""

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from vastd.configuration import ConfigurationHolder
from vastd.errors import ConfigError
from vastd.provider.keyless import KeylessProvider
from vastd.provider.keys import Key, find_key, make_key
from vastd.provider.pacing import Paced, rates_from
from vastd.provider.port import Provider
from vastd.provider.retry import ReadRetrying
from vastd.provider.vast.client import VastProvider
from vastd.provider.vast.http import DateWitness, VastHttp
from vastd_protocol.version import VASTD_VERSION


class VastAccount:
    """One account at one address. `provider` changes when `refresh` finds another key."""

    def __init__(
        self,
        config: ConfigurationHolder,
        url: str,
        fixed: Key | None,
        *,
        simulated: bool,
        witness: DateWitness,
    ) -> None:
        self._witness = witness
        self.url = url
        self._config = config
        self._fixed = fixed  # the simulator's key: no other is looked for
        self._simulated = simulated
        self._key: Key | None = None
        self._open: list[VastHttp] = []
        self.provider: Provider = KeylessProvider("no key was looked for yet", "")
        self.refresh()

    def key_origin(self) -> str | None:
        """Return where the key came from, with its last characters; None without a key."""
        if self._key is None:
            return None
        return f"{self._key.origin}, ending in {self._key.suffix or '…'}"

    def refresh(self) -> None:
        """Look for the key again; without one every call is refused and says where was looked."""
        try:
            key = self._fixed or find_key(
                api_key_file=self._api_key_file(), environ=os.environ, home=Path.home()
            )
        except ConfigError as exc:
            self._key = None
            self.provider = KeylessProvider(str(exc), exc.hint)
            return
        if self._key is not None and self._key.secret == key.secret:
            return  # a new way would forget when which endpoint was asked last
        self._key = key
        http = VastHttp(key=key, base_url=self.url, version=VASTD_VERSION, witness=self._witness)
        self._open.append(http)
        vast = VastProvider(http, secrets=[key.secret.reveal()], page_interval_s=self._page_s())
        paced = Paced(vast, rates_from(self._rates()))
        self.provider = ReadRetrying(paced, rng=random.Random())

    def _api_key_file(self) -> Path | None:
        named = self._config.config.value.vast.api_key_file
        return None if named is None else Path(named)

    def _rates(self) -> dict[str, float]:
        """Return the intervals in force. The simulator limits nothing unless it was told to, and
        a demo that waits for Vast's intervals would teach nobody anything."""
        rates = msgspec.to_builtins(self._config.config.value.rates)
        assert isinstance(rates, dict)
        return dict.fromkeys(rates, 0.0) if self._simulated else rates

    def _page_s(self) -> float:
        return self._rates()["list"]

    async def close(self) -> None:
        """Close every connection."""
        for http in self._open:
            await http.aclose()


@asynccontextmanager
async def open_account(
    config: ConfigurationHolder, state_dir: Path, *, simulate: bool, witness: DateWitness
) -> AsyncIterator[VastAccount]:
    """Yield the way to Vast, or to the simulated one, which is joined or started."""
    if simulate:
        from vastd.simulator.client import join_or_spawn  # only a simulation pays for it

        info = await join_or_spawn(state_dir / "simulator")
        key = make_key(info.api_key, "the simulator")
        account = VastAccount(config, info.url, key, simulated=True, witness=witness)
    else:
        url = config.config.value.vast.url
        account = VastAccount(config, url, None, simulated=False, witness=witness)
    try:
        yield account
    finally:
        with trio.move_on_after(5) as scope:  # guess: closing sockets, nothing to wait for
            scope.shield = True
            await account.close()
