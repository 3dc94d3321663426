"""What a machine says of itself against what was ordered, to the last megabyte."""

import pytest
from msgspec import structs

from support.builders import a_rental
from support.offer_builders import an_offer
from vastd.core.rental import Order, Rental
from vastd.effects.hardware import check_gpus, check_new
from vastd.errors import HardwareMismatch
from vastd.jobs.port import BoxFacts, Endpoint, GpuFacts, Route

CARD = GpuFacts(name="NVIDIA GeForce RTX 3090", memory_mib=24_576, driver_version="550.1")
FACTS = BoxFacts(
    route=Route.DIRECT, endpoint=Endpoint(host="192.0.2.1", port=22, route=Route.DIRECT),
    gpus=[CARD], cuda_version="12.4", disk_free_bytes=45_000_000_000, has_rsync=True,
    has_tmux=True, box_clock=0.0,
)  # fmt: skip


def ordered(image: str = "my/own", disk_gb: float = 50.0, **offer: object) -> Rental:
    return a_rental(order=Order(offer=an_offer(7, **offer), image=image, disk_gb=disk_gb))  # type: ignore[arg-type]


def facts(**changes: object) -> BoxFacts:
    return structs.replace(FACTS, **changes)


def test_what_was_ordered_passes() -> None:
    check_gpus(ordered(), FACTS)
    check_new(ordered(), FACTS)

    assert FACTS.gpus == [CARD]


@pytest.mark.req("VER-02")
@pytest.mark.parametrize(
    ("order", "gpus", "words"),
    [
        ({"num_gpus": 2}, [CARD], "ordered 2 GPUs, nvidia-smi shows 1"),
        ({}, [structs.replace(CARD, memory_mib=22_030)], "per GPU, nvidia-smi shows 22030 MiB"),
        ({}, [structs.replace(CARD, name="Quadro P400")], "shows 'Quadro P400'"),
        # One wrong card of several is one too many.
        ({"num_gpus": 2}, [CARD, structs.replace(CARD, name="NVIDIA RTX A4000")], "RTX A4000"),
    ],
)
def test_other_gpus_are_refused(order: dict[str, object], gpus: list[GpuFacts], words: str) -> None:
    with pytest.raises(HardwareMismatch, match=words):
        check_gpus(ordered(**order), facts(gpus=gpus))


@pytest.mark.req("VER-05")
@pytest.mark.parametrize(
    ("disk_gb", "free", "passes"),
    [
        (50.0, 2_000_000_000, True),
        (50.0, 1_999_999_999, False),
        (10.0, 1_000_000_000, True),  # a tenth of a disk that was ordered small
        (10.0, 999_999_999, False),
    ],
)
def test_a_full_disk_is_refused(disk_gb: float, free: int, passes: bool) -> None:
    def check() -> None:
        check_new(ordered(disk_gb=disk_gb), facts(disk_free_bytes=free))

    if passes:
        check()
        return
    with pytest.raises(HardwareMismatch, match="GB are free before anything was sent"):
        check()


DEVEL = "pytorch/pytorch:2.6.0-cuda12.6-cudnn9-devel"


@pytest.mark.parametrize(
    ("image", "promised", "shown", "passes"),
    [
        (DEVEL, 12.8, "12.6", True),
        (DEVEL, 12.8, "12.5", False),
        (DEVEL, None, "12.5", False),
        (DEVEL, 12.4, "12.4", True),  # the user took less than the image needs, knowingly
        (DEVEL, 12.4, "12.3", False),
        (DEVEL, 12.8, None, True),  # not said
        (DEVEL, 12.8, "N/A", True),
        ("my/own", 12.8, "10.2", True),  # its needs are not known
    ],
)
def test_the_driver_must_be_new_enough_for_the_image(
    image: str, promised: float | None, shown: str | None, passes: bool
) -> None:
    """CASES 51: after the boot nvidia-smi must agree."""

    def check() -> None:
        check_new(ordered(image, cuda_max_good=promised), facts(cuda_version=shown))

    if passes:
        check()
        return
    with pytest.raises(HardwareMismatch, match="needs CUDA 12"):
        check()
