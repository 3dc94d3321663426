"""What must be rented for what the user said, and where each number comes from."""

import math

import pytest

from vastd.core.images import check_image, needs_of
from vastd.core.money import Micros, from_usd
from vastd.core.sizing import Confidence, Requirements, SizingDefaults, TaskNeeds, question, size
from vastd.errors import InvalidRequest

TORCH_26 = "pytorch/pytorch:2.6.0-cuda12.6-cudnn9-devel"


def sized(**needs: object) -> Requirements:
    return size(TaskNeeds(**needs), SizingDefaults())  # type: ignore[arg-type]


def test_nothing_said_is_nothing_known_and_defaults_say_that_they_are() -> None:
    req = sized()

    assert (req.gpu_ram_mb, req.hours, req.max_dph, req.min_reliability) == (None,) * 4
    assert (req.num_gpus.value, req.num_gpus.confidence) == (1, Confidence.DEFAULT)
    assert (req.disk_gb.value, req.disk_gb.confidence) == (50.0, Confidence.DEFAULT)
    assert (req.image.value, req.image.confidence) == (TORCH_26, Confidence.DEFAULT)


def test_what_the_user_said_is_taken_as_it_is() -> None:
    req = sized(hours=2.5, gpu_ram_gb=24, num_gpus=2, disk_gb=20, max_dph=from_usd(0.5))

    assert req.gpu_ram_mb is not None
    assert req.gpu_ram_mb.value == 24_000
    assert req.num_gpus.value == 2
    assert req.disk_gb.value == 20  # C-42: less than the default is allowed when said
    assert req.max_dph is not None
    assert req.max_dph.value == 500_000
    assert {s.confidence for s in (req.gpu_ram_mb, req.num_gpus, req.disk_gb)} == {
        Confidence.STATED
    }


@pytest.mark.req("ANA-08")
def test_the_buffer_is_added_once_and_only_to_hours_vastd_derived() -> None:
    stated, derived = sized(hours=10).hours, sized(hours=10, hours_source="the plan's table").hours

    assert stated is not None
    assert derived is not None
    assert (stated.plain, stated.buffered) == (10, 10)
    assert (derived.plain, derived.buffered) == (10, 13)
    assert derived.source == "the plan's table"


@pytest.mark.req("ANA-13")
def test_hours_are_those_of_an_rtx_3090_unless_a_gpu_is_named() -> None:
    plain, named = sized(hours=8).hours, sized(hours=8, gpu_name="4090").hours

    assert plain is not None
    assert named is not None
    assert (plain.reference_gpu, plain.reference_speed) == ("RTX 3090", 1.0)
    assert (named.reference_gpu, named.reference_speed) == ("RTX 4090", 1.6)


@pytest.mark.req("ANA-10")
@pytest.mark.parametrize(
    ("image", "cuda", "cap_min", "cap_below"),
    [
        (TORCH_26, 12.6, 500, 1000),
        ("pytorch/pytorch:2.1.0-cuda12.1-cudnn8-devel", 12.1, 500, 1000),
        ("pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel", 12.8, 750, None),
        ("pytorch/pytorch:2.7.1-cuda12.6-cudnn9-devel", 12.6, 500, 1000),
        ("pytorch/pytorch:1.13.1-cuda11.6-cudnn8-runtime", 11.6, 500, 900),
        ("nvidia/cuda:12.4.1-devel-ubuntu22.04", 12.4, None, None),
        ("vastai/base-image:cuda-12.8.1-auto", 12.8, None, None),
        ("example/trainer:cu121", 12.1, None, None),
        ("nvcr.io/nvidia/pytorch:24.10-py3", None, None, None),
        ("ubuntu:22.04", None, None, None),
    ],
)
def test_the_image_decides_which_drivers_and_cards_can_run_it(
    image: str, cuda: float | None, cap_min: int | None, cap_below: int | None
) -> None:
    needs = needs_of(image)

    assert (needs.cuda, needs.compute_cap_min, needs.compute_cap_below) == (
        cuda, cap_min, cap_below,
    )  # fmt: skip


def test_a_named_blackwell_card_gets_an_image_that_runs_on_it() -> None:
    req = sized(gpu_name="RTX_5090")
    own = sized(gpu_name="RTX_5090", image=TORCH_26)

    assert (req.image.value, req.image.confidence) == (
        "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel", Confidence.DERIVED,
    )  # fmt: skip
    assert req.compute_cap_below is None
    assert "RTX 5090 cannot run the default image" in req.warnings[0]
    assert own.image.value == TORCH_26  # the user's own image is never replaced


def test_a_gpu_named_with_its_memory_needs_that_memory() -> None:
    a100, l40s = sized(gpu_name="A100-80GB").gpu_ram_mb, sized(gpu_name="L40S 48GB").gpu_ram_mb

    assert a100 is not None
    assert l40s is not None
    assert 40_960 < a100.value <= 81_251
    assert l40s.value <= 46_068
    assert a100.confidence is Confidence.DERIVED


def test_an_unknown_gpu_is_asked_for_by_that_name_with_a_warning() -> None:
    req = sized(gpu_name="RTX_4O90")

    assert req.gpu_names == ("RTX 4O90",)
    assert "did you mean RTX 4090" in req.warnings[0]


@pytest.mark.req("ANA-04")
def test_free_text_is_not_turned_into_numbers() -> None:
    req = sized(task="finetune a 7B model for 3 hours on a 4090")

    assert (req.gpu_ram_mb, req.hours, req.gpu_names) == (None, None, ())
    assert "not read for numbers" in req.warnings[0]


def test_the_question_is_the_missing_fact_that_matters_most() -> None:
    assert "--gpu-ram" in str(question(sized()))
    assert "--gpu-ram" in str(question(sized(hours=1)))
    assert "--hours" in str(question(sized(gpu_ram_gb=24)))
    assert "one RTX 4090 (--hours)" in str(question(sized(gpu_name="4090")))
    assert "2 x RTX 3090" in str(question(sized(gpu_ram_gb=24, num_gpus=2)))
    assert question(sized(gpu_ram_gb=24, hours=1)) is None


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ({"hours": 0}, "hours must be above 0"),
        ({"hours": -1}, "hours must be above 0"),
        ({"hours": math.nan}, "hours must be above 0"),
        ({"hours": 1e9}, "hours must be above 0 and at most 8760"),
        ({"gpu_ram_gb": 0}, "GPU memory"),
        ({"num_gpus": 0}, "number of GPUs must be 1 to"),
        ({"disk_gb": -5}, "disk in GB"),
        ({"max_dph": Micros(0)}, "the price cap must be above $0"),
        ({"bid": Micros(-1)}, "the bid must be above $0"),
        ({"min_reliability": 99}, "reliability must be above 0 and at most 1"),
        ({"image": "py torch"}, "it contains a space"),
        ({"image": ""}, "the image name is empty"),
        ({"image": "x" * 500}, "not the name of a container image"),
        ({"gpu_name": "  "}, "not the name of a GPU"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(needs: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sized(**needs)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    "image",
    [
        TORCH_26,
        "ubuntu",
        "localhost:5000/team/image:v1",
        "ghcr.io/a/b_c/d@sha256:" + "0" * 64,
    ],
)
def test_names_of_images_are_accepted(image: str) -> None:
    check_image(image)

    assert sized(image=image).image.value == image
