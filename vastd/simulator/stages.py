"""The stages of a simulated contract, what each bills, and what can be wrong with its machine."""

from enum import StrEnum
from typing import Final

from msgspec import Struct


class Stage(StrEnum):
    """Where a contract really is; `actual_status` is what the renter is told of it."""

    ACCEPTED = "accepted"
    CREATED = "created"
    LOADING = "loading"
    RUNNING = "running"
    STOPPING = "stopping"  # still running, a stop was asked for
    REBOOTING = "rebooting"
    RECYCLING = "recycling"
    EXITED = "exited"
    STOPPED = "stopped"  # never had a container
    OFFLINE = "offline"
    DESTROYING = "destroying"
    GONE = "gone"


HOLDS_GPUS: Final = frozenset(
    {
        Stage.ACCEPTED,
        Stage.CREATED,
        Stage.LOADING,
        Stage.RUNNING,
        Stage.STOPPING,
        Stage.REBOOTING,
        Stage.RECYCLING,
    }
)
UP: Final = frozenset({Stage.RUNNING, Stage.STOPPING})
# VAST_API 8.1 says "probably" for reboots: the GPU is kept, so it is billed.
BILLS_GPU: Final = UP | {Stage.REBOOTING, Stage.RECYCLING}
BILLS_NO_DISK: Final = frozenset({Stage.OFFLINE, Stage.GONE})


class Trouble(Struct, kw_only=True):
    """What is wrong with the machine behind a contract. Mutable: faults come and go."""

    boot_stuck: Stage | None = None  # the stage it never leaves
    boot_error: str | None = None  # the message it stays `created` with
    slow_boot: float = 1.0  # factor on the boot time
    wrong_gpu: str | None = None  # nvidia-smi's name of what is really built in
    ssh_refused_until: float = 0.0
    ssh_rejects_keys: bool = False
    attach_heals: bool = False  # an attached key is accepted although others are not
    disk_full: bool = False
    broken_gpu: bool = False
    low_vram: bool = False  # half of the memory it was offered with
    old_driver: bool = False  # nvidia-smi shows a lower CUDA than it was offered with
    small_disk: bool = False  # half of the disk that was ordered
    direct_refused: bool = False  # only the proxy's way leads to sshd
    odd_status: bool = False  # it boots under a word nobody has seen
    outbid_keeps_intent: bool | None = None  # None: as the machine does it
