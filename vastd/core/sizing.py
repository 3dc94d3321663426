"""Turns what the user said about a task into what must be rented, each number with its source.

Rules
1. Unknown stays unknown: nothing is guessed from free text here, and no default passes as a fact.
2. Every number says where it came from: stated, derived from something stated, or a default.
3. Hours are those of one reference machine: as many GPUs as asked for, of the GPU that was named,
   else RTX 3090s (ANA-13). Hours the user stated are taken as they are; only hours that were
   derived get the buffer (C-12).
4. The image decides which drivers and which GPUs can run it (SRC-04, C-10).
"""

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Generic, TypeVar

from msgspec import Struct

from vastd.core import gpus
from vastd.core.images import blackwell_image, check_image, needs_of
from vastd.core.money import Micros
from vastd.errors import InvalidRequest

T = TypeVar("T")

MB_PER_GB: Final = (
    1000  # Vast's GB: 24 GB is 24,000 MB, which a card of 24,564 MB satisfies (SRC-10)
)
DEFAULT_DISK_GB: Final = 50.0  # C-42
DEFAULT_IMAGE: Final = "pytorch/pytorch:2.6.0-cuda12.6-cudnn9-devel"  # CRE-03
DERIVED_BUFFER: Final = 1.3  # C-12: set-up and slowdowns, on hours vastd derived itself
MAX_HOURS: Final = 24.0 * 365  # guess: beyond a year it is a slip of the pen
MAX_GPUS: Final = 1024  # guess: far above any machine on Vast
BLACKWELL_CAP: Final = 1000  # compute capability 10.0


ASKED_PRICE: Final = "--max-price"


class Confidence(StrEnum):
    """How a number was come by."""

    STATED = "stated"
    DERIVED = "derived"
    DEFAULT = "default"


class Sourced(Struct, Generic[T], frozen=True, kw_only=True):
    """A value and where it comes from, in words for the user."""

    value: T
    source: str
    confidence: Confidence = Confidence.STATED


class TaskNeeds(Struct, frozen=True, kw_only=True):
    """What is known of a task before sizing; None means unknown. VRAM is per GPU."""

    task: str | None = None  # free text, not read here
    hours: float | None = None
    hours_source: str | None = None  # set by who derived the hours; None: the user stated them
    gpu_ram_gb: float | None = None
    num_gpus: int | None = None
    gpu_name: str | None = None
    disk_gb: float | None = None
    image: str | None = None
    max_dph: Micros | None = None  # per hour, whole machine
    min_reliability: float | None = None  # 0 to 1; None: by the hours of the job
    spot: bool = False
    bid: Micros | None = None  # per hour, whole machine
    offer_id: int | None = None
    download_gb: float | None = None
    upload_gb: float | None = None
    said_by: Mapping[str, str] = {}  # field -> who stated it instead of the user


class SizingDefaults(Struct, frozen=True, kw_only=True):
    """What stands in for what the user left out (configuration `[defaults]`, `[budget]`)."""

    image: str = DEFAULT_IMAGE
    disk_gb: float = DEFAULT_DISK_GB
    max_dph: Micros | None = None  # per hour; None: no cap
    image_source: str = "default"
    disk_source: str = "default"


class Hours(Struct, frozen=True, kw_only=True):
    """The run time on the reference machine. Rank with `plain`, decide about money with `buffered`."""

    plain: float
    buffered: float
    reference_gpu: str
    reference_speed: float | None  # None: the named GPU is not in the table
    source: str
    confidence: Confidence


class Requirements(Struct, frozen=True, kw_only=True):
    """What to rent."""

    num_gpus: Sourced[int]
    gpu_ram_mb: Sourced[int] | None  # per GPU; None: unknown
    gpu_names: tuple[str, ...]  # as Vast spells them; empty: any
    disk_gb: Sourced[float]
    image: Sourced[str]
    cuda: Sourced[float] | None  # lowest `cuda_max_good`; None: the image does not tell
    compute_cap_min: Sourced[int] | None
    compute_cap_below: Sourced[int] | None
    hours: Hours | None
    max_dph: Sourced[Micros] | None
    min_reliability: Sourced[float] | None  # None: by the hours of each offer
    interruptible: bool
    bid: Micros | None
    offer_id: int | None
    download_gb: float | None
    upload_gb: float | None
    warnings: tuple[str, ...]


