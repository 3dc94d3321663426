"""Compare what a machine says of itself with what was ordered (REQUIREMENTS VER-01 to VER-05)."""

from typing import Final

from vastd.core.images import needs_of
from vastd.core.rental import Order, Rental
from vastd.errors import HardwareMismatch
from vastd.jobs.port import BoxFacts

# A card reports slightly less than its nominal size: 24,564 MiB is a "24 GB" card, and Vast
# counts MB of 1000 (REQUIREMENTS SRC-10). Anything above this share is the same card.
_VRAM_SHARE: Final = 0.94  # guess, from published nvidia-smi totals of 23,028 to 24,576 MiB
# Guess: with less a set-up cannot even unpack its packages. A host without quotas shows its own
# disk, so that more cannot be asked for.
_LEAST_FREE_BYTES: Final = 2_000_000_000
_LEAST_FREE_SHARE: Final = 0.1  # of a disk that was ordered small


def check_gpus(rental: Rental, facts: BoxFacts) -> None:
    """Return if the GPUs are those that were ordered, every one of them.

    Raises:
        HardwareMismatch: says what was ordered and what nvidia-smi shows.
    """
    offer, who = rental.order.offer, f"rental {rental.rental_id!r}"
    if len(facts.gpus) < offer.num_gpus:
        raise HardwareMismatch(
            f"{who} ordered {offer.num_gpus} GPUs, nvidia-smi shows {len(facts.gpus)}"
        )
    least = min(gpu.memory_mib for gpu in facts.gpus)
    # The offer counts MB of 1000 for some hosts and MiB for others: compare with the smaller.
    if least < offer.gpu_ram_mb * 1000 * 1000 / (1024 * 1024) * _VRAM_SHARE:
        raise HardwareMismatch(
            f"{who} ordered {offer.gpu_ram_mb} MB per GPU, nvidia-smi shows {least} MiB"
        )
    wanted = _letters(offer.gpu_name)
    for gpu in facts.gpus:
        if not _same_model(wanted, _letters(gpu.name)):
            raise HardwareMismatch(
                f"{who} ordered {offer.gpu_name!r}, nvidia-smi shows {gpu.name!r}"
            )


def check_new(rental: Rental, facts: BoxFacts) -> None:
    """Return if a machine on which nothing ran yet has room, and a driver that fits its image.

    Raises:
        HardwareMismatch: it has not.
    """
    who, order = f"rental {rental.rental_id!r}", rental.order
    least = min(_LEAST_FREE_BYTES, order.disk_gb * 1e9 * _LEAST_FREE_SHARE)
    if facts.disk_free_bytes < least:
        raise HardwareMismatch(
            f"{who} ordered {order.disk_gb:g} GB of disk, {facts.disk_free_bytes / 1e9:.1f} GB are "
            "free before anything was sent"
        )
    need, have = _cuda_needed(order), _number(facts.cuda_version)
    if need is not None and have is not None and have < need:
        raise HardwareMismatch(
            f"{who} needs CUDA {need:g} for {order.image}, nvidia-smi shows {have:g} (driver "
            f"{facts.gpus[0].driver_version or 'unknown'})"
        )


def _cuda_needed(order: Order) -> float | None:
    """Return what the image needs, or the offer promised if the user took less knowingly."""
    need, promised = needs_of(order.image).cuda, order.offer.cuda_max_good
    if need is None or promised is None:
        return need
    return min(need, promised)


def _number(version: str | None) -> float | None:
    try:
        return None if version is None else float(version)
    except ValueError:
        return None


def _letters(name: str) -> list[str]:
    return name.lower().replace("-", " ").replace("_", " ").replace("nvidia", "").split()


def _same_model(wanted: list[str], shown: list[str]) -> bool:
    """Compare by the word with the model number: Vast's "A100 SXM4" is nvidia-smi's
    "A100-SXM4-80GB", its "RTX 4070S Ti" is "GeForce RTX 4070 Ti SUPER"."""
    numbers = [word.rstrip("s") for word in wanted if any(c.isdigit() for c in word)]
    text = "".join(shown)
    return not numbers or numbers[0] in text
