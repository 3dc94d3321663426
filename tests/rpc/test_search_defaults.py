"""`offer.search` from a project: what it usually needs narrows, the query goes before it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.builders import T0
from support.offer_builders import ListedOffers, a_4090, an_h100, an_offer
from vastd.config.load import load
from vastd.configuration import ConfigurationHolder
from vastd.planner import MarketPlanner
from vastd.rpc.handlers.choosing import search
from vastd_protocol.methods.offer import OfferSearchParams, OffersView
from vastd_protocol.methods.task import Needs


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "lab"
    made.mkdir()
    (made / "vastd.toml").write_text('[needs]\ngpu_name = "RTX_4090"\n')
    return made


async def ask(tmp_path: Path, **params: Any) -> OffersView:
    config = ConfigurationHolder(load(tmp_path / "config.toml", {}), {})
    market = ListedOffers(an_offer(1, 0.15), a_4090(2, 0.30), an_h100(4, 1.90))
    ledger = SimpleNamespace(rentals={}, hosts={})
    shell: Any = SimpleNamespace(provider=market, wall_clock=lambda: T0, ledger=ledger)
    ctx: Any = SimpleNamespace(config=config, planner=MarketPlanner(shell, config))
    return await search(ctx, OfferSearchParams(**params))


def ids(view: OffersView) -> set[int | None]:
    return {offer.offer_id for offer in view.offers}


async def test_what_the_project_needs_narrows_and_is_told(tmp_path: Path, project: Path) -> None:
    view = await ask(tmp_path, project=str(project))

    assert ids(view) == {2}
    assert view.defaults == {"gpu_name": "project (vastd.toml:2)"}


async def test_without_a_project_nothing_is_added(tmp_path: Path, project: Path) -> None:
    view = await ask(tmp_path)

    assert ids(view) == {1, 2, 4}
    assert view.defaults == {}


async def test_what_was_said_goes_before_the_project(tmp_path: Path, project: Path) -> None:
    said = await ask(tmp_path, project=str(project), needs=Needs(gpu_name="H100_SXM"))
    queried = await ask(tmp_path, project=str(project), query="gpu_name=H100_SXM")

    assert (ids(said), said.defaults) == ({4}, {})
    assert ids(queried) == {4}