def size(needs: TaskNeeds, defaults: SizingDefaults) -> Requirements:
    """Return what to rent for `needs`.

    Raises:
        InvalidRequest: a number makes no sense, or the image name is none.
    """
    check(needs)
    warnings: list[str] = []
    names = _gpu_names(needs, warnings)
    num_gpus = _stated(needs, "num_gpus", needs.num_gpus, "--num-gpus") or Sourced(
        value=1, source="one GPU unless told otherwise", confidence=Confidence.DEFAULT
    )
    gpu_ram = _gpu_ram(needs)
    image = _image(needs, defaults, names, warnings)
    runs = needs_of(image.value)
    because = f"the image {image.value}"
    if needs.task and (gpu_ram is None or needs.hours is None):
        warnings.append("the task text is not read for numbers: say --gpu-ram and --hours")
    return Requirements(
        num_gpus=num_gpus,
        gpu_ram_mb=gpu_ram,
        gpu_names=names,
        disk_gb=_stated(needs, "disk_gb", needs.disk_gb, "--disk")
        or Sourced(
            value=defaults.disk_gb, source=defaults.disk_source, confidence=Confidence.DEFAULT
        ),
        image=image,
        cuda=_derived(runs.cuda, because, image),
        compute_cap_min=_derived(runs.compute_cap_min, because, image),
        compute_cap_below=_derived(runs.compute_cap_below, because, image),
        hours=_hours(needs, names, gpu_ram),
        max_dph=_price_cap(needs, defaults),
        min_reliability=_stated(
            needs, "min_reliability", needs.min_reliability, "least reliability"
        ),
        interruptible=needs.spot or needs.bid is not None,
        bid=needs.bid,
        offer_id=needs.offer_id,
        download_gb=needs.download_gb,
        upload_gb=needs.upload_gb,
        warnings=tuple(warnings),
    )


def question(req: Requirements) -> str | None:
    """Return the one missing fact that would move the choice most, as a question, or None.

    Memory first: a machine that is too small costs its price and does nothing. A named GPU or a
    chosen offer settles the memory.
    """
    settled = req.gpu_ram_mb is not None or req.gpu_names or req.offer_id is not None
    if not settled:
        return "how much GPU memory does the task need, in GB per GPU (--gpu-ram)?"
    if req.hours is None:
        return (
            f"how many hours would it take on {_machine(req)} (--hours)?"
            " Without it no total can be shown, only prices per hour"
        )
    return None


def check(needs: TaskNeeds) -> None:
    """Refuse numbers that make no sense.

    Raises:
        InvalidRequest: names the option and what it may be.
    """
    _within("hours", needs.hours, 0, MAX_HOURS)
    _within("GPU memory in GB", needs.gpu_ram_gb, 0, 1_000_000)
    _within("disk in GB", needs.disk_gb, 0, 1_000_000)
    _within("reliability", needs.min_reliability, 0, 1)
    if needs.num_gpus is not None and not 1 <= needs.num_gpus <= MAX_GPUS:
        # Vast answers num_gpus=0 with storage placeholders, not with machines (ANA-14).
        raise InvalidRequest(
            f"the number of GPUs must be 1 to {MAX_GPUS}, not {needs.num_gpus}",
            hint="a job that needs no GPU still rents a machine with one: leave --num-gpus out",
        )
    for what, price in (("the price cap", needs.max_dph), ("the bid", needs.bid)):
        if price is not None and price <= 0:
            raise InvalidRequest(f"{what} must be above $0 per hour")
    if needs.image is not None:
        check_image(needs.image)


def _within(what: str, value: float | None, above: float, most: float) -> None:
    if value is not None and not (math.isfinite(value) and above < value <= most):
        raise InvalidRequest(f"{what} must be above {above:g} and at most {most:g}, not {value!r}")


def _stated(needs: TaskNeeds, field: str, value: T | None, option: str) -> Sourced[T] | None:
    return None if value is None else Sourced(value=value, source=_who(needs, field, option))


def _who(needs: TaskNeeds, field: str, option: str) -> str:
    return needs.said_by.get(field) or f"you said so ({option})"


