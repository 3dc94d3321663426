"""What a flawed machine really has, against what it was offered with."""

from typing import Final

from vastd.simulator.contracts import Contract

OLD_CUDA: Final = 10.2  # older than every image of today


def gpu_ram_mb(contract: Contract) -> int:
    """Return the memory nvidia-smi shows of each GPU."""
    return contract.machine.gpu_ram_mb // (2 if contract.trouble.low_vram else 1)


def cuda(contract: Contract) -> float:
    """Return the CUDA version nvidia-smi shows."""
    return OLD_CUDA if contract.trouble.old_driver else contract.machine.cuda_max_good


def disk_gb(contract: Contract) -> float:
    """Return the size of the container's disk."""
    return contract.order.disk_gb / (2 if contract.trouble.small_disk else 1)
