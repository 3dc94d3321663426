"""Maps the names people and Vast use for a GPU to its row, and says how fast it is.

Rules
1. A card that is not in the table never counts as an RTX 3090: its speed is an estimate that is
   marked as one, or unknown.
2. Memory decides between forms that share a name (A100 40/80 GB); what the offer reports counts.
"""

import difflib
import math
import re
from typing import Final

from msgspec import Struct

from vastd.core.gpu_table import GPU_TABLE, GpuModel

REFERENCE_GPU: Final = "RTX 3090"  # ANA-13: hours are stated for this card unless another is named
SCALING_EFFICIENCY: Final = (
    0.9  # per GPU from the second on; deeplearning-benchmark: 0.88-0.99 at 2
)
# What an RTX 3090 shows in recorded offers, per GPU: dlperf 27 to 33, and 35.6 fp32 TFLOPS.
REFERENCE_DLPERF: Final = 30.0
REFERENCE_TFLOPS: Final = 35.6
# Both figures grow faster than training speed does (a 4090 has 3.5 times the dlperf and 2.3 times
# the fp32 of a 3090, and trains 1.6 times as fast): the root of the ratio. A guess, on 6 cards.
ESTIMATE_EXPONENT: Final = 0.5
# ECC takes up to 6 % of the memory a card is sold with (46,068 MB of "48 GB"); rounded up.
FORM_TOLERANCE: Final = 0.08

_MEMORY: Final = re.compile(r"(?<![0-9])([0-9]{1,3}) ?_?gb\b", re.IGNORECASE)
_VENDOR_WORDS: Final = re.compile(r"nvidia|geforce|amd")


class Speed(Struct, frozen=True, kw_only=True):
    """How fast one GPU is, relative to one RTX 3090. `per_gpu` is None when nothing is known."""

    per_gpu: float | None
    source: str
    estimated: bool  # not from the table: a guess from what the offer says of itself


def _key(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", _VENDOR_WORDS.sub("", text.lower()))


_BY_NAME: Final[dict[str, GpuModel]] = {_key(model.name): model for model in GPU_TABLE}


def _by_alias() -> dict[str, tuple[GpuModel, ...]]:
    found: dict[str, tuple[GpuModel, ...]] = {}
    for model in GPU_TABLE:
        for alias in model.aliases:
            found[alias] = (*found.get(alias, ()), model)
    return found


_BY_ALIAS: Final = _by_alias()


def find(name: str) -> GpuModel | None:
    """Return the row of a name: Vast's own, NVIDIA's long one or a short form; None if unknown.

    Of several (`A100`) the first in the table; use `expand` to search for all of them.
    """
    key = _key(name)
    if key in _BY_NAME:
        return _BY_NAME[key]
    aliased = _BY_ALIAS.get(key) or _BY_ALIAS.get(_key(_MEMORY.sub("", name)))
    return aliased[0] if aliased else _BY_NAME.get(_key(_MEMORY.sub("", name)))


def expand(text: str) -> tuple[str, ...]:
    """Return every name Vast may list for what a person wrote, in table order; empty if unknown.

    `4090` gives `RTX 4090`; `H100` gives its PCIE, SXM and NVL forms. A memory size in the text
    (`A100 80GB`) is no part of the name: see `memory_gb_in`.
    """
    for key in (_key(text), _key(_MEMORY.sub("", text))):
        names = [_BY_NAME[key].name] if key in _BY_NAME else []
        names += [model.name for model in _BY_ALIAS.get(key, ())]
        if names:
            return tuple(dict.fromkeys(names))
    return ()


def memory_gb_in(text: str) -> int | None:
    """Return the memory size a GPU name was written with (`A100-80GB`), or None."""
    found = _MEMORY.search(text)
    return int(found.group(1)) if found else None


def memory_forms(text: str, memory_gb: int) -> list[int]:
    """Return the memory sizes in MB of the cards `text` names that go by that many GB."""
    names = expand(text)
    sizes = [mb for model in GPU_TABLE if model.name in names for mb in model.vram_mb]
    return [mb for mb in sizes if abs(mb / 1024 - memory_gb) <= memory_gb * FORM_TOLERANCE]


def suggest(text: str) -> list[str]:
    """Return up to 3 known names close to `text`, best first."""
    spellings = {**{_key(m.name): m.name for m in GPU_TABLE}}
    for alias, models in _BY_ALIAS.items():
        spellings.setdefault(alias, models[0].name)
    close = difflib.get_close_matches(_key(text), spellings, n=6, cutoff=0.6)
    return list(dict.fromkeys(spellings[key] for key in close))[:3]


def model_speed(model: GpuModel, gpu_ram_mb: int | None) -> float:
    """Return the speed of the form of `model` with that memory (the largest when unknown)."""
    if len(model.speeds) == 1:
        return model.speeds[0]
    if gpu_ram_mb is None:
        return model.speeds[-1]
    nearest = min(range(len(model.vram_mb)), key=lambda i: abs(model.vram_mb[i] - gpu_ram_mb))
    return model.speeds[nearest]


def speed_of(
    name: str,
    *,
    gpu_ram_mb: int | None = None,
    num_gpus: int = 1,
    dlperf: float | None = None,
    total_flops: float | None = None,
) -> Speed:
    """Return the speed of one GPU of an offer; `dlperf` and `total_flops` are of all its GPUs."""
    model = find(name)
    if model is not None:
        speed = model_speed(model, gpu_ram_mb)
        return Speed(per_gpu=speed, source=str(model.speed_source), estimated=False)
    for label, total, reference in (
        ("dlperf", dlperf, REFERENCE_DLPERF),
        ("its TFLOPS", total_flops, REFERENCE_TFLOPS),
    ):
        if total is not None and math.isfinite(total) and total > 0 and num_gpus > 0:
            ratio = total / num_gpus / reference
            return Speed(per_gpu=round(ratio**ESTIMATE_EXPONENT, 2), source=label, estimated=True)
    return Speed(per_gpu=None, source="nothing known of this card", estimated=True)


def machine_speed(per_gpu: float, num_gpus: int, efficiency: float = SCALING_EFFICIENCY) -> float:
    """Return the speed of `num_gpus` cards together, relative to one RTX 3090 (SEL-05)."""
    return per_gpu if num_gpus <= 1 else per_gpu * num_gpus * efficiency


def names_with_speed(at_least: float, below: float = math.inf) -> tuple[str, ...]:
    """Return the CUDA cards of the table with a speed in `[at_least, below)`, in table order."""
    return tuple(
        model.name
        for model in GPU_TABLE
        if model.compute_cap and at_least <= max(model.speeds) < below
    )


def fastest_speed(names: tuple[str, ...] = ()) -> float:
    """Return the highest speed in the table, or among `names` where they are known."""
    models = [model for model in GPU_TABLE if not names or model.name in names]
    return max((speed for model in models for speed in model.speeds), default=math.inf)


def runs_cuda(name: str) -> bool | None:
    """Return whether the card runs CUDA; None when it is not in the table."""
    model = find(name)
    return None if model is None else model.compute_cap > 0
