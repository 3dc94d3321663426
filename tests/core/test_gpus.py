"""The names of GPUs and how fast they are."""

import pytest

from vastd.core import gpus
from vastd.core.gpu_table import GPU_TABLE
from vastd.simulator.catalogue import GPU_MODELS

ARF_SPEEDS = {
    "GTX 1080 Ti": 0.35, "RTX 2080 Ti": 0.55, "RTX 3060": 0.40, "RTX 3070": 0.60, "RTX 3080": 0.80,
    "RTX 3090": 1.0, "RTX 4070": 0.90, "RTX 4070 Ti": 1.05, "RTX 4080": 1.30, "RTX 4090": 1.60,
    "RTX 5060 Ti": 1.00, "RTX 5070 Ti": 1.50, "RTX 5090": 2.50, "H100 SXM": 3.00, "H200": 3.50,
    "RTX PRO 6000 S": 2.80, "RTX PRO 6000 WS": 2.80,
}  # fmt: skip
ARIS_ONLY_SPEEDS = {"RTX A5000": 0.9, "RTX A6000": 1.1, "L40S": 1.5}


@pytest.mark.req("SEL-03")
@pytest.mark.req("SEL-02")
def test_the_two_workflows_tables_are_merged_the_second_first() -> None:
    for name, speed in {**ARF_SPEEDS, **ARIS_ONLY_SPEEDS}.items():
        assert gpus.speed_of(name).per_gpu == speed, name


@pytest.mark.req("SEL-04")
def test_every_name_of_the_market_is_known() -> None:
    unknown = [model.name for model in GPU_MODELS if gpus.find(model.name) is None]

    assert unknown == []
    assert [m.name for m in GPU_TABLE if gpus.find(m.name) is not m] == []


@pytest.mark.req("SEL-04")
@pytest.mark.parametrize(
    ("name", "memory", "speed"),
    [
        ("A100 SXM4", 40_960, 1.8),
        ("A100 SXM4", 81_920, 2.0),
        ("A100 PCIE", 40_537, 1.8),
        ("A100 PCIE", 81_251, 2.0),
        ("A100 PCIE", None, 2.0),
        ("Tesla V100", 16_160, 0.81),
        ("Tesla V100", 32_510, 0.93),
        ("H100 NVL", 95_830, 3.0),
        ("RTX 4070S Ti", 16_376, 1.17),
        ("NVIDIA GeForce RTX 4090", 24_564, 1.6),
    ],
)
def test_names_of_vast_and_of_the_driver_have_a_speed(
    name: str, memory: int | None, speed: float
) -> None:
    found = gpus.speed_of(name, gpu_ram_mb=memory)

    assert (found.per_gpu, found.estimated) == (speed, False)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("RTX_4090", ("RTX 4090",)),
        ("rtx4090", ("RTX 4090",)),
        ("4090", ("RTX 4090",)),
        ("4070 super", ("RTX 4070S",)),
        ("a6000", ("RTX A6000",)),
        ("A100", ("A100 PCIE", "A100 SXM4", "A100 SXM")),
        ("A100-80GB", ("A100 PCIE", "A100 SXM4")),
        ("h100", ("H100 PCIE", "H100 SXM", "H100 NVL")),
        ("H100 SXM", ("H100 SXM",)),
        ("H200", ("H200",)),
        ("3090 24GB", ("RTX 3090",)),
        ("banana", ()),
    ],
)
def test_people_name_gpus_as_they_like(text: str, names: tuple[str, ...]) -> None:
    assert gpus.expand(text) == names


def test_a_memory_size_in_the_name_is_understood() -> None:
    assert gpus.memory_gb_in("A100-80GB") == 80
    assert gpus.memory_gb_in("A100 40 GB") == 40
    assert gpus.memory_gb_in("RTX 4090") is None
    assert gpus.memory_forms("L40S 48GB", 48) == [46_068]


def test_a_misspelt_gpu_gets_a_suggestion() -> None:
    assert gpus.suggest("RTX 4O90")[0] == "RTX 4090"
    assert gpus.suggest("qqqqqq") == []


@pytest.mark.req("SEL-04")
def test_an_unknown_card_is_estimated_and_marked_or_unknown_never_an_rtx_3090() -> None:
    by_dlperf = gpus.speed_of("RTX 9999", dlperf=240.0, num_gpus=2)
    by_flops = gpus.speed_of("RTX 9999", total_flops=142.4)
    unknown = gpus.speed_of("RTX 9999", dlperf=0.0, total_flops=float("nan"))

    assert (by_dlperf.per_gpu, by_dlperf.estimated) == (2.0, True)
    assert (by_flops.per_gpu, by_flops.estimated) == (2.0, True)
    assert (unknown.per_gpu, unknown.estimated) == (None, True)


@pytest.mark.req("SEL-05")
def test_several_gpus_scale_with_a_stated_efficiency() -> None:
    assert gpus.machine_speed(1.6, 1, 0.5) == 1.6
    assert gpus.machine_speed(1.6, 4, 0.5) == pytest.approx(3.2)


def test_the_table_is_sound() -> None:
    assert len({model.name for model in GPU_TABLE}) == len(GPU_TABLE)
    for model in GPU_TABLE:
        assert list(model.vram_mb) == sorted(model.vram_mb), model.name
        assert len(model.speeds) in (1, len(model.vram_mb)), model.name
        assert all(0 < speed < 10 for speed in model.speeds), model.name


def test_classes_by_speed_hold_cuda_cards_only() -> None:
    fast = gpus.names_with_speed(1.75)

    assert {"H100 SXM", "A100 SXM4", "H200"} <= set(fast)
    assert "RTX 3090" not in fast
    assert not [name for name in gpus.names_with_speed(0) if name.startswith(("RX ", "Instinct"))]
