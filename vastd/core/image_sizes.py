"""How much of an image crosses the wire: compressed gigabytes by name, to judge a slow boot by.

The registries' own numbers could not be asked from where this was written: every size is a guess
from what people report for these families, rounded up, because a limit that is too short ends a
machine that was about to serve, and loading bills no GPU. What is not listed has no known size.
"""

import re
from typing import Final

from msgspec import Struct

MBIT_PER_GB: Final = 8000.0  # CASES 46
GUESS: Final = "guess by its name"


class ImageSize(Struct, frozen=True, kw_only=True):
    """The images whose name matches `pattern` are about `gb` large, compressed (10^9 bytes)."""

    pattern: str  # a regular expression for the whole name, registry and tag included
    gb: float
    source: str = GUESS


# The first row that matches counts.
SIZES: Final = (
    ImageSize(pattern=r"(.*/)?pytorch/pytorch:.*-devel.*", gb=8.0),
    ImageSize(pattern=r"(.*/)?pytorch/pytorch(:.*)?", gb=4.0),  # runtime images
    ImageSize(pattern=r"nvcr\.io/nvidia/(pytorch|tensorflow|nemo|jax)(:.*)?", gb=10.0),
    ImageSize(pattern=r"(.*/)?vastai/(pytorch|base-image|tensorflow|comfy).*", gb=8.0),
    ImageSize(pattern=r"(.*/)?runpod/pytorch(:.*)?", gb=8.0),
    ImageSize(pattern=r"(.*/)?nvidia/cuda:.*cudnn.*-devel.*", gb=5.0),
    ImageSize(pattern=r"(.*/)?nvidia/cuda:.*-devel.*", gb=3.5),
    ImageSize(pattern=r"(.*/)?nvidia/cuda:.*-runtime.*", gb=2.0),
    ImageSize(pattern=r"(.*/)?nvidia/cuda:.*-base.*", gb=0.2),
    ImageSize(pattern=r"(.*/)?tensorflow/tensorflow:.*gpu.*", gb=4.0),
    ImageSize(pattern=r"(.*/)?huggingface/transformers.*-gpu.*", gb=10.0),
    ImageSize(pattern=r"ghcr\.io/huggingface/text-generation-inference(:.*)?", gb=6.0),
    ImageSize(pattern=r"(.*/)?vllm/vllm-openai(:.*)?", gb=10.0),
    ImageSize(pattern=r"(.*/)?lmsysorg/sglang(:.*)?", gb=12.0),
    ImageSize(pattern=r"(.*/)?ollama/ollama(:.*)?", gb=2.5),
    ImageSize(pattern=r"(library/)?(ubuntu|debian)(:.*)?", gb=0.1),
    ImageSize(pattern=r"(library/)?python:.*(slim|alpine).*", gb=0.1),
    ImageSize(pattern=r"(library/)?python(:.*)?", gb=0.5),
)


def size_of(image: str) -> ImageSize | None:
    """Return what is known of the size of `image`, or None."""
    name = image.removeprefix("docker.io/")
    return next((row for row in SIZES if re.fullmatch(row.pattern, name)), None)