def _derived(value: T | None, because: str, image: Sourced[str]) -> Sourced[T] | None:
    if value is None:
        return None
    default = image.confidence is Confidence.DEFAULT
    return Sourced(
        value=value,
        source=because,
        confidence=Confidence.DEFAULT if default else Confidence.DERIVED,
    )


def _gpu_names(needs: TaskNeeds, warnings: list[str]) -> tuple[str, ...]:
    if needs.gpu_name is None:
        return ()
    text = needs.gpu_name.strip()
    if not re.search(r"[A-Za-z0-9]", text):
        raise InvalidRequest(f"{needs.gpu_name!r} is not the name of a GPU")
    names = gpus.expand(text)
    if names:
        return names
    # A card newer than our table must still be rentable: pass the name on, and say so.
    close = gpus.suggest(text)
    maybe = f"; did you mean {' or '.join(close)}?" if close else ""
    warnings.append(f"vastd knows no GPU called {text!r} and asks Vast for that exact name{maybe}")
    return (text.replace("_", " "),)


def _gpu_ram(needs: TaskNeeds) -> Sourced[int] | None:
    if needs.gpu_ram_gb is not None:
        return Sourced(
            value=round(needs.gpu_ram_gb * MB_PER_GB),
            source=_who(needs, "gpu_ram_gb", "--gpu-ram"),
        )
    named = gpus.memory_gb_in(needs.gpu_name or "")
    if named is None or needs.gpu_name is None:
        return None
    # An "L40S 48GB" reports 46,068 MB: what that card has is meant, not 48,000.
    forms = gpus.memory_forms(needs.gpu_name, named)
    return Sourced(
        value=min(forms) * 99 // 100 if forms else named * MB_PER_GB,
        source=f"the GPU you named, {needs.gpu_name}",
        confidence=Confidence.DERIVED,
    )


def _image(
    needs: TaskNeeds, defaults: SizingDefaults, names: tuple[str, ...], warnings: list[str]
) -> Sourced[str]:
    if needs.image is not None:
        return Sourced(value=needs.image, source=_who(needs, "image", "--image"))
    check_image(defaults.image)
    below = needs_of(defaults.image).compute_cap_below
    models = [gpus.find(name) for name in names]
    caps = [model.compute_cap for model in models if model is not None]
    if below is not None and caps and min(caps) >= max(below, BLACKWELL_CAP):
        newer = blackwell_image()
        warnings.append(f"{names[0]} cannot run the default image, so {newer} is used")
        return Sourced(
            value=newer,
            source=f"{names[0]} needs CUDA 12.8 or later",
            confidence=Confidence.DERIVED,
        )
    return Sourced(
        value=defaults.image, source=defaults.image_source, confidence=Confidence.DEFAULT
    )


def _hours(needs: TaskNeeds, names: tuple[str, ...], gpu_ram: Sourced[int] | None) -> Hours | None:
    if needs.hours is None:
        return None
    reference = names[0] if names else gpus.REFERENCE_GPU
    model = gpus.find(reference)
    speed = None if model is None else gpus.model_speed(model, gpu_ram.value if gpu_ram else None)
    derived = needs.hours_source is not None
    return Hours(
        plain=needs.hours,
        buffered=needs.hours * DERIVED_BUFFER if derived else needs.hours,
        reference_gpu=reference,
        reference_speed=speed,
        source=needs.hours_source or f"{_who(needs, 'hours', '--hours')}, on {reference}",
        confidence=Confidence.DERIVED if derived else Confidence.STATED,
    )


def _price_cap(needs: TaskNeeds, defaults: SizingDefaults) -> Sourced[Micros] | None:
    if needs.max_dph is not None:
        return Sourced(value=needs.max_dph, source=_who(needs, "max_dph", ASKED_PRICE))
    if defaults.max_dph is None:
        return None
    return Sourced(
        value=defaults.max_dph,
        source="configuration (budget.max_dph_usd)",
        confidence=Confidence.DEFAULT,
    )


def _machine(req: Requirements) -> str:
    name = req.gpu_names[0] if req.gpu_names else gpus.REFERENCE_GPU
    return f"one {name}" if req.num_gpus.value == 1 else f"{req.num_gpus.value} x {name}"
