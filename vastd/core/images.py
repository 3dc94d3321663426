"""What a container image asks of a machine, read from its name: CUDA, and which GPUs it runs on."""

import re
from typing import Final

from msgspec import Struct

from vastd.errors import InvalidRequest

MAX_IMAGE_CHARS: Final = 400  # guess: Docker allows 255 for the name and 128 for the tag
# Docker's reference grammar, without the digest's fine print.
_REFERENCE: Final = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?"
    r"(?:@sha256:[0-9a-f]{64})?"
)
_CUDA: Final = re.compile(r"(?:cuda|cu)[-_:]?([0-9]{1,2})\.?([0-9])(?![0-9])")
_NVIDIA_CUDA: Final = re.compile(r"(?:^|/)cuda:([0-9]{1,2})\.([0-9])")
# NGC tags are dates (24.10-py3), not torch versions: one digit before the dot only.
_TORCH: Final = re.compile(r"(?:^|/)pytorch:v?([0-9])\.([0-9]{1,2})(?![0-9])")

# (torch, CUDA) from which a binary release runs on GPUs of that compute capability.
# Blackwell (10.0, 12.0): PyTorch 2.7 release notes, CUDA 12.8 builds only; 2.6 has neither.
# Hopper (9.0): CUDA 11.8 builds of PyTorch 2.0. Ada and Ampere run binaries for 8.x: 1.8 and 11.1.
_BLACKWELL: Final = ((2, 7), (12, 8), 1000)
_HOPPER: Final = ((2, 0), (11, 8), 900)
_AMPERE: Final = ((1, 8), (11, 1), 800)
# The CUDA 12.8 builds of PyTorch dropped everything before Turing; earlier ones start at Maxwell.
_TURING_CAP: Final = 750
_MAXWELL_CAP: Final = 500


class ImageNeeds(Struct, frozen=True, kw_only=True):
    """What is known of an image from its name; None where the name does not tell."""

    cuda: float | None  # the driver must support at least this (`cuda_max_good`)
    compute_cap_min: int | None  # times 100
    compute_cap_below: int | None  # times 100; None also when no limit is known


def check_image(image: str) -> None:
    """Refuse what cannot be the name of an image.

    Raises:
        InvalidRequest: says what is wrong with it.
    """
    if not image.strip():
        raise InvalidRequest("the image name is empty")
    if len(image) > MAX_IMAGE_CHARS or _REFERENCE.fullmatch(image) is None:
        why = "it contains a space" if re.search(r"\s", image) else "it is not REPOSITORY[:TAG]"
        raise InvalidRequest(
            f"{image[:80]!r} is not the name of a container image: {why}",
            hint="example: pytorch/pytorch:2.6.0-cuda12.6-cudnn9-devel",
        )


def needs_of(image: str) -> ImageNeeds:
    """Return what `image` needs, from its name alone.

    With a CUDA version and no torch version, only the driver is bounded: what is inside may have
    been built for any GPU.
    """
    cuda = _version(_NVIDIA_CUDA.search(image) or _CUDA.search(image))
    torch = _version(_TORCH.search(image))
    if cuda is None:
        return ImageNeeds(cuda=None, compute_cap_min=None, compute_cap_below=None)
    if torch is None:
        return ImageNeeds(cuda=_as_float(cuda), compute_cap_min=None, compute_cap_below=None)
    below = None
    for since_torch, since_cuda, cap in (_AMPERE, _HOPPER, _BLACKWELL):
        if torch < since_torch or cuda < since_cuda:
            below = cap
            break
    new = torch >= _BLACKWELL[0] and cuda >= _BLACKWELL[1]
    return ImageNeeds(
        cuda=_as_float(cuda),
        compute_cap_min=_TURING_CAP if new else _MAXWELL_CAP,
        compute_cap_below=below,
    )


def blackwell_image() -> str:
    """Return an image that runs on Blackwell cards as well."""
    return "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel"


def _version(found: "re.Match[str] | None") -> tuple[int, int] | None:
    return None if found is None else (int(found.group(1)), int(found.group(2)))


def _as_float(version: tuple[int, int]) -> float:
    return float(f"{version[0]}.{version[1]}")
