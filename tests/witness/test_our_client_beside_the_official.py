"""Our own client asks for the same things in the same words as the official one was recorded to."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from support.scripted_vast import Asked, scripted
from vastd.core.market import CreateSpec, OfferQuery
from vastd.core.money import Micros
from vastd.provider.vast.client import VastProvider
from witness.recording import Ask, load

KEY = "ssh-ed25519 AAAAC3Nz demo@host"
ROW = {"id": 1001}
OURS_ALONE = {"target_state"}  # documented (VAST_API 3.1); the official client leaves it out


def official(*argv: str) -> Ask:
    """The last request of a recorded run that succeeded."""
    run = next(run for run in load() if run.argv == list(argv) and run.asks[-1].status == 200)
    return run.asks[-1]


async def ours(call: Callable[[VastProvider], Awaitable[Any]], answer: Any) -> Asked:
    async with scripted(answer) as (provider, vast):
        await call(provider)
    (asked,) = vast.asked
    return asked


@pytest.mark.parametrize(
    ("argv", "call"),
    [
        (("stop", "instance", "1001"), lambda p: p.stop_instance(1001)),
        (("start", "instance", "1001"), lambda p: p.start_instance(1001)),
        (("label", "instance", "1001", "my label"), lambda p: p.set_label(1001, "my label")),
        (("change", "bid", "1001", "--price", "0.33"), lambda p: p.change_bid(1001, Micros(330_000))),
        (("destroy", "instance", "1001", "-y"), lambda p: p.destroy_instance(1001)),
        (("create", "ssh-key", KEY), lambda p: p.add_ssh_key(KEY)),
        (("attach", "ssh", "1001", KEY), lambda p: p.attach_ssh_key(1001, KEY)),
        (("show", "instance", "1001"), lambda p: p.get_instance(1001)),
        (("show", "user"), lambda p: p.get_account()),
        (("show", "ssh-keys"), lambda p: p.list_ssh_keys()),
        (("show", "instances", "--raw"), lambda p: p.list_instances()),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)  # fmt: skip
async def test_a_request_of_ours_is_the_recorded_one(
    argv: tuple[str, ...], call: Callable[[VastProvider], Awaitable[Any]]
) -> None:
    recorded = official(*argv)

    asked = await ours(call, recorded.response)

    # The official client leaves the slash out on some routes; the documents never do.
    assert (asked.method, asked.path) == (recorded.method, recorded.path.rstrip("/") + "/")
    assert asked.body == recorded.body
    for name, value in asked.query.items():
        assert value.replace(" ", "") == recorded.query[name].replace(" ", "")


async def test_a_create_of_ours_says_only_what_the_official_client_can_say_too() -> None:
    words = ("create", "instance", "7001", "--image", "pytorch/pytorch", "--disk", "20", "--ssh")
    recorded = official(*words, "--bid_price", "0.21", "--raw")
    spec = CreateSpec(
        offer_id=7001, image="pytorch/pytorch", disk_gb=20.0, label="l", bid=Micros(210_000),
        onstart="echo hi", env={"A": "1"}, image_login="-u a -p b c",
    )  # fmt: skip

    asked = await ours(lambda p: p.create_instance(spec), recorded.response)

    assert (asked.method, asked.path) == (recorded.method, recorded.path)
    assert asked.body.keys() - recorded.body.keys() == OURS_ALONE
    for same in ("client_id", "image", "disk", "price"):
        assert asked.body[same] == recorded.body[same]
    direct = next(run for run in load() if "--direct" in run.argv and "--ssh" in run.argv)
    assert asked.body["runtype"] == direct.asks[-1].body["runtype"]


async def test_a_search_of_ours_has_the_form_of_the_official_one() -> None:
    recorded = official("search", "offers", "-t", "bid", "num_gpus=1", "-o", "dph", "--raw")
    query = OfferQuery(
        filters={"num_gpus": {"eq": 1}}, order=[("dph_total", "asc")], disk_gb=5.0,
        interruptible=True, limit=64,
    )  # fmt: skip

    asked = await ours(lambda p: p.search_offers(query), {"offers": []})

    assert (asked.method, asked.path) == (recorded.method, recorded.path)
    # The official client sends the number as a text; the limit is ours to say.
    expected = {**recorded.body, "num_gpus": {"eq": 1}, "limit": 64}
    assert asked.body == expected


async def test_the_key_travels_in_the_header_the_official_client_uses() -> None:
    asked = await ours(lambda p: p.get_account(), {"id": 1, "credit": 1.0})

    assert asked.headers["authorization"].startswith("Bearer ")
    assert asked.query == {}
