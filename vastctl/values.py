"""How values on the command line are read: durations, sizes, money, names, images, variables.

Every reader takes the text and returns the value, or raises `argparse.ArgumentTypeError` with a
sentence that shows a right one. Not-a-number, infinity, zero and negatives are refused here, so
that no such number ever reaches a decision about money.
"""

import os
import re
from argparse import ArgumentTypeError
from collections.abc import Iterable
from typing import Final, TypeVar

from vastctl.errors import UsageError

T = TypeVar("T")

_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd])")
_DECIMAL: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,9})?|\.[0-9]{1,9}")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")  # CONTRACT 2
_GPU_NAME: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9 _.,/()+-]{0,80}"
)  # Vast: `RTX 4090`, `A100 SXM4`
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BAD_IN_IMAGE: Final = re.compile(r"[\s\x00-\x1f\x7f'\"`$;|&<>\\]")

MAX_DURATION_S: Final = 365 * 86400.0  # guess; nobody rents longer without looking
MAX_HOURS: Final = 8760.0  # a year, as above
MAX_GPU_RAM_GB: Final = 1024.0  # guess; the largest GPU of 2026 has 288
MAX_GPUS: Final = 128  # guess; Vast's largest machines have 16
MAX_DISK_GB: Final = 100_000.0  # guess
MAX_MONEY_USD: Final = 100_000.0  # guess; a typing error beyond doubt
MAX_IMAGE_CHARS: Final = 1024  # guess; registries allow 255 for the name plus a digest


def duration(text: str) -> float:
    """Return seconds of `90s`, `20m`, `2h` or `1d`."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ArgumentTypeError(f"malformed duration {text!r}: write 90s, 20m, 2h or 1d")
    seconds = float(match[1]) * _UNITS_S[match[2]]
    if not 0 < seconds <= MAX_DURATION_S:
        raise ArgumentTypeError(f"duration {text!r} is out of range: more than 0, at most 365d")
    return seconds


def _number(text: str, what: str, unit: str, limit: float, example: str) -> float:
    if not _DECIMAL.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is no positive number of {unit}: write {example}")
    number = float(text)
    if not 0 < number <= limit:
        raise ArgumentTypeError(
            f"{what} {text!r} is out of range: more than 0, at most {limit:g} {unit}"
        )
    return number


def hours(text: str) -> float:
    """Return hours as a positive number."""
    return _number(text, "time", "hours", MAX_HOURS, "1.5")


def seconds(text: str) -> float:
    """Return seconds as a positive number; a duration such as `2m` is understood as well."""
    if text[-1:].lower() in _UNITS_S:
        return duration(text)
    return _number(text, "time", "seconds", MAX_DURATION_S, "30")


def gpu_ram_gb(text: str) -> float:
    """Return GiB of memory per GPU."""
    return _number(_without_gb(text), "GPU memory", "GB", MAX_GPU_RAM_GB, "24")


def gpu_name(text: str) -> str:
    """Return the name of a GPU as Vast writes it."""
    if not _GPU_NAME.fullmatch(text.strip()):
        raise ArgumentTypeError(f"{text[:80]!r} is no GPU name: write it like RTX_4090 or H100_SXM")
    return text.strip()


def reliability(text: str) -> float:
    """Return a share of 1; `99%` is understood as well."""
    number = text.strip()
    percent = number.endswith("%")
    number = number.removesuffix("%").strip()
    value = float(number) / (100 if percent else 1) if _DECIMAL.fullmatch(number) else 0.0
    if not 0 < value <= 1:
        raise ArgumentTypeError(f"{text!r} is no reliability: more than 0, at most 1, such as 0.99")
    return value


def disk_gb(text: str) -> float:
    """Return GB of disk."""
    return _number(_without_gb(text), "disk", "GB", MAX_DISK_GB, "50")


def _without_gb(text: str) -> str:
    lowered = text.strip().lower()
    for unit in ("gib", "gb", "g"):
        if lowered.endswith(unit):
            return lowered.removesuffix(unit).strip()
    return text


def usd(text: str) -> float:
    """Return US dollars."""
    return _number(text.strip().removeprefix("$"), "amount", "USD", MAX_MONEY_USD, "2.50")


def _whole(text: str, what: str, limit: int) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text) or not 0 < int(text) <= limit:
        raise ArgumentTypeError(f"{text!r} is no {what}: a whole number from 1 to {limit}")
    return int(text)


def gpu_count(text: str) -> int:
    """Return a number of GPUs."""
    return _whole(text, "number of GPUs", MAX_GPUS)


def offer_id(text: str) -> int:
    """Return Vast's id of an offer."""
    return _whole(text, "offer id", 10**12)


def lines(text: str) -> int:
    """Return a number of lines or entries."""
    return _whole(text, "number of lines", 1_000_000)


def cursor(text: str) -> int:
    """Return the cursor of an event; 0 is before the first."""
    return 0 if text == "0" else _whole(text, "cursor", 10**15)


def name(text: str) -> str:
    """Return a name as CONTRACT 2 allows it."""
    if not _NAME.fullmatch(text):
        raise ArgumentTypeError(
            f"{text!r} is no name: small letters, digits and '-', at most 41, no '-' first"
        )
    return text


def image(text: str) -> str:
    """Return the reference of a Docker image."""
    if (
        not text
        or text.startswith("-")
        or len(text) > MAX_IMAGE_CHARS
        or _BAD_IN_IMAGE.search(text)
    ):
        raise ArgumentTypeError(
            f"{text[:80]!r} is no image: write it as in `docker pull`, without spaces"
        )
    return text


def path(text: str) -> str:
    """Return a path that is not empty and holds no NUL or line break."""
    if not text.strip() or any(c in text for c in "\0\n\r"):
        raise ArgumentTypeError(f"{text!r} is no path")
    return text


def variable(text: str) -> tuple[str, str]:
    """Return name and value of `K=V`; a bare `K` takes the value it has here."""
    key, equals, value = text.partition("=")
    if not _VARIABLE.fullmatch(key):
        raise ArgumentTypeError(f"{key!r} is no variable: write K=V, or K to pass its value on")
    if equals:
        return key, value
    if key not in os.environ:
        raise ArgumentTypeError(f"variable {key!r} is not set here: write {key}=VALUE")
    return key, os.environ[key]


def heartbeat(text: str) -> tuple[str, float | None]:
    """Return path and interval (seconds, None: not said) of `PATH[:DUR]`."""
    where, colon, every = text.rpartition(":")
    if not colon:
        return path(text), None
    return path(where), duration(every)


def once(changes: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Return what KEY=VALUE words say, by key.

    Raises:
        UsageError: a key is named twice; which value counts must not depend on their order.
    """
    found: dict[str, T] = {}
    for key, value in changes:
        if key in found:
            raise UsageError(f"{key} is named twice", hint="say once which value it shall have")
        found[key] = value
    return found
